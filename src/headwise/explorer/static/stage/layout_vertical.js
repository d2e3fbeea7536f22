// @ts-check
/** One word per line, with the shares at the left: the stage of a phone. */
import { SIZES, STEP, TALL, nextWidth, shown, spread, wordWidth } from "./layout_parts.js";

/** @import {StageWord} from "../types.js" */
/** @import {Box, Deck, Layout, Rect, Request} from "./layout.js" */
/** @import {Measure} from "./measure.js" */

/** Width of a cell alone and beside others, and of the changes of a pair. */
const ONE = 52;
const SEVERAL = 42;
const CHANGES = 36;
/** Room above the first word for the names of columns. */
const HEAD = 22;

/** Whether the two rows of a pair fit side by side: only with a single head. */
const isCompared = (/** @type {Request} */ { pair, heads }) => Boolean(pair) && heads === 1;

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
  const isPair = isCompared(request);
  const cell = heads > 1 || isPair ? SEVERAL : ONE;
  const left = (isPair ? 2 : heads) * (cell + 2) + 13 + (isPair ? CHANGES : 0);
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
  const head = heads > 1 || isCompared(request) ? HEAD : 0;
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
    const isPair = isCompared(request);
    // The second sentence's shares are in a column of their own, in both sentences.
    const moved = (/** @type {Rect | null} */ cell) => cell && { ...cell, x: SEVERAL + 2 };
    const cells = isPair ? second.cells.map((row) => row.map(moved)) : second.cells;
    decks.push({ rows: second.boxes, columns: second.boxes, cells, isBelow: false });
    if (isPair) {
      const partner = new Map(pair.aligned.map(([one, other]) => [other, one]));
      decks[0].beside = pair.words.map((_, at) => moved(first.cells[0][partner.get(at) ?? -1]));
    }
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
