// @ts-check
/** Arcs that grow, change and fade, on one clock. Reduced motion shows everything at once. */

/** Milliseconds: growing, pause between two arcs, changing, fading, a second sentence coming. */
export const TIMES = { grow: 240, apart: 20, morph: 200, fade: 120, slide: 280 };

/**
 * Ease-out of the specification, the Bezier curve (0.2, 0, 0, 1).
 * @param {number} time 0 to 1
 * @returns {number}
 */
export function ease(time) {
  if (time <= 0) return 0;
  if (time >= 1) return 1;
  let [low, high] = [0, 1];
  for (let step = 0; step < 20; step++) {
    const middle = (low + high) / 2;
    const x = 3 * (1 - middle) ** 2 * middle * 0.2 + middle ** 3;
    if (x < time) low = middle;
    else high = middle;
  }
  return high * high * (3 - 2 * high);
}

/** Whether the reader has asked for no motion. */
export function isStill() {
  return typeof matchMedia !== "function" || matchMedia("(prefers-reduced-motion: reduce)").matches;
}

/**
 * A running change: called with 0 to 1, eased, and with exactly 1 at the end.
 * @typedef {{begins: number, lasts: number, step: (part: number) => void}} Change
 */

/** Runs changes frame by frame; starting new ones completes the old ones first. */
export class Clock {
  constructor() {
    /** @type {Change[]} */
    this.changes = [];
    this.frame = 0;
  }

  /**
   * @param {number} delay
   * @param {number} lasts
   * @param {(part: number) => void} step
   */
  add(delay, lasts, step) {
    this.changes.push({ begins: performance.now() + delay, lasts, step });
    step(0);
    if (!this.frame) this.frame = requestAnimationFrame(() => this.tick());
  }

  /** Show the present moment, and go on while something is still changing. */
  tick() {
    const now = performance.now();
    const running = this.changes;
    this.changes = running.filter(({ begins, lasts }) => now < begins + lasts);
    for (const { begins, lasts, step } of running) step(ease((now - begins) / lasts));
    this.frame = this.changes.length ? requestAnimationFrame(() => this.tick()) : 0;
  }

  /** End all changes at once, in their last state. */
  finish() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const running = this.changes;
    this.changes = [];
    for (const { step } of running) step(1);
  }

  /** Forget all changes. */
  stop() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.changes = [];
  }
}
