// @ts-check
/** The learner's own sentence: a button that opens a field. */

import { make } from "../stage/dom.js";

export class SentenceForm {
  /**
   * @param {(text: string) => Promise<unknown>} read rejects with the reason if it cannot be read
   */
  constructor(read) {
    this.read = read;
    this.button = make("button", { type: "button", class: "lesson-change" }, "Change sentence");
    this.field = make("textarea", { rows: 2, "aria-label": "Your sentence" });
    this.error = make("p", { class: "is-wrong", role: "alert" });
    const submit = make("button", { type: "submit" }, "Read");
    const cancel = make("button", { type: "button" }, "Cancel");
    this.form = make("form", { hidden: true }, this.field, submit, cancel, this.error);
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
      this.submit();
    });
  }

  async submit() {
    const text = this.field.value;
    this.error.textContent = text.trim() ? "" : "Write a few words.";
    if (!text.trim()) return;
    try {
      await this.read(text);
      this.open(false);
    } catch (error) {
      this.error.textContent = /** @type {Error} */ (error).message;
    }
  }

  /** @param {boolean} isOpen */
  open(isOpen) {
    this.form.hidden = !isOpen;
    this.button.hidden = isOpen;
    this.error.textContent = "";
    if (isOpen) this.field.select();
    else this.button.focus();
  }

  /** The sentence of the lesson has changed. @param {string} text */
  fill(text) {
    if (this.form.hidden) this.field.value = text;
  }
}
