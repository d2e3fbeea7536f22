// @ts-check
/**
 * Where the shares on arcs are written: on the arc, outside a narrow one, beside its landing, or
 * nowhere. The headline's link comes first.
 */
import { SAMPLES, pointAt } from "./geometry.js";

/** @import {Curve} from "./geometry.js" */
/** @import {Rect} from "./layout.js" */

/** Smallest share written on an arc, in whole percents. */
export const WRITTEN = 20;
/** Font size and weight of a share on an arc. */
export const LABEL = { size: 24, weight: 650 };
/** Where along the arc a share may stand, best first. */
const PLACES = [0.5, 0.56, 0.44, 0.62, 0.38, 0.68];
/** Further places for the headline's share: so far above its arc, and along the arc. */
const RAISES = [0, 14, 28];
const FURTHER = [0.32, 0.74, 0.26, 0.79];
/** Height of the digits, and free space around them. */
const TALL = 19;
const AIR = 3;
/** Free space around a label on an arc, whose plate covers what is behind it. */
const PLATE = { x: 6, y: 4 };
/** Distance of a label's middle from the edge when it stands beside a landing. */
const RAISED = 20;
/** An arc narrower than so many times its label has the label outside. */
const NARROW = 2;
/** Distance of a label outside an arc from the arc. */
const OUTSIDE = 4;

/**
 * An arc as far as labels are concerned.
 * @typedef {object} Lane
 * @property {Curve} curve
 * @property {number | null} thickness null: labels may stand on the arc
 * @property {number} arrowWidth
 * @property {string} text the share to write; "" if none
 * @property {number} width of the text
 * @property {boolean} isResting whether the arc leads to a resting place, which is never the news
 * @property {string} [twins]  words that arcs of several heads join: label all of them, or none
 * @property {boolean} [isOuter] whether the arc is the outermost of these
 */

/** @typedef {{x: number, y: number, w: number, onArc: boolean}} Spot middle of a label */

/** @param {Spot} spot @returns {Rect} */
function around({ x, y, w, onArc }) {
  const air = onArc ? PLATE : { x: AIR, y: AIR };
  return {
    x: x - w / 2 - air.x,
    y: y - TALL / 2 - air.y,
    w: w + 2 * air.x,
    h: TALL + 2 * air.y,
  };
}

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

/** Whether an arc is beside its words. @param {Curve} curve */
const isBeside = ({ axis, landing }) => axis === "y" && landing.x !== 0;

/**
 * Whether an arc is too narrow to carry its label.
 * @param {Lane} lane
 */
function isNarrow({ curve, width }) {
  const { start, tip, axis } = curve;
  return Math.abs(tip[axis] - start[axis]) < NARROW * (isBeside(curve) ? TALL : width);
}

/**
 * A label's place outside the apex of an arc.
 * @param {Lane} lane
 * @param {number} raise more distance from the arc
 * @returns {Spot}
 */
function outside({ curve, width, thickness }, raise) {
  const { landing } = curve;
  const isSide = isBeside(curve);
  const { x, y } = pointAt(curve, 0.5);
  const away = (thickness ?? 0) / 2 + OUTSIDE + raise;
  return {
    x: isSide ? x - landing.x * (away + width / 2) : x,
    y: isSide ? y : y - landing.y * (away + TALL / 2),
    w: width,
    onArc: false,
  };
}

/**
 * A label's place inside the apex of an arc.
 * @param {Lane} lane
 * @returns {Spot}
 */
function inside({ curve, width, thickness }) {
  const { landing } = curve;
  const isSide = isBeside(curve);
  const { x, y } = pointAt(curve, 0.5);
  const away = (thickness ?? 0) / 2 + OUTSIDE;
  return {
    x: isSide ? x + landing.x * (away + width / 2) : x,
    y: isSide ? y : y + landing.y * (away + TALL / 2),
    w: width,
    onArc: false,
  };
}

/**
 * A label's places, best first.
 * @param {Lane} lane
 * @returns {Spot[]}
 */
function candidates(lane) {
  const { curve, width, arrowWidth, twins, isOuter } = lane;
  if (twins) return [isOuter ? outside(lane, 0) : inside(lane)];
  const onArc = PLACES.map((t) => ({ ...pointAt(curve, t), w: width, onArc: true }));
  const spots = isNarrow(lane) ? [outside(lane, 0)] : onArc;
  const { start, tip, axis, landing } = curve;
  if (axis === "x") {
    const side = tip.x < start.x ? -1 : 1;
    const x = tip.x + side * (arrowWidth / 2 + width / 2 + 8);
    spots.push({ x, y: tip.y - landing.y * RAISED, w: width, onArc: false });
  }
  return spots;
}

/**
 * A free place for an arc's share; null if there is none.
 * @param {Lane} lane
 * @param {Lane[]} others arcs that the label must not touch
 * @param {Rect[]} taken words and other labels
 * @param {number} width of the stage
 * @param {Spot[]} [further] places besides the usual ones
 * @returns {Spot | null}
 */
function freeSpot(lane, others, taken, width, further = []) {
  const spot = [...candidates(lane), ...further].find((each) => {
    const box = around(each);
    const isOut = box.x < -24 || box.x + box.w > width + 24;
    const isFree = !taken.some((other) => overlap(box, other));
    return !isOut && isFree && !others.some((other) => other !== lane && touches(box, other));
  });
  return spot ?? null;
}

/** The share that a lane's text says. @param {Lane} lane */
const percents = ({ text }) => Number.parseInt(text, 10) || 0;

/**
 * A place for each arc's share. The first share is the one that the headline names: it is always
 * written, over weaker arcs if it must, unless other heads' arcs join the same words: these are
 * labelled together or not at all. The others touch no arc, no word and no other share, or
 * are left out; the strongest choose first, wherever their arcs lead.
 * @param {Lane[]} lanes links to words first, the strongest first
 * @param {Rect[]} words
 * @param {number} width of the stage
 * @returns {(Spot | null)[]}
 */
export function placeLabels(lanes, words, width) {
  const first = lanes.find(({ text }) => text);
  if (!first) return lanes.map(() => null);
  const ribbons = lanes.filter(({ isResting }) => !isResting);
  const more = [
    ...RAISES.map((raise) => outside(first, raise)),
    ...FURTHER.map((t) => ({ ...pointAt(first.curve, t), w: first.width, onArc: true })),
  ];
  const spot = first.twins
    ? freeSpot(first, lanes, words, width)
    : (freeSpot(first, lanes, words, width, more) ??
      freeSpot(first, ribbons, words, width) ??
      freeSpot(first, [], words, width) ?? {
        ...pointAt(first.curve, 0.5),
        w: first.width,
        onArc: true,
      });
  const taken = [...words, ...(spot ? [around(spot)] : [])];
  const spots = new Map([[first, /** @type {Spot | null} */ (spot)]]);
  const others = lanes.filter((lane) => lane.text && lane !== first);
  for (const lane of others.sort((one, other) => percents(other) - percents(one))) {
    const own = freeSpot(lane, lanes, taken, width);
    if (own) taken.push(around(own));
    spots.set(lane, own);
  }
  const bare = new Set(lanes.flatMap((lane) => (spots.get(lane) ? [] : [lane.twins])));
  return lanes.map((lane) =>
    lane.twins && bare.has(lane.twins) ? null : (spots.get(lane) ?? null),
  );
}
