// @ts-check
/** What the stage is asked to show, and questions about it that several modules have. */
import { isRestingRole, restingPlaces } from "./links.js";

/** @import {StageWord} from "../types.js" */
/** @import {Theme} from "./colours.js" */

/**
 * One head on the stage.
 * @typedef {object} PictureHead
 * @property {string} name "L3H1"
 * @property {string | null} role the role that is shown; null if there is none
 * @property {string} letter "C"
 * @property {string} colour "#rrggbb" in the picture's theme
 * @property {string} mark "", or a subscript for the second head of one role
 * @property {(at: number) => ArrayLike<number> | null} row shares of the attention of `at` by
 *   column, or with `isLookedAt` what each word gives to `at`; null: not known yet
 * @property {boolean} isOff switched off: arcs are hollow
 */

/**
 * The second sentence of a pair.
 * @typedef {object} PictureSecond
 * @property {StageWord[]} words
 * @property {PictureHead[]} heads the same heads, reading this sentence
 * @property {(number | null)[][]} aligned pairs of an index in the first and in this sentence
 * @property {number | null} word
 */

/**
 * @typedef {object} Picture
 * @property {StageWord[]} words
 * @property {StageWord[] | null} columns words looked at, if they are others (cross-attention)
 * @property {PictureHead[]} heads 1 to 4
 * @property {number | null} word whose links are drawn; null: no word is chosen
 * @property {number | null} locked
 * @property {number | null} target draw only the link to this word
 * @property {boolean} restsOnFirst causal model: the first token is a resting place
 * @property {boolean} hidesSpecial
 * @property {boolean} isLookedAt arcs come from the words that look at `word`
 * @property {Theme} theme
 * @property {PictureSecond | null} pair
 * @property {{text: string, before: string | null} | null} next the next word, at the end
 * @property {"auto" | "vertical"} [shape]
 * @property {number} [least] smallest size of words on one line, if smaller than usual; then every
 *   share is printed on several lines, too
 * @property {number} [rows] rows of shares that have room below the words, if more than heads
 * @property {boolean} [isValued] shares are weighed by the lengths of values
 */

/**
 * One sentence of a picture.
 * @typedef {object} Side
 * @property {StageWord[]} rows words that look
 * @property {StageWord[]} columns words that are looked at
 * @property {PictureHead[]} heads
 * @property {number | null} word
 * @property {boolean} isCross rows and columns are different words
 * @property {number} index 0, or 1 for the second sentence of a pair
 */

/**
 * The sentences of a picture: one, or two for a pair.
 * @param {Picture} picture
 * @returns {Side[]}
 */
export function sidesOf(picture) {
  const { words, columns, heads, word, pair } = picture;
  const first = { rows: words, columns: columns ?? words, heads, word, isCross: columns !== null };
  /** @type {Side[]} */
  const sides = [{ ...first, index: 0 }];
  if (pair) {
    const { words: rows, heads: others, word: other } = pair;
    sides.push({ rows, columns: rows, heads: others, word: other, isCross: false, index: 1 });
  }
  return sides;
}

/**
 * Resting places that a head's links treat apart; none for a head whose story is resting.
 * @param {Picture} picture
 * @param {Side} side
 * @param {PictureHead} head
 * @returns {boolean[]}
 */
export function restsOf(picture, side, head) {
  if (isRestingRole(head.role)) return [];
  return restingPlaces(side.columns, picture.restsOnFirst && !side.isCross);
}

/**
 * Which words a side's links lead to: those looked at, or those that look.
 * @param {Picture} picture
 * @param {Side} side
 */
export const answersOf = (picture, side) => (picture.isLookedAt ? side.rows : side.columns);

/**
 * Words that are not shown.
 * @param {Picture} picture
 * @param {StageWord[]} words
 * @returns {boolean[]}
 */
export const hiddenOf = (picture, words) =>
  words.map((word) => picture.hidesSpecial && word.kind === "special");

/**
 * Whether several heads are overlaid.
 * @param {Picture} picture
 */
export const isOverlay = (picture) => picture.heads.length > 1;

/**
 * The picture with the same word chosen in both sentences of a pair.
 * @param {Picture} picture
 * @returns {Picture}
 */
export function inStep(picture) {
  const { pair, word } = picture;
  const partner = pair?.aligned.find(([first]) => first === word)?.[1] ?? null;
  if (!pair || word === null || partner === null) return picture;
  return { ...picture, pair: { ...pair, word: partner } };
}
