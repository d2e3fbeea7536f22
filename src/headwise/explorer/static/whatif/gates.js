// @ts-check
/**
 * Factors of the changed heads, as the address has them: "L3H1,L0H2*0.5" switches L3H1 off and
 * halves the output of L0H2.
 */

/** Largest factor of the slider. */
export const MOST = 2;
/** Heads to name before the rest is only counted. */
const NAMED = 8;

/** @typedef {Map<string, number>} Factors  by head; 0 is off */

/**
 * The factors in an address, without unknown heads and without heads that do not change.
 * @param {string} off @param {(head: string) => boolean} isKnown
 * @returns {Factors}
 */
export function readFactors(off, isKnown) {
  /** @type {Factors} */
  const factors = new Map();
  for (const part of off.split(",").filter(Boolean)) {
    const [name, text] = part.split("*");
    const factor = text === undefined ? 0 : Math.min(MOST, Math.max(0, Number(text) || 0));
    if (isKnown(name) && factor !== 1) factors.set(name, factor);
  }
  return factors;
}

/** @param {Factors} factors */
export const writeFactors = (factors) =>
  [...factors]
    .filter(([, factor]) => factor !== 1)
    .map(([name, factor]) => (factor === 0 ? name : `${name}*${factor}`))
    .join(",");

/**
 * The factors after some heads were switched.
 * @param {Factors} factors @param {string[]} names @param {boolean} isOff
 * @returns {Factors}
 */
export function switched(factors, names, isOff) {
  const next = new Map(factors);
  for (const name of names) {
    next.delete(name); // a head that is switched again is the last
    if (isOff) next.set(name, 0);
  }
  return next;
}

/** Heads that are off. @param {Factors} factors */
export const offHeads = (factors) =>
  [...factors].filter(([, factor]) => factor === 0).map(([name]) => name);

/** Heads that are scaled but not off. @param {Factors} factors */
export const scaledHeads = (factors) =>
  [...factors].filter(([, factor]) => factor !== 0).map(([name]) => name);

/**
 * "3 of 270 heads off", "1 of 72 heads off, 1 scaled".
 * @param {Factors} factors @param {number} all
 */
export function countChanged(factors, all) {
  const off = offHeads(factors).length,
    scaled = scaledHeads(factors).length;
  if (!off && !scaled) return `All ${all.toLocaleString("en")} heads on`;
  const total = all.toLocaleString("en");
  if (!off) return `${scaled} of ${total} heads scaled`;
  return `${off} of ${total} heads off${scaled ? `, ${scaled} scaled` : ""}`;
}

/** Names of the changed heads in the order of the model. @param {Factors} factors */
export function nameChanged(factors) {
  const heads = [...factors].sort(([one], [other]) =>
    one.localeCompare(other, "en", { numeric: true }),
  );
  const names = heads.map(([name, factor]) =>
    factor === 0 ? name : `${name} \u00d7 ${factor.toFixed(2)}`,
  );
  const more = names.length - NAMED;
  return more > 1 ? `${names.slice(0, NAMED).join(", ")} and ${more} more` : names.join(", ");
}
