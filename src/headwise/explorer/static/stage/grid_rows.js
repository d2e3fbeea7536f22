// @ts-check
/** The rows of the grid in the document: labels of layers and heads, and a button for each head. */

/** @import {Grid} from "./grid.js" */

import { make } from "./dom.js";
import { layerName } from "./grid_shape.js";

/** Fill the grid's box; returns heads row by row as on the screen. @param {Grid} grid */
export function gridRows(grid) {
  const { layers, shape } = grid;
  const { across, down, isTurned } = shape;
  const nameAt = (/** @type {number} */ layer, /** @type {number} */ head) =>
    head < layers[layer].heads ? `${layers[layer].name}H${head}` : null;
  const names = Array.from({ length: down }, (_, row) =>
    Array.from({ length: across }, (_, column) =>
      isTurned ? nameAt(column, row) : nameAt(row, column),
    ),
  );
  const label = { role: "columnheader", class: "hv-grid-label" };
  const top = Array.from({ length: across }, (_, at) =>
    make(
      "span",
      {
        ...{ ...label, class: "hv-grid-label hv-grid-top", "data-at": at },
        title: isTurned ? layers[at].name : null,
      },
      isTurned ? layerLabel(grid, at, true) : String(at),
    ),
  );
  const axis = make("span", { class: "hv-hidden" }, isTurned ? "head" : "layer");
  const rows = names.map((row, at) => [
    make(
      "span",
      { role: "rowheader", class: "hv-grid-label" },
      isTurned ? `H${at}` : layerLabel(grid, at, false),
    ),
    ...row.map((name) => (name ? headCell(grid, name) : make("span", { role: "gridcell" }))),
  ]);
  grid.box.style.setProperty("--across", String(across));
  grid.box.replaceChildren(
    ...[[make("span", label, axis), ...top], ...rows].map((cells) =>
      make("div", { role: "row", class: "hv-grid-row" }, ...cells),
    ),
  );
  return names;
}

/** @param {Grid} grid @param {string} name */
function headCell(grid, name) {
  const cell = make(
    "button",
    { type: "button", class: "hv-head", role: "gridcell", tabindex: -1, "data-head": name },
    make("canvas", { "aria-hidden": "true", width: 1, height: 1 }),
    make("span", { class: "hv-grid-letter", "aria-hidden": "true" }),
  );
  cell.addEventListener("click", (event) => grid.click(name, event));
  cell.addEventListener("focus", () => grid.focusable(name));
  grid.cells.set(name, cell);
  return cell;
}

/**
 * A layer's name; where heads can be switched off, a button that does so for all of its heads.
 * @param {Grid} grid @param {number} at @param {boolean} isShort
 */
function layerLabel(grid, at, isShort) {
  const { layers, actions } = grid;
  const { name, heads } = layers[at];
  const isPlain = layers.every((layer) => /^L\d+$/.test(layer.name));
  const text = isShort && isPlain ? name.slice(1) : layerName(name, isShort);
  if (!actions.toggle) return text;
  const names = Array.from({ length: heads }, (_, head) => `${name}H${head}`);
  const button = make(
    "button",
    { type: "button", class: "hv-layer", "aria-label": `Switch layer ${name}`, tabindex: -1 },
    text,
  );
  button.addEventListener("click", () => {
    const off = grid.picture?.off ?? new Set();
    actions.toggle?.(names, !names.every((each) => off.has(each)));
  });
  return button;
}
