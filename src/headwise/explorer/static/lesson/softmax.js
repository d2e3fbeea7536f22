// @ts-check
/** A row of scores on its way to shares. Tests compare it with Python's numbers. */

/** @import {ScoresFigure} from "../types.js" */

/**
 * What enters the softmax; null for a hidden piece.
 * @param {ScoresFigure} f @param {number[]} scores @param {number} [temperature]
 */
export const logitsOf = (f, scores, temperature = 1) =>
  scores.map((score, at) => {
    const added = f.added[at];
    if (added === null) return null;
    const scaled = score * f.scale;
    const bent = f.softcap === null ? scaled : f.softcap * Math.tanh(scaled / f.softcap);
    return (bent + added) / temperature;
  });

/**
 * Shares of a row of logits; a sink adds to the sum but gets no share.
 * @param {(number | null)[]} logits @param {number | null} sink
 */
export function softmax(logits, sink) {
  const all = [...logits, sink].filter((logit) => logit !== null);
  const top = Math.max(...all);
  const total = all.reduce((sum, logit) => sum + Math.exp(logit - top), 0);
  return logits.map((logit) => (logit === null ? 0 : Math.exp(logit - top) / total));
}

/** Sum of the powers of e. @param {(number | null)[]} logits @param {number | null} sink */
export const totalOf = (logits, sink) =>
  [...logits, sink].reduce(
    (/** @type {number} */ sum, logit) => sum + (logit === null ? 0 : Math.exp(logit)),
    0,
  );
