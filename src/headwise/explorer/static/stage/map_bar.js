// @ts-check
/** The map's title: the head's name, or tabs for the heads of an overlay or texts of a pair. */

/** @import {View} from "./view.js" */
/** @import {Frame} from "./view_pictures.js" */

import { make } from "./dom.js";
import { inkOf, shownRole } from "./frame.js";

export class MapBar {
  /** @param {HTMLElement} el @param {View} view */
  constructor(el, view) {
    this.view = view;
    this.title = make("h2", { class: "hv-title" });
    this.tabs = make("div", { class: "hv-tabs", role: "group", "aria-label": "Head of the map" });
    this.sides = make("div", { class: "hv-tabs", role: "group", "aria-label": "Text of the map" });
    el.append(make("div", { class: "hv-panel-bar" }, this.title, this.tabs, this.sides));
    this.shown = "";
  }

  /** @param {Frame} frame */
  show(frame) {
    const { host, heads, tab, isLookedAt, data, pair } = frame;
    const key = JSON.stringify([
      ...[heads, tab, host.theme(), isLookedAt, pair?.side, pair?.words, host.get("of")],
    ]);
    if (key === this.shown) return;
    this.shown = key;
    const isMany = heads.length > 1;
    this.title.hidden = isMany;
    this.tabs.hidden = !isMany;
    const words = data.isCross(tab) ? "row looks at column of the source" : "row looks at column";
    const isPair = pair?.side === "both";
    this.title.replaceChildren(tab, " ", ...(isPair ? [] : [make("span", {}, words)]));
    this.tabs.replaceChildren(
      ...heads.map((head) =>
        this.tab(head, head === tab, inkOf(host, shownRole(host, head)), () => {
          host.set({ tab: head === heads[heads.length - 1] ? "" : head }, "push");
        }),
      ),
    );
    this.sides.hidden = !isPair;
    const of = host.get("of") === "second" ? "second" : "first";
    const [one, other] = frame.pair?.words ?? ["First", "Second"];
    const side = (/** @type {string} */ name, /** @type {string} */ label) =>
      this.tab(label, of === name, "", () =>
        host.set({ of: name === "first" ? "" : name }, "push"),
      );
    this.sides.replaceChildren(
      ...(isPair ? [side("first", `With ${one}`), side("second", `With ${other}`)] : []),
    );
  }

  /** @param {string} words @param {boolean} isOn @param {string} colour @param {() => void} act */
  tab(words, isOn, colour, act) {
    const tab = make("button", { type: "button", "aria-pressed": String(isOn) }, words);
    if (isOn && colour) tab.style.color = tab.style.borderColor = colour;
    tab.addEventListener("click", act);
    return tab;
  }
}
