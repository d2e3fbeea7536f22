// @ts-check
/** The curves of arcs: from port to port, over the words, between lines, or beside the words. */
import { arch, arcHeight, bend, bulge, bulgeApex } from "./geometry.js";
import { STEP } from "./layout_parts.js";
import { landings, starts } from "./ports.js";

/** @import {Curve} from "./geometry.js" */
/** @import {Box, Deck, Layout, Rect} from "./layout.js" */

/**
 * An arc that needs a curve.
 * @typedef {object} Way
 * @property {Box} source
 * @property {Box} target
 * @property {boolean} isFaint
 * @property {number} arrow length of the arrowhead
 */

/** Space between a word and the arcs at its side, on a phone. */
const BESIDE = { start: 13, end: 13 };
/** An arc to a tab turns so close to it that it stays between tab and words. */
const TO_TAB = 14;
/** @param {Rect} box */
const middle = (box) => ({ x: box.x + box.w / 2, y: box.y + box.h / 2 });

/**
 * Whether an arc goes from line to line.
 * @param {Way} way
 * @param {Deck} deck
 */
const isBetweenLines = ({ source, target }, deck) =>
  deck.rows !== deck.columns || source.line !== target.line;

/**
 * How far each end of each arc is from the middle of its word.
 * @param {Way[]} ways
 * @param {Deck} deck
 * @param {Layout} layout
 * @returns {{from: number[], to: number[]}}
 */
function portsOf(ways, deck, layout) {
  const axis = layout.shape === "vertical" ? "y" : "x";
  /** @param {Way} way @param {"source" | "target"} end */
  const port = (way, end) => {
    const distance = middle(way.target)[axis] - middle(way.source)[axis];
    const isStraight = layout.shape === "wrapped" && isBetweenLines(way, deck);
    return { toward: end === "source" ? distance : -distance, isStraight };
  };
  /** @param {"source" | "target"} end */
  const offsets = (end) => {
    const all = ways.map(() => 0);
    /** @type {Map<number, number[]>} */
    const groups = new Map();
    ways.forEach((way, index) => {
      if (way.isFaint && end === "source") return;
      groups.set(way[end].at, [...(groups.get(way[end].at) ?? []), index]);
    });
    for (const own of groups.values()) {
      const half = axis === "x" ? ways[own[0]][end].w / 2 : 10;
      const place = end === "source" ? starts : landings;
      const found = place(
        own.map((index) => port(ways[index], end)),
        half,
      );
      own.forEach((index, order) => (all[index] = found[order]));
    }
    return all;
  };
  return { from: offsets("source"), to: offsets("target") };
}

/**
 * The curves of arcs that leave or reach the same words in an orderly way.
 * @param {Way[]} ways
 * @param {Deck} deck
 * @param {Layout} layout
 * @returns {Curve[]}
 */
export function curvesOf(ways, deck, layout) {
  const { from, to } = portsOf(ways, deck, layout);
  const shown = deck.columns.filter((box) => box !== null);
  const left = Math.min(...shown.map((box) => box.x));
  const right = Math.max(...shown.map((box) => box.x + box.w));
  return ways.map((way, index) => {
    const { source, target, arrow } = way;
    if (layout.shape === "vertical") {
      const extent = Math.min(shown.length, 40) * STEP;
      return sideCurve(way, from[index], to[index], { left, right, extent, layout });
    }
    const [x0, x1] = [middle(source).x + from[index], middle(target).x + to[index]];
    if (isBetweenLines(way, deck)) return lineCurve(way, x0, x1, deck);
    const edge = deck.isBelow ? source.y + source.h + 2 : source.y - 2;
    const height = arcHeight(middle(target).x - middle(source).x, right - left, layout.rise);
    return arch(x0, x1, edge, height, arrow, deck.isBelow);
  });
}

/**
 * An arc beside words that stand one below the other.
 * @param {Way} way
 * @param {number} from
 * @param {number} to
 * @param {{left: number, right: number, extent: number, layout: Layout}} all
 */
function sideCurve({ source, target, arrow }, from, to, { left, right, extent, layout }) {
  const { width, isMirrored } = layout;
  /** @param {number} x */
  const turn = (x) => (isMirrored ? width - x : x);
  /** @param {Box} box */
  const side = (box) => (isMirrored ? width - box.x : box.x + box.w);
  const dy = middle(target).y - middle(source).y;
  const apex = bulgeApex(dy, isMirrored ? width - left : right, width, extent);
  return bulge(
    { x: turn(side(source) + BESIDE.start), y: middle(source).y + from },
    { x: turn(side(target) + BESIDE.end), y: middle(target).y + to },
    turn(apex),
    arrow,
  );
}

/**
 * An S from a word to the foot of a cell above, or from the foot of a cell to a word below.
 * @param {Way} way
 * @param {number} from
 * @param {number} to
 * @param {Deck} deck
 */
function lineCurve({ source, target, arrow }, from, to, deck) {
  const last = deck.columns[target.at] === target ? undefined : TO_TAB;
  if (target.y < source.y) {
    return bend({ x: from, y: source.y - 1 }, { x: to, y: footOf(target, deck) }, arrow, last);
  }
  return bend({ x: from, y: footOf(source, deck) }, { x: to, y: target.y - 2 }, arrow, last);
}

/**
 * Just below a word's cells, or below the word if it has none.
 * @param {Box} box
 * @param {Deck} deck
 */
function footOf(box, deck) {
  const isColumn = deck.columns[box.at] === box;
  const cell = isColumn ? deck.cells.at(-1)?.[box.at] : null;
  return (cell ? cell.y + cell.h : box.y + box.h) + 3;
}
