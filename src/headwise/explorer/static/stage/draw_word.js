// @ts-check
/** A word as SVG, for the saved picture; the page has buttons instead. */
import { GROUNDS } from "./colours.js";
import { shape } from "./dom.js";
import { BASELINE, pillOf } from "./draw.js";
import { SANS, SERIF } from "./measure.js";

/** @import {Shape} from "./dom.js" */
/** @import {Box} from "./layout.js" */
/** @import {Picture} from "./picture.js" */
/** @import {WordState} from "./words.js" */

/** Width of the ground-coloured line around words that arcs pass under. */
const HALO = 6;

/**
 * A word as SVG text, for the saved picture.
 * @param {Box} box
 * @param {string} text
 * @param {WordState} state
 * @param {number} size
 * @param {Picture} picture
 * @returns {Shape}
 */
export function wordShape(box, text, state, size, picture) {
  const isChip = state.chip !== null;
  const pill = pillOf(box, isChip);
  const [x, y] = [box.x + box.w / 2, box.y + box.h / 2];
  const rect = { x: pill.x, y: pill.y, width: pill.w, height: pill.h };
  const parts = [];
  if (state.fill || state.outline || isChip || state.isDashed) {
    const colour = state.outline ?? (state.isDashed ? GROUNDS[picture.theme].text : state.chip);
    parts.push(
      shape("rect", {
        ...rect,
        rx: isChip ? pill.h / 2 : 0.25 * size,
        fill: state.fill ?? "none",
        stroke: state.fill ? null : colour,
        "stroke-width": state.outline ? 2 : isChip ? 1 : 1.5,
        "stroke-dasharray": state.isDashed && !state.fill ? "5 3" : null,
      }),
    );
  }
  const font = isChip
    ? { "font-family": SANS, "font-size": 13 }
    : { "font-family": SERIF, "font-size": size };
  const baseline = y + (isChip ? BASELINE.sans * 13 : BASELINE.serif * size);
  const place = { x, y: baseline, "text-anchor": "middle", fill: state.colour };
  const halo = { stroke: GROUNDS[picture.theme].ground, "stroke-width": HALO };
  const isBare = !state.fill && !isChip;
  const under = { ...halo, "stroke-linejoin": "round", "paint-order": "stroke" };
  parts.push(shape("text", { ...place, ...font, ...(isBare ? under : {}) }, text));
  return shape("g", { class: "hw-export-word" }, ...parts);
}
