// @ts-check
/** A slider for the temperature, and buttons that raise all scores and put everything back. */

import { make } from "../stage/dom.js";

/** Temperatures of the slider's two ends are this power of two, and one over it. */
const HOTTEST = 2;

/**
 * @param {(value: number | null) => void} change null: put everything back
 * @param {(() => void) | null} raise raise all scores by one; null if this would not be the same
 */
export function temperature(change, raise) {
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
  const raiser = make("button", { type: "button", hidden: !raise }, "+1 to all");
  raiser.addEventListener("click", () => raise?.());
  const label = make("label", { for: "lesson-temperature" }, "Temperature");
  const el = make(
    "div",
    { class: "lesson-tools", hidden: true },
    label,
    range,
    output,
    raiser,
    reset,
  );
  range.addEventListener("input", () => change(2 ** Number(range.value)));
  reset.addEventListener("click", () => {
    range.value = "0";
    change(null);
  });
  /**
   * @param {number} value
   * @param {boolean} isUsual whether the scores are the model's own
   * @param {boolean} isRaisable whether all scores can be raised once more
   */
  const show = (value, isUsual, isRaisable) => {
    raiser.disabled = !isRaisable;
    output.textContent = value.toFixed(1);
    reset.disabled = value === 1 && isUsual;
  };
  return { el, show };
}
