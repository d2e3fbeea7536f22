// @ts-check
/** One cell of the grid: its map, bars, value or role. */

/** @import {GridPicture} from "./grid.js" */

import { carrierLabel } from "./carriers.js";
import { svg } from "./dom.js";
import { paintBars, paintMap } from "./shades.js";

/** Cross a head out that is switched off. @param {HTMLElement} cell @param {boolean} isOff */
export function slash(cell, isOff) {
  const drawn = cell.querySelector("svg");
  if (!isOff) drawn?.remove();
  else if (!drawn)
    cell.append(
      svg(
        "svg",
        { viewBox: "0 0 10 10", "aria-hidden": "true" },
        svg("line", { x1: 2.2, y1: 7.8, x2: 7.8, y2: 2.2 }),
      ),
    );
}

/** What a head's label says besides its roles. @param {string} name @param {GridPicture} picture */
export function headStates(name, { chosen, off, factors, values, carries }) {
  const factor = factors?.get(name);
  const state = off?.has(name) ? "off" : factor === undefined ? "" : `times ${factor}`;
  const share = carries?.get(name);
  const all = [chosen.includes(name) ? "chosen" : "", state, values?.[name]?.words ?? ""];
  return [...all, share === undefined ? "" : carrierLabel(share)].filter(Boolean);
}

/**
 * Draw a cell's map, bars, value or role, unless it shows that already.
 * @param {string} name @param {HTMLElement} cell @param {GridPicture} picture
 * @param {string} kind  "letters", "maps" or "squares", by the size of cells
 * @param {number} size in px @param {string | undefined} before  key of what the cell shows
 * @returns {string} key of what it shows now
 */
export function paintCell(name, cell, picture, kind, size, before) {
  const isSquares = kind === "squares";
  const { own, rest, shades } = picture.colours;
  const roles = picture.roles?.[name] ?? [];
  const lead = roles[0] ?? null;
  const colour = own(lead);
  const value = picture.values?.[name] ?? null;
  const isFilled = Boolean(value || isSquares);
  const bars = isFilled ? null : picture.bars?.(name);
  const map = isFilled || bars ? null : picture.maps?.(name);
  const key = [picture.key, picture.theme, roles, value?.fill, bars ? "bars" : map?.key].join();
  if (key === before) return key;
  const canvas = /** @type {HTMLCanvasElement} */ (cell.firstElementChild);
  const letter = /** @type {HTMLElement} */ (canvas.nextElementSibling);
  letter.textContent = lead ? `${picture.facts[lead]?.letter ?? "?"}${roles[1] ? "+" : ""}` : "";
  letter.style.color = colour;
  letter.hidden = Boolean(value) || kind !== "letters";
  cell.style.background = value ? value.fill : isSquares && lead ? colour : "";
  canvas.hidden = isFilled;
  canvas.classList.toggle("hv-bars", Boolean(bars));
  const rests = lead === "sink" || lead === "delimiter" ? () => false : null;
  if (bars) paintBars(canvas, bars.shares, size - 4, colour, rest, rests ?? bars.isResting);
  else if (map) paintMap(canvas, map, shades(colour), shades(rest), rests ?? map.isResting);
  else canvas.width = canvas.height = 1;
  return key;
}
