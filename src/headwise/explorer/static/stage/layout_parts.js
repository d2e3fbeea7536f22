// @ts-check
/** Sizes of words, gaps between them and the cells below them: shared by all layouts. */

/** @import {StageWord} from "../types.js" */
/** @import {Rect, Request} from "./layout.js" */
/** @import {Measure} from "./measure.js" */

/** Words on one line: largest and smallest size, and the largest in a pair. */
export const SIZES = { line: 38, pair: 34, least: 24, wrapped: 31, vertical: 24 };
/** From this width on, arcs and rows are higher. */
export const WIDE = 1100;
/** Height of a word's box, in font sizes. */
export const TALL = 1.42;
/** Distance between lines, and between words that stand one below the other. */
export const LINE = 112;
export const STEP = 44;
/** Gaps in font sizes: the smallest, the largest, before a mark, within a word, more at a chip. */
export const GAPS = { least: 0.5, most: 0.62, mark: 0.08, piece: 0.24, chip: 0.26 };
/** Space between the words' ends and the edges of the row. */
export const EDGE = 7;

/** @param {StageWord} word @param {Measure} measure @param {number} size */
export function wordWidth(word, measure, size) {
  if (word.kind === "special") return measure.label(word.text, 13) + 18;
  return Math.max(measure.word(word.text, size), 0.28 * size);
}

/** @param {StageWord | undefined} before @param {StageWord} word @param {number} gap */
export function gapBefore(before, word, gap) {
  if (!before) return 0;
  const isChip = before.kind === "special" || word.kind === "special";
  if (isChip) return gap + GAPS.chip;
  if (word.space) return gap;
  return word.kind === "mark" || before.kind === "mark" ? GAPS.mark : GAPS.piece;
}

/** A cell with room for any share. */
const ROOMY = 36;

/**
 * Cells that meet halfway between the words of a line. Under a mark that would leave no room for a
 * share: its cell takes some from wider neighbours.
 * @param {Rect[]} boxes in reading order, all of one line
 * @param {number} y
 * @param {number} h
 * @param {number} edge how far the outer cells reach beyond the words
 * @returns {Rect[]}
 */
export function cellsBelow(boxes, y, h, edge) {
  const cells = boxes.map((box, place) => {
    const [before, after] = [boxes[place - 1], boxes[place + 1]];
    const left = before ? (before.x + before.w + box.x) / 2 + 1 : box.x - edge;
    const right = after ? (box.x + box.w + after.x) / 2 - 1 : box.x + box.w + edge;
    return { x: left, y, w: right - left, h };
  });
  cells.forEach((cell, place) => {
    const [before, after] = [cells[place - 1], cells[place + 1]];
    const spare = (/** @type {Rect | undefined} */ other) => Math.max(0, (other?.w ?? 0) - ROOMY);
    const need = Math.max(0, ROOMY - cell.w);
    const right = Math.min(need / 2, spare(after));
    const left = Math.min(need - right, spare(before));
    cell.x -= left;
    cell.w += left + right;
    if (before) before.w -= left;
    if (after) Object.assign(after, { x: after.x + right, w: after.w - right });
  });
  return cells;
}

/**
 * Put values that belong to some words into a list of all words.
 * @template T
 * @param {number} count
 * @param {number[]} places
 * @param {T[]} values
 * @returns {(T | null)[]}
 */
export function spread(count, places, values) {
  /** @type {(T | null)[]} */
  const all = new Array(count).fill(null);
  places.forEach((place, index) => (all[place] = values[index]));
  return all;
}

/** Indices of the words that are shown. @param {StageWord[]} words @param {boolean} hidesSpecial */
export function shown(words, hidesSpecial) {
  const all = words.map((_, at) => at);
  return hidesSpecial ? all.filter((at) => words[at].kind !== "special") : all;
}

/**
 * Width that the box for the next word needs.
 * @param {Request["next"]} next
 * @param {Measure} measure
 * @param {number} size
 */
export function nextWidth(next, measure, size) {
  if (!next) return 0;
  const before = next.before ? measure.word(next.before, 0.7 * size, true) : 0;
  const texts = [next.text, next.before ?? "", next.widest ?? ""];
  const words = texts.map((text) => measure.word(text, size, true) + 0.9 * size);
  return Math.max(2.2 * size, before + 8, ...words);
}
