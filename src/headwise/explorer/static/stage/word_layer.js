// @ts-check
/**
 * The words as buttons: real text over the drawing, one tab stop, arrow keys between them.
 *
 * Each button reaches halfway to its neighbours and over its cell; the pill inside is the word.
 */
import { make, setAttributes } from "./dom.js";
import { pillOf } from "./draw.js";
import { STEP } from "./layout_parts.js";
import { isBanded } from "./tabs.js";

/** @import {StageWord} from "../types.js" */
/** @import {Box, Deck, Layout, Rect, View} from "./layout.js" */
/** @import {WordState} from "./words.js" */

/** How long the pointer rests on a word before it counts, in milliseconds. */
export const REST = 60;

/** @param {number} units 1/16 rem */
const rem = (units) => `${units / 16}rem`;

/**
 * @param {HTMLElement} element
 * @param {Rect} rect
 */
function setPlace(element, { x, y, w, h }) {
  Object.assign(element.style, { left: rem(x), top: rem(y), width: rem(w), height: rem(h) });
}

/** @typedef {{button: HTMLElement, pill: HTMLElement, look: string}} Word */

/**
 * The area that belongs to a word.
 * @param {Box} box
 * @param {Deck} deck
 * @returns {Rect}
 */
function area(box, deck) {
  const cells = deck.rows === deck.columns ? deck.cells.map((row) => row[box.at]) : [];
  const all = [box, ...cells.filter((cell) => cell !== null)];
  const own = all.length > 1 ? all[1] : box;
  const isBeside = own.y < box.y + box.h && own.y + own.h > box.y && own.x < box.x;
  const x = isBeside ? own.x : Math.min(own.x, box.x);
  const right = isBeside ? box.x + box.w + 12 : Math.max(own.x + own.w, box.x + box.w);
  const y = Math.min(...all.map((each) => each.y));
  const bottom = Math.max(...all.map((each) => each.y + each.h));
  return { x, y, w: right - x, h: isBeside ? STEP : bottom - y };
}

/** The words of one sentence. */
export class WordLayer {
  /**
   * @param {HTMLElement} parent
   * @param {boolean} isPlain not buttons, because they are not asked
   */
  constructor(parent, isPlain = false) {
    this.parent = parent;
    this.isPlain = isPlain;
    /** @type {(Word | null)[]} */
    this.words = [];
  }

  /**
   * Make elements for the words and put them in their places.
   * @param {StageWord[]} words
   * @param {(Box | null)[]} boxes
   * @param {Deck} deck
   * @param {Layout} layout
   * @param {number} side
   */
  place(words, boxes, deck, layout, side) {
    for (const word of this.words) word?.button.remove();
    this.words = boxes.map((box, at) => {
      if (!box) return null;
      const { text, kind } = words[at];
      const isChip = kind === "special";
      const pill = make("span", { class: isChip ? "hw-pill hw-chip" : "hw-pill" }, text);
      const whole = this.isPlain ? { ...box } : area(box, deck);
      const own = pillOf(box, isChip);
      setPlace(pill, { ...own, x: own.x - whole.x, y: own.y - whole.y });
      const more = box.x + box.w / 2 - own.x - own.w / 2;
      pill.style.paddingLeft = rem(Math.max(0, 2 * more));
      pill.style.paddingRight = rem(Math.max(0, -2 * more));
      pill.style.lineHeight = rem(own.h - (isChip ? 2 : 0));
      if (!isChip) pill.style.fontSize = rem(layout.size);
      const button = this.isPlain
        ? make("span", { class: "hw-button" }, pill)
        : make("button", { type: "button", class: "hw-button", tabindex: -1 }, pill);
      setAttributes(button, { "data-word": at, "data-side": side, "data-kind": kind });
      setPlace(button, whole);
      return { button, pill, look: "" };
    });
    this.parent.append(...this.words.flatMap((word) => (word ? [word.button] : [])));
  }

  /**
   * Colour the words.
   * @param {WordState[]} states
   * @param {number | null} locked
   */
  colour(states, locked) {
    this.words.forEach((word, at) => {
      const state = states[at];
      if (!word) return;
      const look = `${JSON.stringify(state)} ${at === locked}`;
      if (look === word.look) return;
      word.look = look;
      const { pill, button } = word;
      pill.classList.toggle("hw-chosen", state.fill !== null);
      pill.classList.toggle("hw-locked", state.outline !== null);
      pill.classList.toggle("hw-dashed", state.isDashed && state.fill === null);
      Object.assign(pill.style, {
        color: state.colour,
        backgroundColor: state.fill ?? "",
        borderColor: state.chip ?? "",
      });
      pill.style.setProperty("--hw-outline", state.outline ?? "");
      button.dataset.state = state.state;
      if (!this.isPlain) setAttributes(button, { "aria-pressed": String(at === locked) });
    });
  }

  /**
   * Hide words where tabs have their room. They can still be reached with the keyboard.
   * @param {(Box | null)[]} boxes
   * @param {View | null} view
   */
  clear(boxes, view) {
    this.words.forEach((word, at) => {
      const box = boxes[at];
      const isHidden = view && box && isBanded(box.y, view);
      word?.button.classList.toggle("hw-under", Boolean(isHidden));
    });
  }

  /**
   * Name the words for screen readers.
   * @param {(at: number) => string} label
   */
  label(label) {
    if (this.isPlain) return;
    this.words.forEach((word, at) => word?.button.setAttribute("aria-label", label(at)));
  }

  /**
   * Let the tab key stop at one word only.
   * @param {number} stop
   */
  setStop(stop) {
    this.words.forEach((word, at) =>
      word?.button.setAttribute("tabindex", at === stop ? "0" : "-1"),
    );
  }

  /** @param {number} at */
  focus(at) {
    this.words[at]?.button.focus({ preventScroll: true });
  }
}
