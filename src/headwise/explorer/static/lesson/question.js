// @ts-check
/** A step's question: a first try, a hint, a second try, the solution. */

/** @import {AnswerVerdict, QuestionAnswer} from "../types.js" */
/** @import {Light} from "./runs.js" */

import { make } from "../stage/dom.js";
import { nodes, paragraph } from "./runs.js";

/** What is said of an answer that cannot be checked at once, and after how many milliseconds. */
const WAITS = "The verdict comes once everything has been measured.",
  PATIENCE = 600;

/**
 * What is known about a question that was tried.
 * @typedef {object} Tried
 * @property {(string | null)[]} answers in order; null: the solution was asked for
 * @property {AnswerVerdict} verdict of the last one
 */

export class Question {
  /**
   * @param {QuestionAnswer} question
   * @param {Tried | null} tried
   * @param {{check: (answer: string | null) => Promise<void>, light: Light}} on
   */
  constructor(question, tried, on) {
    this.question = question;
    this.on = on;
    this.verdict = make("div", { class: "lesson-verdict", "aria-live": "polite" });
    /** @type {HTMLButtonElement[]} */
    this.options = [];
    this.field = question.kind === "choice" ? this.choice() : this.number();
    this.solve = make(
      "button",
      { type: "button", class: "lesson-quiet-button" },
      "Show the answer",
    );
    this.solve.addEventListener("click", () => this.send(null));
    const text = make(
      "p",
      { class: "lesson-asked", id: "lesson-asked" },
      ...nodes(question.text, on.light),
    );
    this.el = make(
      "form",
      { class: "lesson-question" },
      text,
      this.field,
      this.verdict,
      this.solve,
    );
    this.el.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.input) this.send(this.input.value);
    });
    if (tried) this.show(tried);
  }

  choice() {
    this.options = this.question.options.map((text, at) => {
      const option = make(
        "button",
        { type: "button", class: "lesson-option", "aria-pressed": "false" },
        text,
      );
      option.dataset.option = String(at);
      option.addEventListener("click", () => this.send(String(at)));
      return option;
    });
    const label = { role: "group", "aria-labelledby": "lesson-asked" };
    return make("div", { class: "lesson-options", ...label }, ...this.options);
  }

  number() {
    this.input = make("input", {
      type: "text",
      id: "lesson-number",
      inputmode: "decimal",
      autocomplete: "off",
      maxlength: 60,
      "aria-labelledby": "lesson-asked",
    });
    this.submit = make("button", { type: "submit" }, "Check");
    return make("div", { class: "lesson-options" }, this.input, this.submit);
  }

  /** @param {string | null} answer */
  async send(answer) {
    if (this.isBusy || this.isOver) return;
    if (answer !== null && !answer.trim()) return this.say("Write a number first.");
    this.isBusy = true;
    const slow = setTimeout(() => this.verdict.replaceChildren(make("p", {}, WAITS)), PATIENCE);
    try {
      await this.on.check(answer);
    } finally {
      clearTimeout(slow);
      this.isBusy = false;
    }
  }

  /** @param {string} text */
  say(text) {
    this.verdict.replaceChildren(make("p", { class: "is-wrong" }, text));
  }

  /** @param {Tried} tried */
  show({ answers, verdict }) {
    this.isOver = verdict.is_over;
    const look = verdict.is_right ? "is-right" : "is-wrong";
    const [light] = [this.on.light];
    this.verdict.replaceChildren(
      make("p", { class: look }, make("strong", {}, ...nodes(verdict.sentence, light))),
      paragraph(verdict.why, light),
    );
    this.options.forEach((option, at) => {
      const isTried = answers.includes(String(at));
      const isRight = verdict.is_over && verdict.right === at;
      option.classList.toggle("is-right", isRight);
      option.classList.toggle("is-tried", isTried && !isRight);
      option.setAttribute("aria-pressed", String(isRight || (isTried && !verdict.is_over)));
      option.disabled = verdict.is_over || isTried;
    });
    if (this.input && this.submit) {
      const last = answers[answers.length - 1];
      if (last && this.input.value !== last && verdict.is_over) this.input.value = last;
      this.input.disabled = this.submit.disabled = verdict.is_over;
      if (!verdict.is_over) this.input.select();
    }
    this.solve.hidden = verdict.is_over;
  }
}
