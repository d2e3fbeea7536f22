// @ts-check
/** Heads that carry most of the difference between the sentences of a pair, and a line on them. */

import { rounded, signedPercent } from "./numbers.js";

/** Number of heads that are marked, and the smallest share in percent. */
const MOST = 5,
  LEAST = 5;
const AGAINST = "A minus means that the head works against it. ";
const MEASURED = "Each head was patched alone.";

/**
 * The heads with the largest shares of either sign, the largest first.
 * @param {Record<string, number> | null} carries @returns {Map<string, number>}
 */
export function carriers(carries) {
  const size = (/** @type {[string, number]} */ [, share]) => Math.abs(share);
  const large = Object.entries(carries ?? {}).filter((each) => rounded(size(each)) >= LEAST);
  return new Map(large.sort((one, other) => size(other) - size(one)).slice(0, MOST));
}

/**
 * What the dots on the grid mean, or why there are none.
 * @param {Record<string, number> | null} carries @param {string | null} why
 */
export function carriersNote(carries, why) {
  if (!carries) return why ?? "";
  const all = [...carriers(carries)];
  const marked = all.map(([head, share]) => `${head} ${signedPercent(share)}`);
  const difference = "of the difference between the two sentences";
  if (!marked.length) return `No head carries ${LEAST}% or more ${difference}. ${MEASURED}`;
  const [dots, heads] =
    marked.length === 1
      ? ["The dot marks", "the head that carries"]
      : ["Dots mark", "the heads that carry"];
  const against = all.some(([, share]) => share < 0) ? AGAINST : "";
  return `${dots} ${heads} most ${difference}: ${marked.join(", ")}. ${against}${MEASURED}`;
}

/** Part of a marked head's label. @param {number} share */
export const carrierLabel = (share) => `carries ${signedPercent(share)} of the difference`;
