// @ts-check
/** Where the shares on arcs are written: on the arc, beside its landing, or nowhere. */
import { SAMPLES, pointAt } from "./geometry.js";

/** @import {Curve} from "./geometry.js" */
/** @import {Rect} from "./layout.js" */

/** Smallest share written on an arc, in whole percents. */
export const WRITTEN = 20;
/** Font size and weight of a share on an arc. */
export const LABEL = { size: 24, weight: 650 };
/** Where along the arc a share may stand, best first. */
const PLACES = [0.5, 0.56, 0.44, 0.62, 0.38, 0.68];
/** Height of the digits, and free space around them. */
const TALL = 19;
const AIR = 3;
/** Distance of a label's middle from the edge when it stands beside a landing. */
const RAISED = 20;

/**
 * An arc as far as labels are concerned.
 * @typedef {object} Lane
 * @property {Curve} curve
 * @property {number | null} thickness null: labels may stand on the arc
 * @property {number} arrowWidth
 * @property {string} text the share to write; "" if none
 * @property {number} width of the text
 */

/** @typedef {{x: number, y: number, w: number, onArc: boolean}} Spot middle of a label */

/** @param {number} x @param {number} y @param {number} w @returns {Rect} */
const around = (x, y, w) => ({
  x: x - w / 2 - AIR,
  y: y - TALL / 2 - AIR,
  w: w + 2 * AIR,
  h: TALL + 2 * AIR,
});

/** @param {Rect} one @param {Rect} other */
export const overlap = (one, other) =>
  one.x < other.x + other.w &&
  other.x < one.x + one.w &&
  one.y < other.y + other.h &&
  other.y < one.y + one.h;

/**
 * Whether an arc comes into a box.
 * @param {Rect} box
 * @param {Lane} lane
 */
function touches(box, lane) {
  if (lane.thickness === null) return false;
  const half = lane.thickness / 2;
  for (let sample = 0; sample <= 2 * SAMPLES; sample++) {
    const { x, y } = pointAt(lane.curve, sample / (2 * SAMPLES));
    const isInside = x > box.x - half && x < box.x + box.w + half;
    if (isInside && y > box.y - half && y < box.y + box.h + half) return true;
  }
  return false;
}

/**
 * A label's places, best first.
 * @param {Lane} lane
 * @returns {Spot[]}
 */
function candidates({ curve, width, arrowWidth }) {
  const spots = PLACES.map((t) => ({ ...pointAt(curve, t), w: width, onArc: true }));
  const { start, tip, axis, landing } = curve;
  if (axis === "x") {
    const outside = tip.x < start.x ? -1 : 1;
    const x = tip.x + outside * (arrowWidth / 2 + width / 2 + 8);
    spots.push({ x, y: tip.y - landing.y * RAISED, w: width, onArc: false });
  }
  return spots;
}

/**
 * A place for each arc's share that touches no other arc and no other share; null where there is
 * none. Earlier arcs choose first.
 * @param {Lane[]} lanes strongest first
 * @param {number} width of the stage
 * @returns {(Spot | null)[]}
 */
export function placeLabels(lanes, width) {
  /** @type {Rect[]} */
  const taken = [];
  return lanes.map((lane, index) => {
    if (!lane.text) return null;
    const spot = candidates(lane).find(({ x, y, w }) => {
      const box = around(x, y, w);
      const isOut = box.x < -24 || box.x + box.w > width + 24;
      const isFree = !taken.some((other) => overlap(box, other));
      return (
        !isOut && isFree && !lanes.some((other, place) => place !== index && touches(box, other))
      );
    });
    if (spot) taken.push(around(spot.x, spot.y, spot.w));
    return spot ?? null;
  });
}
