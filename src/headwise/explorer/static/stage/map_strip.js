// @ts-check
/** The chosen row or column of a map whose cells are too small to see, drawn large in its place. */

/** @import {MapPicture} from "./map.js" */
/** @import {Layout} from "./map_layout.js" */

import { GROUNDS } from "./colours.js";
import { fillsOf, root } from "./shades.js";

/** Cells below this size are drawn as a strip, of this thickness and of cells of at least this
 * length, in px at a font size of 16. */
const SMALL = 9,
  THICK = 14,
  LENGTH = 2;

/** Whether the chosen row of a map is drawn as a strip. @param {Layout} layout */
export const hasStrip = ({ cell, unit }) => cell < SMALL * unit;

/**
 * The largest share of each block of columns, or of rows.
 * @param {number} count @param {number} size  columns in a block, not always whole
 * @param {(at: number) => number} share @returns {number[]} indices of the largest
 */
export function largest(count, size, share) {
  return Array.from({ length: Math.ceil(count / size) }, (_, block) => {
    let best = Math.floor(block * size);
    const end = Math.min(count, Math.max(best + 1, Math.floor((block + 1) * size)));
    for (let at = best + 1; at < end; at++) if (share(at) > share(best)) best = at;
    return best;
  });
}

/**
 * Where the strip of a row (or column) stands: it stays inside the map.
 * @param {Layout} layout @param {number} middle  of the row, in px
 * @param {number} from @param {number} to  edges of the map
 */
export function stripPlace({ unit }, middle, from, to) {
  const thick = THICK * unit;
  return { start: Math.max(from, Math.min(middle - thick / 2, to - thick)), thick };
}

/**
 * Draw a strip with an outline.
 * @param {CanvasRenderingContext2D} context @param {MapPicture} picture @param {Layout} layout
 * @param {{x: number, y: number, w: number, h: number}} box
 * @param {boolean} isRow @param {number} first  the first cell in sight, perhaps a part of it
 * @param {(at: number) => number} share  of a column, or with a column's strip of a row
 * @param {(at: number) => boolean} isResting
 */
export function drawStrip(context, picture, layout, box, isRow, first, share, isResting) {
  const { cell, unit } = layout;
  const { x, y, w, h } = box;
  const count = isRow ? layout.columns.length : layout.rows.length;
  const size = Math.max(1, (LENGTH * unit) / cell);
  context.save();
  context.beginPath();
  context.roundRect(x, y, w, h, 3 * unit);
  context.fillStyle = GROUNDS[picture.theme].cell;
  context.fill();
  context.save();
  context.clip();
  largest(count, size, share).forEach((at, block) => {
    const colour = isResting(at) ? picture.rest : picture.own;
    context.fillStyle = fillsOf(picture.theme, colour)[root(share(at))];
    const start = (block * size - first) * cell;
    if (isRow) context.fillRect(x + start, y, size * cell, h);
    else context.fillRect(x, y + start, w, size * cell);
  });
  context.restore();
  context.strokeStyle = GROUNDS[picture.theme].text;
  context.lineWidth = 1.6 * unit;
  context.stroke();
  context.restore();
}
