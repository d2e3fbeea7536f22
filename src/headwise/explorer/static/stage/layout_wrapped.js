// @ts-check
/** Words on several lines, with a row of cells under each. */
import {
  GAPS,
  LINE,
  SIZES,
  TALL,
  cellsBelow,
  gapBefore,
  nextWidth,
  shown,
  spread,
  wordWidth,
} from "./layout_parts.js";

/** @import {StageWord} from "../types.js" */
/** @import {Box, Deck, Layout, Rect, Request} from "./layout.js" */
/** @import {Measure} from "./measure.js" */

/** Distance between lines with as many rows of cells. @param {number} heads */
const pitchOf = (heads) => LINE + Math.max(0, heads - 1) * (ROW + 2);

/**
 * Words broken into lines.
 * @param {StageWord[]} words
 * @param {number[]} places indices of the words that are shown
 * @param {Measure} measure
 * @param {number} width
 * @param {number} size
 * @param {number} gapSize in font sizes
 * @returns {{at: number, line: number, x: number, w: number}[]}
 */
function broken(words, places, measure, width, size, gapSize) {
  let [x, line] = [3, 0];
  return places.map((at, place) => {
    const word = words[at];
    const w = Math.min(wordWidth(word, measure, size), width - 6);
    const before = place ? words[places[place - 1]] : undefined;
    const gap = gapBefore(before, word, gapSize) * size;
    const after = words[places[place + 1]];
    const tail = after && after.kind === "mark" && !after.space ? 0.36 * size : 0;
    if (place && x + gap + w + tail > width - 3 && (word.space || x + gap + w > width - 3)) {
      [x, line] = [3, line + 1];
    } else {
      x += gap;
    }
    const box = { at, line, x, w };
    x += w;
    return box;
  });
}

/** Height of a row of cells. */
const ROW = 18;
/** Height of the highest arc on a line, which stays clear of the row above. */
const RISE = 46;
/** Gaps to choose from: a narrower one is taken if it saves a line. */
const TRIED = [GAPS.least, 0.46, 0.42];

/**
 * Words broken into as few lines as possible.
 * @param {StageWord[]} words
 * @param {number[]} places
 * @param {Measure} measure
 * @param {number} width
 * @param {number} size
 */
function fewestLines(words, places, measure, width, size) {
  const tried = TRIED.map((gap) => broken(words, places, measure, width, size, gap));
  const counts = tried.map((boxes) => boxes.at(-1)?.line ?? 0);
  return tried[counts.indexOf(Math.min(...counts))];
}

/**
 * Words on several lines, with a row of cells under each.
 * @param {StageWord[]} words
 * @param {Request} request
 * @param {Measure} measure
 * @param {number} width
 * @param {number} top
 * @param {number} firstLine
 * @param {number} heads
 * @returns {{boxes: (Box | null)[], cells: (Rect | null)[][], lines: number, bottom: number}}
 */
function wrappedDeck(words, request, measure, width, top, firstLine, heads) {
  const size = SIZES.wrapped;
  const h = TALL * size;
  const rowHeight = ROW;
  const pitch = pitchOf(heads);
  const places = shown(words, request.hidesSpecial);
  const boxes = fewestLines(words, places, measure, width, size).map((box) => ({
    ...box,
    line: box.line + firstLine,
    y: top + box.line * pitch,
    h,
  }));
  const lines = (boxes.at(-1)?.line ?? firstLine) + 1 - firstLine;
  const cells = Array.from({ length: heads }, (_, row) => {
    const offset = h + 1 + row * (rowHeight + 2);
    const all = Array.from({ length: lines }, (_, line) => {
      const own = boxes.filter((box) => box.line === line + firstLine);
      return cellsBelow(own, top + line * pitch + offset, rowHeight, 3);
    }).flat();
    return spread(words.length, places, all);
  });
  return {
    boxes: spread(words.length, places, boxes),
    cells,
    lines,
    bottom: top + lines * pitch,
  };
}

/**
 * Several lines; a pair's second sentence, or the looking words of cross-attention, below.
 * @param {Request} request
 * @param {Measure} measure
 * @param {number} width
 * @returns {Layout}
 */
export function wrapped(request, measure, width) {
  const { words, columns, pair, heads } = request;
  const top = 46;
  /** @type {Deck[]} */
  let decks;
  let [lines, bottom] = [0, 0];
  if (columns) {
    const above = wrappedDeck(columns, request, measure, width, top, 0, heads);
    const below = wrappedDeck(words, request, measure, width, above.bottom, above.lines, 0);
    decks = [{ rows: below.boxes, columns: above.boxes, cells: above.cells, isBelow: false }];
    [lines, bottom] = [above.lines + below.lines, below.bottom - 56];
  } else {
    const first = wrappedDeck(words, request, measure, width, top, 0, heads);
    decks = [{ rows: first.boxes, columns: first.boxes, cells: first.cells, isBelow: false }];
    [lines, bottom] = [first.lines, first.bottom - 34];
    if (pair) {
      const start = first.bottom + 30;
      const second = wrappedDeck(pair.words, request, measure, width, start, 0, heads);
      decks.push({
        rows: second.boxes,
        columns: second.boxes,
        cells: second.cells,
        isBelow: false,
      });
      [lines, bottom] = [first.lines + second.lines, second.bottom - 20];
    }
  }
  const box = nextBox(request, decks[0].rows, measure, width);
  return {
    shape: "wrapped",
    width,
    height: Math.max(bottom, box ? box.y + box.h + 8 : 0),
    size: SIZES.wrapped,
    decks,
    rise: RISE,
    lines,
    pitch: pitchOf(heads),
    next: box,
    isMirrored: false,
  };
}

/**
 * The box for the next word, after the last one or on a line of its own.
 * @param {Request} request
 * @param {(Box | null)[]} boxes
 * @param {Measure} measure
 * @param {number} width
 * @returns {Rect | null}
 */
function nextBox({ next }, boxes, measure, width) {
  const last = boxes.filter((box) => box !== null).at(-1);
  if (!next || !last) return null;
  const w = nextWidth(next, measure, SIZES.wrapped);
  const x = last.x + last.w + 0.5 * SIZES.wrapped;
  const fits = x + w <= width;
  return { x: fits ? x : 3, y: last.y + (fits ? 0 : LINE - 20), w, h: last.h };
}
