// @ts-check
/**
 * One sentence (or a pair) with its arcs and row of shares; picture_notes.js has the notes below.
 *
 * In: a picture. Out: calls of `on` when a word is hovered, locked or gone to. The view decides
 * which word is chosen, and shows the next picture.
 */
import { make } from "./dom.js";
import { Drawing } from "./drawing.js";
import { layOut } from "./layout.js";
import { browserMeasure, wider } from "./measure.js";
import { wordLabel } from "./picture_notes.js";
import { inStep, sidesOf } from "./picture.js";
import { hasMoved, onLeave } from "./pointer.js";
import { makeScene } from "./scene.js";
import { TextWindow } from "./window.js";
import { REST, WordLayer } from "./word_layer.js";

/** @import {StageWord} from "../types.js" */
/** @import {Layout} from "./layout.js" */
/** @import {Picture} from "./picture.js" */

/**
 * @typedef {object} Listener
 * @property {(word: number | null) => void} hover after the pointer has rested on a word, or left
 * @property {(word: number | null) => void} lock a click; null unlocks
 * @property {(word: number) => void} go an arrow key, or a click on a tab of the window
 * @property {(words: [number, number] | null) => void} [scroll] first and last word in the
 *   window on a long text; null if there is no window
 */

/** Labels for screen readers name links in texts of at most this many words, and are written so
 * many milliseconds after the last picture. */
const LABELLED = 60,
  LABEL_AFTER = 150;
/** @param {StageWord[]} one @param {StageWord[]} other */
const isSameText = (one, other) =>
  one === other ||
  (one.length === other.length && one.every((word, at) => word.text === other[at].text));

export class Stage {
  /**
   * @param {HTMLElement} el
   * @param {Listener} on
   */
  constructor(el, on) {
    this.el = el;
    this.on = on;
    /** @type {Picture | null} */
    this.picture = null;
    /** @type {Layout | null} */
    this.layout = null;
    this.layoutKey = "";
    this.unit = 1;
    this.drawnWidth = 0;
    /** @type {number | null} */
    this.shownLock = null;
    this.widestNext = "";
    this.labelTimer = 0;
    this.hoverTimer = 0;
    /** @type {number | null} The word that counts as hovered, and the one the pointer is on. */
    this.hovered = this.pointed = null;
    this.drawing = new Drawing();
    this.words = make("div", { class: "hw-words" });
    const content = make("div", { class: "hw-content" }, this.drawing.element, this.words);
    this.place = make("div", { class: "hw-picture" }, content);
    this.window = new TextWindow(this.place, content, (word) => this.#go(word));
    this.scrollFrame = 0;
    this.layers = [new WordLayer(this.words), new WordLayer(this.words)];
    this.columnLayer = new WordLayer(this.words, true);
    el.classList.add("hw-stage");
    if (!el.hasAttribute("role")) el.setAttribute("role", "group");
    el.replaceChildren(this.place);
    this.#listen();
    this.resizer = new ResizeObserver(() => {
      if (this.el.clientWidth !== this.drawnWidth) this.#draw(false);
    });
    this.resizer.observe(el);
  }

  /**
   * Draw a picture. Arcs move from what was drawn before, unless motion is reduced.
   * @param {Picture} picture
   */
  show(picture) {
    const before = this.picture;
    if (before && !isSameText(before.words, picture.words)) {
      this.drawing.forget();
      this.widestNext = "";
      this.place.scrollTop = 0;
      this.hovered = null;
    }
    this.picture = inStep(picture);
    this.#draw(true, Boolean(before && !before.pair && picture.pair));
    clearTimeout(this.labelTimer);
    this.labelTimer = window.setTimeout(() => this.#label(), LABEL_AFTER);
  }

  /** Remove everything. */
  destroy() {
    clearTimeout(this.labelTimer);
    clearTimeout(this.hoverTimer);
    cancelAnimationFrame(this.scrollFrame);
    this.resizer.disconnect();
    this.drawing.destroy();
    this.el.replaceChildren();
  }

  /**
   * @param {boolean} moves
   * @param {boolean} [isPairNew] the second sentence has just come
   */
  #draw(moves, isPairNew = false) {
    const { picture } = this;
    if (!picture || !this.el.clientWidth) return;
    this.drawnWidth = this.el.clientWidth;
    const isNew = this.#layOut(picture);
    const layout = /** @type {Layout} */ (this.layout);
    const isLockNew = picture.locked !== this.shownLock;
    this.shownLock = picture.locked;
    if (picture.word !== null && (isNew || isLockNew)) {
      this.window.reveal(layout.decks[0].rows[picture.word], layout, this.unit);
    }
    this.#paint(picture, layout, moves, isPairNew);
    if (isNew) this.#label();
    this.layers[0].setStop(picture.locked ?? picture.word ?? this.#shown()[0] ?? 0);
  }

  /**
   * Draw what is in sight.
   * @param {Picture} picture
   * @param {Layout} whole
   * @param {boolean} moves
   * @param {boolean} [isPairNew]
   */
  #paint(picture, whole, moves, isPairNew = false) {
    const layout = { ...whole, view: this.window.view(this.unit) };
    const scene = makeScene(picture, layout, browserMeasure());
    this.drawing.show(scene, picture, layout, { moves, isPairNew });
    scene.words.forEach((states, side) => {
      this.layers[side].colour(states, side === 0 ? picture.locked : null);
    });
    this.layers[0].clear(layout.decks[0].rows, layout.view);
    if (scene.columns) this.columnLayer.colour(scene.columns, null);
    if (this.window.isOpen) this.window.show(scene.tabs, layout.view);
    this.on.scroll?.(this.window.inSight(layout, this.unit));
  }

  /**
   * Lay the words out again if text, width or font have changed.
   * @param {Picture} picture
   * @returns {boolean} whether they have
   */
  #layOut(picture) {
    const root = Number.parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;
    this.unit = root / 16;
    const width = this.el.clientWidth / this.unit;
    const { words, columns, heads, hidesSpecial, shape = "auto", least, rows = 0 } = picture;
    this.widestNext = wider(this.widestNext, picture.next?.text ?? "");
    const next = picture.next && { ...picture.next, widest: this.widestNext };
    const pair = picture.pair && { words: picture.pair.words, aligned: picture.pair.aligned };
    const count = Math.max(1, heads.length, rows);
    const request = { words, columns, heads: count, hidesSpecial, pair, next, shape, least };
    const key = JSON.stringify([request, width]);
    if (key === this.layoutKey) return false;
    this.layoutKey = key;
    clearTimeout(this.hoverTimer);
    this.pointed = this.hovered;
    const layout = layOut(request, browserMeasure(), width);
    this.layout = layout;
    this.window.fit(layout, words.length);
    this.el.classList.toggle("hw-is-vertical", layout.shape === "vertical");
    this.el.classList.toggle("hw-is-wrapped", layout.shape === "wrapped");
    sidesOf(picture).forEach((side, index) => {
      const deck = layout.decks[index];
      this.layers[index].place(side.rows, deck.rows, deck, layout, index);
      if (side.isCross) this.columnLayer.place(side.columns, deck.columns, deck, layout, index);
    });
    if (!pair) this.layers[1].place([], [], layout.decks[0], layout, 1);
    if (!columns) this.columnLayer.place([], [], layout.decks[0], layout, 0);
    return true;
  }

  /** Name words for screen readers. */
  #label() {
    const { picture } = this;
    if (!picture) return;
    sidesOf(picture).forEach((side, index) => {
      const isAsked = !(side.isCross && picture.isLookedAt);
      const isShort = side.rows.length <= LABELLED && isAsked;
      this.layers[index].label((at) =>
        isShort || (isAsked && at === side.word)
          ? wordLabel(picture, side, at)
          : side.rows[at].text,
      );
    });
  }

  /**
   * Index of the word in the first sentence that an element belongs to; null if there is none.
   * @param {EventTarget | null} target
   * @returns {number | null}
   */
  #wordAt(target) {
    const button = target instanceof Element ? target.closest("button.hw-button") : null;
    if (!(button instanceof HTMLElement)) return null;
    const at = Number(button.dataset.word);
    if (button.dataset.side === "0") return at;
    const couple = this.picture?.pair?.aligned.find(([, second]) => second === at);
    return couple?.[0] ?? null;
  }

  /**
   * The word that hovering shows: in a pair, one that both sentences have.
   * @param {EventTarget | null} target
   * @returns {number | null}
   */
  #hoverAt(target) {
    const at = this.#wordAt(target);
    const couple = this.picture?.pair?.aligned.find(([first]) => first === at);
    return this.picture?.pair && (couple?.[1] ?? null) === null ? null : at;
  }

  #listen() {
    const { words } = this;
    words.addEventListener("pointermove", (event) => {
      if (event.pointerType !== "touch" && hasMoved(event)) this.#rest(this.#hoverAt(event.target));
    });
    onLeave(words, () => this.#rest(null));
    words.addEventListener("click", (event) => {
      const word = this.#wordAt(event.target);
      if (word !== null) this.on.lock(word === this.picture?.locked ? null : word);
    });
    words.addEventListener("keydown", (event) => this.#key(event));
    this.place.addEventListener("scroll", () => {
      this.scrollFrame ||= requestAnimationFrame(() => {
        this.scrollFrame = 0;
        if (this.picture && this.layout) this.#paint(this.picture, this.layout, false);
      });
    });
  }

  /**
   * The pointer is on a word, or on none. It counts after it has rested.
   * @param {number | null} word
   */
  #rest(word) {
    if (word === this.pointed) return;
    this.pointed = word;
    clearTimeout(this.hoverTimer);
    if (word === this.hovered) return;
    this.hoverTimer = window.setTimeout(() => {
      this.hovered = word;
      this.on.hover(word);
    }, REST);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape" && this.picture?.locked !== null) {
      event.preventDefault();
      this.on.lock(null);
      return;
    }
    const [at, shown] = [this.#wordAt(event.target), this.#shown()];
    if (at === null || !shown.length) return;
    const place = shown.indexOf(at);
    const forward = this.layout?.isMirrored ? -1 : 1;
    const isVertical = this.layout?.shape === "vertical";
    /** @type {Record<string, number>} */
    const steps = {
      ArrowRight: place + forward,
      ArrowLeft: place - forward,
      Home: 0,
      End: shown.length - 1,
      ...(isVertical ? { ArrowDown: place + 1, ArrowUp: place - 1 } : {}),
    };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const next = shown[Math.min(shown.length - 1, Math.max(0, steps[event.key]))];
    this.#go(next);
  }

  /** Indices of the words on the stage. */
  #shown() {
    return (this.layout?.decks[0].rows ?? []).flatMap((box) => (box ? [box.at] : []));
  }

  /**
   * Choose a word without a pointer, and put the focus on it.
   * @param {number} word
   */
  #go(word) {
    this.on.go(word);
    this.layers[0].setStop(word);
    this.layers[0].focus(word);
  }
}
