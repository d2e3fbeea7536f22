// @ts-check
/** The heads of a table without a text: a grid of letters, and facts on the chosen head. */

/** @import {RoleFacts} from "../types.js" */
/** @import {Model} from "./notebook_host.js" */

import { make } from "./dom.js";
import { layerOf, numberOf } from "./host.js";
import { themeAround, watchTheme } from "./notebook_theme.js";

/** Rows of the grid: each layer and its heads. @param {string[]} names */
function layersOf(names) {
  /** @type {Map<string, string[]>} */
  const layers = new Map();
  for (const name of names) layers.set(layerOf(name), [...(layers.get(layerOf(name)) ?? []), name]);
  return layers;
}

/**
 * Draw the widget; returns a function that removes it.
 * @param {{model: Model, el: HTMLElement}} at
 */
export function render({ model, el }) {
  const names = /** @type {string[]} */ (model.get("names"));
  const roles = /** @type {string[][]} */ (model.get("roles"));
  const known = /** @type {Record<string, RoleFacts>} */ (model.get("about"));
  const box = make("div", { class: "hw-notebook hw-table" });
  const title = make("h3", {});
  const facts = make("div", {});
  const grid = make("table", { "aria-label": "All heads" });
  /** @type {Map<string, HTMLButtonElement>} */
  const buttons = new Map();
  for (const [layer, heads] of layersOf(names)) {
    const row = make("tr", {}, make("th", { scope: "row" }, layer));
    for (const name of heads) {
      const [lead] = roles[names.indexOf(name)];
      const label = `${name}, ${roles[names.indexOf(name)].join(" and ") || "no clear role"}`;
      const letter = known[lead]?.letter ?? "\u00b7";
      const button = make("button", { type: "button", "aria-label": label, title: label }, letter);
      button.dataset.head = name;
      if (known[lead]) button.style.color = `var(--role-${lead})`;
      button.addEventListener("click", () => {
        model.set("head", name);
        model.save_changes();
        show();
      });
      buttons.set(name, button);
      row.append(make("td", { "data-number": numberOf(name) }, button));
    }
    grid.append(row);
  }
  const show = () => {
    const chosen = String(model.get("head"));
    title.textContent = chosen;
    const lines = /** @type {string[]} */ (model.get("facts"));
    facts.replaceChildren(...lines.map((line) => make("p", {}, line)));
    for (const [name, button] of buttons)
      button.setAttribute("aria-pressed", String(name === chosen));
  };
  const light = () => {
    box.dataset.theme = themeAround(box);
  };
  box.append(grid, title, facts);
  el.append(box);
  light();
  show();
  for (const name of ["head", "facts"]) model.on(`change:${name}`, show);
  const stop = watchTheme(light);
  return () => {
    stop();
    for (const name of ["head", "facts"]) model.off(`change:${name}`, show);
    box.remove();
  };
}
