// @ts-check
/** The grid of heads without a text: roles from a scan, and the measures of the chosen head. */

/** @import {HeadGrid} from "../types.js" */
/** @import {State} from "./hash_state.js" */
/** @import {ModelAnswer} from "../types.js" */

import { GROUNDS, ROLES } from "./colours.js";
import { make } from "./dom.js";
import { rolesOf } from "./frame.js";
import { Grid } from "./grid.js";
import { format } from "./head_facts.js";
import { Legend } from "./legend.js";
import { NO_ROLE, capital } from "./sentences.js";
import { shades } from "./shades.js";

export class TableView {
  /**
   * @param {HTMLElement} el @param {ModelAnswer} about @param {HeadGrid} table
   * @param {State} state @param {() => "light" | "dark"} theme
   */
  constructor(el, about, table, state, theme) {
    this.about = about;
    this.table = table;
    this.state = state;
    this.theme = theme;
    /** @type {string | null} */
    this.only = null;
    this.title = make("h2", { class: "hv-title" });
    this.line = make("p", { class: "hw-table-roles" });
    this.list = make("ul", { class: "hw-table-facts" });
    const cells = make("div", { class: "hv-grid-box" });
    const legend = make("div", { role: "group", "aria-label": "Roles" });
    this.root = make(
      "div",
      { class: "hv-view hw-table" },
      this.title,
      this.line,
      cells,
      legend,
      this.list,
    );
    el.replaceChildren(this.root);
    const label = `All ${table.names.length} heads`;
    this.grid = new Grid(cells, about.layers, { choose: (head) => state.set({ head }) }, label);
    this.legend = new Legend(legend, (role) => {
      this.only = role;
      this.show();
    });
    this.stop = state.on(() => this.show());
    this.show();
  }

  destroy() {
    this.stop();
    this.grid.destroy();
    this.root.remove();
  }

  show() {
    const theme = this.theme();
    const roles = rolesOf(this.about) ?? {};
    const [head] = this.state.get("head").split(",");
    this.root.dataset.theme = theme;
    this.title.textContent = head;
    this.line.textContent = capital((roles[head] ?? []).join(", ") || NO_ROLE);
    const place = this.table.names.indexOf(head);
    const facts = Object.entries(this.table.words).flatMap(([name, words]) => {
      const value = this.table.measures[name]?.[place];
      return value === null || value === undefined
        ? []
        : [make("li", {}, make("span", {}, words), make("b", {}, format(value)))];
    });
    this.list.replaceChildren(...facts);
    this.legend.show(this.about.roles, roles, theme, this.only);
    const own = (/** @type {string | null} */ role) =>
      (role && this.about.roles[role]?.[theme]) || ROLES[theme].none;
    this.grid.show({
      facts: this.about.roles,
      roles,
      chosen: [head],
      only: this.only,
      theme,
      colours: { own, rest: GROUNDS[theme].rest, shades: (colour) => shades(theme, colour) },
      key: "table",
      maps: null,
      bars: null,
      values: null,
    });
  }
}
