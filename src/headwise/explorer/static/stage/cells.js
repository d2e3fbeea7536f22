// @ts-check
/** The rows of shares under the words, letters beside them, and changes between two sentences. */
import { GROUNDS, ink, mix } from "./colours.js";
import { LINE } from "./layout_parts.js";
import { DRAWN, isRestingRole } from "./links.js";
import { percent, points, rounded } from "./numbers.js";
import { isOverlay } from "./picture.js";
import { isBanded } from "./tabs.js";

/** @import {Theme} from "./colours.js" */
/** @import {Deck, Layout, Rect} from "./layout.js" */
/** @import {Measure} from "./measure.js" */
/** @import {Picture, PictureHead, Side} from "./picture.js" */

/**
 * @typedef {object} CellLook
 * @property {string} key
 * @property {string} fill
 * @property {string} text "" where the number does not fit
 * @property {string} ink
 * @property {boolean} isBold
 * @property {number} size font size of the number
 */

/** @typedef {Rect & CellLook} Cell */

/**
 * A letter beside a row, or a change between two rows.
 * @typedef {object} Note
 * @property {string} key
 * @property {number} x middle
 * @property {number} y middle
 * @property {string} text
 * @property {string} mark subscript
 * @property {string} colour
 * @property {number} size
 */

/**
 * Colour of small text about a head: the grey of heads without a role is for shapes.
 * @param {PictureHead} head
 * @param {Theme} theme
 */
export const textColour = ({ role, colour }, theme) =>
  role === null ? GROUNDS[theme].soft : colour;

/** Changes of this many points or more are printed. */
export const CHANGED = 3;
/** Smallest font size of a share. */
const SMALLEST = 10;
/** Printed for words that the chosen word cannot see. */
export const UNSEEN = "\u2013";

/**
 * Whether a word is out of a causal model's sight.
 * @param {Picture} picture
 * @param {Side} side
 * @param {number} column
 * @param {number} share
 */
export function isUnseen({ restsOnFirst, isLookedAt }, { word, isCross }, column, share) {
  if (!restsOnFirst || isCross || word === null || share !== 0) return false;
  return isLookedAt ? column < word : column > word;
}

/**
 * Whether the first key has been left out: its share is then set to 0 for every word.
 * @param {PictureHead | undefined} head
 * @param {number} column
 * @param {number} share
 */
const isDropped = (head, column, share) =>
  column === 0 && share === 0 && (head?.row(0)?.[0] ?? 0) === 0;

/**
 * Colour of a column's cells at full share.
 * @param {Picture} picture
 * @param {Side} side
 * @param {PictureHead} head
 * @param {number} column
 */
function columnColour(picture, side, head, column) {
  const isSpecial = side.columns[column].kind === "special";
  const rests = isSpecial || (picture.restsOnFirst && !side.isCross && column === 0);
  const isStory = picture.isLookedAt || isRestingRole(head.role);
  return rests && !isStory ? GROUNDS[picture.theme].rest : head.colour;
}

/**
 * Whether something is far out of the window, or where tabs have their room.
 * @param {Rect} rect
 * @param {Layout} layout
 */
function isOut({ y, h }, { view }) {
  if (!view) return false;
  return isBanded(y, view) || y + h < view.top - LINE || y > view.bottom + LINE;
}

/**
 * The largest size at which a number fits its cell; null if it never does.
 * @param {string} text
 * @param {number} weight
 * @param {number} most
 * @param {number} width
 * @param {Measure} measure
 */
function fittingSize(text, weight, most, width, measure) {
  for (let size = most; size >= SMALLEST; size -= 0.5)
    if (measure.label(text, size, weight) + 2 <= width) return size;
  return null;
}

/**
 * Cells of one sentence; none while no word is chosen.
 * @param {Picture} picture
 * @param {Side} side
 * @param {Deck} deck
 * @param {Layout} layout
 * @param {Measure} measure
 * @returns {Cell[]}
 */
export function deckCells(picture, side, deck, layout, measure) {
  const at = side.word;
  if (at === null || (side.isCross && picture.isLookedAt)) return [];
  const { theme } = picture;
  const size = layout.shape === "wrapped" ? 12 : 13;
  const least = layout.shape === "wrapped" && !picture.least ? 1 : 0;
  return deck.cells.flatMap((row, slot) => {
    const head = /** @type {PictureHead | undefined} */ (side.heads[slot]);
    const shares = head?.row(at) ?? null;
    if (!head) return [];
    return row.flatMap((rect, column) => {
      if (!rect || isOut(rect, layout)) return [];
      const share = shares ? shares[column] : 0;
      const fill = mix(theme, columnColour(picture, side, head, column), share);
      const isBold = rounded(share) >= DRAWN;
      const isHidden = Boolean(shares) && isUnseen(picture, side, column, share);
      const isQuiet = !shares || rounded(share) < least;
      const isNothing = isQuiet || (!picture.isLookedAt && isDropped(head, column, share));
      const text = isHidden ? UNSEEN : isNothing ? "" : percent(share);
      const own = fittingSize(text, isBold ? 600 : 400, size, rect.w, measure);
      const key = `${side.index} ${slot} ${column}`;
      const look = { key, fill, ink: ink(fill, theme, share), isBold, size: own ?? size };
      return [{ ...rect, ...look, text: own ? text : "" }];
    });
  });
}

/**
 * The second sentence's shares beside the first one's words, so that both are in sight at once.
 * @param {Picture} picture
 * @param {Side[]} sides
 * @param {Layout} layout
 * @param {Measure} measure
 * @returns {Cell[]}
 */
export function cellsBeside(picture, sides, layout, measure) {
  const { beside } = layout.decks[0];
  if (!beside || !sides[1]) return [];
  const deck = { ...layout.decks[1], cells: [beside] };
  const cells = deckCells(picture, sides[1], deck, layout, measure);
  return cells.map((cell) => ({ ...cell, key: `beside ${cell.key}` }));
}

/**
 * Names of the two columns of shares in a pair.
 * @param {Layout} layout
 * @param {string} colour
 * @returns {Note[]}
 */
function columnNames({ decks }, colour) {
  const [before, after] = [decks[0].cells[0], decks[0].beside ?? []];
  return [before, after].flatMap((column, at) => {
    const cell = column.find((each) => each);
    const text = at ? "after" : "before";
    if (!cell) return [];
    const y = Math.min(...column.map((each) => each?.y ?? Infinity)) - 11;
    return [{ key: text, x: cell.x + cell.w / 2, y, text, mark: "", colour, size: 12 }];
  });
}

/**
 * Letters of the heads beside their rows, if there are several.
 * @param {Picture} picture
 * @param {Side} side
 * @param {Deck} deck
 * @param {Layout} layout
 * @returns {Note[]}
 */
export function deckLetters(picture, side, deck, layout) {
  if (!isOverlay(picture) || side.word === null) return [];
  return deck.cells.flatMap((row, slot) => {
    const head = /** @type {PictureHead | undefined} */ (side.heads[slot]);
    if (!head) return [];
    /** @type {Map<number, Rect>} */
    const lines = new Map();
    for (const cell of row) if (cell && !isOut(cell, layout)) lines.set(cell.y, cell);
    const firsts = [...lines.values()];
    const isSide = layout.shape !== "vertical";
    const shown = isSide ? firsts : firsts.slice(0, 1);
    const isName = head.letter.length > 1;
    const away = isName ? 4 + 3.6 * head.letter.length : 13;
    return shown.map((cell, line) => ({
      key: `${side.index} letter ${slot} ${line}`,
      x: isSide ? (layout.isMirrored ? layout.width + away : -away) : cell.x + cell.w / 2,
      y: isSide ? cell.y + cell.h / 2 : (row.find((each) => each)?.y ?? 0) - 12,
      text: head.letter,
      mark: head.mark,
      colour: textColour(head, picture.theme),
      size: isName ? 12 : 13,
    }));
  });
}

/**
 * Signed changes of a pair, between the two rows or (if they are apart) in the second one's cells.
 * @param {Picture} picture
 * @param {Layout} layout
 * @returns {Note[]}
 */
export function deckChanges(picture, layout) {
  const { pair, word, heads, theme } = picture;
  if (!pair || word === null || pair.word === null || heads.length !== 1) return [];
  const [before, after] = [heads[0].row(word), pair.heads[0]?.row(pair.word)];
  if (!before || !after) return [];
  const { beside } = layout.decks[0];
  const names = beside ? columnNames(layout, GROUNDS[theme].soft) : [];
  const notes = pair.aligned.flatMap(([first, second]) => {
    if (first === null || second === null) return [];
    const change = after[second] - before[first];
    const cell = beside ? beside[second] : layout.decks[1].cells[0][second];
    const above = layout.decks[0].cells[0][first];
    if (!cell || !above || Math.abs(rounded(Math.abs(change))) < CHANGED) return [];
    const isBetween = layout.shape === "line";
    const isSide = layout.shape === "vertical";
    const outer = layout.isMirrored ? cell.x - 24 : cell.x + cell.w + 24;
    const x = isSide ? outer : cell.x + cell.w / 2;
    const foot = isSide ? cell.y + cell.h / 2 : cell.y + cell.h + 12;
    return [
      {
        key: `change ${first}`,
        x,
        y: isBetween ? (above.y + above.h + cell.y) / 2 : foot,
        text: points(change),
        mark: "",
        colour: change < 0 ? textColour(heads[0], theme) : GROUNDS[theme].text,
        size: isBetween ? 16 : 13,
      },
    ];
  });
  return [...names, ...notes];
}
