// @ts-check
/** How each word looks: the chosen one is a pill, the ones it looks at have colour. */
import { hasResting, linksOf } from "./arcs.js";
import { GROUNDS } from "./colours.js";
import { isRestingRole } from "./links.js";
import { rounded } from "./numbers.js";
import { isOverlay } from "./picture.js";

/** @import {Theme} from "./colours.js" */
/** @import {Layout} from "./layout.js" */
/** @import {Picture, PictureHead, Side} from "./picture.js" */

/**
 * @typedef {object} WordState
 * @property {"plain" | "quiet" | "seen" | "target" | "chosen"} state
 * @property {string} colour of the text
 * @property {string | null} fill of the pill
 * @property {string | null} outline of a locked word that is not the chosen one
 * @property {string | null} chip colour of a special token's outline
 * @property {boolean} isDashed the word that a swap has changed
 * @property {{width: number, colour: string} | null} ring share of the word's own attention
 */

/** From this share on, in whole percents, a target has the colour of the role. */
const COLOURED = 20;

/**
 * Colour in which a head writes words and shares. The grey of a head without a role is for shapes:
 * a linked word in it would be paler than the others.
 * @param {PictureHead} head
 * @param {Theme} theme
 */
export const wordColour = ({ role, colour }, theme) =>
  role === null ? GROUNDS[theme].text : colour;

/**
 * Whether a word of a pair differs from its partner.
 * @param {Picture} picture
 * @param {Side} side
 * @param {number} at
 */
export function isChanged(picture, side, at) {
  const { pair, words } = picture;
  if (!pair) return false;
  const couple = pair.aligned.find((both) => both[side.index] === at);
  if (!couple) return true;
  const [first, second] = couple;
  if (first === null || second === null) return true;
  return words[first].text !== pair.words[second].text;
}

/**
 * Colours of the words on which an arc lands.
 * @param {Picture} picture
 * @param {Side} side
 * @param {Layout["shape"]} shape
 * @returns {Map<number, {state: "seen" | "target", colour: string}>}
 */
function targetColours(picture, side, shape) {
  /** @type {Map<number, {state: "seen" | "target", colour: string}>} */
  const colours = new Map();
  const { theme } = picture;
  const { text } = GROUNDS[theme];
  /** @type {(head: PictureHead) => {state: "target", colour: string}} */
  const target = (head) => ({ state: "target", colour: wordColour(head, theme) });
  for (const head of side.heads) {
    const links = linksOf(picture, side, head);
    if (!links) continue;
    for (const { to } of [...links.drawn, ...(hasResting(picture, shape) ? links.resting : [])])
      if (!colours.has(to)) colours.set(to, { state: "seen", colour: text });
    if (picture.target !== null) continue;
    links.drawn.forEach(({ to, share }, place) => {
      if (place === 0 || rounded(share) >= COLOURED) colours.set(to, target(head));
    });
  }
  const only = picture.target;
  const [first] = side.heads;
  if (only !== null) return new Map([[only, target(first)]]);
  return colours;
}

/**
 * States of a sentence's words.
 * @param {Picture} picture
 * @param {Side} side
 * @param {"rows" | "columns"} axis the words that look, or those looked at
 * @param {Layout["shape"]} shape
 * @returns {WordState[]}
 */
export function deckWords(picture, side, axis, shape) {
  const { theme, locked, isLookedAt } = picture;
  const grounds = GROUNDS[theme];
  const [head] = side.heads;
  const strong = isOverlay(picture) ? grounds.text : (head?.colour ?? grounds.text);
  const answers = isLookedAt ? "rows" : "columns";
  const targets =
    side.isCross && axis !== answers ? new Map() : targetColours(picture, side, shape);
  const isResting = side.heads.length === 1 && isRestingRole(head.role);
  const isUnchosen = picture.word === null;
  return side[axis].map((word, at) => {
    const isAsking = !side.isCross || axis !== answers;
    const isChosen = isAsking && at === side.word;
    const isLocked = side.index === 0 && isAsking && at === locked && !isChosen;
    const isDashed = isChanged(picture, side, at);
    const colour = targets.get(at)?.colour;
    const isSpecial = word.kind === "special";
    const quiet = isSpecial ? grounds.soft : grounds.quiet;
    const plain = isDashed || (isUnchosen && !isSpecial) ? grounds.text : quiet;
    const chip = isResting ? strong : grounds.line;
    const own = colour && isSpecial && !isResting ? quiet : colour;
    return {
      state: isChosen ? "chosen" : (targets.get(at)?.state ?? (isUnchosen ? "plain" : "quiet")),
      colour: isChosen ? grounds.ground : isSpecial && isResting ? strong : (own ?? plain),
      fill: isChosen ? strong : null,
      outline: isLocked ? strong : null,
      chip: isSpecial ? chip : null,
      isDashed,
      ring: isChosen ? ringOf(picture, side) : null,
    };
  });
}

/** @param {Picture} picture @param {Side} side */
function ringOf(picture, side) {
  if (picture.target !== null && picture.target !== side.word) return null;
  /** @type {{width: number, colour: string} | null} */
  let ring = null;
  for (const head of side.heads) {
    const self = linksOf(picture, side, head)?.self;
    const width = self ? Math.max(1.5, 9 * self.share) : 0;
    if (width > (ring?.width ?? 0)) ring = { width, colour: head.colour };
  }
  return ring;
}
