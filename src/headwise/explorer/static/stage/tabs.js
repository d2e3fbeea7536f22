// @ts-check
/**
 * Tabs at the edges of the window on a long text: where links lead that leave the window.
 *
 * In: the far ends of arcs. Out: a tab for each word out of sight, as wide as its text.
 */
import { percent } from "./numbers.js";

/** @import {Box, Rect, View} from "./layout.js" */
/** @import {Measure} from "./measure.js" */

/**
 * @typedef {object} Tab
 * @property {number} at the word out of sight
 * @property {string} word
 * @property {string} rest " 47%, 5 lines up"
 * @property {string} colour
 * @property {boolean} isAbove
 * @property {Rect} rect
 */

/**
 * A word out of sight and the share that goes there; null for the chosen word itself.
 * @typedef {object} Far
 * @property {Box} box
 * @property {string} word
 * @property {number | null} share
 * @property {number} away lines from the chosen word (or from the window), below is positive
 * @property {string} colour
 * @property {number} [x] of the chosen word: a tab close to it keeps the arc off the text
 */

/** Height of a tab, and the space between two. */
export const TAB = { height: 24, apart: 6 };
/** Widest tab, and rows of tabs at one edge: between lines there is room for one. */
const WIDEST = 240;
const ROWS = { line: 1, word: 2 };
/** Height of the line in a band that says how much is out of sight. */
const COUNTED = 24;
/** Height of a band for tabs, with its line. */
export const BAND = COUNTED + ROWS.word * (TAB.height + 2) + 4;
/** A word or cell that begins so close to the end of what is in sight is not whole. */
const WHOLE = 36;
/** Width at the edge's right end that says how much is out of sight. */
const COUNT = 110;

/**
 * Whether a word is in sight.
 * @param {Rect} box
 * @param {View | null} view
 */
export const isInSight = (box, view) =>
  !view || (box.y >= view.top - 6 && box.y + box.h <= view.bottom + 6);

/** Whether a word or cell begins above what is in sight. @param {number} y @param {View} view */
export const isUnder = (y, view) => y < view.top - 6;

/** Whether a word or cell is where tabs have their room. @param {number} y @param {View} view */
export const isBanded = (y, view) =>
  (view.edge !== undefined && isUnder(y, view)) ||
  (view.foot !== undefined && y > view.bottom - WHOLE);

/**
 * @param {number | null} share
 * @param {number} away
 * @param {string} unit
 */
function restOf(share, away, unit) {
  const count = Math.abs(away);
  const where = `${count} ${unit}${count === 1 ? "" : "s"} ${away < 0 ? "up" : "down"}`;
  return `${share === null ? "" : ` ${percent(share)}`}, ${where}`;
}

/**
 * A free place for a tab near `x`; null if its edge is full.
 * @param {Rect[]} taken
 * @param {number} x middle
 * @param {number} w
 * @param {boolean} isAbove
 * @param {View} view
 * @param {number} width of the stage
 * @param {number} rows
 * @returns {Rect | null}
 */
function freePlace(taken, x, w, isAbove, view, width, rows) {
  for (let row = 0; row < rows; row++) {
    const step = row * (TAB.height + 2);
    const { top, bottom, edge, foot } = view;
    const first = edge === undefined ? top : edge + COUNTED;
    const last = foot === undefined ? bottom : foot - COUNTED;
    const y = isAbove ? first + step : last - TAB.height - step;
    const inRow = taken.filter((other) => other.y === y);
    const ends = inRow.flatMap((other) => [other.x - TAB.apart - w, other.x + other.w + TAB.apart]);
    const free = [x - w / 2, ...ends]
      .map((left) => Math.max(0, Math.min(width - w, left)))
      .filter((left) => {
        const isApart = (/** @type {Rect} */ other) =>
          left >= other.x + other.w + TAB.apart - 1 || left + w <= other.x - TAB.apart + 1;
        return inRow.every(isApart);
      })
      .sort((one, other) => Math.abs(one + w / 2 - x) - Math.abs(other + w / 2 - x));
    if (free.length) return { x: free[0], y, w, h: TAB.height };
  }
  return null;
}

/**
 * Tabs for words out of sight, the strongest first.
 * @param {Far[]} far
 * @param {View} view
 * @param {number} width
 * @param {"line" | "word"} unit of distances
 * @param {Measure} measure
 * @returns {(Tab | null)[]} one per word; null where its edge is full
 */
export function placeTabs(far, view, width, unit, measure) {
  /** @type {Rect[]} */
  const taken = [view.top, view.bottom - TAB.height].map((y) => {
    return { x: width - COUNT, y, w: COUNT, h: TAB.height };
  });
  return far.map(({ box, word, share, away, colour, x = box.x + box.w / 2 }) => {
    const rest = restOf(share, away, unit);
    const text = measure.word(word, 15, true) + measure.label(rest, 13);
    const w = Math.min(WIDEST, Math.ceil(text) + 22);
    const isAbove = box.y < view.top;
    const rect = freePlace(taken, x, w, isAbove, view, width, ROWS[unit]);
    if (!rect) return null;
    taken.push(rect);
    return { at: box.at, word, rest, colour, isAbove, rect };
  });
}
