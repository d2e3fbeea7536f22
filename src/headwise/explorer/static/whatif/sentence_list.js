// @ts-check
/** Sentences of an embedding model, to compare with the one on the stage; all can be edited. */

import { make } from "../stage/dom.js";

export class SentenceList {
  /**
   * @param {HTMLElement} el @param {number} most
   * @param {{first: (text: string) => void, others: (texts: string[]) => void}} on
   */
  constructor(el, most, on) {
    this.most = most;
    this.on = on;
    this.texts = /** @type {string[]} */ ([]);
    this.list = make("ol", { class: "wi-sentences" });
    this.add = make("button", { type: "button", class: "hv-button" }, "Add a sentence");
    this.add.addEventListener("click", () => {
      this.draw([...this.texts, ""]);
      this.fields().at(-1)?.focus();
    });
    el.append(make("h3", { class: "panel-title" }, "Sentences"), this.list, this.add);
  }

  fields() {
    return [...this.list.querySelectorAll("textarea")];
  }

  /** @param {string[]} texts the first is on the stage */
  show(texts) {
    if (this.list.contains(document.activeElement) && texts.length === this.texts.length) {
      this.texts = texts;
      this.fields().forEach((field, at) => {
        if (field !== document.activeElement) field.value = texts[at];
      });
    } else if (JSON.stringify(texts) !== JSON.stringify(this.texts)) this.draw(texts);
  }

  /** @param {string[]} texts */
  draw(texts) {
    this.texts = texts;
    this.list.replaceChildren(...texts.map((text, at) => this.item(text, at)));
    this.add.disabled = texts.length >= this.most;
  }

  /** @param {string} text @param {number} at */
  item(text, at) {
    const field = make("textarea", {
      rows: 1,
      spellcheck: "false",
      maxlength: 5000,
      "aria-label": `Sentence ${at + 1}${at ? "" : ", on the stage"}`,
    });
    field.value = text;
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      this.send(field, at);
    });
    field.addEventListener("change", () => this.send(field, at));
    const remove = make(
      "button",
      { type: "button", class: "wi-remove", "aria-label": `Remove sentence ${at + 1}` },
      "\u00d7",
    );
    remove.addEventListener("click", () => {
      const texts = this.texts.filter((_, place) => place !== at);
      this.draw(texts);
      this.fields()[at - 1]?.focus();
      this.on.others(texts.slice(1).filter((text) => text.trim()));
    });
    const number = make("span", { class: "wi-place", "aria-hidden": "true" }, String(at + 1));
    return make("li", {}, number, field, ...(at ? [remove] : []));
  }

  /** @param {HTMLTextAreaElement} field @param {number} at */
  send(field, at) {
    const text = field.value.replace(/\s+/g, " ").trim();
    if (text === this.texts[at]) return;
    this.texts = this.texts.map((old, place) => (place === at ? text : old));
    if (at) this.on.others(this.texts.slice(1).filter((each) => each.trim()));
    else if (text) this.on.first(text);
  }
}
