// @ts-check
/**
 * The sentence in pieces, with rows of marks above and below each piece. If the pieces do not fit
 * side by side, the figure turns: one piece per line, rows become columns.
 */

/** @import {Place, StageWord} from "../types.js" */

import { make } from "../stage/dom.js";
import { vars, visible } from "./parts.js";

/** Sizes of the pieces that are tried, in rem, largest first. */
const SIZES = [1.75, 1.625, 1.5, 1.375, 1.25];

/**
 * @typedef {object} Line one row of the figure; a column if the figure is turned
 * @property {string} name
 * @property {((at: number) => HTMLElement) | null} item the mark of a piece; null: the piece itself
 * @property {(Node | string)[]} [title]
 */

export class Columns {
  /**
   * @param {Place} place @param {Line[]} lines
   * @param {{follow?: (at: number) => void, point?: (at: number | null) => void}} on
   */
  constructor(place, lines, on = {}) {
    this.place = place;
    this.words = place.pieces.map((piece, at) => this.word(piece, at, on));
    this.el = make("div", { class: "lesson-columns is-across" });
    vars(this.el, { count: place.pieces.length, lines: lines.length });
    /** @type {Record<string, HTMLElement[]>} */
    this.items = {};
    lines.forEach(({ name, item, title }, line) => {
      if (title) {
        const el = make("div", { class: `lesson-line-title for-${name}` }, ...title);
        this.el.append(vars(el, { place: 2 * line + 1, column: line + 1 }));
      }
      this.items[name] = place.pieces.map((_, at) => {
        const el = item ? item(at) : this.words[at];
        el.classList.add("lesson-item", `in-${name}`);
        el.dataset.part = [el.dataset.part, `piece ${at}`, `word ${place.word_of[at]}`]
          .filter(Boolean)
          .join("|");
        if (on.point) {
          el.addEventListener("pointerenter", () => on.point?.(at));
          el.addEventListener("pointerleave", () => on.point?.(null));
        }
        this.el.append(vars(el, { place: 2 * line + 2, column: line + 1, at: at + 1 }));
        return el;
      });
    });
    this.resizer = new ResizeObserver(() => this.fit());
    this.resizer.observe(this.el);
    this.width = 0;
  }

  /** @param {StageWord} piece @param {number} at @param {{follow?: (at: number) => void}} on */
  word(piece, at, on) {
    const { position } = this.place;
    const isHere = at === position;
    const kind = piece.kind === "special" ? "is-special" : "";
    const el = make(
      on.follow ? "button" : "div",
      { class: `lesson-piece ${kind} ${isHere ? "is-here" : ""}` },
      make("bdi", {}, visible(piece.text)),
    );
    if (on.follow) {
      el.setAttribute("type", "button");
      el.setAttribute("aria-pressed", String(isHere));
      el.title = isHere ? "The lesson follows this piece" : "Follow this piece";
      el.addEventListener("click", () => on.follow?.(at));
    }
    return el;
  }

  get isDown() {
    return this.el.classList.contains("is-down");
  }

  /** Choose the largest size that fits, or turn the figure. */
  fit() {
    const width = this.el.parentElement?.clientWidth ?? 0;
    if (!width || width === this.width) return;
    this.width = width;
    this.el.classList.remove("is-down");
    this.el.classList.add("is-across");
    for (const size of SIZES) {
      vars(this.el, { size: `${size}rem` });
      if (this.el.scrollWidth <= width + 1) return this.turned();
    }
    this.el.classList.replace("is-across", "is-down");
    vars(this.el, { size: "1.25rem" });
    this.turned();
  }

  /** Called after the figure has been fitted. */
  turned() {}

  destroy() {
    this.resizer.disconnect();
  }
}
