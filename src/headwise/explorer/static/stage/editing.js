// @ts-check
/** Editing in place: the stage's words become a text area, or one word becomes a field. */

/** @import {StageWord} from "../types.js" */
/** @import {View} from "./view.js" */

import { make } from "./dom.js";
import { EMPTY } from "./sentences.js";

const CHOOSE = "Click the word to swap.";
/** Longest text that can be read. */
const LONGEST = 200000;
/** Letters that a word's place is widened to while it is replaced, and spaces for each. */
const LETTERS = 8,
  SPACES = 2;
/** Narrowest field in px where every word has a line of its own. */
const LEAST_FIELD = 160;

/**
 * The words as a text again, with one of them replaced.
 * @param {StageWord[]} words @param {number} at @param {string} word
 */
export function withWord(words, at, word) {
  return words
    .map((each, index) => {
      if (each.kind === "special") return "";
      return `${each.space ? " " : ""}${index === at ? word : each.text}`;
    })
    .join("")
    .trim();
}

/** The words with more room for the one that is replaced. @param {StageWord[]} words
 * @param {number | null} at @returns {StageWord[]} */
export function withRoom(words, at) {
  if (at === null || !words[at]) return words;
  const spaces = "\u00a0".repeat(Math.max(0, SPACES * (LETTERS - words[at].text.length)));
  return words.map((word, index) => (index === at ? { ...word, text: word.text + spaces } : word));
}

/**
 * A text area in place of the words, with Read and Cancel.
 * @param {HTMLElement} el @param {string} text
 * @param {{read: (text: string) => void, cancel: () => void}} on
 */
export function editText(el, text, on) {
  const area = make("textarea", {
    class: "hv-area",
    "aria-label": "Sentence",
    spellcheck: "false",
    maxlength: LONGEST,
    dir: "auto",
    rows: 1,
  });
  area.value = text;
  const hint = make("span", { class: "hv-hint", role: "status" });
  const button = (/** @type {string} */ words, /** @type {string} */ kind) =>
    make("button", { type: kind, class: `hv-button${kind === "submit" ? " hv-main" : ""}` }, words);
  const cancel = button("Cancel", "button");
  const form = make(
    "form",
    { class: "hv-editor" },
    area,
    make("div", { class: "hv-editor-tools" }, button("Read", "submit"), cancel, hint),
  );
  const read = () => {
    if (!area.value.trim()) {
      hint.textContent = EMPTY;
      area.setAttribute("aria-invalid", "true");
      return area.focus();
    }
    on.read(area.value);
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    read();
  });
  cancel.addEventListener("click", () => on.cancel());
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      on.cancel();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      read();
    }
  });
  area.addEventListener("input", () => {
    area.removeAttribute("aria-invalid");
    hint.textContent = "";
  });
  el.replaceChildren(form);
  area.focus();
  area.select();
  return { form, area, hint };
}

/**
 * A field over a word of the stage.
 * @param {HTMLElement} el  the stage @param {HTMLElement} button  the word @param {string} word
 * @param {{swap: (word: string) => void, cancel: () => void}} on
 */
export function editWord(el, button, word, on) {
  const pill = button.querySelector(".hw-pill") ?? button;
  const box = pill.getBoundingClientRect(),
    ground = el.getBoundingClientRect();
  const field = make("input", {
    class: "hv-field",
    type: "text",
    "aria-label": `Replace ${word} with`,
    spellcheck: "false",
    maxlength: 80,
  });
  field.value = word;
  field.style.fontSize = getComputedStyle(pill).fontSize;
  const isVertical = el.classList.contains("hw-is-vertical");
  const room = Math.max(box.width, isVertical ? LEAST_FIELD : 0);
  field.style.left = `${box.left - ground.left}px`;
  field.style.top = `${box.top - ground.top - 2}px`;
  field.style.width = `${room}px`;
  field.style.height = `${box.height + 4}px`;
  field.addEventListener("keydown", (event) => {
    event.stopPropagation();
    if (event.key === "Escape") on.cancel();
    if (event.key !== "Enter" || event.isComposing) return;
    const value = field.value.trim();
    if (value && value !== word) on.swap(value);
    else on.cancel();
  });
  el.append(field);
  field.focus();
  field.select();
  return field;
}

/** The editing that is going on in a view: of its sentence, of a word, or none. */
export class Editing {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    /** @type {ReturnType<typeof editText> | null} */
    this.text = null;
    /** @type {HTMLInputElement | null} */
    this.field = null;
    /** Whether the next click on a word makes it a field. */
    this.isSwapping = false;
    /** The word that is a field. @type {number | null} */
    this.at = null;
    /** The error that is shown beside the text area. */
    this.readError = "";
  }

  get isOn() {
    return Boolean(this.text);
  }

  /** Turn the stage's words into a text area. */
  start() {
    const { view } = this;
    const { host, parts } = view;
    if (!host.read || this.text) return;
    this.stopSwap();
    const text = host.reading().text || host.text()?.text || "";
    const height = parts.stageBox.offsetHeight + parts.notes.offsetHeight;
    parts.editor.style.minHeight = `${height}px`;
    parts.editor.hidden = false;
    parts.stageBox.hidden = parts.notes.hidden = true;
    this.text = editText(parts.editor, text, {
      read: (next) => this.read(next),
      cancel: () => {
        view.error = "";
        this.end();
        view.show();
        parts.tools.focus("edit");
      },
    });
    view.show();
  }

  /** @param {string} text */
  async read(text) {
    const { host } = this.view;
    const { form, area, hint } = /** @type {NonNullable<typeof this.text>} */ (this.text);
    this.readError = "";
    form.setAttribute("aria-busy", "true");
    area.readOnly = true;
    try {
      await host.read?.(text);
      this.end();
      this.view.show();
    } catch (error) {
      area.readOnly = false;
      form.removeAttribute("aria-busy");
      area.setAttribute("aria-invalid", "true");
      area.focus();
      this.readError = host.reading().error;
      hint.textContent = this.readError || host.sentence(error);
      this.view.show();
    }
  }

  /** Show the stage again. */
  end() {
    this.stopSwap();
    if (!this.text) return;
    this.text = null;
    const { editor, stageBox, notes } = this.view.parts;
    editor.replaceChildren();
    editor.hidden = true;
    stageBox.hidden = notes.hidden = false;
  }

  /** Make the chosen word a field, or wait for a click on a word. */
  swap() {
    const { view } = this;
    if (!view.host.pair || view.host.cannot?.swap || view.host.get("swap") || this.text) return;
    if (this.isSwapping) {
      this.stopSwap();
      return void view.show();
    }
    this.isSwapping = true;
    view.remark = CHOOSE;
    const { locked } = view.frame();
    view.show();
    view.parts.stageBox.classList.add("hv-swapping");
    if (locked !== null) this.open(locked);
  }

  /** @param {number | null} word of the stage; null: the locked one */
  open(word) {
    const { view } = this;
    const { data, heads, locked } = view.frame();
    const at = word ?? locked ?? -1;
    const words = data.rows(heads[0]);
    if (!words[at] || words[at].kind === "special") return;
    this.field?.remove();
    this.at = at;
    view.show();
    const button = view.parts.wordButton(at);
    if (!button) return;
    this.field = editWord(view.parts.stageBox, button, words[at].text, {
      cancel: () => {
        this.stopSwap();
        view.show();
        view.parts.wordButton(at)?.focus();
      },
      swap: (word) => {
        this.stopSwap();
        const kept = view.keepWord();
        view.host.set({ ...kept, swap: withWord(words, at, word), side: "both" }, "push");
      },
    });
  }

  stopSwap() {
    if (!this.isSwapping) return;
    this.isSwapping = false;
    this.at = null;
    this.view.remark = "";
    this.view.parts.stageBox.classList.remove("hv-swapping");
    this.field?.remove();
    this.field = null;
  }
}
