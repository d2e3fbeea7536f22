// @ts-check
/**
 * Where words and cells stand: on one line, on several, or one below the other.
 *
 * In: words, the width, and a way to measure text. Out: boxes in units of 1/16 rem. Depends on the
 * text, the width and the font only, never on what is chosen: nothing moves when one points.
 */

/** @import {StageWord} from "../types.js" */
/** @import {Measure} from "./measure.js" */

/**
 * @typedef {object} Box a word
 * @property {number} at its index
 * @property {number} line
 * @property {number} x
 * @property {number} y
 * @property {number} w
 * @property {number} h
 */

/** @typedef {{x: number, y: number, w: number, h: number}} Rect */

/**
 * One sentence on the stage, or two for cross-attention.
 * @typedef {object} Deck
 * @property {(Box | null)[]} rows words that look; null for one that is not shown
 * @property {(Box | null)[]} columns words that are looked at; the same as `rows` unless they differ
 * @property {(Rect | null)[][]} cells by head, then by column
 * @property {boolean} isBelow whether arcs hang below the words
 */

/**
 * @typedef {object} Layout
 * @property {"line" | "wrapped" | "vertical"} shape
 * @property {number} width
 * @property {number} height
 * @property {number} size font size of the words
 * @property {Deck[]} decks one, or two for a pair
 * @property {number} rise height of the highest arc, Hmax
 * @property {number} lines
 * @property {Rect | null} next the box at the end of the sentence
 * @property {boolean} isMirrored right-to-left text
 */

/**
 * @typedef {object} Request
 * @property {StageWord[]} words
 * @property {StageWord[] | null} columns
 * @property {number} heads number of rows of cells
 * @property {boolean} hidesSpecial
 * @property {{words: StageWord[], aligned: (number | null)[][]} | null} pair
 * @property {{text: string, before: string | null} | null} next
 * @property {"auto" | "vertical"} shape
 */

/** Words on one line: largest and smallest size, and the largest in a pair. */
export const SIZES = { line: 38, pair: 34, least: 24, wrapped: 31, vertical: 24 };
/** Below this width words stand one below the other. */
export const NARROW = 560;
/** From this width on, arcs and rows are higher. */
const WIDE = 1100;
/** Height of a word's box, in font sizes. */
const TALL = 1.42;
/** Distance between lines, and between words that stand one below the other. */
export const LINE = 112;
export const STEP = 44;
/** Gaps in font sizes: the smallest, the largest, before a mark, within a word, more at a chip. */
const GAPS = { least: 0.5, most: 0.62, mark: 0.08, piece: 0.24, chip: 0.26 };
/** Space between the words' ends and the edges of the row. */
const EDGE = 7;

/** @param {StageWord} word @param {Measure} measure @param {number} size */
function wordWidth(word, measure, size) {
  if (word.kind === "special") return measure.label(word.text, 13) + 18;
  return Math.max(measure.word(word.text, size), 0.28 * size);
}

/** @param {StageWord | undefined} before @param {StageWord} word @param {number} gap */
function gapBefore(before, word, gap) {
  if (!before) return 0;
  const isChip = before.kind === "special" || word.kind === "special";
  if (isChip) return gap + GAPS.chip;
  if (word.space) return gap;
  return word.kind === "mark" || before.kind === "mark" ? GAPS.mark : GAPS.piece;
}

/** @param {string} text whether its first letter is of a right-to-left script */
export function isRightToLeft(text) {
  const letter = /\p{L}/u.exec(text)?.[0];
  return (
    letter !== undefined && /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}]/u.test(letter)
  );
}

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

/**
 * Cells that meet halfway between the words of a line.
 * @param {Rect[]} boxes in reading order, all of one line
 * @param {number} y
 * @param {number} h
 * @param {number} edge how far the outer cells reach beyond the words
 * @returns {Rect[]}
 */
function cellsBelow(boxes, y, h, edge) {
  return boxes.map((box, place) => {
    const [before, after] = [boxes[place - 1], boxes[place + 1]];
    const left = before ? (before.x + before.w + box.x) / 2 + 1 : box.x - edge;
    const right = after ? (box.x + box.w + after.x) / 2 - 1 : box.x + box.w + edge;
    return { x: left, y, w: right - left, h };
  });
}

/**
 * Put values that belong to some words into a list of all words.
 * @template T
 * @param {number} count
 * @param {number[]} places
 * @param {T[]} values
 * @returns {(T | null)[]}
 */
function spread(count, places, values) {
  /** @type {(T | null)[]} */
  const all = new Array(count).fill(null);
  places.forEach((place, index) => (all[place] = values[index]));
  return all;
}

/** Indices of the words that are shown. @param {StageWord[]} words @param {boolean} hidesSpecial */
function shown(words, hidesSpecial) {
  const all = words.map((_, at) => at);
  return hidesSpecial ? all.filter((at) => words[at].kind !== "special") : all;
}

/**
 * Width that the box for the next word needs.
 * @param {Request["next"]} next
 * @param {Measure} measure
 * @param {number} size
 */
function nextWidth(next, measure, size) {
  if (!next) return 0;
  const before = next.before ? measure.word(next.before, 0.7 * size, true) : 0;
  return Math.max(2.2 * size, before + 8, measure.word(next.text, size, true) + 0.9 * size);
}

/**
 * Slots of a sentence or a pair: indices into both, and the word that decides gaps.
 * @param {Request} request
 * @returns {{first: number | null, second: number | null, word: StageWord}[]}
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
 * Everything on one line; null if the words would be too small.
 * @param {Request} request
 * @param {Measure} measure
 * @param {number} width
 * @returns {Layout | null}
 */
function oneLine(request, measure, width) {
  const slots = slotsOf(request);
  const words = slots.map(({ word }) => word);
  const { pair, heads, next } = request;
  const room = width - 2 * EDGE;
  const isWide = width >= WIDE;
  const widthsAt = (/** @type {number} */ size) =>
    slots.map(({ first, second }) => {
      const one = first === null ? 0 : wordWidth(request.words[first], measure, size);
      const other = second === null || !pair ? 0 : wordWidth(pair.words[second], measure, size);
      return Math.max(one, other);
    });
  const extra = (/** @type {number} */ size) =>
    next ? nextWidth(next, measure, size) + 0.6 * size : 0;
  for (let size = pair ? SIZES.pair : SIZES.line; size >= SIZES.least; size -= 0.5) {
    const widths = widthsAt(size);
    const least = inLine(words, widths, size, GAPS.least).total + extra(size);
    if (least > room) continue;
    const most = inLine(words, widths, size, GAPS.most).total + extra(size);
    const full = most > least ? (room - least) / (most - least) : 1;
    const gap = GAPS.least + (GAPS.most - GAPS.least) * Math.min(1, Math.max(0, full));
    const { xs, total } = inLine(words, widths, size, gap);
    const left = (width - total - extra(size)) / 2;
    const h = TALL * size;
    const rise = pair ? 128 : isWide ? 196 : 160;
    const y = rise + 4;
    const rowHeight = heads > 1 ? 24 : isWide ? 28 : 26;
    const rowStep = rowHeight + 3;
    const rowTop = y + h + 3;
    const rowsEnd = rowTop + heads * rowStep - 3;
    const between = pair ? 37 : 0;
    const secondY = rowsEnd + between + heads * rowStep;
    /** @param {"first" | "second"} side @param {number} top */
    const boxesOf = (side, top) => {
      const own = slots
        .map((slot, place) => ({ slot, place }))
        .filter(({ slot }) => slot[side] !== null);
      return own.map(({ slot, place }) => ({
        at: /** @type {number} */ (slot[side]),
        line: 0,
        x: left + xs[place],
        y: top,
        w: widths[place],
        h,
      }));
    };
    /** @param {Box[]} boxes @param {number} count @param {number} top */
    const cellsOf = (boxes, count, top) => {
      const slotBoxes = slots.map((_, place) => ({
        x: left + xs[place],
        y: 0,
        w: widths[place],
        h,
      }));
      return Array.from({ length: heads }, (_, row) => {
        const all = cellsBelow(slotBoxes, top + row * rowStep, rowHeight, EDGE - 2);
        const byX = new Map(all.map((cell, place) => [slotBoxes[place].x, cell]));
        const cells = boxes.map((box) => /** @type {Rect} */ (byX.get(box.x)));
        return spread(
          count,
          boxes.map((box) => box.at),
          cells,
        );
      });
    };
    const first = boxesOf("first", y);
    const rows = spread(
      request.words.length,
      first.map((box) => box.at),
      first,
    );
    /** @type {Deck[]} */
    const decks = [
      { rows, columns: rows, cells: cellsOf(first, rows.length, rowTop), isBelow: false },
    ];
    if (pair) {
      const second = boxesOf("second", secondY + 3);
      const below = spread(
        pair.words.length,
        second.map((box) => box.at),
        second,
      );
      const cells = cellsOf(second, below.length, rowsEnd + between);
      decks.push({ rows: below, columns: below, cells, isBelow: true });
    }
    const end = left + total;
    return {
      shape: "line",
      width,
      height: pair ? secondY + 3 + h + rise + 4 : rowsEnd,
      size,
      decks,
      rise,
      lines: 1,
      next: next
        ? { x: end + 0.5 * size, y: y - 0.02 * size, w: nextWidth(next, measure, size), h }
        : null,
      isMirrored: false,
    };
  }
  return null;
}

/**
 * Words broken into lines.
 * @param {StageWord[]} words
 * @param {number[]} places indices of the words that are shown
 * @param {Measure} measure
 * @param {number} width
 * @param {number} size
 * @returns {{at: number, line: number, x: number, w: number}[]}
 */
function broken(words, places, measure, width, size) {
  let [x, line] = [3, 0];
  return places.map((at, place) => {
    const word = words[at];
    const w = Math.min(wordWidth(word, measure, size), width - 6);
    const before = place ? words[places[place - 1]] : undefined;
    const gap = gapBefore(before, word, GAPS.least) * size;
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
  const rowHeight = 18;
  const pitch = LINE + Math.max(0, heads - 1) * (rowHeight + 2);
  const places = shown(words, request.hidesSpecial);
  const boxes = broken(words, places, measure, width, size).map((box) => ({
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
function wrapped(request, measure, width) {
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
  return {
    shape: "wrapped",
    width,
    height: bottom,
    size: SIZES.wrapped,
    decks,
    rise: 64,
    lines,
    next: null,
    isMirrored: false,
  };
}

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
  const cell = heads > 1 ? 40 : 52;
  const left = heads * (cell + 2) + 13;
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
function vertical(request, measure, width) {
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
  const left = heads * 54 + 6;
  return {
    shape: "vertical",
    width,
    height: bottom + (next ? 56 : 0),
    size,
    decks,
    rise: 0,
    lines: words.length,
    next: next
      ? { x: left, y: bottom + 8, w: nextWidth({ ...next, before: null }, measure, size), h: 40 }
      : null,
    isMirrored: false,
  };
}

/** @template {Rect} T @param {T | null} box @param {number} width @returns {T | null} */
const turned = (box, width) => box && { ...box, x: width - box.x - box.w };

/**
 * The layout as a mirror shows it, for text that is read from right to left.
 * @param {Layout} layout
 * @returns {Layout}
 */
export function mirrored(layout) {
  const { width } = layout;
  const decks = layout.decks.map((deck) => {
    const rows = deck.rows.map((box) => turned(box, width));
    return {
      ...deck,
      rows,
      columns: deck.columns === deck.rows ? rows : deck.columns.map((box) => turned(box, width)),
      cells: deck.cells.map((row) => row.map((cell) => turned(cell, width))),
    };
  });
  return { ...layout, decks, next: turned(layout.next, width), isMirrored: true };
}

/**
 * Positions of all words and cells.
 * @param {Request} request
 * @param {Measure} measure
 * @param {number} width
 * @returns {Layout}
 */
export function layOut(request, measure, width) {
  const isNarrow = request.shape === "vertical" || width < NARROW;
  const line = isNarrow || request.columns ? null : oneLine(request, measure, width);
  const layout = isNarrow
    ? vertical(request, measure, width)
    : (line ?? wrapped(request, measure, width));
  const text = request.words.map((word) => (word.kind === "special" ? "" : word.text)).join(" ");
  return isRightToLeft(text) ? mirrored(layout) : layout;
}
