// @ts-check
/**
 * The query as a pill on a rail of keys: it can be dragged, and says how each score comes about.
 */

/** @import {ScoresFigure} from "../types.js" */

import { make } from "../stage/dom.js";
import { number, signed, vars, visible } from "./parts.js";

/**
 * What the pill needs to know of the row of scores.
 * @typedef {object} Row
 * @property {number[]} scores dot products, as dragged
 * @property {number} temperature
 * @property {() => (number | null)[]} logits
 * @property {HTMLElement[]} dots one for each key, in the figure
 * @property {boolean} isDown
 */

export class Query {
  /** @param {ScoresFigure} f @param {() => Row} row */
  constructor(f, row) {
    this.f = f;
    this.row = row;
    this.words = f.place.pieces.map(({ text }) => visible(text));
    /** The key that the query meets. */
    this.at = f.leader;
    this.remark = make("p", { class: "lesson-remark", "aria-live": "polite" });
    this.pill = this.makePill();
  }

  makePill() {
    const word = this.words[this.f.place.position];
    const pill = make("button", { type: "button", class: "lesson-query", role: "slider" });
    pill.append("query of ", make("i", {}, word));
    pill.dataset.part = `query|query ${this.f.place.position}`;
    pill.setAttribute("aria-label", `Query of ${word}: the key that it meets`);
    pill.setAttribute("aria-valuemin", "1");
    pill.setAttribute("aria-valuemax", String(this.words.length));
    pill.addEventListener("pointerdown", (event) => pill.setPointerCapture(event.pointerId));
    pill.addEventListener("pointermove", (event) => {
      if (pill.hasPointerCapture(event.pointerId)) this.meet(this.nearest(event));
    });
    pill.addEventListener("keydown", (event) => {
      const to = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      this.meet(Math.max(0, Math.min(this.words.length - 1, this.at + to)));
    });
    return pill;
  }

  /** Piece whose dot is nearest to the pointer. @param {PointerEvent} event */
  nearest(event) {
    const { dots, isDown } = this.row();
    const away = dots.map((dot) => {
      const box = dot.getBoundingClientRect();
      return isDown
        ? Math.abs(box.top + box.height / 2 - event.clientY)
        : Math.abs(box.left + box.width / 2 - event.clientX);
    });
    return away.indexOf(Math.min(...away));
  }

  /** The query meets a key. @param {number} at */
  meet(at) {
    this.at = at;
    this.place();
    this.describe();
  }

  /** Put the query's pill beside the key that it meets. */
  place() {
    const dot = this.row().dots[this.at];
    if (!dot) return;
    const centre = dot.offsetLeft + dot.offsetWidth / 2;
    const room = this.pill.offsetWidth / 2;
    const most = (dot.parentElement?.clientWidth ?? 0) - room;
    vars(this.pill, {
      x: `${Math.max(room, Math.min(most, centre))}px`,
      y: `${dot.offsetTop + dot.offsetHeight / 2}px`,
    });
  }

  /** How the score of the key that the query meets comes about. */
  describe() {
    const { f, at } = this,
      { scores, temperature, logits } = this.row();
    const now = logits()[at];
    this.pill.setAttribute("aria-valuenow", String(at + 1));
    if (now === null) {
      this.remark.replaceChildren("meets ", make("i", {}, this.words[at]), ": it cannot be seen");
      this.pill.setAttribute("aria-valuetext", `${this.words[at]}: cannot be seen`);
      return;
    }
    if (Math.abs(scores[at] - f.scores[at]) > 1e-9) {
      const by = temperature === 1 ? "" : ` \u00f7 ${temperature.toFixed(1)}`;
      const rest = `: score set by hand${by}, ${signed(now, 1)}`;
      this.remark.replaceChildren("meets the key of ", make("i", {}, this.words[at]), rest);
      this.pill.setAttribute("aria-valuetext", `${this.words[at]}: score ${signed(now, 1)}`);
      return;
    }
    const dot = signed(scores[at], 1);
    let sum = f.is_root
      ? `${dot} \u00f7 \u221a${f.d_key}`
      : f.scale === 1
        ? dot
        : `${dot} \u00d7 ${number(f.scale)}`;
    if (f.softcap !== null) sum += ", capped";
    if (f.added[at]) sum += ` + ${signed(Number(f.added[at]), 1)}`;
    if (temperature !== 1) sum = `(${sum}) \u00f7 ${temperature.toFixed(1)}`;
    const text = f.scale === 1 && sum === dot ? sum : `${sum} = ${signed(now, 1)}`;
    this.remark.replaceChildren("meets the key of ", make("i", {}, this.words[at]), `: ${text}`);
    this.pill.setAttribute("aria-valuetext", `${this.words[at]}: score ${signed(now, 1)}`);
  }
}
