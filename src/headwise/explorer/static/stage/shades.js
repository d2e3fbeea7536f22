// @ts-check
/** Colours of small maps, bars and the large map: tables of 256 shades per theme and role. */

/** @import {SmallMap} from "./grid.js" */

import { mix } from "./colours.js";

/** Shades by theme and colour. @type {Map<string, Uint8ClampedArray>} */
const tables = new Map();
/** Square roots of weights in 1/65535, as bytes. */
const ROOTS = Uint8Array.from({ length: 65536 }, (_, at) =>
  Math.round(255 * Math.sqrt(at / 65535)),
);

/** Red, green and blue of a colour like #a80f68. @param {string} colour */
export const rgb = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

/**
 * 256 shades of a colour, three bytes each; shade k is a weight whose square root is k/255.
 * @param {"light" | "dark"} theme @param {string} colour
 */
export function shades(theme, colour) {
  const key = `${theme} ${colour}`;
  let table = tables.get(key);
  if (!table) {
    table = new Uint8ClampedArray(256 * 3);
    for (let at = 0; at < 256; at++) table.set(rgb(mix(theme, colour, (at / 255) ** 2)), at * 3);
    tables.set(key, table);
  }
  return table;
}

/** Shades as CSS colours, by theme and colour. @type {Map<string, string[]>} */
const fills = new Map();

/**
 * 256 shades of a colour as CSS colours.
 * @param {"light" | "dark"} theme @param {string} colour
 */
export function fillsOf(theme, colour) {
  const key = `${theme} ${colour}`;
  let list = fills.get(key);
  if (!list) {
    const table = shades(theme, colour);
    list = Array.from({ length: 256 }, (_, at) => `rgb(${table.slice(3 * at, 3 * at + 3).join()})`);
    fills.set(key, list);
  }
  return list;
}

/** Square roots of 16-bit weights, as bytes. @param {Uint16Array} weights */
export const roots = (weights) => Uint8Array.from(weights, (weight) => ROOTS[weight]);

/** Square root of a share from 0 to 1, as a byte. @param {number} share */
export const root = (share) => Math.round(255 * Math.sqrt(Math.min(1, Math.max(0, share))));

/**
 * A map as one pixel per weight, set into a canvas; special columns take their own shades.
 * @param {HTMLCanvasElement} canvas @param {SmallMap} map @param {Uint8ClampedArray} own
 * @param {Uint8ClampedArray} resting @param {(column: number) => boolean} isResting
 */
export function paintMap(canvas, { bytes, shape, isShown }, own, resting, isResting) {
  const [rows, columns] = shape;
  const shown = Array.from({ length: rows }, (_, row) => row).filter(isShown);
  canvas.width = Math.max(1, columns);
  canvas.height = Math.max(1, shown.length);
  if (!columns || !shown.length) return;
  const { data } = new ImageData(columns, shown.length);
  const tables = Array.from({ length: columns }, (_, at) => (isResting(at) ? resting : own));
  let place = 0;
  for (const row of shown)
    for (let column = 0; column < columns; column++, place += 4) {
      const shade = 3 * bytes[row * columns + column];
      const table = tables[column];
      data[place] = table[shade];
      data[place + 1] = table[shade + 1];
      data[place + 2] = table[shade + 2];
      data[place + 3] = 255;
    }
  const picture = new ImageData(data, columns, shown.length);
  canvas.getContext("2d")?.putImageData(picture, 0, 0);
}

/**
 * One row as bars, linear in the weight.
 * @param {HTMLCanvasElement} canvas @param {ArrayLike<number>} shares @param {number} size in px
 * @param {string} own @param {string} resting @param {(column: number) => boolean} isResting
 */
export function paintBars(canvas, shares, size, own, resting, isResting) {
  const scale = Math.min(3, Math.max(1, devicePixelRatio || 1));
  const side = Math.max(1, Math.round(size * scale));
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d");
  if (!context) return;
  const pitch = side / Math.max(1, shares.length);
  const wide = Math.max(1, Math.min(pitch - (pitch > 3 ? 1 : 0), 3 * scale));
  for (let at = 0; at < shares.length; at++) {
    const tall = Math.max(shares[at] >= 0.005 ? scale : 0, shares[at] * (side - 2));
    context.fillStyle = isResting(at) ? resting : own;
    context.fillRect(at * pitch + (pitch - wide) / 2, side - tall, wide, tall);
  }
}
