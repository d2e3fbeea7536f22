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
 * @property {{landing: number, start: number}} widths of the ribbon
 * @property {number} wide width of the arrowhead
 */

/** Space between a word and the arcs at its side, on a phone. */
const BESIDE = { start: 13, end: 13 };
/** An arc to a tab turns so close to it that it stays between tab and words. */
const TO_TAB = 14;
/** Lowest apex of several arcs between the same words, and their room beside a word. */
const LEAST_TOP = 34;
const ROOM = 26;
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
      // Arcs between the same words share a port, and keep apart around it.
      const shared = [...new Map(own.map((index) => [joined(ways[index]), index])).values()];
      const found = place(
        shared.map((index) => port(ways[index], end)),
        half,
      );
      const places = new Map(shared.map((index, order) => [joined(ways[index]), found[order]]));
      for (const index of own) all[index] = places.get(joined(ways[index])) ?? 0;
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
  const apart = apartOf(ways, layout.shape === "vertical");
  return ways.map((way, index) => {
    const { source, target, arrow } = way;
    const own = apart[index];
    const axis = layout.shape === "vertical" ? "y" : "x";
    const sign = middle(target)[axis] < middle(source)[axis] ? -1 : 1;
    const [start, end] = [from[index] - sign * own.start, to[index] + sign * own.landing];
    if (layout.shape === "vertical") {
      const extent = Math.min(shown.length, 40) * STEP;
      return sideCurve(way, start, end, own, { left, right, extent, layout });
    }
    const [x0, x1] = [middle(source).x + start, middle(target).x + end];
    if (isBetweenLines(way, deck)) return lineCurve(way, x0, x1, deck);
    const edge = deck.isBelow ? source.y + source.h + 2 : source.y - 2;
    const height = arcHeight(middle(target).x - middle(source).x, right - left, layout.rise);
    const top = Math.max(height, LEAST_TOP + own.inner);
    return arch(x0, x1, edge, top - own.lower, arrow, deck.isBelow);
  });
}

/**
 * How far an arc is from others between the same two words, of other heads.
 * @typedef {object} Apart
 * @property {number} start from their common middle, outwards
 * @property {number} landing likewise
 * @property {number} lower distance of its apex from the outermost one's
 * @property {number} inner the same of the innermost one
 */

/** @param {{source: Box, target: Box}} way whose words it joins */
export const joined = ({ source, target }) => `${source.at} ${target.at}`;

/**
 * Keep arcs of several heads between the same words apart, the first one outermost.
 * @param {Way[]} ways
 * @param {boolean} isVertical
 * @returns {Apart[]}
 */
function apartOf(ways, isVertical) {
  const apart = ways.map(() => ({ start: 0, landing: 0, lower: 0, inner: 0 }));
  for (const own of groupsOf(ways)) {
    /** @param {(way: Way) => number} width @param {number} gap */
    const places = (width, gap) => {
      let sum = 0;
      return own.map((index, order) => {
        if (order) sum += (width(ways[own[order - 1]]) + width(ways[index])) / 2 + gap;
        return sum;
      });
    };
    const starts = places(({ widths }) => widths.start, 2);
    const ends = places(({ wide }) => wide, 3);
    const tops = places(({ widths }) => widths.landing, 4);
    const last = own.length - 1;
    const shrink = isVertical ? Math.min(1, ROOM / Math.max(1, ends[last])) : 1;
    own.forEach((index, order) => {
      apart[index] = {
        start: starts[last] / 2 - starts[order],
        landing: shrink * (ends[last] / 2 - ends[order]),
        lower: tops[order],
        inner: tops[last],
      };
    });
  }
  return apart;
}

/** Indices of the ways that join the same words, in order. @param {Way[]} ways */
function groupsOf(ways) {
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  ways.forEach((way, index) => {
    const key = joined(way);
    groups.set(key, [...(groups.get(key) ?? []), index]);
  });
  return groups.values();
}

/**
 * An arc beside words that stand one below the other.
 * @param {Way} way
 * @param {number} from
 * @param {number} to
 * @param {Apart} apart
 * @param {{left: number, right: number, extent: number, layout: Layout}} all
 */
function sideCurve({ source, target, arrow }, from, to, apart, all) {
  const { left, right, extent, layout } = all;
  const { width, isMirrored } = layout;
  /** @param {number} x */
  const turn = (x) => (isMirrored ? width - x : x);
  /** @param {Box} box */
  const side = (box) => (isMirrored ? width - box.x : box.x + box.w);
  const dy = middle(target).y - middle(source).y;
  const outmost = isMirrored ? width - left : right;
  const least = Math.min(width - 14, outmost + 8 + apart.inner);
  const apex = Math.max(bulgeApex(dy, outmost, width, extent), least) - apart.lower;
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
