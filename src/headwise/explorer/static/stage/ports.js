// @ts-check
/** Where arcs leave and reach their words, so that arcs of one word rarely cross. */

/**
 * One end of an arc at a word.
 * @typedef {object} Port
 * @property {number} toward signed distance to the other end; negative is left (or up)
 * @property {boolean} isStraight whether the arc crosses lines as an S, which keeps its order
 */

/** Starts spread at most this far from the middle, and over this part of half the word. */
const MOST = 22;
const START_PART = 0.42;
/** Starts of a short word may spread this far. */
const START_LEAST = 10;
const LANDING_PART = 0.8;
/** Many landings may spread further, by this much each. */
const EACH = 6;
/** Largest distance of neighbouring starts. */
const STEP = 12;

/**
 * Places of ports of one side from the middle outwards: far ends in the middle, near ones outside.
 * @param {Port[]} ports
 * @param {number} side -1 or 1
 * @returns {number[]} indices of `ports`
 */
function outwards(ports, side) {
  return ports
    .map((port, index) => ({ port, index }))
    .filter(({ port }) => (side < 0 ? port.toward < 0 : port.toward >= 0))
    .sort((one, other) => {
      const sign = one.port.isStraight && other.port.isStraight ? 1 : -1;
      return sign * (Math.abs(one.port.toward) - Math.abs(other.port.toward));
    })
    .map(({ index }) => index);
}

/**
 * Offsets from the middle of the word from which several arcs leave (or which they all reach).
 * @param {Port[]} ports
 * @param {number} half half of the word's width
 * @returns {number[]}
 */
export function starts(ports, half) {
  const offsets = ports.map(() => 0);
  if (ports.length < 2) return offsets;
  const room = Math.min(MOST, Math.max(START_PART * half, Math.min(START_LEAST, 0.8 * half)));
  for (const side of [-1, 1]) {
    const order = outwards(ports, side);
    const step = Math.min(STEP, room / order.length);
    order.forEach((index, place) => (offsets[index] = side * (place + 0.5) * step));
  }
  return offsets;
}

/**
 * Offsets at which arcs from several words reach one word: those from the left in its left half.
 * @param {Port[]} ports
 * @param {number} half half of the word's width
 * @returns {number[]}
 */
export function landings(ports, half) {
  const offsets = ports.map(() => 0);
  if (ports.length < 2) return offsets;
  const room = Math.min(Math.max(MOST, EACH * ports.length), LANDING_PART * half);
  for (const side of [-1, 1]) {
    const order = outwards(ports, side);
    order.forEach((index, place) => {
      const part = order.length === 1 ? 0.7 : 0.4 + (0.6 * place) / (order.length - 1);
      offsets[index] = side * part * room;
    });
  }
  return offsets;
}
