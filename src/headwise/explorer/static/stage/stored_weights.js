// @ts-check
/** Weights that came with the page or the widget, not from a server. */

/** @import {ModelAnswer} from "../types.js" */

import { stackOf } from "./host.js";
import { Weights } from "./weights.js";

/** Names of a stack's heads, layer by layer. @param {ModelAnswer} about @param {string} stack */
export const headsOf = (about, stack) =>
  about.layers
    .filter(({ name }) => stackOf(name) === stack)
    .flatMap(({ name, heads }) => Array.from({ length: heads }, (_, head) => `${name}H${head}`));

/** Bytes from base64. @param {string} text @returns {ArrayBuffer} */
export function fromBase64(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  return bytes.buffer;
}

/**
 * Weights of a stack from their bytes.
 * @param {ModelAnswer} about @param {string} stack @param {number[]} shape heads, rows, columns
 * @param {ArrayBuffer} bytes
 */
export const storedWeights = (about, stack, shape, bytes) =>
  Weights.fromBytes(headsOf(about, stack), shape[1], shape[2], bytes);
