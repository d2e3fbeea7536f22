// @ts-check
/** The learner's own sentence: a button that opens a field. */

import { make } from "../stage/dom.js";

export class SentenceForm {
  /** @param {(text: string) => Promise<unknown>} read */
  constructor(read) {
    this.button = make("button", { type: "button", class: "lesson-change" }, "Change sentence");
    this.field = make("textarea", { rows: 2, "aria-label": "Your sentence", maxlength: 2000 });
    const submit = make("button", { type: "submit" }, "Read");
    const cancel = make("button", { type: "button" }, "Cancel");
    this.form = make("form", { hidden: true }, this.field, submit, cancel);
    this.el = make("div", { class: "lesson-own" }, this.button, this.form);
    this.button.addEventListener("click", () => this.open(true));
    cancel.addEventListener("click", () => this.open(false));
    this.form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.open(false);
      if (event.key === "Enter" && !event.shiftKey && event.target === this.field) {
        event.preventDefault();
        this.form.requestSubmit();
      }
    });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!this.field.value.trim()) return;
      this.open(false);
      read(this.field.value);
    });
  }

  /** @param {boolean} isOpen */
  open(isOpen) {
    this.form.hidden = !isOpen;
    this.button.hidden = isOpen;
    if (isOpen) this.field.select();
    else this.button.focus();
  }

  /** @param {string} text @param {boolean} _isUsual */
  fill(text, _isUsual) {
    if (this.form.hidden) this.field.value = text;
  }
}
