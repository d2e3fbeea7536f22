// @ts-check
/**
 * Sizes of the grid: cells are as large as the room allows, and the longer axis runs across unless
 * the room is a phone's.
 */

/** @import {LayerFacts} from "../types.js" */

/** Smallest cells with letters and with maps, in px at a font size of 16. */
const LETTERS = 26,
  MAPS = 18;
/** Widths in px at a font size of 16: layer labels, the largest pitch, and tall grids' pitch. */
const LABEL = 30,
  PITCH = 43,
  LOW = 24,
  TALL = 300;
/** The same for a grid that has the whole width, or that of two panels. */
const WIDE_PITCH = 62,
  WIDE_TALL = 388;

/** Rooms in px that are a phone's: as tall as needed, with cells of a finger's size at most. */
const SLIM = 480,
  SLIM_PITCH = 48;

/**
 * Numbers of cells across and down. In a slim room the shorter axis runs across if small maps
 * would not fit otherwise.
 * @param {LayerFacts[]} layers @param {number} [room]
 */
export function gridShape(layers, room = Infinity) {
  const heads = Math.max(1, ...layers.map((layer) => layer.heads));
  const longest = Math.max(layers.length, heads);
  const isUpright = room < SLIM && (room - LABEL) / longest < LOW;
  const isTurned = layers.length > heads !== isUpright && layers.length !== heads;
  return {
    across: isTurned ? layers.length : heads,
    down: isTurned ? heads : layers.length,
    isTurned,
  };
}

/** Whether the grid takes a row of its own. @param {LayerFacts[]} layers @param {number} room */
export function wantsRow(layers, room) {
  const { across, down } = gridShape(layers);
  return (room - LABEL) / across < MAPS + 3 && down * LOW <= 380;
}

/** Short name of a layer: enc.L0 beside a row, E0 above a column.
 * @param {string} name @param {boolean} isAbove */
export const layerName = (name, isAbove) =>
  isAbove
    ? name.replace(/^(.)[^.]*\.L?/, (_, letter) => letter.toUpperCase())
    : name.replace(/^(.{1,3})[^.]*\./, "$1.");

/**
 * Width of layer labels, size of cells and gaps, in px at a font size of 16. Cells that do not fit
 * a slim room keep a usable size, and the grid scrolls.
 * @param {LayerFacts[]} layers @param {number} room
 * @param {boolean} [isLarge] whether the grid has more than its own panel
 */
export function cellSizes(layers, room, isLarge = false) {
  const { across, down, isTurned } = gridShape(layers, room);
  const isSlim = room < SLIM;
  const isStacked = layers.some(({ name }) => name.includes("."));
  const label = isStacked && !isTurned ? 2 * LABEL : LABEL;
  const tall = isSlim ? Infinity : isLarge ? WIDE_TALL : TALL;
  const most = Math.max(LOW, Math.floor(tall / down));
  const fitting = Math.floor((room - label) / across);
  const widest = isSlim ? SLIM_PITCH : isLarge ? WIDE_PITCH : PITCH;
  const pitch = Math.max(isSlim ? LOW : 8, Math.min(widest, fitting, most));
  const gap = pitch >= 30 ? 4 : pitch >= 20 ? 3 : 2;
  const size = pitch - gap;
  const kind = size >= LETTERS ? "letters" : size >= MAPS ? "maps" : "squares";
  return { label, size, gap, pitch, kind, isScrolling: pitch > fitting };
}
