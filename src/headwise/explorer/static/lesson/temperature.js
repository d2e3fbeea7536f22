// @ts-check
/** A slider for the temperature, and a button that puts everything back. */

import { make } from "../stage/dom.js";

/** Temperatures of the slider's two ends are this power of two, and one over it. */
const HOTTEST = 2;

/** @param {(value: number | null) => void} change null: put everything back */
export function temperature(change) {
  const range = make("input", {
    type: "range",
    min: -HOTTEST,
    max: HOTTEST,
    step: 0.1,
    value: 0,
    id: "lesson-temperature",
  });
  const output = make("output", { for: "lesson-temperature" }, "1.0");
  const reset = make("button", { type: "button", disabled: true }, "Reset");
  const label = make("label", { for: "lesson-temperature" }, "Temperature");
  const el = make("div", { class: "lesson-tools", hidden: true }, label, range, output, reset);
  range.addEventListener("input", () => change(2 ** Number(range.value)));
  reset.addEventListener("click", () => {
    range.value = "0";
    change(null);
  });
  /** @param {number} value @param {boolean} isUsual whether the scores are the model's own */
  const show = (value, isUsual) => {
    output.textContent = value.toFixed(1);
    reset.disabled = value === 1 && isUsual;
  };
  return { el, show };
}
