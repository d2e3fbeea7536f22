// @ts-check
/**
 * The grid of all heads: a small map, the bars of one word, a role or a measure in every cell.
 *
 * Heads and What if both use it: `choose` is a click or Enter, `toggle` switches heads on or off.
 * The longer of layers and heads runs across. Letters are shown from 26 px, maps from 18 px.
 */

/** @import {LayerFacts, RoleFacts} from "../types.js" */

import { make, svg } from "./dom.js";
import { Fingers } from "./grid_touch.js";
import { headLabel } from "./sentences.js";
import { paintBars, paintMap } from "./shades.js";

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
 */

/**
 * @typedef {object} GridActions
 * @property {(name: string, isAdded: boolean) => void} choose
 * @property {(name: string | null) => void} [hover]  after 120 ms at rest
 * @property {(names: string[], isOff: boolean) => void} [toggle]  What if: click, drag and Space
 */

const LETTERS = 26,
  MAPS = 18;
/** Milliseconds at rest before a small map lends its arcs. */
const REST = 120;
/** Widths in px at a font size of 16: layer labels, the largest pitch, and tall grids' pitch. */
const LABEL = 30,
  PITCH = 43,
  LOW = 24,
  TALL = 300;

/** Numbers of cells across and down. @param {LayerFacts[]} layers */
export function gridShape(layers) {
  const heads = Math.max(1, ...layers.map((layer) => layer.heads));
  const isTurned = layers.length > heads;
  return {
    across: isTurned ? layers.length : heads,
    down: isTurned ? heads : layers.length,
    isTurned,
  };
}

/** Whether the grid takes a row of its own. @param {LayerFacts[]} layers @param {number} room */
export function wantsRow(layers, room) {
  const { across, down } = gridShape(layers);
  return (room - LABEL) / across < MAPS + 3 && down * LOW <= 380;
}

/** Short name of a layer: enc.L0 beside a row, E0 above a column.
 * @param {string} name @param {boolean} isAbove */
const shortName = (name, isAbove) =>
  isAbove
    ? name.replace(/^(.)[^.]*\.L?/, (_, letter) => letter.toUpperCase())
    : name.replace(/^(.{1,3})[^.]*\./, "$1.");

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
    this.box = make("div", { class: "hv-grid", role: "grid", "aria-label": label });
    el.append(this.box);
    this.build();
    this.touch = new Fingers(this, layers);
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("pointerover", (event) => this.over(event));
    this.box.addEventListener("pointerleave", () => this.leave());
    this.watcher = new ResizeObserver(() => this.fit());
    this.watcher.observe(el);
  }

  destroy() {
    this.watcher.disconnect();
    clearTimeout(this.timer);
    this.el.replaceChildren();
  }

  build() {
    const { across, down, isTurned } = this.shape;
    const at = (/** @type {number} */ layer, /** @type {number} */ head) =>
      head < this.layers[layer].heads ? `${this.layers[layer].name}H${head}` : null;
    this.rows = Array.from({ length: down }, (_, row) =>
      Array.from({ length: across }, (_, column) => (isTurned ? at(column, row) : at(row, column))),
    );
    const isPlain = this.layers.every((layer) => /^L\d+$/.test(layer.name));
    const layerLabel = (/** @type {number} */ at, /** @type {boolean} */ isShort) => {
      const { name } = this.layers[at];
      const text = isShort && isPlain ? name.slice(1) : shortName(name, isShort);
      return this.actions.toggle ? this.layerButton(at, text) : text;
    };
    const top = make(
      "div",
      { role: "row", class: "hv-grid-row" },
      make(
        "span",
        { role: "columnheader", class: "hv-grid-label" },
        make("span", { class: "hv-hidden" }, isTurned ? "head" : "layer"),
      ),
      ...Array.from({ length: across }, (_, at) =>
        make(
          "span",
          {
            role: "columnheader",
            class: "hv-grid-label hv-grid-top",
            "data-at": at,
            title: isTurned ? this.layers[at].name : null,
          },
          isTurned ? layerLabel(at, true) : String(at),
        ),
      ),
    );
    const rows = this.rows.map((names, at) =>
      make(
        "div",
        { role: "row", class: "hv-grid-row" },
        make(
          "span",
          { role: "rowheader", class: "hv-grid-label" },
          isTurned ? `H${at}` : layerLabel(at, false),
        ),
        ...names.map((name) => (name ? this.cell(name) : make("span", { role: "gridcell" }))),
      ),
    );
    this.box.style.setProperty("--across", String(across));
    this.box.replaceChildren(top, ...rows);
    this.focusable(this.rows.flat().find(Boolean) ?? "");
  }

  /** @param {string} name */
  cell(name) {
    const letter = make("span", { class: "hv-grid-letter", "aria-hidden": "true" });
    const cell = make(
      "button",
      { type: "button", class: "hv-head", role: "gridcell", tabindex: -1, "data-head": name },
      make("canvas", { "aria-hidden": "true", width: 1, height: 1 }),
      letter,
    );
    cell.addEventListener("click", (event) => this.click(name, event));
    cell.addEventListener("focus", () => this.focusable(name));
    this.cells.set(name, cell);
    return cell;
  }

  /** @param {number} at @param {string} text */
  layerButton(at, text) {
    const { name, heads } = this.layers[at];
    const names = Array.from({ length: heads }, (_, head) => `${name}H${head}`);
    const button = make(
      "button",
      { type: "button", class: "hv-layer", "aria-label": `Switch layer ${name}`, tabindex: -1 },
      text,
    );
    button.addEventListener("click", () => {
      const off = this.picture?.off ?? new Set();
      this.actions.toggle?.(names, !names.every((name) => off.has(name)));
    });
    return button;
  }

  /** @param {string} name @param {MouseEvent} event */
  click(name, event) {
    if (this.touch.takesClick()) return;
    if (!this.actions.toggle || event.shiftKey) return this.actions.choose(name, event.shiftKey);
    // Pointers drag (see Fingers); a screen reader's click has no detail.
    if (!event.detail) this.actions.toggle([name], !this.picture?.off?.has(name));
  }

  /** @param {PointerEvent} event */
  over(event) {
    if (event.pointerType === "touch" || event.buttons) return;
    const cell = /** @type {HTMLElement | null} */ (
      /** @type {Element} */ (event.target).closest("button[data-head]")
    );
    clearTimeout(this.timer);
    if (!cell) return;
    this.timer = setTimeout(() => this.actions.hover?.(cell.dataset.head ?? ""), REST);
  }

  leave() {
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
    const moves = /** @type {Record<string, number[]>} */ ({
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
    });
    const move = moves[event.key];
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
    const { across, down } = this.shape;
    const isStacked = this.layers.some(({ name }) => name.includes("."));
    const label = isStacked && !this.shape.isTurned ? 2 * LABEL : LABEL;
    const pitch = Math.max(
      8,
      Math.min(PITCH, Math.floor((room - label) / across), Math.max(LOW, Math.floor(TALL / down))),
    );
    const gap = pitch >= 30 ? 4 : pitch >= 20 ? 3 : 2;
    const size = pitch - gap;
    this.box.style.setProperty("--cell", `${size / 16}rem`);
    this.box.style.setProperty("--gap", `${gap / 16}rem`);
    this.box.style.setProperty("--label", `${label / 16}rem`);
    this.box.dataset.cells = size >= LETTERS ? "letters" : size >= MAPS ? "maps" : "squares";
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
      const outline = isChosen && !isFew ? picture.colours.own(roles[0] ?? null) : "";
      cell.style.outlineColor = outline;
      cell.classList.toggle("hv-dim", Boolean(picture.only && !roles.includes(picture.only)));
      cell.classList.toggle("hv-off", isOff);
      cell.classList.toggle("hv-scaled", isScaled);
      const states = [
        ...(isChosen ? ["chosen"] : []),
        ...(isOff ? ["off"] : isScaled ? [`times ${picture.factors?.get(name)}`] : []),
        ...(picture.values?.[name] ? [picture.values[name].words] : []),
      ];
      const label = headLabel(name, roles, Boolean(picture.roles), states);
      if (cell.getAttribute("aria-label") !== label) {
        cell.setAttribute("aria-label", label);
        cell.title = label;
      }
      this.slash(cell, isOff);
    }
    if (picture.chosen.length && !this.box.contains(document.activeElement))
      this.focusable(picture.chosen[0]);
    for (const [name, cell] of this.cells) this.paint(name, cell, picture);
    this.touch.show();
  }

  /** @param {HTMLElement} cell @param {boolean} isOff */
  slash(cell, isOff) {
    const drawn = cell.querySelector("svg");
    if (!isOff) drawn?.remove();
    else if (!drawn)
      cell.append(
        svg(
          "svg",
          { viewBox: "0 0 10 10", "aria-hidden": "true" },
          svg("line", { x1: 2.2, y1: 7.8, x2: 7.8, y2: 2.2 }),
        ),
      );
  }

  /**
   * Draw a cell's map, bars, value or role, unless it shows that already.
   * @param {string} name @param {HTMLElement} cell @param {GridPicture} picture
   */
  paint(name, cell, picture) {
    const isSquares = this.box.dataset.cells === "squares";
    const { own, rest, shades } = picture.colours;
    const roles = picture.roles?.[name] ?? [];
    const lead = roles[0] ?? null;
    const colour = own(lead);
    const value = picture.values?.[name] ?? null;
    const isFilled = Boolean(value || isSquares);
    const bars = isFilled ? null : picture.bars?.(name);
    const map = isFilled || bars ? null : picture.maps?.(name);
    const key = [picture.key, picture.theme, roles, value?.fill, bars ? "bars" : map?.key].join();
    if (this.painted.get(name) === key) return;
    this.painted.set(name, key);
    const canvas = /** @type {HTMLCanvasElement} */ (cell.firstElementChild);
    const letter = /** @type {HTMLElement} */ (canvas.nextElementSibling);
    letter.textContent = lead ? `${picture.facts[lead]?.letter ?? "?"}${roles[1] ? "+" : ""}` : "";
    letter.style.color = colour;
    letter.hidden = Boolean(value) || this.box.dataset.cells !== "letters";
    cell.style.background = value ? value.fill : isSquares && lead ? colour : "";
    canvas.hidden = isFilled;
    canvas.classList.toggle("hv-bars", Boolean(bars));
    const rests = lead === "sink" || lead === "delimiter" ? () => false : null;
    if (bars) paintBars(canvas, bars.shares, this.size - 4, colour, rest, rests ?? bars.isResting);
    else if (map) paintMap(canvas, map, shades(colour), shades(rest), rests ?? map.isResting);
    else canvas.width = canvas.height = 1;
  }
}
