// @ts-check
/**
 * Curves, ribbons and arrowheads, from numbers alone.
 *
 * A curve is a cubic; a ribbon follows it with a width that grows from start to landing. Units are
 * the stage's own, 1/16 rem.
 */

/** @typedef {{x: number, y: number}} Point */

/** Length of an arrowhead that a ribbon runs into, so that no gap shows. @type {number} */
const INTO = 0.75;

/**
 * @typedef {object} Curve
 * @property {Point} start
 * @property {Point} one first control point
 * @property {Point} two second control point
 * @property {Point} end where the arrowhead begins
 * @property {Point} tip of the arrowhead
 * @property {"x" | "y"} axis along which the curve moves steadily; gradients run along it
 * @property {Point} landing direction of the end, of length one
 */

/** Points per ribbon. */
export const SAMPLES = 57;
/** Height of the lowest arc, and how far its control points reach beyond its height. */
const LOW = 34;
const REACH = 1.34;
/** Shortest reach of an S, and the height from which on it passes a line of words. */
const LEAST_REACH = 46;
const FAR = 100;
/** Opacity of a ribbon's start, and how far along it is fully opaque. */
const START_OPACITY = 0.45;
const OPAQUE_FROM = 0.7;

/**
 * Height of an arc between words `dx` apart in a sentence `width` wide.
 * @param {number} dx
 * @param {number} width
 * @param {number} most Hmax
 * @returns {number}
 */
export function arcHeight(dx, width, most) {
  return LOW + (most - LOW) * Math.min(1, Math.abs(dx) / width) ** 0.72;
}

/**
 * Widths of a ribbon at its landing and its start.
 * @param {number} share
 * @param {number} [factor] width of a share of 1
 * @returns {{landing: number, start: number}}
 */
export function ribbonWidths(share, factor = 18) {
  const landing = Math.max(1.6, factor * share);
  return { landing, start: Math.max(1.1, 0.38 * landing) };
}

/**
 * Length and width of the arrowhead of a ribbon.
 * @param {number} landing the ribbon's width where it lands
 * @returns {{length: number, width: number}}
 */
export function arrowSize(landing) {
  return { length: Math.max(7, 0.95 * landing), width: Math.max(8, 1.75 * landing) };
}

/**
 * An arc over words (or under them): it leaves and lands vertically.
 * @param {number} from
 * @param {number} to
 * @param {number} edge
 * @param {number} height
 * @param {number} arrow length of the arrowhead
 * @param {boolean} [isBelow]
 * @returns {Curve}
 */
export function arch(from, to, edge, height, arrow, isBelow = false) {
  const up = isBelow ? 1 : -1;
  const top = edge + up * REACH * height;
  return {
    start: { x: from, y: edge },
    one: { x: from, y: top },
    two: { x: to, y: top },
    end: { x: to, y: edge + up * (arrow - INTO) },
    tip: { x: to, y: edge },
    axis: "x",
    landing: { x: 0, y: -up },
  };
}

/**
 * An S between two lines. One that passes a whole line of words does so steeply, near its start.
 * @param {Point} start
 * @param {Point} tip
 * @param {number} arrow length of the arrowhead
 * @param {number} [last] how far before its end a long one turns
 * @returns {Curve}
 */
export function bend(start, tip, arrow, last = LEAST_REACH) {
  const sign = Math.sign(tip.y - start.y) || 1;
  const dy = Math.abs(tip.y - start.y);
  const reach = Math.max(0.5 * dy, LEAST_REACH);
  const isFar = dy > FAR;
  return {
    start,
    one: { x: start.x, y: start.y + sign * (isFar ? dy - 10 : reach) },
    two: { x: tip.x, y: tip.y - sign * (isFar ? last : reach) },
    end: { x: tip.x, y: tip.y - sign * (arrow - INTO) },
    tip,
    axis: "y",
    landing: { x: 0, y: sign },
  };
}

/**
 * An arc that bulges to one side, between words that stand one below the other.
 * @param {Point} start
 * @param {Point} tip
 * @param {number} apex x of the middle
 * @param {number} arrow length of the arrowhead
 * @returns {Curve}
 */
export function bulge(start, tip, apex, arrow) {
  const out = apex > tip.x ? 1 : -1;
  const end = { x: tip.x + out * (arrow - INTO), y: tip.y };
  const control = (apex - 0.125 * (start.x + end.x)) / 0.75;
  return {
    start,
    one: { x: control, y: start.y },
    two: { x: control, y: end.y },
    end,
    tip,
    axis: "y",
    landing: { x: -out, y: 0 },
  };
}

/**
 * Apex of an arc on a phone.
 * @param {number} dy distance of the two words
 * @param {number} widest right end of the widest word
 * @param {number} width of the stage
 * @param {number} height of all words together
 * @returns {number}
 */
export function bulgeApex(dy, widest, width, height) {
  const part = (Math.abs(dy) / (0.62 * height)) ** 0.75;
  const room = Math.max(20, width - widest - 26);
  return Math.min(width - 14, widest + 8 + room * part);
}

/**
 * The point of a curve at t, 0 to 1.
 * @param {Curve} curve
 * @param {number} t
 * @returns {Point}
 */
export function pointAt({ start, one, two, end }, t) {
  const u = 1 - t;
  const [a, b, c, d] = [u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t];
  return {
    x: a * start.x + b * one.x + c * two.x + d * end.x,
    y: a * start.y + b * one.y + c * two.y + d * end.y,
  };
}

/**
 * Unit vector across a curve at t.
 * @param {Curve} curve
 * @param {number} t
 * @returns {Point}
 */
export function normalAt({ start, one, two, end }, t) {
  const u = 1 - t;
  const [a, b, c] = [u * u, 2 * u * t, t * t];
  const x = a * (one.x - start.x) + b * (two.x - one.x) + c * (end.x - two.x);
  const y = a * (one.y - start.y) + b * (two.y - one.y) + c * (end.y - two.y);
  const length = Math.hypot(x, y) || 1;
  return { x: -y / length, y: x / length };
}

/** @param {number} value */
const short = (value) => Number(value.toFixed(2));

/** @param {Point[]} points */
const path = (points) => points.map(({ x, y }) => `${short(x)} ${short(y)}`).join("L");

/**
 * Both sides of a ribbon up to `until`, as points.
 * @param {Curve} curve
 * @param {{landing: number, start: number}} widths
 * @param {number} until 0 to 1
 * @returns {{left: Point[], right: Point[]}}
 */
export function sides(curve, widths, until) {
  /** @type {Point[]} */
  const left = [];
  /** @type {Point[]} */
  const right = [];
  for (let sample = 0; sample < SAMPLES; sample++) {
    const t = (until * sample) / (SAMPLES - 1);
    const half = (widths.start + (widths.landing - widths.start) * t) / 2;
    const point = pointAt(curve, t);
    const normal = normalAt(curve, t);
    left.push({ x: point.x + half * normal.x, y: point.y + half * normal.y });
    right.push({ x: point.x - half * normal.x, y: point.y - half * normal.y });
  }
  return { left, right };
}

/**
 * Path data of a filled ribbon.
 * @param {Curve} curve
 * @param {{landing: number, start: number}} widths
 * @param {number} until
 * @returns {string}
 */
export function ribbonPath(curve, widths, until) {
  const { left, right } = sides(curve, widths, until);
  return `M${path(left)}L${path(right.reverse())}Z`;
}

/**
 * Path data of a ribbon's two sides, without its ends.
 * @param {Curve} curve
 * @param {{landing: number, start: number}} widths
 * @param {number} until
 * @returns {string}
 */
export function hollowPath(curve, widths, until) {
  const { left, right } = sides(curve, widths, until);
  return `M${path(left)}M${path(right)}`;
}

/**
 * Path data of a line along the curve.
 * @param {Curve} curve
 * @param {number} until
 * @returns {string}
 */
export function linePath(curve, until) {
  const count = SAMPLES - 1;
  const points = Array.from({ length: SAMPLES }, (_, at) => pointAt(curve, (until * at) / count));
  return `M${path(points)}`;
}

/**
 * Path data of a curve's arrowhead.
 * @param {Curve} curve
 * @param {{length: number, width: number}} size
 * @returns {string}
 */
export function arrowPath({ tip, landing }, { length, width }) {
  const base = { x: tip.x - length * landing.x, y: tip.y - length * landing.y };
  const across = { x: (-landing.y * width) / 2, y: (landing.x * width) / 2 };
  const points = [
    { x: base.x + across.x, y: base.y + across.y },
    tip,
    { x: base.x - across.x, y: base.y - across.y },
  ];
  return `M${path(points)}Z`;
}

/**
 * Opacity of a ribbon at t.
 * @param {number} t
 * @returns {number}
 */
export function opacityAt(t) {
  return START_OPACITY + (1 - START_OPACITY) * Math.min(1, t / OPAQUE_FROM);
}

/**
 * Stops of the gradient that gives a ribbon its opacity along the way. Between start and end the
 * curve's position on its axis is a known function of t, so an axis-parallel gradient is exact for
 * arches and bulges.
 * @param {Curve} curve
 * @returns {{offset: number, opacity: number}[]}
 */
export function opacityStops(curve) {
  const { axis, start, end } = curve;
  const length = end[axis] - start[axis] || 1;
  return [0, 0.15, 0.25, 0.35, 0.45, 0.55, OPAQUE_FROM].map((t) => ({
    offset: short(Math.min(1, Math.max(0, (pointAt(curve, t)[axis] - start[axis]) / length))),
    opacity: short(opacityAt(t)),
  }));
}
