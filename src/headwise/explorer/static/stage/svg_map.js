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
 * The map of the picture's first head.
 * @param {Picture} picture in light colours
 * @param {Measure} measure
 * @returns {Drawn | null}
 */
export function mapShape(picture, measure) {
  const [side] = sidesOf(picture);
  const isLarge = Math.max(side.rows.length, side.columns.length) > MOST;
  const shares = isLarge ? null : sharesOf(picture, side);
  if (!shares) return null;
  const [head] = side.heads;
  const hidden = hiddenOf(picture, side.columns);
  const rows = side.rows.flatMap(({ kind }, at) => (kind === "special" ? [] : [at]));
  const columns = side.columns.flatMap((_, at) => (hidden[at] ? [] : [at]));
  if (!rows.length || !columns.length) return null;
  const largest = Math.max(rows.length, columns.length);
  const cell = Math.max(CELL.least, Math.min(CELL.most, Math.floor(ROOM / largest) - CELL.gap));
  const step = cell + CELL.gap;
  const isLabelled = cell >= LABELLED;
  const font = { "font-family": SANS, "font-size": 12 };
  const { soft, text } = GROUNDS.light;
  const rests = restsOf(picture, side, head);
  const special = side.columns.map(({ kind }) => kind === "special");
  const grey = special.map(
    (isSpecial, at) => rests[at] || (isSpecial && !isRestingRole(head.role)),
  );
  const labels = rows.map((at) => shortened(side.rows[at].text, measure));
  const chosen = picture.isLookedAt ? -1 : rows.indexOf(side.word ?? -1);
  const column = picture.isLookedAt ? side.word : null;
  const strong = side.columns.map(
    (_, at) => chosen >= 0 && rounded(shares[rows[chosen]][at]) >= DRAWN,
  );
  const named = labels.filter((_, place) => isLabelled || place === chosen);
  const left = Math.max(0, ...named.map((label) => measure.label(label, 12, 600))) + 10;
  const top = 66;
  /** @type {Map<number, number>} */
  const xs = new Map();
  let x = left;
  columns.forEach((at, place) => {
    const before = columns[place - 1];
    if (place && special[at] !== special[before]) x += CELL.apart;
    xs.set(at, x);
    x += step;
  });
  const cells = rows.flatMap((row, place) =>
    columns.map((column) => {
      const colour = grey[column] ? GROUNDS.light.rest : head.colour;
      const fill = mix("light", colour, shares[row][column]);
      const where = { x: xs.get(column), y: top + place * step, width: cell, height: cell };
      return shape("rect", { ...where, rx: 2, fill });
    }),
  );
  const right = x - CELL.gap;
  const rowLabels = rows.flatMap((_, place) => {
    const own = place === chosen;
    const at = { x: left - 8, y: top + place * step + cell / 2 + 4, "text-anchor": "end" };
    const look = { fill: own ? head.colour : soft, "font-weight": own ? 600 : 400 };
    return own || isLabelled ? [shape("text", { ...at, ...look, ...font }, labels[place])] : [];
  });
  const columnLabels = columns.flatMap((at) => {
    if (!isLabelled && !strong[at] && at !== column) return [];
    const [cx, cy] = [(xs.get(at) ?? 0) + cell / 2 + 3, top - 6];
    const turn = `translate(${cx} ${cy}) rotate(-50)`;
    const label = shortened(side.columns[at].text, measure);
    return [shape("text", { transform: turn, fill: soft, ...font }, label)];
  });
  const height = top + rows.length * step;
  const line = { rx: 5, fill: "none", stroke: text, "stroke-width": 1.6 };
  const across = { x: left - 3, y: top + chosen * step - 2.5, width: right - left + 6 };
  const down = { x: (xs.get(column ?? -1) ?? 0) - 2.5, y: top - 3, width: cell + 5 };
  const outline = [
    ...(chosen >= 0 ? [shape("rect", { ...across, height: cell + 5, ...line })] : []),
    ...(xs.has(column ?? -1)
      ? [shape("rect", { ...down, height: height - top + 5, ...line })]
      : []),
  ];
  const parts = [...cells, ...rowLabels, ...columnLabels, ...outline];
  return { shape: shape("g", { class: "hw-map" }, ...parts), width: right, height };
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
