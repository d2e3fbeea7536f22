// @ts-check
/** Fingers and drags on the grid: long press, a name under a sliding finger, steppers, What if. */

/** @import {LayerFacts} from "../types.js" */
/** @import {Grid} from "./grid.js" */

import { make } from "./dom.js";
import { layerOf, numberOf } from "./host.js";

/** Milliseconds of a long press, and the smallest size in px that needs no steppers. */
const LONG = 450,
  FINGER = 44;

export class Fingers {
  /** @param {Grid} grid @param {LayerFacts[]} layers */
  constructor(grid, layers) {
    this.grid = grid;
    this.layers = layers;
    /** The head under the finger, or "". */
    this.head = "";
    this.isTaken = false;
    /** Heads that a drag has crossed, and what it does to them. @type {Set<string>} */
    this.crossed = new Set();
    this.isOff = true;
    this.isDragging = false;
    this.name = make("output", { class: "hv-grid-name", hidden: true });
    this.steppers = this.makeSteppers();
    grid.el.append(this.name);
    grid.el.prepend(this.steppers); // in reach of the stage, however tall the grid is
    const { box } = grid;
    box.addEventListener("pointerdown", (event) => this.down(event));
    box.addEventListener("pointermove", (event) => this.move(event));
    box.addEventListener("pointerup", () => this.up(true));
    box.addEventListener("pointercancel", () => this.up(false));
    box.addEventListener("contextmenu", (event) => {
      if (this.head) event.preventDefault(); // a long press adds a head
    });
  }

  /** Whether the click that follows was already answered by a finger. */
  takesClick() {
    const isTaken = this.isTaken;
    this.isTaken = false;
    return isTaken;
  }

  /** @param {PointerEvent} event */
  headAt(event) {
    const under = document.elementFromPoint(event.clientX, event.clientY);
    const cell = /** @type {HTMLElement | null} */ (under?.closest("button[data-head]"));
    return cell && this.grid.box.contains(cell) ? (cell.dataset.head ?? "") : "";
  }

  /** @param {PointerEvent} event */
  down(event) {
    const name = this.headAt(event);
    if (!name || event.button > 0) return;
    this.isTaken = false;
    const isFinger = event.pointerType === "touch";
    if (this.grid.actions.toggle && !event.shiftKey) {
      this.isDragging = true;
      this.isOff = !(this.grid.picture?.off?.has(name) ?? false);
      this.crossed = new Set([name]);
      if (!isFinger) event.preventDefault();
      this.grid.cells.get(name)?.focus({ preventScroll: true });
      this.mark();
      return;
    }
    if (!isFinger) return;
    this.head = name;
    this.showName(event);
    this.timer = setTimeout(() => {
      this.isTaken = true;
      this.grid.actions.choose(this.head, true);
      this.end();
    }, LONG);
  }

  /** @param {PointerEvent} event */
  move(event) {
    const name = this.headAt(event);
    if (this.isDragging && name && !this.crossed.has(name)) {
      this.crossed.add(name);
      this.mark();
    }
    if (!this.head || !name || name === this.head) return;
    clearTimeout(this.timer);
    this.head = name;
    this.showName(event);
  }

  /** @param {boolean} isMeant false if the browser took the gesture over */
  up(isMeant) {
    if (this.isDragging) {
      const names = [...this.crossed];
      this.isDragging = false;
      this.crossed.clear();
      this.mark();
      if (isMeant) this.grid.actions.toggle?.(names, this.isOff);
      return;
    }
    if (this.head && isMeant) {
      this.isTaken = true;
      this.grid.actions.choose(this.head, false);
    }
    this.end();
  }

  end() {
    clearTimeout(this.timer);
    this.head = "";
    this.name.hidden = true;
  }

  /** Mark the heads that the drag has crossed. */
  mark() {
    for (const [name, cell] of this.grid.cells)
      cell.classList.toggle("hv-crossed", this.crossed.has(name));
  }

  /** Show the name of the head above the finger. @param {PointerEvent} event */
  showName(event) {
    const box = this.grid.el.getBoundingClientRect();
    this.name.hidden = false;
    this.name.textContent = this.grid.cells.get(this.head)?.getAttribute("aria-label") ?? "";
    const left = Math.max(0, Math.min(event.clientX - box.left, box.width - 120));
    this.name.style.left = `${left}px`;
    this.name.style.top = `${event.clientY - box.top - 64}px`;
  }

  makeSteppers() {
    const stepper = (/** @type {"Layer" | "Head"} */ kind) => {
      const step = (/** @type {number} */ by) => {
        const button = make(
          "button",
          { type: "button", "aria-label": `${by < 0 ? "Previous" : "Next"} ${kind.toLowerCase()}` },
          by < 0 ? "\u2039" : "\u203a",
        );
        button.addEventListener("click", () => this.step(kind, by));
        return button;
      };
      const value = make("output", { class: "hv-stepper-value" });
      return { value, el: make("span", { class: "hv-stepper" }, step(-1), value, step(1)) };
    };
    this.layerStep = stepper("Layer");
    this.headStep = stepper("Head");
    return make("div", { class: "hv-steppers" }, this.layerStep.el, this.headStep.el);
  }

  /** @param {"Layer" | "Head"} kind @param {number} by */
  step(kind, by) {
    const chosen = this.grid.picture?.chosen.at(-1);
    if (!chosen) return;
    const at = this.layers.findIndex(({ name }) => name === layerOf(chosen));
    let layer = at,
      head = numberOf(chosen);
    if (kind === "Head") head = (head + by + this.layers[at].heads) % this.layers[at].heads;
    else {
      const count = this.layers.length;
      do layer = (layer + by + count) % count;
      while (!this.layers[layer].heads);
      head = Math.min(head, this.layers[layer].heads - 1);
    }
    this.grid.actions.choose(`${this.layers[layer].name}H${head}`, false);
  }

  /** Show steppers to fingers if cells are small. @param {number} size */
  fit(size) {
    this.steppers.hidden = size >= FINGER;
  }

  show() {
    const chosen = this.grid.picture?.chosen.at(-1);
    if (!chosen || !this.layerStep || !this.headStep) return;
    this.layerStep.value.textContent = `Layer ${layerOf(chosen).replace(/L(?=\d+$)/, "")}`;
    this.headStep.value.textContent = `Head ${numberOf(chosen)}`;
  }
}
