// @ts-check
/** One word per line, with the shares at the left: the stage of a phone. */
import { SIZES, STEP, TALL, nextWidth, shown, spread, wordWidth } from "./layout_parts.js";

/** @import {StageWord} from "../types.js" */
/** @import {Box, Deck, Layout, Rect, Request} from "./layout.js" */
/** @import {Measure} from "./measure.js" */

/** Width of a cell with one head and with several, and of the changes of a pair. */
const ONE = 52;
const SEVERAL = 42;
const CHANGES = 36;

/**
 * One word per line, with the shares at the left.
 * @param {StageWord[]} words
 * @param {Request} request
 * @param {Measure} measure
 * @param {number} width
 * @param {number} top
 * @param {number} heads
 * @returns {{boxes: (Box | null)[], cells: (Rect | null)[][], bottom: number}}
 */
function verticalDeck(words, request, measure, width, top, heads) {
  const size = SIZES.vertical;
  const places = shown(words, request.hidesSpecial);
  const cell = heads > 1 ? SEVERAL : ONE;
  const left = heads * (cell + 2) + 13 + (request.pair ? CHANGES : 0);
  const boxes = places.map((at, place) => {
    const w = Math.min(wordWidth(words[at], measure, size), width - left - 40);
    const h = TALL * size;
    return { at, line: place, x: left, y: top + place * STEP + (STEP - 2 - h) / 2, w, h };
  });
  const cells = Array.from({ length: heads }, (_, row) =>
    spread(
      words.length,
      places,
      places.map((_, place) => ({
        x: row * (cell + 2),
        y: top + place * STEP,
        w: cell,
        h: STEP - 2,
      })),
    ),
  );
  return {
    boxes: spread(words.length, places, boxes),
    cells,
    bottom: top + places.length * STEP,
  };
}

/**
 * @param {Request} request
 * @param {Measure} measure
 * @param {number} width
 * @returns {Layout}
 */
export function vertical(request, measure, width) {
  const { words, columns, pair, heads, next } = request;
  const head = heads > 1 ? 22 : 0;
  const first = verticalDeck(columns ?? words, request, measure, width, head, heads);
  /** @type {Deck[]} */
  const decks = [{ rows: first.boxes, columns: first.boxes, cells: first.cells, isBelow: false }];
  let bottom = first.bottom;
  if (columns) {
    const below = verticalDeck(words, request, measure, width, bottom + 24, 0);
    decks[0].rows = below.boxes;
    bottom = below.bottom;
  } else if (pair) {
    const second = verticalDeck(pair.words, request, measure, width, bottom + 28 + head, heads);
    decks.push({
      rows: second.boxes,
      columns: second.boxes,
      cells: second.cells,
      isBelow: false,
    });
    bottom = second.bottom;
  }
  const size = SIZES.vertical;
  const left = heads * ((heads > 1 ? SEVERAL : ONE) + 2) + 6;
  return {
    shape: "vertical",
    width,
    height: bottom + (next ? 56 : 0),
    size,
    decks,
    rise: 0,
    lines: words.length,
    pitch: STEP,
    next: next
      ? { x: left, y: bottom + 8, w: nextWidth({ ...next, before: null }, measure, size), h: 40 }
      : null,
    isMirrored: false,
  };
}
