// @ts-check
/** Known models and the planned one as dots; both axes are logarithmic. */

/** @import {PlanAnswer} from "../types.js" */

import { make, svg } from "../stage/dom.js";
import { inBytes, short } from "./plan_numbers.js";

/** @typedef {keyof typeof AXES} Axis */

export const AXES = {
  parameters_attention: "Parameters of attention",
  multiply_adds_per_token: "Multiply-adds per token",
  cache_bytes: "Bytes of the KV cache",
  weight_matrix_bytes: "Bytes of one layer\u2019s weights",
  d_model: "Width",
  num_heads: "Heads per layer",
  d_key: "Size of a head",
};
/** Space for the numbers at the left and below, and at the other sides. */
const LEFT = 64,
  BELOW = 48,
  EDGE = 20;

/** @param {string} text */
export const isAxis = (text) => text in AXES;

/** A cost as printed. @param {Axis} axis @param {number} value */
export const print = (axis, value) =>
  axis.endsWith("bytes")
    ? inBytes(value)
    : axis.includes("para") || axis.includes("multi")
      ? short(value)
      : value.toLocaleString("en");

/**
 * Position of each point's name: right, left, above or below the point, wherever it covers no point
 * and no other name; null if it would always cover one.
 * @param {number[][]} places @param {string[]} names @param {number} right
 */
function placeNames(places, names, right) {
  const taken = places.map(([across, up]) => [across - 5, up - 5, across + 5, up + 5]);
  return places.map(([across, up], at) => {
    const width = 6.9 * names[at].length;
    /** @type {[string, number, number][]} */
    const sides = [
      ["start", 10, 4],
      ["end", -10, 4],
      ["middle", 0, -10],
      ["middle", 0, 19],
    ];
    for (const [anchor, dx, dy] of sides) {
      const start = across + dx - ({ start: 0, middle: width / 2, end: width }[anchor] ?? 0);
      const box = [start, up + dy - 11, start + width, up + dy + 3];
      const covers = taken.some(
        ([left, top, end, bottom]) =>
          box[0] < end && box[2] > left && box[1] < bottom && box[3] > top,
      );
      if (covers || box[0] < LEFT || box[2] > right) continue;
      taken.push(box);
      return { x: across + dx, y: up + dy, "text-anchor": anchor };
    }
    return null;
  });
}

export class PlanChart {
  /** @param {HTMLElement} el */
  constructor(el) {
    this.el = el;
    this.drawing = make("div", { class: "pl-plot" });
    this.note = make("p", { class: "pl-note" });
    el.append(this.drawing, this.note);
    /** @type {{points: (PlanAnswer & {kind: string})[], across: Axis, up: Axis} | null} */
    this.shown = null;
    new ResizeObserver(() => this.draw()).observe(this.drawing);
  }

  /**
   * @param {PlanAnswer} own @param {PlanAnswer | null} loaded null if `own` is the loaded model
   * @param {PlanAnswer[]} known @param {Axis} across @param {Axis} up
   */
  show(own, loaded, known, across, up) {
    const others = known.filter(({ name }) => name !== own.name && name !== loaded?.name);
    const every = [
      { ...own, kind: "own" },
      ...(loaded ? [{ ...loaded, kind: "loaded" }] : []),
      ...others.map((each) => ({ ...each, kind: "known" })),
    ];
    const points = every.filter((point) => point[across] > 0 && point[up] > 0);
    this.shown = { points, across, up };
    const isMissing = !points.length || points[0].kind !== "own";
    const why = `${own.name} reads both ways and has no KV cache, so it is not in this chart. `;
    this.note.textContent =
      (isMissing ? why : "") +
      "Both axes are logarithmic. Each known model is at its own context, at most 8,192 tokens.";
    this.draw();
  }

  draw() {
    if (!this.shown || !this.drawing.clientWidth) return;
    const { points, across, up } = this.shown;
    const unit = parseFloat(getComputedStyle(this.drawing).fontSize) / 12 || 1;
    const wide = this.drawing.clientWidth / unit,
      tall = Math.max(260, Math.min(440, 0.72 * wide));
    const log = Math.log10;
    const range = (/** @type {Axis} */ axis) => {
      const values = points.map((point) => log(point[axis]));
      const low = Math.floor(Math.min(...values));
      return [low, Math.max(low + 1, Math.ceil(Math.max(...values)))];
    };
    const [left, right] = range(across),
      [low, high] = range(up);
    const x = (/** @type {number} */ value) =>
      LEFT + ((wide - LEFT - EDGE) * (log(value) - left)) / (right - left);
    const y = (/** @type {number} */ value) =>
      tall - BELOW - ((tall - BELOW - 2 * EDGE) * (log(value) - low)) / (high - low);
    const ticks = [];
    for (let at = left; at <= right; at++)
      ticks.push(
        svg("line", { x1: x(10 ** at), x2: x(10 ** at), y1: 2 * EDGE, y2: tall - BELOW }),
        svg(
          "text",
          { x: x(10 ** at), y: tall - BELOW + 18, "text-anchor": "middle" },
          short(10 ** at),
        ),
      );
    for (let at = low; at <= high; at++)
      ticks.push(
        svg("line", { x1: LEFT, x2: wide - EDGE, y1: y(10 ** at), y2: y(10 ** at) }),
        svg("text", { x: LEFT - 8, y: y(10 ** at) + 4, "text-anchor": "end" }, short(10 ** at)),
      );
    const places = points.map((point) => [x(point[across]), y(point[up])]);
    const dots = points.map((point, at) =>
      svg(
        "circle",
        {
          class: `pl-${point.kind}`,
          cx: places[at][0],
          cy: places[at][1],
          r: point.kind === "known" ? 4.5 : 7,
        },
        svg("title", {}, `${point.name}: ${print(across, point[across])}, ${print(up, point[up])}`),
      ),
    );
    const names = placeNames(
      places,
      points.map(({ name }) => name),
      wide,
    );
    const labels = names.flatMap((place, at) =>
      place
        ? [svg("text", { ...place, class: `pl-name pl-${points[at].kind}` }, points[at].name)]
        : [],
    );
    const [own] = points;
    const label =
      `${AXES[up]} against ${AXES[across].toLowerCase()} of ${points.length} models` +
      (own ? `; ${own.name} has ${print(across, own[across])} and ${print(up, own[up])}` : "");
    this.drawing.replaceChildren(
      svg(
        "svg",
        { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": label },
        ...ticks,
        ...dots.reverse(), // the planned one is on top
        ...labels,
        svg(
          "text",
          { class: "pl-axis", x: wide - EDGE, y: tall - 6, "text-anchor": "end" },
          `${AXES[across]} \u2192`,
        ),
        svg("text", { class: "pl-axis", x: 0, y: 14 }, `\u2191 ${AXES[up]}`),
      ),
    );
  }
}
