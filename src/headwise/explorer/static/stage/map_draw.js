// @ts-check
/** Geometry of the map, and drawing it on a canvas. */

/** @import {StageWord} from "../types.js" */
/** @import {Cells} from "./host.js" */
/** @import {MapPicture} from "./map.js" */

import { GROUNDS } from "./colours.js";
import { rounded } from "./numbers.js";
import { fillsOf, root, shades } from "./shades.js";

/** Smallest and largest cells in px, smallest cells with all labels, and room around them. */
const LEAST = 6,
  MOST = 28,
  LABELLED = 14,
  APART = 4,
  LINE = 1.6;
const FONT = 'Inter, system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
/** Longest label in px, and the angle of column labels. */
const LONGEST = 84,
  ANGLE = -0.87;
/** Columns from which on cells are too small for all labels, and the room of a row's label then. */
const DENSE = 22,
  FEW = 40;
/** Smallest share, in whole percents, of a target whose column is labelled on a small map. */
const TARGET = 5;

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
function shorten(text, font, room) {
  if (measure(text, font) <= room) return text;
  let letters = [...text];
  while (letters.length > 1 && measure(`${letters.join("")}\u2026`, font) > room)
    letters = letters.slice(0, -1);
  return `${letters.join("")}\u2026`;
}

/** @param {number} unit @param {boolean} isStrong */
const font = (unit, isStrong) => `${isStrong ? "700 " : ""}${12.5 * unit}px ${FONT}`;

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
  const whole = isLong ? fitted : Math.max(LEAST * unit, Math.min(MOST * unit, fitted));
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

/** @param {HTMLCanvasElement} canvas @param {MapPicture} picture @param {Layout} layout */
export function drawMap(canvas, picture, layout) {
  const scale = Math.min(3, Math.max(1, devicePixelRatio || 1));
  canvas.width = Math.round(layout.width * scale);
  canvas.height = Math.round(layout.height * scale);
  canvas.style.width = `${layout.width}px`;
  canvas.style.height = `${layout.height}px`;
  const context = canvas.getContext("2d");
  if (!context) return;
  context.scale(scale, scale);
  const bottom = layout.height - 4;
  context.save();
  context.beginPath();
  context.rect(layout.left, layout.top, layout.width - layout.left, bottom - layout.top);
  context.clip();
  if (picture.overview) drawCells(context, picture, layout, picture.overview);
  if (picture.tile) drawCells(context, picture, layout, picture.tile);
  if (!picture.isLong) drawShares(context, picture, layout);
  context.restore();
  drawLabels(context, picture, layout);
  drawMarks(context, picture, layout);
}

/** @param {Layout} layout @param {number} at */
const xOf = (layout, at) =>
  layout.left + (layout.offsets[at] ?? 0) + (at - layout.zoom.x) * layout.cell;
/** @param {Layout} layout @param {number} at */
const yOf = (layout, at) => layout.top + (at - layout.zoom.y) * layout.cell;

/**
 * @param {CanvasRenderingContext2D} context @param {MapPicture} picture @param {Layout} layout
 */
function drawShares(context, picture, layout) {
  const { cell, rows, columns, unit } = layout;
  const gap = cell >= 9 * unit ? unit : unit / 2;
  const radius = cell >= 8 ? 2 * unit : 0;
  const size = cell - gap;
  columns.forEach((column, across) => {
    const x = xOf(layout, across);
    if (x > layout.width || x + cell < layout.left) return;
    const colour = picture.resting[column] ? picture.rest : picture.own;
    const fills = fillsOf(picture.theme, colour);
    rows.forEach((row, down) => {
      context.fillStyle = fills[root(picture.share(row, column) ?? 0)];
      context.beginPath();
      context.roundRect(x, yOf(layout, down), size, size, radius);
      context.fill();
    });
  });
}

/** Cells as a picture, in the colour that they were drawn in last. @type {WeakMap<Cells, {key:
 * string, canvas: OffscreenCanvas}>} */
const drawn = new WeakMap();

/** One pixel per cell. @param {MapPicture} picture @param {Cells} cells */
function cellPicture({ theme, own }, cells) {
  const key = `${theme} ${own}`;
  const before = drawn.get(cells);
  if (before?.key === key) return before.canvas;
  const [height, width] = cells.shape;
  const image = new ImageData(width, height);
  const table = shades(theme, own);
  for (let at = 0; at < width * height; at++) {
    const shade = 3 * root(cells.values[at]);
    image.data[4 * at] = table[shade];
    image.data[4 * at + 1] = table[shade + 1];
    image.data[4 * at + 2] = table[shade + 2];
    image.data[4 * at + 3] = 255;
  }
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  drawn.set(cells, { key, canvas });
  return canvas;
}

/**
 * @param {CanvasRenderingContext2D} context @param {MapPicture} picture @param {Layout} layout
 * @param {Cells} cells
 */
function drawCells(context, picture, layout, cells) {
  if (!cells.shape[0] || !cells.shape[1]) return;
  const canvas = cellPicture(picture, cells);
  context.imageSmoothingEnabled = false;
  const [x, y] = [xOf(layout, cells.keys[0]), yOf(layout, cells.rows[0])];
  const right = xOf(layout, cells.keys[1]),
    bottom = yOf(layout, cells.rows[1]);
  context.drawImage(canvas, x, y, right - x, bottom - y);
}

/**
 * Row and column labels; on small cells only those of the chosen word and its targets.
 * @param {CanvasRenderingContext2D} context @param {MapPicture} picture @param {Layout} layout
 */
function drawLabels(context, picture, layout) {
  const { unit, cell, rows, columns, left, top } = layout;
  const { soft, text } = GROUNDS[picture.theme];
  const isFull = cell >= LABELLED * unit;
  const { row, column, isLookedAt } = picture;
  const chosenRow = isLookedAt ? null : row;
  const isTarget = (/** @type {number} */ at) =>
    chosenRow !== null && rounded(picture.share(chosenRow, at) ?? 0) >= TARGET;
  const isSource = (/** @type {number} */ at) =>
    isLookedAt && row !== null && rounded(picture.share(at, row) ?? 0) >= TARGET;
  context.textBaseline = "middle";
  context.textAlign = "right";
  let last = -Infinity;
  rows.forEach((at, down) => {
    const isChosen = at === chosenRow;
    if (!isFull && !isChosen && !isSource(at)) return;
    const y = yOf(layout, down) + cell / 2;
    if (y < top || y > layout.height) return;
    if (!isFull && !isChosen && y - last < 13 * unit) return;
    last = y;
    context.font = font(unit, isChosen);
    context.fillStyle = isChosen ? picture.ink : soft;
    context.fillText(
      shorten(picture.rows[at].text, context.font, left - 8 * unit),
      left - 7 * unit,
      y,
    );
  });
  context.textAlign = "left";
  last = -Infinity;
  columns.forEach((at, across) => {
    const isChosen = at === column || (isLookedAt && at === row);
    if (!isFull && !isChosen && !isTarget(at)) return;
    const x = xOf(layout, across) + cell / 2;
    if (x < left || x > layout.width - 6) return;
    if (!isFull && !isChosen && x - last < 15 * unit) return;
    last = x;
    context.save();
    context.translate(x + 1, top - 7 * unit);
    context.rotate(ANGLE);
    context.font = font(unit, isChosen);
    context.fillStyle = isChosen ? picture.ink : isTarget(at) && !isFull ? text : soft;
    context.fillText(shorten(picture.columns[at].text, context.font, LONGEST * unit), 0, 0);
    context.restore();
  });
}

/**
 * The chosen row's outline, the hovered word's dashed column, and the stage's window.
 * @param {CanvasRenderingContext2D} context @param {MapPicture} picture @param {Layout} layout
 */
function drawMarks(context, picture, layout) {
  const { unit, cell, rows, columns, left, top } = layout;
  const { text } = GROUNDS[picture.theme];
  const end = columns.length - 1;
  const [startX, stopX] = [Math.max(left, xOf(layout, 0)), xOf(layout, end) + cell];
  const bottom = layout.height - 4;
  const row = picture.isLookedAt ? -1 : rows.indexOf(picture.row ?? -1);
  const chosen = picture.isLookedAt ? picture.row : picture.column;
  const column = columns.indexOf(chosen ?? -1);
  context.strokeStyle = text;
  context.lineWidth = LINE * unit;
  const pad = 1.5 * unit;
  if (row >= 0) {
    const y = yOf(layout, row);
    const right = Math.min(stopX, layout.width - 3);
    if (y >= top - 1 && y + cell <= bottom + cell) {
      context.beginPath();
      context.roundRect(
        startX - pad,
        y - pad,
        right - startX + pad,
        Math.max(3, cell) + pad,
        4 * unit,
      );
      context.stroke();
    }
  }
  if (column >= 0) {
    const x = xOf(layout, column);
    context.beginPath();
    if (!picture.isLookedAt) context.setLineDash([3 * unit, 3 * unit]);
    context.lineWidth = (picture.isLookedAt ? LINE : 1.2) * unit;
    if (x >= left - 1)
      context.roundRect(x - pad, top - pad, Math.max(3, cell) + pad, bottom - top + pad, 4 * unit);
    context.stroke();
    context.setLineDash([]);
  }
  if (picture.window) {
    const [from, to] = picture.window;
    const y = Math.max(top, yOf(layout, from));
    const low = Math.min(bottom, yOf(layout, to + 1));
    context.lineWidth = unit;
    context.strokeStyle = GROUNDS[picture.theme].soft;
    if (low > y) context.strokeRect(startX, y, Math.min(stopX, layout.width - 3) - startX, low - y);
  }
}
