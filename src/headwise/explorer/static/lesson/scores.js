// @ts-check
/**
 * Step 3: the query travels along the keys; scores, powers of e, and shares. Bars can be dragged.
 */

/** @import {ScoresFigure} from "../types.js" */
/** @import {Lesson} from "./parts.js" */

import { GROUNDS, ink, mix } from "../stage/colours.js";
import { make } from "../stage/dom.js";
import { percent } from "../stage/numbers.js";
import { Columns } from "./columns.js";
import { look, power, signed, vars, visible } from "./parts.js";
import { Query } from "./query.js";
import { logitsOf, softmax, totalOf } from "./softmax.js";
import { travel } from "./travel.js";
import { temperature } from "./temperature.js";

const TENTHS = 10;
/** How often all scores can be raised. */
const MOST_RAISED = 3;

export class Scores {
  /** @param {ScoresFigure} f @param {Lesson} lesson */
  constructor(f, lesson) {
    this.f = f;
    this.lesson = lesson;
    this.words = f.place.pieces.map(({ text }) => visible(text));
    this.scores = [...f.scores];
    /** Change of a dot product that changes its score by one. */
    this.step = 1 / f.scale;
    this.temperature = 1;
    this.isOpen = false;
    /** By how much all scores were raised together. */
    this.raised = 0;
    /** Where a bar was grabbed. @type {{at: number, score: number} | null} */
    this.grabbed = null;
    /** Pieces whose score the query has met. */
    this.met = f.scores.length;
    const seen = f.scaled.filter((value) => value !== null);
    this.low = Math.min(0, ...seen) - 1;
    this.high = Math.max(0, ...seen) + 1.5;
    /** Scores at the two ends of the picture. */
    this.range = [this.low, this.high];
    this.query = new Query(f, () => ({
      scores: this.scores,
      temperature: this.temperature,
      logits: () => logitsOf(f, this.scores, this.temperature),
      dots: this.columns.items.rail,
      isDown: this.columns.isDown,
    }));
    this.sum = make("span", { class: "lesson-quiet" });
    this.columns = this.makeColumns();
    this.tools = temperature(
      (value) => {
        if (value === null) {
          this.scores = [...f.scores];
          this.raised = 0;
        }
        this.temperature = value ?? 1;
        this.draw();
      },
      f.softcap === null ? () => this.raise() : null,
    );
    this.el = make(
      "div",
      { class: "lesson-scores" },
      this.query.remark,
      this.columns.el,
      this.tools.el,
    );
    this.draw();
  }

  makeColumns() {
    const { f } = this;
    const strong = (/** @type {string} */ text) => make("strong", {}, text);
    const quiet = (/** @type {string} */ text) => make("span", { class: "lesson-quiet" }, text);
    const lines = [
      { name: "rail", item: (/** @type {number} */ at) => this.dot(at) },
      {
        name: "score",
        item: (/** @type {number} */ at) => this.bar(at),
        title: [strong("Score"), quiet("how well query and key match")],
      },
      { name: "word", item: null },
      {
        name: "power",
        item: () => make("div", { class: "lesson-power" }, make("span"), make("b")),
        title: [strong("e to the score"), this.sum],
      },
      {
        name: "share",
        item: () => make("div", { class: "lesson-share" }),
        title: [strong("Share"), quiet("each divided by the sum")],
      },
    ];
    const columns = new Columns(f.place, lines, { follow: this.lesson.follow });
    columns.el.append(this.query.pill);
    columns.turned = () => this.query.place();
    return columns;
  }

  /** @param {number} at */
  dot(at) {
    const dot = make("div", { class: "lesson-dot" });
    dot.addEventListener("click", () => this.query.meet(at));
    return dot;
  }

  /** A score's bar, a slider once the question is answered. @param {number} at */
  bar(at) {
    if (this.f.added[at] === null) {
      return make("div", { class: "lesson-score is-hidden", title: "cannot be seen" }, "\u2013");
    }
    const cell = make("div", { class: "lesson-score", role: "slider" });
    cell.dataset.score = String(at);
    cell.setAttribute("aria-label", `Score of ${this.words[at]}`);
    cell.append(make("span", { class: "bar" }), make("b"));
    cell.addEventListener("pointerdown", (event) => {
      if (!this.isOpen) return;
      cell.setPointerCapture(event.pointerId);
      cell.focus();
      this.grabbed = { at: this.along(event), score: this.scores[at] };
    });
    cell.addEventListener("pointermove", (event) => {
      if (cell.hasPointerCapture(event.pointerId)) this.drag(at, event, cell);
    });
    cell.addEventListener("keydown", (event) => this.key(at, event));
    return cell;
  }

  /** Whether a piece is a resting place. @param {number} at */
  isRest(at) {
    const { pieces, rests_on_first } = this.f.place;
    return pieces[at].kind === "special" || (rests_on_first && at === 0);
  }

  /**
   * Drag in tenths, from where the bar was grabbed.
   * @param {number} at
   * @param {PointerEvent} event
   * @param {HTMLElement} cell
   */
  drag(at, event, cell) {
    if (!this.grabbed) return;
    const box = cell.getBoundingClientRect();
    const part =
      (this.along(event) - this.grabbed.at) / (this.columns.isDown ? box.width : box.height);
    const [low, high] = this.range;
    const by = part * (high - low) * this.temperature;
    this.move(at, this.grabbed.score + (Math.round(by * TENTHS) / TENTHS) * this.step);
  }

  /** Place of the pointer along the bars, larger for larger scores. @param {PointerEvent} event */
  along(event) {
    return this.columns.isDown ? event.clientX : -event.clientY;
  }

  /** @param {number} at @param {KeyboardEvent} event */
  key(at, event) {
    const little = this.step / TENTHS;
    const by = {
      ArrowUp: little,
      ArrowRight: little,
      ArrowDown: -little,
      ArrowLeft: -little,
      PageUp: this.step,
      PageDown: -this.step,
    }[event.key];
    if (by === undefined || !this.isOpen) return;
    event.preventDefault();
    this.move(at, this.scores[at] + by);
  }

  /** @param {number} at @param {number} score */
  move(at, score) {
    const now = Number(logitsOf(this.f, this.f.scores)[at]);
    const least = this.f.scores[at] + (this.low - now) * this.step;
    const most = this.f.scores[at] + (this.high + this.raised - now) * this.step;
    this.scores[at] = Math.max(least, Math.min(most, score));
    this.query.at = at;
    this.draw();
  }

  draw() {
    const { f, columns } = this;
    const logits = logitsOf(f, this.scores, this.temperature);
    const weights = softmax(logits, f.sink);
    const seen = logits.filter((logit) => logit !== null);
    const most = Math.max(...seen);
    // A low temperature makes scores larger than the picture: then it shows more.
    this.range = [Math.min(this.low, ...seen), Math.max(this.high, most + 0.5)];
    const theme = this.lesson.theme();
    const colour = look(f.place, this.lesson).colour;
    const first = logitsOf(f, f.scores);
    logits.forEach((logit, at) => {
      const isMet = at < this.met;
      const part = weights[at];
      const isRest = this.isRest(at);
      const isLeader = weights[at] === Math.max(...weights);
      this.drawScore(at, logit, part, isMet, isLeader);
      const cell = columns.items.power[at];
      const raised = logit === null ? 0 : Math.exp(logit);
      vars(cell, { part: logit === null ? 0 : Math.exp(logit - most) });
      /** @type {HTMLElement} */ (cell.lastElementChild).textContent =
        logit === null ? "" : power(raised);
      cell.classList.toggle("is-rest", isRest);
      cell.classList.toggle("is-large", Math.round(100 * part) >= 4);
      const share = columns.items.share[at];
      const fill = mix(theme, isRest ? GROUNDS[theme].rest : colour, part);
      share.textContent = logit === null ? "" : percent(part);
      cell.classList.toggle("is-hidden", logit === null);
      vars(share, { fill, ink: ink(fill, theme, part) });
      share.classList.toggle("is-large", Math.round(100 * part) >= 5);
      share.dataset.share = part.toFixed(4);
      columns.words[at].classList.toggle("is-leader", isLeader && at !== f.place.position);
      const was = first[at];
      cell.classList.toggle(
        "is-moved",
        was !== null && Math.abs(this.scores[at] - f.scores[at]) > 1e-9,
      );
    });
    const total = totalOf(logits, f.sink);
    this.sum.textContent =
      f.sink === null ? `together ${power(total)}` : `together ${power(total)}, with the sink`;
    const isUsual = this.scores.every((score, at) => score === f.scores[at]);
    this.tools.show(this.temperature, isUsual, this.raised < MOST_RAISED);
    this.query.place();
    this.query.describe();
  }

  /**
   * @param {number} at @param {number | null} logit @param {number} part @param {boolean} isMet
   * @param {boolean} isLeader
   */
  drawScore(at, logit, part, isMet, isLeader) {
    const cell = this.columns.items.score[at];
    if (logit === null) return;
    const [low, high] = this.range;
    const scale = (/** @type {number} */ value) => (value - low) / (high - low);
    const [from, to] = [Math.min(0, logit), Math.max(0, logit)].map(scale);
    vars(cell, { from: isMet ? from : scale(0), to: isMet ? to : scale(0), zero: scale(0) });
    cell.classList.toggle("is-negative", logit < 0);
    cell.classList.toggle("is-rest", this.isRest(at));
    cell.classList.toggle("is-leader", isLeader);
    cell.classList.toggle("is-open", this.isOpen);
    const text = signed(logit, 1);
    /** @type {HTMLElement} */ (cell.lastElementChild).textContent = isMet ? text : "";
    cell.tabIndex = this.isOpen ? 0 : -1;
    if (!this.isOpen) cell.setAttribute("aria-disabled", "true");
    else cell.removeAttribute("aria-disabled");
    cell.setAttribute("aria-valuemin", this.low.toFixed(1));
    cell.setAttribute("aria-valuemax", (this.high + this.raised).toFixed(1));
    cell.setAttribute("aria-valuenow", logit.toFixed(2));
    cell.setAttribute("aria-valuetext", `score ${text}, share ${(100 * part).toFixed(1)}%`);
  }

  /** Raise every score by one: no share moves. */
  raise() {
    this.raised += 1;
    this.scores = this.scores.map((score) => score + this.step);
    this.draw();
  }

  /** The question is answered: show its solution. */
  open() {
    const { f } = this;
    this.isOpen = true;
    this.met = this.words.length;
    this.tools.el.hidden = false;
    if (f.change) this.move(f.dragged, f.scores[f.dragged] + f.change * this.step);
    this.draw();
  }
}

/** @param {ScoresFigure} f @param {Lesson} lesson */
export function scores(f, lesson) {
  const row = new Scores(f, lesson);
  return {
    el: row.el,
    reveal: () => row.open(),
    shown: () => {
      row.columns.fit();
      row.query.place();
      if (!row.isOpen) travel(row);
    },
    light: () => row.draw(),
    destroy: () => row.columns.destroy(),
  };
}
