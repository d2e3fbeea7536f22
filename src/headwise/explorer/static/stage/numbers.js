// @ts-check
/**
 * Numbers as they are printed: shares as whole percents, changes as signed points.
 *
 * Every threshold of the stage applies to the rounded share, so that "under 5%" never stands
 * beside a printed 5%.
 */

/** @typedef {string | {word: string}} Part a piece of a sentence; words of the text are italic */

/**
 * A share in whole percents.
 * @param {number} share
 * @returns {number}
 */
export function rounded(share) {
  return Math.round(100 * share);
}

/**
 * A share as printed: "68%", or "<1" if it rounds to zero.
 * @param {number} share
 * @returns {string}
 */
export function percent(share) {
  const whole = rounded(share);
  return whole < 1 ? "<1" : `${whole}%`;
}

/**
 * A share inside a sentence: "68%", or "less than 1%".
 * @param {number} share
 * @returns {string}
 */
export function percentInWords(share) {
  return rounded(share) < 1 ? "less than 1%" : percent(share);
}

/**
 * A change of a share, in signed points: "+22", "−40", "0".
 * @param {number} change
 * @returns {string}
 */
export function points(change) {
  const whole = rounded(Math.abs(change));
  if (whole === 0) return "0";
  return (change < 0 ? "\u2212" : "+") + whole;
}

/**
 * A share that may be negative: "31%", "\u221212%".
 * @param {number} share
 * @returns {string}
 */
export const signedPercent = (share) => `${share < 0 ? "\u2212" : ""}${rounded(Math.abs(share))}%`;

/**
 * "a", "a and b", "a, b and c".
 * @param {string[]} items
 * @returns {string}
 */
export function joinAnd(items) {
  if (items.length < 2) return items.join("");
  return `${items.slice(0, -1).join(", ")} and ${items[items.length - 1]}`;
}
