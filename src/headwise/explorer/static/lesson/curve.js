// @ts-check
/** How the answer holds while heads fall silent: the least missed first, and random ones. */

/** @import {SpareFigure} from "../types.js" */

import { svg } from "../stage/dom.js";
import { percent } from "../stage/numbers.js";
import { counted, signed } from "./parts.js";
import { Room } from "./room.js";

const HEIGHT = 270;
const BOX = { left: 52, right: 14, top: 40, bottom: 48 };

/** @param {number} value */
const shown = (value) => signed(value, Math.abs(value) >= 100 ? 0 : 2);

export class Curve {
  /** @param {SpareFigure} f */
  constructor(f) {
    this.f = f;
    const isWord = f.next.length > 0;
    this.title = isWord
      ? `Probability of \u201c${f.next[0].token.trim()}\u201d`
      : { cosine: "Cosine with the unchanged answer", nats: "Change in nats", loss: "Loss" }[
          f.unit
        ];
    const first = isWord ? f.next[0].probability : f.unchanged;
    this.points = [
      { count: 0, value: first },
      ...f.together.map(({ count, value, next }) => ({ count, value: isWord ? next[0] : value })),
    ];
    this.band = [
      { count: 0, low: first, high: first },
      ...f.together.flatMap(({ count, random, random_next }) => {
        const draws = isWord ? random_next : random;
        return draws.length ? [{ count, low: Math.min(...draws), high: Math.max(...draws) }] : [];
      }),
    ];
    const end = this.points[this.points.length - 1];
    this.band.push({ count: end.count, low: end.value, high: end.value });
    const values = [
      ...this.points.map(({ value }) => value),
      ...this.band.flatMap(({ low, high }) => [low, high]),
    ];
    this.low = Math.min(0, ...values);
    this.high = isWord || f.unit === "cosine" ? 1 : Math.max(...values) || 1;
    this.step = -1;
    const label = `${this.title}, by number of silent heads`;
    this.room = new Room("lesson-curve", label, HEIGHT, () => this.draw(this.step));
    this.el = this.room.el;
  }

  /** @param {number} count */
  x(count) {
    const most = this.points[this.points.length - 1].count;
    return BOX.left + ((this.room.width - BOX.left - BOX.right) * count) / most;
  }

  /** @param {number} value */
  y(value) {
    const part = (value - this.low) / (this.high - this.low || 1);
    return HEIGHT - BOX.bottom - (HEIGHT - BOX.top - BOX.bottom) * part;
  }

  /** @param {number} step number of the present step; -1: no head is silent */
  draw(step) {
    this.step = step;
    const { f } = this,
      { width } = this.room;
    if (!width) return;
    const path = this.points.map(({ count, value }) => `${this.x(count)},${this.y(value)}`);
    const upper = this.band.map(({ count, high }) => `${this.x(count)},${this.y(high)}`);
    const lower = [...this.band]
      .reverse()
      .map(({ count, low }) => `${this.x(count)},${this.y(low)}`);
    const isShare = f.next.length > 0;
    const ticks = [this.low, (this.low + this.high) / 2, this.high].map((value) =>
      svg(
        "text",
        { x: BOX.left - 8, y: this.y(value) + 5, "text-anchor": "end" },
        isShare ? percent(value) : value.toFixed(1),
      ),
    );
    const most = this.points[this.points.length - 1].count;
    const counts = [0, Math.round(most / 2), most].map((count) =>
      svg(
        "text",
        { x: this.x(count), y: HEIGHT - BOX.bottom + 20, "text-anchor": "middle" },
        String(count),
      ),
    );
    const now = this.points[step + 1];
    const end = this.points[this.points.length - 1];
    const level = (/** @type {number} */ value, /** @type {string} */ text, isLeft = false) => [
      svg("line", {
        class: "level",
        x1: BOX.left,
        x2: width - BOX.right,
        y1: this.y(value),
        y2: this.y(value),
      }),
      svg(
        "text",
        {
          class: "level",
          x: isLeft ? BOX.left + 10 : width - BOX.right,
          y: this.y(value) - 6,
          "text-anchor": isLeft ? "start" : "end",
        },
        text,
      ),
    ];
    const levels = [
      ...level(
        end.value,
        `all ${end.count} silent: ${isShare ? percent(end.value) : shown(end.value)}`,
        f.unit === "cosine" || isShare,
      ),
      ...(f.line === null ? [] : level(f.line, `our line: ${shown(f.line)}`)),
    ];
    this.el.replaceChildren(
      svg("path", {
        class: "axis",
        d: `M${BOX.left} ${BOX.top}V${HEIGHT - BOX.bottom}H${width - BOX.right}`,
      }),
      svg("polygon", { class: "band", points: [...upper, ...lower].join(" ") }),
      svg("polyline", { class: "line", points: path.join(" ") }),
      svg("line", {
        class: "now",
        x1: this.x(now.count),
        x2: this.x(now.count),
        y1: BOX.top,
        y2: HEIGHT - BOX.bottom,
      }),
      svg("circle", { class: "now", cx: this.x(now.count), cy: this.y(now.value), r: 6 }),
      ...levels,
      ...ticks,
      svg("text", { class: "title", x: 0, y: 18 }, this.title),
      ...counts,
      svg(
        "text",
        { x: (width + BOX.left) / 2, y: HEIGHT - 4, "text-anchor": "middle" },
        "silent heads",
      ),
      svg(
        "text",
        { class: "name", x: this.x(most * 0.42), y: this.y(this.points[5]?.value ?? 1) - 14 },
        "least missed first",
      ),
      svg(
        "text",
        { class: "name is-soft", x: BOX.left + 10, y: HEIGHT - BOX.bottom - 12 },
        "grey: random, ten draws",
      ),
    );
  }
}

/** By how many heads the slider of silent heads moves. @param {SpareFigure} f */
export function stepsText(f) {
  const counts = [0, ...f.together.map(({ count }) => count)];
  const sizes = new Set(counts.slice(1).map((count, at) => count - counts[at]));
  const [size] = sizes;
  return sizes.size === 1 ? `steps of ${size}` : counted(f.together.length, "step");
}
