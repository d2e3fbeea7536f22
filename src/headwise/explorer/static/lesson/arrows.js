// @ts-check
/** Arrows in a plane: from one point, or tip to tail with their sum. */

/** @import {MixingFigure, PartFigure} from "../types.js" */
/** @import {Lesson} from "./parts.js" */

import { make, svg } from "../stage/dom.js";
import { Clock, isStill } from "../stage/motion.js";
import { look, signed, visible } from "./parts.js";
import { Room } from "./room.js";

/** @typedef {{from: number[], to: number[]}} Arrow */

const HEIGHT = 290,
  MARGIN = { x: 70, y: 36 };
/** Milliseconds of a change from one view to the next. */
const LASTS = 600;
/** Arrows at least this part of the longest have a label. */
const LABELLED = 0.05;

export class Arrows {
  /** @param {MixingFigure} f @param {Lesson} lesson */
  constructor(f, lesson) {
    this.f = f;
    this.lesson = lesson;
    this.view = 0;
    this.clock = new Clock();
    /** @type {number | null} */
    this.pointed = null;
    this.remark = make("p", { class: "lesson-remark" });
    const label = "The values as arrows; their lengths are printed under the pieces";
    this.room = new Room("lesson-arrows", label, HEIGHT, () => this.show(this.view, false));
    this.picture = this.room.el;
    this.el = make("div", {}, this.remark, this.picture);
    this.now = this.positions(0);
    this.scale = this.fitted(0);
  }

  /**
   * Where each arrow begins and ends in a view; the last is the sum.
   * @param {number} view
   * @returns {Arrow[]}
   */
  positions(view) {
    const parts = this.f.parts;
    if (view < 2) {
      const arrows = parts.map((part) => ({ from: [0, 0], to: view ? part.part : part.value }));
      return [...arrows, { from: [0, 0], to: [0, 0] }];
    }
    let at = [0, 0];
    const arrows = parts.map(({ part }) => {
      const from = at;
      at = [at[0] + part[0], at[1] + part[1]];
      return { from, to: at };
    });
    return [...arrows, { from: [0, 0], to: this.f.sum }];
  }

  /**
   * Scale and origin of a view. Whole and shortened values have the same, so that they can be
   * compared; tip to tail is drawn larger, and says so.
   * @param {number} view
   */
  fitted(view) {
    const arrows = view < 2 ? [...this.positions(0), ...this.positions(1)] : this.positions(2);
    const ends = [[0, 0], ...arrows.flatMap(({ from, to }) => [from, to])];
    const [xs, ys] = [0, 1].map((axis) => ends.map((end) => end[axis]));
    const [left, right] = [Math.min(...xs), Math.max(...xs)];
    const [low, high] = [Math.min(...ys), Math.max(...ys)];
    const width = this.room.width || 640;
    const size = Math.min(
      (width - 2 * MARGIN.x) / (right - left || 1),
      (HEIGHT - 2 * MARGIN.y) / (high - low || 1),
    );
    return {
      size,
      x: width / 2 - (size * (left + right)) / 2,
      y: HEIGHT / 2 + (size * (low + high)) / 2,
    };
  }

  /** @param {number} view @param {boolean} [moves] */
  show(view, moves = true) {
    const from = this.now,
      to = this.positions(view);
    const before = this.scale,
      after = this.fitted(view);
    this.view = view;
    this.clock.stop();
    const step = (/** @type {number} */ part) => {
      const between = (/** @type {number} */ a, /** @type {number} */ b) => a + part * (b - a);
      this.now = from.map((arrow, at) => ({
        from: arrow.from.map((value, axis) => between(value, to[at].from[axis])),
        to: arrow.to.map((value, axis) => between(value, to[at].to[axis])),
      }));
      this.scale = {
        size: between(before.size, after.size),
        x: between(before.x, after.x),
        y: between(before.y, after.y),
      };
      this.draw();
    };
    if (moves && !isStill()) this.clock.add(0, LASTS, step);
    else step(1);
  }

  /** Point at a piece. @param {number | null} piece */
  point(piece) {
    this.pointed = piece;
    this.draw();
  }

  draw() {
    const { f, scale } = this;
    const { colour } = look(f.place, this.lesson);
    const place = (/** @type {number[]} */ [x, y]) => [
      scale.x + scale.size * x,
      scale.y - scale.size * y,
    ];
    const longest = Math.max(...f.parts.map((part) => this.length(part)), 1e-9);
    /** Middles of the labels so far, which must not touch. @type {number[][]} */
    const labels = [];
    const drawn = f.parts.map((part, at) => {
      const { from, to } = this.now[at];
      const isPointed = part.piece === this.pointed;
      const isLong = this.length(part) / longest >= LABELLED;
      const text = visible(f.place.pieces[part.piece].text);
      const spot = this.labelSpot(place(from), place(to));
      const isFree = labels.every(
        ([x, y]) => Math.abs(x - spot[0]) > 60 || Math.abs(y - spot[1]) > 18,
      );
      const isNamed = isPointed || (isLong && isFree && this.pointed === null);
      if (isNamed) labels.push(spot);
      const group = arrow(
        place(from),
        place(to),
        colour,
        isNamed ? { text, spot } : null,
        isPointed,
      );
      group.dataset.part = `piece ${part.piece}|values`;
      if (this.pointed !== null && !isPointed) group.classList.add("is-faint");
      if (f.place.pieces[part.piece].kind === "special") group.classList.add("is-rest");
      return group;
    });
    const sum = this.now[this.now.length - 1];
    if (this.view === 2) {
      const [from, to] = [place(sum.from), place(sum.to)];
      const spot = [(from[0] + to[0]) / 2, (from[1] + to[1]) / 2 + 24];
      const group = arrow(from, to, "var(--text)", { text: "sum", spot }, true);
      group.dataset.part = "sum";
      group.classList.add("is-sum");
      drawn.push(group);
    }
    const [x, y] = place([0, 0]);
    this.picture.replaceChildren(svg("circle", { cx: x, cy: y, r: 4, class: "start" }), ...drawn);
    this.describe();
  }

  /**
   * Where the label of an arrow stands: beyond its tip, or above its middle if they are in a row.
   * @param {number[]} from
   * @param {number[]} to
   */
  labelSpot(from, to) {
    const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
    const length = Math.hypot(dx, dy) || 1;
    if (this.view < 2) return [to[0] + (26 * dx) / length, to[1] + (16 * dy) / length + 5];
    const side = dx >= 0 ? 1 : -1;
    return [
      (from[0] + to[0]) / 2 + (side * 18 * dy) / length + (length < 60 ? 30 : 0),
      (from[1] + to[1]) / 2 - (side * 14 * dx) / length,
    ];
  }

  /** Length of a part in the present view. @param {PartFigure} part */
  length(part) {
    return this.view === 0 ? part.value_length : part.length;
  }

  describe() {
    const part = this.f.parts.find(({ piece }) => piece === this.pointed);
    if (!part) {
      const times = this.fitted(2).size / this.fitted(0).size;
      const larger = times > 1.1 ? ` (Drawn ${times.toFixed(1)} times larger.)` : "";
      this.remark.textContent = [
        "Every value at its full length.",
        "Every value, shortened to its share.",
        `Tip to tail, they lead to the sum: ${signed(this.f.sum_length)} long.${larger}`,
      ][this.view];
      return;
    }
    const name = make("i", {}, visible(this.f.place.pieces[part.piece].text));
    const share = part.weight < 0.005 ? part.weight.toFixed(4) : part.weight.toFixed(2);
    this.remark.replaceChildren(
      name,
      `: ${share} \u00d7 ${signed(part.value_length)} = ${signed(part.length, 3)}`,
    );
  }
}

/**
 * @param {number[]} from @param {number[]} to @param {string} colour
 * @param {{text: string, spot: number[]} | null} label @param {boolean} isThick
 */
function arrow(from, to, colour, label, isThick) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const length = Math.hypot(dx, dy);
  const group = svg("g", { class: "arrow" });
  group.style.setProperty("--tone", colour);
  if (length < 0.5) return group;
  const [ux, uy] = [dx / length, dy / length];
  const head = Math.min(12, 0.6 * length + 2),
    half = 0.5 * head;
  const neck = [to[0] - head * ux, to[1] - head * uy];
  const tips = [
    to,
    [neck[0] - half * uy, neck[1] + half * ux],
    [neck[0] + half * uy, neck[1] - half * ux],
  ];
  group.append(
    svg("line", {
      x1: from[0],
      y1: from[1],
      x2: neck[0],
      y2: neck[1],
      "stroke-width": isThick ? 4 : 2.5,
    }),
    svg("polygon", { points: tips.map((tip) => tip.join(",")).join(" ") }),
  );
  if (label) {
    const [x, y] = label.spot;
    group.append(svg("text", { x, y, "text-anchor": "middle" }, label.text));
  }
  return group;
}
