// @ts-check
/** Step 3: the query travels along the keys; scores, powers of e, and shares. Bars can be dragged. */

/** @import {ScoresFigure} from "../types.js" */
/** @import {Lesson} from "./parts.js" */

import { ink, mix } from "../stage/colours.js";
import { make } from "../stage/dom.js";
import { isStill } from "../stage/motion.js";
import { percent } from "../stage/numbers.js";
import { Columns } from "./columns.js";
import { look, number, pause, power, signed, vars, visible } from "./parts.js";
import { logitsOf, softmax, totalOf } from "./softmax.js";

const TENTHS = 10;
/** Milliseconds per key of the query's way, and for each of the two rows below. */
const TIMES = { key: 220, row: 400 };
/** Temperatures of the slider's two ends, as powers of two. */
const COLDEST = -2,
  HOTTEST = 2;

class Scores {
  /** @param {ScoresFigure} f @param {Lesson} lesson */
  constructor(f, lesson) {
    this.f = f;
    this.lesson = lesson;
    this.words = f.place.pieces.map(({ text }) => visible(text));
    this.scores = [...f.scores];
    this.temperature = 1;
    this.isOpen = false;
    this.at = f.leader;
    /** Pieces whose score the query has met. */
    this.met = f.scores.length;
    const seen = f.scaled.filter((value) => value !== null);
    this.low = Math.min(0, ...seen) - 1;
    this.high = Math.max(0, ...seen) + 1.5;
    this.said = make("p", { class: "lesson-said", "aria-live": "polite" });
    this.pill = this.makePill();
    this.sum = make("span", { class: "lesson-quiet" });
    this.warmth = make("output", { for: "lesson-temperature" }, "1.0");
    this.reset = make("button", { type: "button", disabled: true }, "Reset");
    this.columns = this.makeColumns();
    this.tools = this.makeTools();
    this.el = make("div", { class: "lesson-scores" }, this.said, this.columns.el, this.tools);
    this.draw();
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
    columns.el.append(this.pill);
    columns.turned = () => this.place();
    return columns;
  }

  /** @param {number} at */
  dot(at) {
    const dot = make("div", { class: "lesson-dot" });
    dot.addEventListener("click", () => this.meet(at));
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
      this.drag(at, event, cell);
    });
    cell.addEventListener("pointermove", (event) => {
      if (cell.hasPointerCapture(event.pointerId)) this.drag(at, event, cell);
    });
    cell.addEventListener("keydown", (event) => this.key(at, event));
    return cell;
  }

  /** Temperature and a button that puts everything back. */
  makeTools() {
    const range = make("input", {
      type: "range",
      min: COLDEST,
      max: HOTTEST,
      step: 0.1,
      value: 0,
      id: "lesson-temperature",
    });
    range.addEventListener("input", () => {
      this.temperature = 2 ** Number(range.value);
      this.draw();
    });
    this.reset.addEventListener("click", () => {
      this.scores = [...this.f.scores];
      this.temperature = 1;
      range.value = "0";
      this.draw();
    });
    const label = make("label", { for: "lesson-temperature" }, "Temperature");
    return make(
      "div",
      { class: "lesson-tools", hidden: true },
      label,
      range,
      this.warmth,
      this.reset,
    );
  }

  /** Piece whose dot is nearest to the pointer. @param {PointerEvent} event */
  nearest(event) {
    const away = this.columns.items.rail.map((dot) => {
      const box = dot.getBoundingClientRect();
      return this.columns.isDown
        ? Math.abs(box.top + box.height / 2 - event.clientY)
        : Math.abs(box.left + box.width / 2 - event.clientX);
    });
    return away.indexOf(Math.min(...away));
  }

  /** Change of a dot product that changes its score by one. */
  get step() {
    return 1 / this.f.scale;
  }

  /** Drag to the nearest tenth. @param {number} at @param {PointerEvent} event @param {HTMLElement} cell */
  drag(at, event, cell) {
    const box = cell.getBoundingClientRect();
    const part = this.columns.isDown
      ? (event.clientX - box.left) / box.width
      : (box.bottom - event.clientY) / box.height;
    const wanted = this.low + (this.high - this.low) * part;
    const grain = 1 / TENTHS;
    const now = Number(logitsOf(this.f, this.f.scores)[at]);
    this.move(at, this.f.scores[at] + Math.round((wanted - now) / grain) * grain * this.step);
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
    const least = this.f.scores[at] - 12 * this.step;
    const most = this.f.scores[at] + 12 * this.step;
    this.scores[at] = Math.max(least, Math.min(most, score));
    this.at = at;
    this.draw();
  }

  /** The query meets a key. @param {number} at */
  meet(at) {
    this.at = at;
    this.place();
    this.tell();
  }

  draw() {
    const { f, columns } = this;
    const logits = logitsOf(f, this.scores, this.temperature);
    const weights = softmax(logits, f.sink);
    const most = Math.max(...logits.map((logit) => (logit === null ? -99 : logit)));
    const theme = this.lesson.theme();
    const colour = look(f.place, this.lesson).colour;
    const first = logitsOf(f, f.scores);
    logits.forEach((logit, at) => {
      const isMet = at < this.met;
      const part = weights[at];
      const isRest = f.place.pieces[at].kind === "special";
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
      const fill = mix(theme, isRest ? restOf(theme) : colour, part);
      share.textContent = percent(part);
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
    this.warmth.textContent = this.temperature.toFixed(1);
    this.reset.disabled =
      this.temperature === 1 && this.scores.every((score, at) => score === f.scores[at]);
    this.place();
    this.tell();
  }

  /**
   * @param {number} at @param {number | null} logit @param {number} part @param {boolean} isMet
   * @param {boolean} isLeader
   */
  drawScore(at, logit, part, isMet, isLeader) {
    const cell = this.columns.items.score[at];
    if (logit === null) return;
    const scale = (/** @type {number} */ value) =>
      Math.max(0, Math.min(1, (value - this.low) / (this.high - this.low)));
    const [from, to] = [Math.min(0, logit), Math.max(0, logit)].map(scale);
    vars(cell, { from: isMet ? from : scale(0), to: isMet ? to : scale(0), zero: scale(0) });
    cell.classList.toggle("is-negative", logit < 0);
    cell.classList.toggle("is-rest", this.f.place.pieces[at].kind === "special");
    cell.classList.toggle("is-leader", isLeader);
    cell.classList.toggle("is-open", this.isOpen);
    const text = signed(logit, 1);
    /** @type {HTMLElement} */ (cell.lastElementChild).textContent = isMet ? text : "";
    cell.tabIndex = this.isOpen ? 0 : -1;
    if (!this.isOpen) cell.setAttribute("aria-disabled", "true");
    else cell.removeAttribute("aria-disabled");
    cell.setAttribute("aria-valuemin", this.low.toFixed(1));
    cell.setAttribute("aria-valuemax", this.high.toFixed(1));
    cell.setAttribute("aria-valuenow", logit.toFixed(2));
    cell.setAttribute("aria-valuetext", `score ${text}, share ${(100 * part).toFixed(1)}%`);
  }

  /** Put the query's pill beside the key that it meets. */
  place() {
    const dot = this.columns.items.rail[this.at];
    if (!dot) return;
    const centre = dot.offsetLeft + dot.offsetWidth / 2;
    const room = this.pill.offsetWidth / 2;
    const most = this.columns.el.clientWidth - room;
    vars(this.pill, {
      x: `${Math.max(room, Math.min(most, centre))}px`,
      y: `${dot.offsetTop + dot.offsetHeight / 2}px`,
    });
  }

  /** How the score of the key that the query meets comes about. */
  tell() {
    const { f, at } = this;
    const now = logitsOf(f, this.scores, this.temperature)[at];
    this.pill.setAttribute("aria-valuenow", String(at + 1));
    if (now === null) {
      this.said.replaceChildren("meets ", make("i", {}, this.words[at]), ": it cannot be seen");
      this.pill.setAttribute("aria-valuetext", `${this.words[at]}: cannot be seen`);
      return;
    }
    const dot = signed(this.scores[at], 1);
    let sum = f.is_root
      ? `${dot} \u00f7 \u221a${f.d_key}`
      : f.scale === 1
        ? dot
        : `${dot} \u00d7 ${number(f.scale)}`;
    if (f.softcap !== null) sum += ", capped";
    if (f.added[at]) sum += ` + ${signed(Number(f.added[at]), 1)}`;
    if (this.temperature !== 1) sum = `(${sum}) \u00f7 ${this.temperature.toFixed(1)}`;
    const text = f.scale === 1 && sum === dot ? sum : `${sum} = ${signed(now, 1)}`;
    this.said.replaceChildren("meets the key of ", make("i", {}, this.words[at]), `: ${text}`);
    this.pill.setAttribute("aria-valuetext", `${this.words[at]}: score ${signed(now, 1)}`);
  }

  /** The query travels from key to key; then the powers, then the shares. */
  async play() {
    if (isStill()) return;
    this.el.classList.add("before-power", "before-share");
    for (let at = 0; at < this.words.length; at++) {
      if (!this.el.isConnected || this.isOpen) break;
      this.met = at + 1;
      this.at = at;
      this.draw();
      await pause(TIMES.key);
    }
    this.met = this.words.length;
    this.at = this.f.leader;
    this.draw();
    this.el.classList.remove("before-power");
    await pause(TIMES.row);
    this.el.classList.remove("before-share");
  }

  open() {
    this.isOpen = true;
    this.met = this.words.length;
    this.tools.hidden = false;
    this.draw();
  }
}

/** @param {"light" | "dark"} theme */
const restOf = (theme) => ({ light: "#7d8794", dark: "#8d97a5" })[theme];

/** @param {ScoresFigure} f @param {Lesson} lesson */
export function scores(f, lesson) {
  const row = new Scores(f, lesson);
  return {
    el: row.el,
    reveal: () => row.open(),
    shown: () => {
      row.columns.fit();
      row.place();
      if (!row.isOpen) row.play();
    },
    light: () => row.draw(),
    destroy: () => row.columns.destroy(),
  };
}
