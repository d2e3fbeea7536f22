// @ts-check
/** The map of one head: rows look at columns. Hover, click, zoom, pan, a table of numbers. */

/** @import {StageWord} from "../types.js" */
/** @import {Cells} from "./host.js" */
/** @import {Layout} from "./map_layout.js" */

import { make } from "./dom.js";
import { drawMap } from "./map_draw.js";
import { layOut } from "./map_layout.js";
import { hasStrip, largest } from "./map_strip.js";
import { mapTable } from "./map_table.js";
import { hasMoved, onLeave } from "./pointer.js";
import { shades } from "./shades.js";

/**
 * @typedef {object} MapPicture
 * @property {string} key  changes whenever the weights do
 * @property {StageWord[]} rows @property {StageWord[]} columns
 * @property {(row: number, column: number) => number | null} share
 * @property {boolean[]} resting  columns drawn in grey
 * @property {boolean} hidesSpecial
 * @property {string} own @property {string} rest  colours of the head and of resting places
 * @property {string} ink  colour of the chosen word's label
 * @property {"light" | "dark"} theme
 * @property {number | null} row  the chosen word @property {number | null} column  the hovered one
 * @property {boolean} isLookedAt  the chosen word is a column
 * @property {boolean} isLong  whether the map is shown as an overview
 * @property {Cells | null} overview  the reduced map of a long text
 * @property {Cells | null} tile  an exact part of it
 * @property {[number, number] | null} window  words that the stage shows of a long text
 * @property {boolean} isTable
 */

/**
 * @typedef {object} MapActions
 * @property {(cell: {row: number, column: number} | null) => void} hover  after 60 ms at rest
 * @property {(row: number) => void} lock
 * @property {(isTable: boolean) => void} table
 * @property {(part: {rows: number[], keys: number[]}) => void} part  a part in sight of a long text
 */

/** Milliseconds at rest before a cell acts, and before a part is fetched. */
const REST = 60,
  FETCH = 150;
const TICKS = [0, 5, 25, 50, 100];
/** Cells smaller than this, in px, zoom with the wheel, and to this size with the button. */
const LARGE = 14;

export class HeadMap {
  /** @param {HTMLElement} el @param {MapActions} on */
  constructor(el, on) {
    this.el = el;
    this.on = on;
    this.canvas = make("canvas", { class: "hv-map", "aria-hidden": "true" });
    this.bar = make("canvas", { class: "hv-bar", width: 256, height: 1 });
    const ticks = TICKS.map((tick) => {
      const label = make("span", {}, tick === 100 ? "100%" : String(tick));
      label.style.left = `${Math.sqrt(tick / 100) * 100}%`;
      return label;
    });
    this.scale = make(
      "div",
      { class: "hv-scale", "aria-hidden": "true" },
      this.bar,
      make("div", { class: "hv-ticks" }, ...ticks),
    );
    this.toggle = make(
      "button",
      { type: "button", class: "hv-link", "aria-pressed": "false" },
      "Show as table",
    );
    this.toggle.addEventListener("click", () => this.on.table(!this.picture?.isTable));
    this.zoomer = make("button", { type: "button", class: "hv-link", hidden: true });
    this.zoomer.addEventListener("click", () => this.toggleZoom());
    this.table = make("div", {
      class: "hv-table",
      tabindex: 0,
      role: "group",
      "aria-label": "Shares of the map",
    });
    el.append(
      this.canvas,
      this.table,
      make(
        "div",
        { class: "hv-under-map" },
        this.scale,
        make("span", { class: "hv-map-links" }, this.zoomer, this.toggle),
      ),
    );
    /** @type {MapPicture | null} */
    this.picture = null;
    /** @type {Layout | null} */
    this.layout = null;
    /** How far the map is zoomed in, and the cell at its top left. */
    this.zoom = { scale: 1, x: 0, y: 0 };
    this.zoomed = "";
    /** The cell under the pointer. */
    this.pointed = "";
    /** @type {Map<number, {x: number, y: number}>} */
    this.fingers = new Map();
    this.listen();
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(el);
  }

  destroy() {
    this.watcher.disconnect();
    clearTimeout(this.timer);
    clearTimeout(this.fetching);
    this.el.replaceChildren();
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => this.move(event));
    onLeave(canvas, () => this.point(null, 0));
    canvas.addEventListener("pointerdown", (event) => {
      this.fingers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
      this.isDrag = false;
      if (this.zoom.scale > 1) canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", () => this.fingers.clear());
    canvas.addEventListener("dblclick", () => this.zoomTo(1, 0, 0));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  /** @param {MapPicture} picture */
  show(picture) {
    const before = this.picture;
    this.picture = picture;
    const shape = `${picture.rows.length} ${picture.columns.length}`;
    if (shape !== this.zoomed) this.zoom = { scale: 1, x: 0, y: 0 };
    this.zoomed = shape;
    this.toggle.setAttribute("aria-pressed", String(picture.isTable));
    this.toggle.textContent = picture.isTable ? "Show as map" : "Show as table";
    this.canvas.hidden = picture.isTable;
    this.table.hidden = !picture.isTable;
    if (picture.isTable) this.zoomer.hidden = true;
    if (before?.own !== picture.own || before.theme !== picture.theme) this.drawBar();
    if (picture.isTable) this.table.replaceChildren(mapTable(picture));
    else this.draw();
  }

  drawBar() {
    if (!this.picture) return;
    const table = shades(this.picture.theme, this.picture.own);
    const image = new ImageData(256, 1);
    for (let at = 0; at < 256; at++) {
      image.data.set(table.subarray(at * 3, at * 3 + 3), at * 4);
      image.data[at * 4 + 3] = 255;
    }
    this.bar.getContext("2d")?.putImageData(image, 0, 0);
  }

  draw() {
    if (!this.picture || this.picture.isTable || !this.el.clientWidth) return;
    this.layout = layOut(this.picture, this.el.clientWidth, this.zoom);
    drawMap(this.canvas, this.picture, this.layout);
    const isZoomed = this.zoom.scale > 1;
    this.canvas.style.touchAction = isZoomed ? "none" : "pan-y";
    this.zoomer.hidden = !isZoomed && !hasStrip(this.layout);
    this.zoomer.textContent = isZoomed ? "Whole map" : "Zoom in";
  }

  /** Show the chosen row and its strongest target with all labels, or the whole map. */
  toggleZoom() {
    const { layout, picture, zoom } = this;
    if (!layout || !picture) return;
    if (zoom.scale > 1) return this.zoomTo(1, 0, 0);
    const scale = Math.min(layout.maxScale, (LARGE * layout.unit) / layout.cell);
    const row = picture.row ?? picture.window?.[0] ?? 0;
    const share = (/** @type {number} */ at) =>
      (picture.isLookedAt ? picture.share(at, row) : picture.share(row, at)) ?? 0;
    const [best] = largest(layout.across, layout.across, share);
    const [x, y] = picture.isLookedAt ? [row, best] : [best, row];
    const middle = (/** @type {number} */ at, /** @type {number} */ count) =>
      at + 0.5 - count / scale / 2;
    return this.zoomTo(scale, middle(x, layout.across), middle(y, layout.down));
  }

  /** Row and column under the pointer. @param {{offsetX: number, offsetY: number}} place */
  cellAt({ offsetX, offsetY }) {
    return this.layout?.cellAt(offsetX, offsetY) ?? null;
  }

  /** @param {PointerEvent} event */
  move(event) {
    const before = this.fingers.get(event.pointerId);
    if (!before) {
      if (event.pointerType !== "touch" && hasMoved(event)) this.point(this.cellAt(event), REST);
      return;
    }
    const now = { x: event.offsetX, y: event.offsetY };
    const [dx, dy] = [now.x - before.x, now.y - before.y];
    if (!this.isDrag && Math.hypot(dx, dy) < 5 && this.fingers.size < 2) return;
    const other = [...this.fingers].find(([id]) => id !== event.pointerId)?.[1];
    this.isDrag = true;
    this.fingers.set(event.pointerId, now);
    if (other) {
      const factor =
        Math.hypot(now.x - other.x, now.y - other.y) /
        Math.max(1, Math.hypot(before.x - other.x, before.y - other.y));
      this.zoomAbout((now.x + other.x) / 2, (now.y + other.y) / 2, factor);
    } else if (this.layout && this.zoom.scale > 1) {
      const { cell } = this.layout;
      this.zoomTo(this.zoom.scale, this.zoom.x - dx / cell, this.zoom.y - dy / cell);
    }
  }

  /** @param {PointerEvent} event */
  release(event) {
    this.fingers.delete(event.pointerId);
    const cell = this.isDrag ? null : this.cellAt(event);
    if (cell) this.on.lock(this.picture?.isLookedAt ? cell.column : cell.row);
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    const cell = this.layout?.cell ?? LARGE;
    if (!event.ctrlKey && this.zoom.scale === 1 && cell >= LARGE) return;
    if (this.zoom.scale === 1 && event.deltaY > 0) return;
    event.preventDefault();
    this.zoomAbout(event.offsetX, event.offsetY, Math.exp(-event.deltaY / 300));
  }

  /** @param {number} x @param {number} y @param {number} factor */
  zoomAbout(x, y, factor) {
    const { layout, zoom } = this;
    if (!layout) return;
    const scale = Math.max(1, Math.min(layout.maxScale, zoom.scale * factor));
    const [column, row] = [(x - layout.left) / layout.cell, (y - layout.top) / layout.cell];
    const ratio = 1 - zoom.scale / scale;
    this.zoomTo(scale, zoom.x + column * ratio, zoom.y + row * ratio);
  }

  /** @param {number} scale @param {number} x @param {number} y */
  zoomTo(scale, x, y) {
    if (!this.layout) return;
    const { across, down } = this.layout;
    const clamp = (/** @type {number} */ value, /** @type {number} */ count) =>
      Math.max(0, Math.min(value, count - count / scale));
    this.zoom = { scale, x: clamp(x, across), y: clamp(y, down) };
    this.draw();
    clearTimeout(this.fetching);
    if (this.picture?.isLong)
      this.fetching = setTimeout(() => {
        const part = this.layout?.inSight();
        if (part) this.on.part(part);
      }, FETCH);
  }

  /** @param {{row: number, column: number} | null} cell @param {number} delay */
  point(cell, delay) {
    const key = cell ? `${cell.row} ${cell.column}` : "";
    if (key === this.pointed) return;
    this.pointed = key;
    clearTimeout(this.timer);
    if (!delay) this.on.hover(cell);
    else this.timer = setTimeout(() => this.on.hover(cell), delay);
  }
}
