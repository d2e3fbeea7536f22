// @ts-check
/** A line of text that the model writes, with all heads on and with the change. */

/** @import {GenerateAnswer, GeneratedText, StageWord} from "../types.js" */

import { make } from "../stage/dom.js";

/** Most tokens to generate. */
export const TOKENS = 32;
const ENDS = {
  sentence: "",
  text: "The model ends its text here.",
  limit: `Cut off after ${TOKENS} tokens.`,
};

/** @typedef {"before" | "after"} Side */

/**
 * Index of the first generated word: letters are counted, because the tokens of a longer text may
 * be others.
 * @param {StageWord[]} words @param {GeneratedText} line
 */
export function firstGenerated(words, line) {
  const letters = (/** @type {string} */ text) => text.replace(/\s/g, "").length;
  const prompt = letters(line.text) - letters(line.added);
  let seen = 0;
  const at = words.findIndex(({ text, kind }) => {
    if (kind === "special") return false;
    seen += letters(text);
    return seen > prompt;
  });
  return at < 0 ? words.length : at;
}

export class Generated {
  /** @param {HTMLElement} el @param {(side: Side | "") => void} choose */
  constructor(el, choose) {
    this.el = el;
    this.choose = choose;
    el.hidden = true;
  }

  /**
   * @param {GenerateAnswer | null} answer @param {string} changed  "3 off", or "" if no head is
   * @param {string} side the line on the stage
   */
  show(answer, changed, side) {
    this.el.hidden = !answer;
    if (!answer) return this.el.replaceChildren();
    const had = this.el.contains(document.activeElement)
      ? /** @type {HTMLElement} */ (document.activeElement).dataset.side
      : null;
    const line = (/** @type {Side} */ which, /** @type {string} */ name) =>
      this.line(answer[which], which, name, side === which);
    const isSame = changed && answer.before.added === answer.after.added;
    this.el.replaceChildren(
      make("h3", { class: "panel-title" }, "Generated ", make("span", {}, HOW)),
      line("before", "all heads on"),
      ...(changed ? [line("after", changed)] : []),
      ...(isSame ? [make("p", { class: "wi-same" }, "Both lines are the same.")] : []),
    );
    if (had)
      /** @type {HTMLElement | null} */ (this.el.querySelector(`[data-side=${had}]`))?.focus();
  }

  /**
   * @param {GeneratedText} text @param {Side} side @param {string} name @param {boolean} isShown
   */
  line(text, side, name, isShown) {
    const added = text.added.trimStart();
    const prompt = added ? text.text.slice(0, -added.length) : text.text;
    const why = added ? ENDS[text.end] : "The model ends its text at once.";
    const button = make(
      "button",
      { type: "button", class: "wi-generated", "data-side": side, "aria-pressed": String(isShown) },
      make("span", { class: `wi-swatch wi-${side}`, "aria-hidden": "true" }),
      make("span", { class: "wi-side" }, name),
      make(
        "span",
        { class: "wi-written", dir: "auto" },
        make("span", { class: "wi-prompt" }, shorten(prompt)),
        make("b", {}, added),
        ...(why ? [" ", make("small", {}, why)] : []),
      ),
      make("span", { class: "wi-look" }, isShown ? "Back to the text" : "Look at its attention"),
    );
    button.addEventListener("click", () => this.choose(isShown ? "" : side));
    return button;
  }
}

const HOW = "always the likeliest word, to the end of the sentence";

/** The end of a long prompt. @param {string} prompt */
const shorten = (prompt) =>
  prompt.length > 120
    ? `\u2026${prompt.slice(prompt.lastIndexOf(" ", prompt.length - 80))}`
    : prompt;
