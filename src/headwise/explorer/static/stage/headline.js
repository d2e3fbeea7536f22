// @ts-check
/** The headline block: the head's name, its role pills, the headline, and the line below it. */

/** @import {RoleFacts} from "../types.js" */
/** @import {Part} from "./sentences.js" */

import { isHatched } from "./arcs.js";
import { make } from "./dom.js";
import { chip } from "./legend.js";
import { fill, NO_ROLE, NOT_MEASURED, plain } from "./sentences.js";

/** Milliseconds after the last change before a screen reader is told. */
const SPOKEN = 400;

/** @typedef {{name: string, role: string | null, mark: string, detail: string}} NamedHead */

/**
 * @typedef {object} HeadlinePicture
 * @property {NamedHead[]} heads @property {string[]} roles  roles of a single head
 * @property {string | null} role  the role whose colour is shown
 * @property {boolean} isMeasured @property {Record<string, RoleFacts>} facts
 * @property {"light" | "dark"} theme
 * @property {string} remark  a few grey words beside the pills
 * @property {Part[]} headline @property {Part[]} sub
 * @property {string} error  a sentence in place of the sub
 * @property {boolean} isSpoken  whether a screen reader is told of the change
 */

/** Number of headlines made, for ids. */
let made = 0;

export class Headline {
  /** @param {HTMLElement} el @param {(role: string) => void} choose */
  constructor(el, choose) {
    this.choose = choose;
    this.pills = make("div", { class: "hv-pills" });
    this.title = make("h2", { class: "hv-headline", id: `hv-headline-${made++}` });
    this.sub = make("div", { class: "hv-sub" });
    this.live = make("p", { class: "hv-hidden", "aria-live": "polite" });
    el.append(this.pills, this.title, this.sub, this.live);
    this.shown = "";
    this.spoken = "";
  }

  destroy() {
    clearTimeout(this.timer);
  }

  /** @param {HeadlinePicture} picture */
  show(picture) {
    this.showPills(picture);
    fill(this.title, picture.headline);
    this.sub.classList.toggle("hv-error", Boolean(picture.error));
    if (picture.error) fill(this.sub, [picture.error]);
    else if (picture.heads.length > 1) this.showHeads(picture);
    else fill(this.sub, picture.sub);
    if (picture.isSpoken) this.speak(plain([...picture.headline, ". ", ...picture.sub]));
  }

  /** @param {string} text */
  speak(text) {
    if (text === this.spoken) return;
    this.spoken = text;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.live.textContent = text;
    }, SPOKEN);
  }

  /** @param {HeadlinePicture} picture */
  showPills({ heads, roles, role, isMeasured, facts, theme, remark }) {
    const key = JSON.stringify([heads, roles, role, isMeasured, theme, remark]);
    if (key === this.shown) return; // a replaced pill would lose the focus
    this.shown = key;
    const focused = this.pills.querySelector(":focus")?.getAttribute("data-role");
    const name = make("b", { class: "hv-name" });
    name.textContent = heads.length > 1 ? `${heads.length} heads` : (heads[0]?.name ?? "");
    const quiet = remark ? [make("span", { class: "hv-remark" }, remark)] : [];
    const pills = roles.map((each) => {
      const pill = make(
        "button",
        {
          type: "button",
          class: "hv-pill",
          "data-role": each,
          "aria-pressed": String(each === role),
          title: facts[each]?.meaning,
        },
        chip(facts[each], theme),
        each,
      );
      pill.style.setProperty("--own", facts[each]?.[theme] ?? "");
      pill.addEventListener("click", () => this.choose(each));
      return pill;
    });
    const none = isMeasured ? NO_ROLE : NOT_MEASURED;
    if (!roles.length && heads.length === 1)
      pills.push(
        /** @type {HTMLButtonElement} */ (
          /** @type {HTMLElement} */ (
            make("span", { class: "hv-pill hv-pill-none" }, chip(null, theme), none)
          )
        ),
      );
    this.pills.replaceChildren(name, ...pills, ...quiet);
    if (focused)
      /** @type {HTMLElement | null} */ (
        this.pills.querySelector(`[data-role="${focused}"]`)
      )?.focus();
  }

  /** Name every head of an overlay below the headline. @param {HeadlinePicture} picture */
  showHeads({ heads, facts, theme, isMeasured }) {
    const items = heads.map(({ name, role, mark, detail }, at) => {
      const gist = role ? `${role}${detail ? `, ${detail}` : ""}` : isMeasured ? NO_ROLE : "";
      const words = [gist, isHatched(heads, at) ? "hatched" : ""].filter(Boolean).join(", ");
      return make(
        "span",
        { class: "hv-named" },
        chip(role ? facts[role] : null, theme, mark),
        make("b", {}, name),
        ` ${words}`,
      );
    });
    this.sub.replaceChildren(...items);
  }
}
