// @ts-check
/** Another sentence, typed in place of the stage, or an example. */

/** @import {Page} from "../page.js" */
/** @import {Parts} from "./whatif_dom.js" */

/** A sentence whose next word a causal model knows (https://arxiv.org/abs/2211.00593). */
const EXAMPLE = "When Mary and John went to the store, John gave a drink to";

export class SentenceEditor {
  /** @param {HTMLElement} el @param {Parts} parts @param {Page} page */
  constructor(el, parts, page) {
    this.el = el;
    this.parts = parts;
    this.page = page;
    parts.example.hidden = true;
    parts.example.addEventListener("click", () => this.readText(EXAMPLE));
    parts.change.addEventListener("click", () => this.edit(true));
    parts.cancel.addEventListener("click", () => this.edit(false));
    parts.editor.addEventListener("submit", (event) => this.submit(event));
    parts.field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.edit(false);
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      parts.editor.requestSubmit();
    });
    document.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {boolean} isOpen */
  edit(isOpen) {
    const { editor, field, drawn, stage, change } = this.parts;
    const had = editor.contains(document.activeElement);
    editor.hidden = !isOpen;
    drawn.hidden = stage.hidden = isOpen;
    change.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) {
      field.value = this.page.host.text()?.text ?? "";
      field.focus();
    } else if (had) change.focus();
  }

  /** E changes the sentence, as on Heads. @param {KeyboardEvent} event */
  key(event) {
    const { target, ctrlKey, metaKey, altKey, defaultPrevented, key } = event;
    const isTyped = /** @type {Element} */ (target).matches?.("input, textarea, select");
    if (this.el.hidden || defaultPrevented || isTyped || ctrlKey || metaKey || altKey) return;
    if (key.toLowerCase() !== "e" || this.parts.change.hidden) return;
    event.preventDefault();
    this.edit(true);
  }

  /** @param {SubmitEvent} event */
  submit(event) {
    event.preventDefault();
    const text = this.parts.field.value.trim();
    if (!text) this.page.say("Write a few words.", true);
    else if (text === this.page.host.text()?.text) this.edit(false);
    else this.readText(text);
  }

  /** @param {string} text */
  readText(text) {
    this.page.read(text).catch((error) => this.page.fail(error));
  }
}
