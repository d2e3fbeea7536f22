// @ts-check
/** The legend of roles below a grid: a button per role with the number of heads that hold it. */

/** @import {RoleFacts} from "../types.js" */

import { make } from "./dom.js";
import { NO_ROLE, ROLES } from "./sentences.js";

/**
 * A role's letter on its colour.
 * @param {RoleFacts | null} facts @param {"light" | "dark"} theme @param {string} [mark]
 */
export function chip(facts, theme, mark = "") {
  const el = make("span", { class: "hv-chip", "aria-hidden": "true" }, facts?.letter ?? "\u00b7");
  if (!facts) el.classList.add("hv-chip-none");
  else el.style.background = facts[theme];
  if (mark) el.append(make("sub", {}, mark));
  return el;
}

export class Legend {
  /** @param {HTMLElement} el @param {(role: string | null) => void} only */
  constructor(el, only) {
    this.el = el;
    this.only = only;
    this.el.classList.add("hv-legend");
    this.shown = "";
  }

  /**
   * @param {Record<string, RoleFacts>} facts @param {Record<string, string[]> | null} roles
   * @param {"light" | "dark"} theme @param {string | null} only the role that is not dimmed
   */
  show(facts, roles, theme, only) {
    const key = JSON.stringify([roles, theme]);
    if (key !== this.shown) this.build(facts, roles, theme);
    this.shown = key;
    for (const button of this.el.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(button.dataset.role === only));
  }

  /**
   * @param {Record<string, RoleFacts>} facts @param {Record<string, string[]> | null} roles
   * @param {"light" | "dark"} theme
   */
  build(facts, roles, theme) {
    const held = Object.values(roles ?? {});
    const count = (/** @type {string} */ role) => held.filter((all) => all.includes(role)).length;
    const order = Object.keys(facts);
    const parts = (roles ? order : [])
      .filter((role) => count(role))
      .map((role) => {
        const button = make(
          "button",
          {
            type: "button",
            "data-role": role,
            "aria-pressed": "false",
            title: `${facts[role].meaning} Click to dim the other heads.`,
          },
          chip(facts[role], theme),
          make("span", {}, role),
          make("b", {}, String(count(role))),
        );
        button.addEventListener("click", () =>
          this.only(button.getAttribute("aria-pressed") === "true" ? null : role),
        );
        return button;
      });
    const without = held.filter((all) => !all.length).length;
    const none = make("span", { class: "hv-legend-none" }, chip(null, theme));
    if (roles) none.append(make("span", {}, NO_ROLE), make("b", {}, String(without)));
    else none.append(make("span", {}, "roles not measured yet"));
    const note = make("p", { class: "hv-legend-note" }, ROLES);
    this.el.replaceChildren(
      ...parts,
      ...(!roles || without ? [none] : []),
      ...(parts.length ? [note] : []),
    );
  }
}
