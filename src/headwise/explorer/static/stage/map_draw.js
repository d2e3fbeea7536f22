// @ts-check
/** Draws the map on a canvas: cells, labels, the chosen row, the hovered column, the window. */

/** @import {Cells} from "./host.js" */
/** @import {MapPicture} from "./map.js" */
/** @import {Layout} from "./map_layout.js" */

import { GROUNDS } from "./colours.js";
import { ANGLE, font, LONGEST, shorten } from "./map_layout.js";
import { drawStrip, hasStrip, stripPlace } from "./map_strip.js";
import { rounded } from "./numbers.js";
import { fillsOf, root, shades } from "./shades.js";

/** Smallest cells in px with all labels, and the width of outlines. */
const LABELLED = 14,
  LINE = 1.6;
/** Smallest share, in whole percents, of a target whose column is labelled on a small map. */
const TARGET = 5;

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
  const gap = cell >= 9 * unit ? unit : cell >= 4 * unit ? unit / 2 : 0;
  const radius = cell >= 8 ? 2 * unit : 0;
  const size = cell - gap;
  columns.forEach((column, across) => {
    const x = xOf(layout, across);
    if (x > layout.width || x + cell < layout.left) return;
    const colour = picture.resting[column] ? picture.rest : picture.own;
    const fills = fillsOf(picture.theme, colour);
    rows.forEach((row, down) => {
      context.fillStyle = fills[root(picture.share(row, column) ?? 0)];
      if (!radius) return context.fillRect(x, yOf(layout, down), size, size);
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
  /** @type {number[]} */
  const taken = [];
  const hasRoom = (/** @type {number} */ x) =>
    taken.every((other) => Math.abs(x - other) >= 15 * unit);
  for (const across of labelOrder(picture, layout, isFull)) {
    const at = columns[across];
    const isChosen = at === column || (isLookedAt && at === row);
    const x = xOf(layout, across) + cell / 2;
    if (x < left || x > layout.width - 6 || (!isFull && !isChosen && !hasRoom(x))) continue;
    taken.push(x);
    context.save();
    context.translate(x + 1, top - 7 * unit);
    context.rotate(ANGLE);
    context.font = font(unit, isChosen);
    context.fillStyle = isChosen ? picture.ink : isFull ? soft : text;
    context.fillText(shorten(picture.columns[at].text, context.font, LONGEST * unit), 0, 0);
    context.restore();
  }
}

/**
 * Columns with a label, the most important first: on small cells the hovered one, the strongest
 * target of the chosen row, and its others of 5% or more.
 * @param {MapPicture} picture @param {Layout} layout @param {boolean} isFull
 */
function labelOrder({ row, column, isLookedAt, share }, { columns }, isFull) {
  const all = [...columns.keys()];
  if (isFull) return all;
  const isChosen = (/** @type {number} */ at) => at === column || (isLookedAt && at === row);
  const shares = columns.map((at) => (isLookedAt || row === null ? 0 : (share(row, at) ?? 0)));
  const least = Math.min(TARGET, rounded(Math.max(...shares)));
  const value = (/** @type {number} */ across) => (isChosen(columns[across]) ? 2 : shares[across]);
  const isShown = (/** @type {number} */ across) =>
    value(across) > 0 && rounded(value(across)) >= least;
  return all.filter(isShown).sort((one, other) => value(other) - value(one));
}

/**
 * The chosen row, the hovered word's dashed column, and the stage's window.
 * @param {CanvasRenderingContext2D} context @param {MapPicture} picture @param {Layout} layout
 */
function drawMarks(context, picture, layout) {
  const { unit, cell, rows, columns, left, top } = layout;
  const { soft, text } = GROUNDS[picture.theme];
  const stopX = xOf(layout, columns.length - 1) + cell;
  const [startX, right] = [Math.max(left, xOf(layout, 0)), Math.min(stopX, layout.width - 3)];
  const bottom = layout.height - 4;
  if (picture.window) {
    const [from, to] = picture.window;
    const y = Math.max(top, yOf(layout, from));
    const low = Math.min(bottom, yOf(layout, to + 1));
    context.lineWidth = unit;
    context.strokeStyle = soft;
    if (low > y) context.strokeRect(startX, y, right - startX, low - y);
  }
  context.strokeStyle = text;
  const pad = 1.5 * unit;
  const outline = (/** @type {number[]} */ box, /** @type {number} */ width) => {
    context.beginPath();
    context.lineWidth = width * unit;
    context.roundRect(box[0] - pad, box[1] - pad, box[2] + pad, box[3] + pad, 4 * unit);
    context.stroke();
  };
  const chosen = picture.isLookedAt ? picture.row : picture.column;
  const column = columns.indexOf(chosen ?? -1);
  const x = xOf(layout, column);
  if (column >= 0 && x >= left - 1 && x < right) {
    if (picture.isLookedAt && hasStrip(layout)) {
      const { start, thick } = stripPlace(layout, x + cell / 2, left, right);
      const box = { x: start, y: top, w: thick, h: bottom - top };
      const share = (/** @type {number} */ at) => picture.share(rows[at], columns[column]) ?? 0;
      drawStrip(context, picture, layout, box, false, layout.zoom.y, share, () => false);
    } else {
      if (!picture.isLookedAt) context.setLineDash([3 * unit, 3 * unit]);
      outline([x, top, Math.max(3, cell), bottom - top], picture.isLookedAt ? LINE : 1.2);
      context.setLineDash([]);
    }
  }
  const row = picture.isLookedAt ? -1 : rows.indexOf(picture.row ?? -1);
  const y = yOf(layout, row);
  if (row < 0 || y < top - 1 || y >= bottom) return;
  if (!hasStrip(layout)) return outline([startX, y, right - startX, cell], LINE);
  const { start, thick } = stripPlace(layout, y + cell / 2, top, bottom);
  const box = { x: startX, y: start, w: right - startX, h: thick };
  const share = (/** @type {number} */ at) => picture.share(rows[row], columns[at]) ?? 0;
  const isResting = (/** @type {number} */ at) => picture.resting[columns[at]];
  drawStrip(context, picture, layout, box, true, layout.zoom.x, share, isResting);
}
