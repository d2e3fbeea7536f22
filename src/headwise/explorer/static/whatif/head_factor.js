// @ts-check
/** One head below the grid: on or off, or its output scaled by a slider. */

import { make } from "../stage/dom.js";
import { MOST } from "./gates.js";

export class HeadFactor {
  /**
   * @param {HTMLElement} el
   * @param {{scale: (factor: number, isDone: boolean) => void}} on
   */
  constructor(el, on) {
    this.name = make("b", {});
    this.role = make("span", { class: "wi-role" });
    this.button = make("button", { type: "button", class: "hv-button" });
    this.slider = make("input", { type: "range", min: 0, max: MOST, step: 0.05, id: "wi-factor" });
    this.value = make("output", { for: "wi-factor" });
    const label = make("label", { for: "wi-factor" }, "Output times");
    const scale = make("span", {}, label, this.slider, this.value);
    el.append(this.name, this.role, this.button, scale);
    this.factor = 1;
    this.button.addEventListener("click", () => on.scale(this.factor === 0 ? 1 : 0, true));
    this.slider.addEventListener("input", () => on.scale(Number(this.slider.value), false));
    this.slider.addEventListener("change", () => on.scale(Number(this.slider.value), true));
  }

  /** @param {string} head @param {string} role @param {number} factor */
  show(head, role, factor) {
    this.factor = factor;
    this.name.textContent = head;
    this.role.textContent = role;
    this.button.textContent = factor === 0 ? "Switch on" : "Switch off";
    this.slider.value = String(factor);
    this.slider.setAttribute("aria-label", `Factor of the output of ${head}`);
    this.value.textContent = factor.toFixed(2);
  }
}
