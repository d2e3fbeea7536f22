// @ts-check
/** A sentence, or a pair, on one line: words as large as the width allows. */
import {
  EDGE,
  GAPS,
  SIZES,
  TALL,
  WIDE,
  cellsBelow,
  gapBefore,
  nextWidth,
  shown,
  spread,
  wordWidth,
} from "./layout_parts.js";

/** @import {StageWord} from "../types.js" */
/** @import {Deck, Layout, Rect, Request} from "./layout.js" */
/** @import {Measure} from "./measure.js" */

/**
 * Words in one line, slots wide enough for both words of a pair.
 * @param {StageWord[]} words
 * @param {number[]} widths
 * @param {number} size
 * @param {number} gap in font sizes
 * @returns {{xs: number[], total: number}}
 */
function inLine(words, widths, size, gap) {
  let x = 0;
  const xs = words.map((word, place) => {
    x += gapBefore(words[place - 1], word, gap) * size;
    const at = x;
    x += widths[place];
    return at;
  });
  return { xs, total: x };
}

/** Height of the changes between the rows of a pair. */
const BETWEEN = 37;

/**
 * A place in the line, for a word of each sentence.
 * @typedef {{first: number | null, second: number | null, word: StageWord}} Slot
 */

/**
 * Slots of a sentence or a pair: indices into both, and the word that decides gaps.
 * @param {Request} request
 * @returns {Slot[]}
 */
function slotsOf({ words, pair, hidesSpecial }) {
  if (!pair) {
    return shown(words, hidesSpecial).map((first) => ({
      first,
      second: null,
      word: words[first],
    }));
  }
  const isShown = (/** @type {StageWord | null} */ word) =>
    word !== null && !(hidesSpecial && word.kind === "special");
  return pair.aligned
    .map(([first, second]) => {
      const one = first === null ? null : words[first];
      const other = second === null ? null : pair.words[second];
      const word = /** @type {StageWord} */ (one ?? other);
      return { first: isShown(one) ? first : null, second: isShown(other) ? second : null, word };
    })
    .filter(({ first, second }) => first !== null || second !== null);
}

/**
 * A size of type that fits: positions and widths of the slots.
 * @typedef {object} Fit
 * @property {number} size
 * @property {Rect[]} slots
 * @property {boolean[]} isRoomy slots with room for the outline of a changed word
 * @property {number} end right end of the words
 * @property {number} nextWidth
 */

/**
 * The largest type in which everything fits on one line; null if that is too small.
 * @param {Request} request
 * @param {Slot[]} slots
 * @param {Measure} measure
 * @param {number} width
 * @returns {Fit | null}
 */
function fitted(request, slots, measure, width) {
  const { pair, next, least: leastSize = SIZES.least } = request;
  const words = slots.map(({ word }) => word);
  const room = width - 2 * EDGE;
  for (let size = pair ? SIZES.pair : SIZES.line; size >= leastSize; size -= 0.5) {
    const widths = slots.map((slot) => slotWidth(slot, request, measure, size));
    const box = nextWidth(next, measure, size);
    const extra = next ? box + 0.6 * size : 0;
    const least = inLine(words, widths, size, GAPS.least).total + extra;
    if (least > room) continue;
    const most = inLine(words, widths, size, GAPS.most).total + extra;
    const full = most > least ? Math.min(1, (room - least) / (most - least)) : 1;
    const gap = GAPS.least + (GAPS.most - GAPS.least) * full;
    const { xs, total } = inLine(words, widths, size, gap);
    const left = (width - total - extra) / 2;
    const boxes = xs.map((x, place) => ({ x: left + x, y: 0, w: widths[place], h: TALL * size }));
    return {
      size,
      slots: boxes,
      isRoomy: slots.map((slot) => isChanged(slot, request)),
      end: left + total,
      nextWidth: box,
    };
  }
  return null;
}

/**
 * Width of a slot: the wider of its words, and room for the outline of a changed one.
 * @param {Slot} slot
 * @param {Request} request
 * @param {Measure} measure
 * @param {number} size
 */
function slotWidth({ first, second }, { words, pair }, measure, size) {
  const one = first === null ? null : words[first];
  const other = second === null || !pair ? null : pair.words[second];
  const widths = [one, other].map((word) => (word ? wordWidth(word, measure, size) : 0));
  return Math.max(...widths) + (isChanged({ first, second }, { words, pair }) ? 0.5 * size : 0);
}

/**
 * Whether the words of a pair's slot differ.
 * @param {{first: number | null, second: number | null}} slot
 * @param {Pick<Request, "words" | "pair">} request
 */
function isChanged({ first, second }, { words, pair }) {
  if (!pair) return false;
  return first === null || second === null || words[first].text !== pair.words[second].text;
}

/**
 * One sentence of a line: boxes of its words, and rows of cells.
 * @param {Slot[]} slots
 * @param {"first" | "second"} side
 * @param {Fit} fit
 * @param {object} place
 * @param {number} place.count number of words of the sentence
 * @param {number} place.top of the words
 * @param {number} place.rowTop of the first row
 * @param {number} place.rows
 * @param {number} place.rowHeight
 * @returns {Deck}
 */
function deck(slots, side, fit, { count, top, rowTop, rows, rowHeight }) {
  const places = slots.flatMap((slot, place) => (slot[side] === null ? [] : [place]));
  const indices = places.map((place) => /** @type {number} */ (slots[place][side]));
  const boxes = places.map((place, order) => {
    const isRoomy = fit.isRoomy[place];
    return { ...fit.slots[place], at: indices[order], line: 0, y: top, isRoomy };
  });
  const cells = Array.from({ length: rows }, (_, row) => {
    const all = cellsBelow(fit.slots, rowTop + row * (rowHeight + 3), rowHeight, EDGE - 2);
    return spread(
      count,
      indices,
      places.map((place) => all[place]),
    );
  });
  const words = spread(count, indices, boxes);
  return { rows: words, columns: words, cells, isBelow: side === "second" };
}

/**
 * Everything on one line; null if the words would be too small.
 * @param {Request} request
 * @param {Measure} measure
 * @param {number} width
 * @returns {Layout | null}
 */
export function oneLine(request, measure, width) {
  const { words, pair, heads, next } = request;
  const slots = slotsOf(request);
  const fit = fitted(request, slots, measure, width);
  if (!fit) return null;
  const { size } = fit;
  const h = TALL * size;
  const isWide = width >= WIDE;
  const rise = pair ? 128 : isWide ? 196 : 160;
  const top = rise + 4;
  const rowHeight = heads > 1 ? 24 : isWide ? 28 : 26;
  const rowTop = top + h + 3;
  const high = heads * (rowHeight + 3) - 3;
  const rows = { rows: heads, rowHeight };
  const decks = [deck(slots, "first", fit, { count: words.length, top, rowTop, ...rows })];
  let height = rowTop + high;
  if (pair) {
    const second = height + BETWEEN;
    const below = second + high + 3;
    const place = { count: pair.words.length, top: below, rowTop: second, ...rows };
    decks.push(deck(slots, "second", fit, place));
    height = below + h + rise + 4;
  }
  const box = { x: fit.end + 0.5 * size, y: top, w: fit.nextWidth, h };
  return {
    shape: "line",
    width,
    height,
    size,
    decks,
    rise,
    lines: 1,
    pitch: 0,
    next: next ? box : null,
    isMirrored: false,
  };
}
