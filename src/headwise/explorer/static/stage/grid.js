// @ts-check
/**
 * The grid of all heads: a small map, the bars of one word, a role or a measure in every cell.
 *
 * Heads and What if both use it: `choose` is a click or Enter, `toggle` switches heads on or off.
 * The longer of layers and heads runs across. Letters are shown from 26 px, maps from 18 px.
 */

/** @import {LayerFacts, RoleFacts} from "../types.js" */

import { make } from "./dom.js";
import { headStates, paintCell, slash } from "./grid_cells.js";
import { gridRows } from "./grid_rows.js";
import { cellSizes, gridShape } from "./grid_shape.js";
import { Fingers } from "./grid_touch.js";
import { hasMoved, onLeave } from "./pointer.js";
import { headLabel } from "./sentences.js";

/**
 * A head's small map: square roots of its weights as bytes.
 * @typedef {object} SmallMap
 * @property {string} key  the same as long as the map is
 * @property {ArrayLike<number>} bytes @property {number[]} shape
 * @property {(column: number) => boolean} isResting  drawn in grey
 * @property {(row: number) => boolean} isShown  special tokens have no row
 */

/**
 * @typedef {object} GridPicture
 * @property {Record<string, RoleFacts>} facts  every role's letter and colours
 * @property {Record<string, string[]> | null} roles  roles by head, lead first; null: not measured
 * @property {string[]} chosen
 * @property {string | null} [lent]  a head that is only hovered, and whose arcs are shown
 * @property {string | null} only  the role whose heads stay in full; the others are dimmed
 * @property {"light" | "dark"} theme
 * @property {{own: (role: string | null) => string, rest: string, shades: (colour: string) =>
 *   Uint8ClampedArray}} colours
 * @property {string} key  changes whenever the text, its switches or the word do
 * @property {((name: string) => SmallMap | null) | null} maps
 * @property {((name: string) => {shares: ArrayLike<number>, isResting: (at: number) => boolean}
 *   | null) | null} bars  one word's row in every head, instead of maps
 * @property {Record<string, {fill: string, ink: string, words: string}> | null} values  a measure
 * @property {Set<string>} [off]  heads switched off
 * @property {Map<string, number>} [factors]  heads scaled by another factor than 0 or 1
 * @property {Map<string, number>} [carries]  marked heads' shares of a pair's difference
 */

/**
 * @typedef {object} GridActions
 * @property {(name: string, isAdded: boolean) => void} choose
 * @property {(name: string | null) => void} [hover]  after 120 ms at rest
 * @property {(names: string[], isOff: boolean) => void} [toggle]  What if: click, drag and Space
 */

/** Milliseconds at rest before a small map lends its arcs. */
const REST = 120;
/** Rows and columns that an arrow key moves by. @type {Record<string, number[]>} */
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export class Grid {
  /**
   * @param {HTMLElement} el @param {LayerFacts[]} layers @param {GridActions} actions
   * @param {string} label
   */
  constructor(el, layers, actions, label) {
    this.el = el;
    this.layers = layers;
    this.actions = actions;
    this.shape = gridShape(layers);
    /** @type {Map<string, HTMLElement>} */
    this.cells = new Map();
    /** Heads row by row as on the screen. @type {(string | null)[][]} */
    this.rows = [];
    /** @type {GridPicture | null} */
    this.picture = null;
    /** What each cell's canvas shows. @type {Map<string, string>} */
    this.painted = new Map();
    this.size = 0;
    /** Head and size that the grid has scrolled to. */
    this.revealed = "";
    /** The head that the pointer has moved to, or "". */
    this.pointed = "";
    /** Whether the grid has more room than its own panel. */
    this.isLarge = false;
    this.box = make("div", { class: "hv-grid", role: "grid", "aria-label": label });
    this.scroller = make("div", { class: "hv-grid-scroll" }, this.box);
    el.append(this.scroller);
    this.build();
    this.touch = new Fingers(this, layers);
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("pointermove", (event) => this.over(event));
    onLeave(this.box, () => this.leave());
    this.watcher = new ResizeObserver(() => this.fit());
    this.watcher.observe(el);
  }

  destroy() {
    this.watcher.disconnect();
    clearTimeout(this.timer);
    this.el.replaceChildren();
  }

  build() {
    this.rows = gridRows(this);
    this.focusable(this.rows.flat().find(Boolean) ?? "");
  }

  /** @param {string} name @param {MouseEvent} event */
  click(name, event) {
    clearTimeout(this.timer); // a click shows more than the hover that it interrupts
    if (this.touch.takesClick()) return;
    if (!this.actions.toggle || event.shiftKey) return this.actions.choose(name, event.shiftKey);
    // Pointers drag (see Fingers); a screen reader's click has no detail.
    if (!event.detail) this.actions.toggle([name], !this.picture?.off?.has(name));
  }

  /** Heads that slide under a pointer at rest do not count. @param {PointerEvent} event */
  over(event) {
    if (event.pointerType === "touch" || event.buttons || !hasMoved(event)) return;
    const cell = /** @type {HTMLElement | null} */ (
      /** @type {Element} */ (event.target).closest("button[data-head]")
    );
    const name = cell?.dataset.head ?? "";
    if (name === this.pointed) return;
    this.pointed = name;
    clearTimeout(this.timer);
    if (name) this.timer = setTimeout(() => this.actions.hover?.(name), REST);
  }

  leave() {
    this.pointed = "";
    clearTimeout(this.timer);
    this.actions.hover?.(null);
  }

  /** Make one cell the grid's only tab stop. @param {string} name */
  focusable(name) {
    if (this.reached) this.cells.get(this.reached)?.setAttribute("tabindex", "-1");
    this.reached = name;
    this.cells.get(name)?.setAttribute("tabindex", "0");
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const name = /** @type {HTMLElement} */ (event.target).dataset?.head;
    if (!name || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter") {
      event.preventDefault();
      return this.actions.choose(name, event.shiftKey);
    }
    if (event.key === " ") {
      event.preventDefault();
      const isOff = this.picture?.off?.has(name) ?? false;
      return this.actions.toggle
        ? this.actions.toggle([name], !isOff)
        : this.actions.choose(name, false);
    }
    const move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    let row = this.rows.findIndex((names) => names.includes(name));
    let column = this.rows[row].indexOf(name);
    const next = this.rows[row + move[0]]?.[column + move[1]];
    if (!next) return;
    this.focusable(next);
    this.cells.get(next)?.focus();
  }

  /** Make cells as large as the room allows. */
  fit() {
    const unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
    const room = this.el.clientWidth / unit;
    if (!room) return;
    const { label, size, gap, pitch, kind, isScrolling } = cellSizes(
      this.layers,
      room,
      this.isLarge,
    );
    const shape = gridShape(this.layers, room);
    if (shape.isTurned !== this.shape.isTurned) {
      this.shape = shape;
      this.size = 0;
      this.build();
    }
    this.scroller.classList.toggle("hv-scrolling", isScrolling);
    this.box.style.setProperty("--cell", `${size / 16}rem`);
    this.box.style.setProperty("--gap", `${gap / 16}rem`);
    this.box.style.setProperty("--label", `${label / 16}rem`);
    this.box.dataset.cells = kind;
    for (const top of this.box.querySelectorAll(".hv-grid-top")) {
      const at = Number(/** @type {HTMLElement} */ (top).dataset.at);
      top.classList.toggle("hv-every-other", pitch < 20 && at % 2 === 1);
    }
    this.touch.fit(size);
    if (size * unit === this.size) return;
    this.size = size * unit;
    this.painted.clear();
    if (this.picture) this.show(this.picture);
  }

  /** Scroll a newly chosen head into sight, inside the grid. @param {string} head */
  reveal(head) {
    const key = `${head} ${this.size}`;
    const cell = this.cells.get(head);
    if (key === this.revealed || !cell) return;
    this.revealed = key;
    const { scroller } = this;
    const { left, width } = cell.getBoundingClientRect();
    const start = left - scroller.getBoundingClientRect().left;
    const isSeen = start > 2 * width && start + 2 * width < scroller.clientWidth;
    if (!isSeen) scroller.scrollLeft += start - (scroller.clientWidth - width) / 2;
  }

  /** Pixels of the screen along a small map; 0 before the grid has a size. */
  dots() {
    return Math.ceil(this.size * devicePixelRatio);
  }

  /** @param {GridPicture} picture */
  show(picture) {
    this.picture = picture;
    const isFew = picture.chosen.length < 2;
    for (const [name, cell] of this.cells) {
      const roles = picture.roles?.[name] ?? [];
      const isChosen = picture.chosen.includes(name);
      const isOff = picture.off?.has(name) ?? false;
      const isScaled = picture.factors?.has(name) ?? false;
      cell.setAttribute("aria-selected", String(isChosen));
      cell.classList.toggle("hv-chosen", isChosen);
      cell.classList.toggle("hv-lent", name === picture.lent);
      const outline = isChosen && !isFew ? picture.colours.own(roles[0] ?? null) : "";
      cell.style.outlineColor = outline;
      cell.classList.toggle("hv-dim", Boolean(picture.only && !roles.includes(picture.only)));
      cell.classList.toggle("hv-off", isOff);
      cell.classList.toggle("hv-scaled", isScaled);
      cell.classList.toggle("hv-carries", picture.carries?.has(name) ?? false);
      const label = headLabel(name, roles, Boolean(picture.roles), headStates(name, picture));
      if (cell.getAttribute("aria-label") !== label) {
        cell.setAttribute("aria-label", label);
        cell.title = label;
      }
      slash(cell, isOff);
    }
    if (picture.chosen.length && !this.box.contains(document.activeElement))
      this.focusable(picture.chosen[0]);
    this.reveal(picture.chosen.at(-1) ?? "");
    const kind = this.box.dataset.cells ?? "";
    for (const [name, cell] of this.cells) {
      const key = paintCell(name, cell, picture, kind, this.size, this.painted.get(name));
      this.painted.set(name, key);
    }
    this.touch.show();
  }
}
