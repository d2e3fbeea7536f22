// @ts-check
/** Geometry of the map: where cells and labels stand, as zoomed. */

/** @import {StageWord} from "../types.js" */
/** @import {MapPicture} from "./map.js" */

/** Largest cells in px, and the room that sets special tokens apart. */
const MOST = 28,
  APART = 4;
const FONT = 'Inter, system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
/** Longest label in px, and the angle of column labels. */
export const LONGEST = 84,
  ANGLE = -0.87;
/** Columns from which on cells are too small for all labels, and the room of a row's label then. */
const DENSE = 22,
  FEW = 40;

/**
 * @typedef {object} Layout
 * @property {number} unit  px per px at a font size of 16
 * @property {number} left @property {number} top  the first cell
 * @property {number} width @property {number} height  of the whole picture
 * @property {number} cell  width of a cell as zoomed
 * @property {number} across @property {number} down  numbers of columns and rows
 * @property {number} maxScale
 * @property {{scale: number, x: number, y: number}} zoom
 * @property {number[]} rows  words that have a row
 * @property {number[]} columns  words that have a column
 * @property {number[]} offsets  extra px before each column, which set special tokens apart
 * @property {(x: number, y: number) => {row: number, column: number} | null} cellAt
 * @property {() => {rows: number[], keys: number[]}} inSight
 */

/** @type {CanvasRenderingContext2D | null} */
let ruler = null;

/** @param {string} text @param {string} font */
function measure(text, font) {
  ruler ??= document.createElement("canvas").getContext("2d");
  if (!ruler) return 7 * text.length;
  ruler.font = font;
  return ruler.measureText(text).width;
}

/** @param {string} text @param {string} font @param {number} room */
export function shorten(text, font, room) {
  if (measure(text, font) <= room) return text;
  let letters = [...text];
  while (letters.length > 1 && measure(`${letters.join("")}\u2026`, font) > room)
    letters = letters.slice(0, -1);
  return `${letters.join("")}\u2026`;
}

/** @param {number} unit @param {boolean} isStrong */
export const font = (unit, isStrong) => `${isStrong ? "700 " : ""}${12.5 * unit}px ${FONT}`;

/**
 * @param {MapPicture} picture @param {number} room width in px
 * @param {{scale: number, x: number, y: number}} zoom @returns {Layout}
 */
export function layOut(picture, room, zoom) {
  const unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
  const { isLong } = picture;
  const words = [...picture.rows.keys()];
  const plain = words.filter((at) => picture.rows[at].kind !== "special");
  const rows = isLong || !plain.length ? words : plain;
  const columns = [...picture.columns.keys()].filter(
    (at) => isLong || !(picture.hidesSpecial && picture.columns[at].kind === "special"),
  );
  const isSpecial = (/** @type {number} */ at) => picture.columns[columns[at]]?.kind === "special";
  let offset = 0;
  const offsets = columns.map((_, at) => {
    if (!isLong && at && isSpecial(at) !== isSpecial(at - 1)) offset += APART * unit;
    return offset;
  });
  const style = font(unit, true);
  const widest = (/** @type {StageWord[]} */ list, /** @type {number[]} */ at) =>
    Math.min(LONGEST * unit, Math.max(0, ...at.map((index) => measure(list[index].text, style))));
  const few = (/** @type {number[]} */ list) => (list.length > 80 ? list.slice(0, 80) : list);
  const isDense = columns.length > DENSE;
  const most = (/** @type {number} */ label) => (isDense ? Math.min(label, FEW * unit) : label);
  const rowLabel = most(widest(picture.rows, few(rows)));
  const columnLabel = widest(picture.columns, few(columns));
  const left = Math.ceil(rowLabel + 8 * unit);
  const top = Math.ceil(columnLabel * Math.sin(-ANGLE) + 14 * unit);
  const lean = columnLabel * Math.cos(ANGLE) - MOST * 0.4 * unit;
  const right = isLong ? 4 : Math.max(2, Math.min(lean, (isDense ? 20 : 40) * unit));
  const space = room - left - right - offset;
  const fitted = space / Math.max(1, columns.length);
  const whole = isLong ? fitted : Math.min(MOST * unit, fitted);
  const base = whole >= 8 ? Math.floor(whole) : whole;
  const cell = base * zoom.scale;
  const width = Math.min(room, left + right + offset + base * columns.length);
  const height = top + base * rows.length + 4;
  const atX = (/** @type {number} */ x) => {
    for (let at = columns.length - 1; at >= 0; at--)
      if (x >= left + offsets[at] * zoom.scale + (at - zoom.x) * cell) return at;
    return -1;
  };
  return {
    unit,
    left,
    top,
    width: Math.max(width, room),
    height,
    cell,
    across: columns.length,
    down: rows.length,
    maxScale: Math.max(1, (MOST * unit) / base),
    zoom,
    rows,
    columns,
    offsets: offsets.map((px) => px * zoom.scale),
    cellAt: (x, y) => {
      if (x < left || y < top || x > left + offset + base * columns.length) return null;
      const column = isLong ? Math.floor((x - left) / cell + zoom.x) : atX(x);
      const row = Math.floor((y - top) / cell + zoom.y);
      if (!(row in rows) || !(column in columns)) return null;
      return { row: rows[row], column: columns[column] };
    },
    inSight: () => {
      const span = (/** @type {number} */ from, /** @type {number} */ count) => [
        Math.max(0, Math.floor(from)),
        Math.min(count, Math.ceil(from + count / zoom.scale)),
      ];
      return { rows: span(zoom.y, rows.length), keys: span(zoom.x, columns.length) };
    },
  };
}
