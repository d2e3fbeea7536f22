// @ts-check
/** The map and the colour bar of a saved picture, as SVG. */
import { GROUNDS, mix } from "./colours.js";
import { shape } from "./dom.js";
import { DRAWN, isRestingRole } from "./links.js";
import { SANS } from "./measure.js";
import { rounded } from "./numbers.js";
import { hiddenOf, restsOf, sidesOf } from "./picture.js";

/** @import {Shape} from "./dom.js" */
/** @import {Measure} from "./measure.js" */
/** @import {Picture, Side} from "./picture.js" */

/** Size of cells, and the distance of special tokens. A map of more words is left out. */
const CELL = { most: 20, least: 3, gap: 1, apart: 4 };
const MOST = 130;
/** Width and height for the cells of a large map. */
const ROOM = 520;
/** Labels from this size of cells on, and their longest. */
const LABELLED = 14;
const LONGEST = 90;
const TICKS = [0, 5, 25, 50, 100];

/**
 * @typedef {object} Drawn
 * @property {Shape} shape
 * @property {number} width
 * @property {number} height
 */

/**
 * Shares of the whole map, rows look at columns; null if a row is not known.
 * @param {Picture} picture
 * @param {Side} side
 * @returns {ArrayLike<number>[] | null}
 */
function sharesOf(picture, side) {
  const [head] = side.heads;
  if (!head) return null;
  const asked = picture.isLookedAt ? side.columns : side.rows;
  const known = asked.map((_, at) => head.row(at));
  const all = known.filter((row) => row !== null);
  if (all.length !== known.length) return null;
  if (!picture.isLookedAt) return all;
  return side.rows.map((_, row) => side.columns.map((_, column) => all[column][row]));
}

/** @param {string} text @param {Measure} measure @returns {string} */
function shortened(text, measure) {
  let letters = Array.from(text);
  if (measure.label(text, 12) <= LONGEST) return text;
  while (letters.length > 1 && measure.label(`${letters.join("")}\u2026`, 12) > LONGEST) {
    letters = letters.slice(0, -1);
  }
  return `${letters.join("")}\u2026`;
}

/**
 * Places of the map's rows and columns.
 * @typedef {object} Plan
 * @property {number[]} rows words that have a row
 * @property {string[]} labels of the rows
 * @property {Map<number, number>} xs left ends, by word that has a column
 * @property {number} left
 * @property {number} right
 * @property {number} cell
 * @property {number} chosen place of the chosen word's row; -1 if a column is chosen, or none
 * @property {number} column word of the chosen column; -1 if a row is chosen, or none
 */

/** Height of the labels above the map. */
const TOP = 66;
const FONT = { "font-family": SANS, "font-size": 12 };

/**
 * @param {Picture} picture
 * @param {Side} side
 * @param {Measure} measure
 * @returns {Plan}
 */
function plan(picture, side, measure) {
  const hidden = hiddenOf(picture, side.columns);
  const rows = side.rows.flatMap(({ kind }, at) => (kind === "special" ? [] : [at]));
  const columns = side.columns.flatMap((_, at) => (hidden[at] ? [] : [at]));
  const largest = Math.max(1, rows.length, columns.length);
  const cell = Math.max(CELL.least, Math.min(CELL.most, Math.floor(ROOM / largest) - CELL.gap));
  const word = side.word ?? -1;
  const chosen = picture.isLookedAt ? -1 : rows.indexOf(word);
  const labels = rows.map((at) => shortened(side.rows[at].text, measure));
  const named = labels.filter((_, place) => cell >= LABELLED || place === chosen);
  const left = Math.max(0, ...named.map((label) => measure.label(label, 12, 600))) + 10;
  const isSpecial = (/** @type {number} */ at) => side.columns[at].kind === "special";
  /** @type {Map<number, number>} */
  const xs = new Map();
  let x = left;
  columns.forEach((at, place) => {
    if (place && isSpecial(at) !== isSpecial(columns[place - 1])) x += CELL.apart;
    xs.set(at, x);
    x += cell + CELL.gap;
  });
  const column = picture.isLookedAt ? word : -1;
  return { rows, labels, xs, left, right: x - CELL.gap, cell, chosen, column };
}

/**
 * Labels of rows and columns. Small cells have them at the chosen row and its targets only.
 * @param {Plan} plan
 * @param {Side} side
 * @param {ArrayLike<number>[]} shares
 * @param {Measure} measure
 * @returns {Shape[]}
 */
function labelShapes({ rows, labels, xs, left, cell, chosen, column }, side, shares, measure) {
  const { soft } = GROUNDS.light;
  const isLabelled = cell >= LABELLED;
  const beside = rows.flatMap((_, place) => {
    const own = place === chosen;
    const y = TOP + place * (cell + CELL.gap) + cell / 2 + 4;
    const look = {
      fill: own ? side.heads[0].colour : soft,
      "font-weight": own ? 600 : 400,
      "text-anchor": "end",
    };
    const at = { x: left - 8, y };
    return own || isLabelled ? [shape("text", { ...at, ...look, ...FONT }, labels[place])] : [];
  });
  const above = [...xs].flatMap(([at, x]) => {
    const isTarget = chosen >= 0 && rounded(shares[rows[chosen]][at]) >= DRAWN;
    if (!isLabelled && !isTarget && at !== column) return [];
    const transform = `translate(${x + cell / 2 + 3} ${TOP - 6}) rotate(-50)`;
    const label = shortened(side.columns[at].text, measure);
    return [shape("text", { transform, fill: soft, ...FONT }, label)];
  });
  return [...beside, ...above];
}

/**
 * The line around the chosen row or column.
 * @param {Plan} plan
 * @returns {Shape[]}
 */
function outline({ rows, xs, left, right, cell, chosen, column }) {
  const line = { rx: 5, fill: "none", stroke: GROUNDS.light.text, "stroke-width": 1.6 };
  const step = cell + CELL.gap;
  const x = xs.get(column);
  if (chosen >= 0) {
    const place = { x: left - 3, y: TOP + chosen * step - 2.5 };
    return [shape("rect", { ...place, width: right - left + 6, height: cell + 5, ...line })];
  }
  if (x === undefined) return [];
  const size = { width: cell + 5, height: rows.length * step + 5 };
  return [shape("rect", { x: x - 2.5, y: TOP - 3, ...size, ...line })];
}

/**
 * The map of the picture's first head; null if it is large or not all of it is known.
 * @param {Picture} picture in light colours
 * @param {Measure} measure
 * @returns {Drawn | null}
 */
export function mapShape(picture, measure) {
  const [side] = sidesOf(picture);
  const isLarge = Math.max(side.rows.length, side.columns.length) > MOST;
  const shares = isLarge ? null : sharesOf(picture, side);
  if (!shares) return null;
  const places = plan(picture, side, measure);
  const { rows, xs, right, cell } = places;
  if (!rows.length || !xs.size) return null;
  const [head] = side.heads;
  const rests = restsOf(picture, side, head);
  const cells = rows.flatMap((row, place) =>
    [...xs].map(([column, x]) => {
      const isSpecial = side.columns[column].kind === "special";
      const isGrey = rests[column] || (isSpecial && !isRestingRole(head.role));
      const fill = mix("light", isGrey ? GROUNDS.light.rest : head.colour, shares[row][column]);
      const y = TOP + place * (cell + CELL.gap);
      return shape("rect", { x, y, width: cell, height: cell, rx: 2, fill });
    }),
  );
  const labels = labelShapes(places, side, shares, measure);
  const height = TOP + rows.length * (cell + CELL.gap);
  const whole = shape("g", { class: "hw-map" }, ...cells, ...labels, ...outline(places));
  return { shape: whole, width: right, height };
}

/**
 * The scale of colours, with ticks.
 * @param {string} colour
 * @param {string} id of its gradient
 * @returns {Drawn}
 */
export function barShape(colour, id) {
  const [width, height] = [220, 9];
  const stops = Array.from({ length: 17 }, (_, place) => {
    const root = place / 16;
    return shape("stop", { offset: root, "stop-color": mix("light", colour, root * root) });
  });
  const ticks = TICKS.map((tick) => {
    const x = width * Math.sqrt(tick / 100);
    const anchor = tick === 0 ? "start" : tick === 100 ? "end" : "middle";
    const place = { x, y: height + 17, "text-anchor": anchor, fill: GROUNDS.light.soft };
    const font = { "font-family": SANS, "font-size": 12 };
    return shape("text", { ...place, ...font }, tick === 100 ? "100%" : String(tick));
  });
  const bar = shape("rect", { width, height, fill: `url(#${id})` });
  const gradient = shape("linearGradient", { id }, ...stops);
  return { shape: shape("g", {}, gradient, bar, ...ticks), width, height: height + 20 };
}
