// @ts-check
/** A scene as SVG: the same shapes for the page and for the saved picture. */
import { GROUNDS } from "./colours.js";
import { shape } from "./dom.js";
import { arrowPath, hollowPath, linePath, opacityStops, ribbonPath } from "./geometry.js";
import { LABEL } from "./labels.js";
import { SANS, SERIF } from "./measure.js";

/** @import {Arc} from "./arcs.js" */
/** @import {Cell, Note} from "./cells.js" */
/** @import {Shape} from "./dom.js" */
/** @import {Box, Layout, Rect} from "./layout.js" */
/** @import {Picture} from "./picture.js" */
/** @import {Label} from "./scene.js" */
/** @import {Tab} from "./tabs.js" */
/** @import {WordState} from "./words.js" */

/** Ribbons narrower than this are a single line when their head is off. */
const HOLLOW = 6;
/** A pill reaches this far beyond its word, in heights of the word's box, and at most so far. */
const PILL = { part: 0.132, beyond: 7, lower: 4 };
/** Middle of a line of text to its baseline, in font sizes. */
export const BASELINE = { serif: 0.36, sans: 0.36 };
/** Height of a chip. */
const CHIP = 24;

/** @param {Arc} arc whether the arc is drawn as one line although it is a ribbon */
const isThinOff = (arc) => arc.kind === "off" && arc.widths.landing < HOLLOW;

/**
 * Path data of an arc up to `until` of its way.
 * @param {Arc} arc
 * @param {number} until 0 to 1
 * @returns {{shaft: string, head: string}}
 */
export function arcPaths(arc, until) {
  const head = until < 1 ? "" : arrowPath(arc.curve, arc.arrow);
  if (arc.kind === "rest" || arc.kind === "faint" || isThinOff(arc)) {
    return { shaft: linePath(arc.curve, until), head };
  }
  const path = arc.kind === "off" ? hollowPath : ribbonPath;
  return { shaft: path(arc.curve, arc.widths, until), head };
}

/** @param {Arc} arc @param {string} id */
function gradient(arc, id) {
  const { axis, start, end } = arc.curve;
  const isX = axis === "x";
  const stops = opacityStops(arc.curve).map(({ offset, opacity }) =>
    shape("stop", { offset, "stop-color": arc.colour, "stop-opacity": opacity }),
  );
  const [from, to] = isX ? [start.x, end.x] : [start.y, end.y];
  const line = isX ? { x1: from, x2: to, y1: 0, y2: 0 } : { x1: 0, x2: 0, y1: from, y2: to };
  return shape("linearGradient", { id, gradientUnits: "userSpaceOnUse", ...line }, ...stops);
}

/** @param {string} id @param {string} ground */
function hatching(id, ground) {
  const line = shape("path", { d: "M0 0V6", stroke: ground, "stroke-width": 2.4 });
  const attributes = { width: 6, height: 6, patternTransform: "rotate(45)" };
  return shape("pattern", { id, patternUnits: "userSpaceOnUse", ...attributes }, line);
}

/** @param {Arc} arc */
function dashes(arc) {
  const { landing } = arc.widths;
  return arc.kind === "rest"
    ? `${(3 + 0.9 * landing).toFixed(1)} ${(3 + 0.9 * landing).toFixed(1)}`
    : "5 3.5";
}

/**
 * An arc. The element with class hw-shaft or hw-stroke is its body, hw-head its arrowhead.
 * @param {Arc} arc
 * @param {Picture} picture
 * @param {string} id of its gradient
 * @returns {Shape}
 */
export function arcShape(arc, picture, id) {
  const { shaft, head } = arcPaths(arc, 1);
  const { kind, colour } = arc;
  const data = {
    class: `hw-arc hw-arc-${kind}`,
    "data-from": arc.from,
    "data-to": arc.to,
    "data-head": arc.head.name,
    "data-share": arc.share.toFixed(4),
  };
  const stroke = { class: "hw-body hw-stroke", d: shaft, fill: "none", stroke: colour };
  if (kind === "rest" || kind === "faint") {
    const opacity = kind === "faint" ? { "stroke-opacity": arc.opacity } : {};
    const dashed = kind === "rest" ? { "stroke-dasharray": dashes(arc) } : {};
    const width = { "stroke-width": arc.widths.landing };
    const headOpacity = kind === "faint" ? 0.3 : null;
    return shape(
      "g",
      data,
      shape("path", { ...stroke, ...width, ...opacity, ...dashed }),
      shape("path", { class: "hw-head", d: head, fill: colour, "fill-opacity": headOpacity }),
    );
  }
  if (kind === "off") {
    const line = { "stroke-width": 1.3, "stroke-linejoin": "round" }; // dashes mean resting places
    const tip = { class: "hw-head hw-stroke", d: head, fill: "none", stroke: colour };
    return shape(
      "g",
      data,
      shape("path", { ...stroke, ...line }),
      shape("path", { ...tip, ...line }),
    );
  }
  const isFlat = Math.abs(arc.curve.end[arc.curve.axis] - arc.curve.start[arc.curve.axis]) < 2;
  const fill = isFlat ? colour : `url(#${id})`;
  const whole = { class: "hw-body hw-shaft", d: shaft, fill };
  const { ground } = GROUNDS[picture.theme];
  const gap = { class: "hw-body", d: shaft, fill: ground, stroke: ground, "stroke-width": 3 };
  const parts = [...(arc.twins ? [shape("path", gap)] : []), shape("path", whole)];
  if (arc.isHatched) {
    const hatch = { class: "hw-body hw-hatch", d: shaft, fill: `url(#${id}h)` };
    parts.push(hatching(`${id}h`, ground), shape("path", hatch));
  }
  const opacity = arc.opacity < 1 ? arc.opacity : null;
  return shape(
    "g",
    { ...data, opacity },
    isFlat ? shape("g") : gradient(arc, id),
    ...parts,
    shape("path", { class: "hw-head", d: head, fill: colour }),
  );
}

/**
 * A share on an arc, on a pill in the ground's colour.
 * @param {Label} label
 * @param {Picture} picture
 * @returns {Shape}
 */
export function labelShape({ spot, text, colour }, picture) {
  const { x, y, w, onArc } = spot;
  const { ground } = GROUNDS[picture.theme];
  const pill = { x: x - w / 2 - 7, y: y - 15, width: w + 14, height: 30, rx: 8, fill: ground };
  const font = { "font-family": SANS, "font-size": LABEL.size, "font-weight": LABEL.weight };
  const place = { x, y: y + BASELINE.sans * LABEL.size, "text-anchor": "middle", fill: colour };
  return shape(
    "g",
    { class: "hw-label" },
    ...(onArc ? [shape("rect", pill)] : []),
    shape("text", { ...place, ...font }, text),
  );
}

/**
 * A cell and the number in it.
 * @param {Cell} cell
 * @returns {Shape}
 */
export function cellShape(cell) {
  const { x, y, w, h, fill, text, size, isBold } = cell;
  const font = { "font-family": SANS, "font-size": size, "font-weight": isBold ? 600 : 400 };
  const middle = { x: x + w / 2, y: y + h / 2 + BASELINE.sans * size, "text-anchor": "middle" };
  return shape(
    "g",
    { class: `hw-cell hw-side-${cell.key[0]}` },
    shape("rect", { x, y, width: w, height: h, rx: 3, fill }),
    shape("text", { ...middle, ...font, fill: cell.ink }, text),
  );
}

/**
 * A tab at the edge of the window on a long text, for the saved picture.
 * @param {Tab} tab
 * @param {Picture} picture
 * @returns {Shape}
 */
export function tabShape({ word, rest, colour, rect }, picture) {
  const { ground, text } = GROUNDS[picture.theme];
  const { x, y, w, h } = rect;
  const box = { x, y, width: w, height: h, rx: 8, fill: ground, stroke: colour };
  const name = { "font-family": SERIF, "font-style": "italic", "font-size": 15, fill: colour };
  const place = { x: x + 10, y: y + h / 2 + BASELINE.sans * 13, fill: text };
  return shape(
    "g",
    { class: "hw-tab" },
    shape("rect", { ...box, "stroke-width": 1.5 }),
    shape(
      "text",
      { ...place, "font-family": SANS, "font-size": 13, "xml:space": "preserve" },
      shape("tspan", name, word),
      rest,
    ),
  );
}

/**
 * A letter beside a row, or a change between two rows.
 * @param {Note} note
 * @returns {Shape}
 */
export function noteShape({ x, y, text, mark, colour, size }) {
  const font = { "font-family": SANS, "font-size": size, "font-weight": 650 };
  const place = { x, y: y + BASELINE.sans * size, "text-anchor": "middle", fill: colour };
  const subscript = mark ? [shape("tspan", { "font-size": 0.72 * size, dy: 3 }, mark)] : [];
  return shape("text", { class: "hw-note", ...place, ...font }, text, ...subscript);
}

/**
 * The pill around a word, or the outline of a chip.
 * @param {Box} box
 * @param {boolean} isChip
 * @returns {Rect}
 */
export function pillOf(box, isChip) {
  if (isChip) return { x: box.x, y: box.y + (box.h - CHIP) / 2, w: box.w, h: CHIP };
  const { lower } = PILL;
  const beyond = box.isRoomy ? 0 : Math.min(PILL.beyond, PILL.part * box.h);
  const { left, right } = box.room ?? { left: beyond, right: beyond };
  const [before, after] = [Math.min(beyond, left), Math.min(beyond, right)];
  return { x: box.x - before, y: box.y + lower, w: box.w + before + after, h: box.h - 2 * lower };
}

/**
 * The ring of a word that looks at itself.
 * @param {Box} box
 * @param {WordState} state
 * @returns {Shape | null}
 */
export function ringShape(box, state) {
  if (!state.ring) return null;
  const { width, colour } = state.ring;
  const pill = pillOf(box, state.chip !== null);
  const away = 3 + width / 2;
  const radius = (state.chip ? pill.h / 2 : 0.25 * (box.h / 1.42)) + away;
  return shape("rect", {
    class: "hw-ring hw-stroke",
    x: pill.x - away,
    y: pill.y - away,
    width: pill.w + 2 * away,
    height: pill.h + 2 * away,
    rx: radius,
    fill: "none",
    stroke: colour,
    "stroke-width": width,
    "stroke-opacity": 0.55,
  });
}

/**
 * The box at the end of the sentence: the likeliest next word, and the earlier one struck through.
 * @param {Picture} picture
 * @param {Layout} layout
 * @returns {Shape | null}
 */
export function nextShape(picture, layout) {
  const { next, theme } = picture;
  const box = layout.next;
  if (!next || !box) return null;
  const { text, soft, ground } = GROUNDS[theme];
  const { size, shape: kind } = layout;
  const middle = box.x + box.w / 2;
  const font = { class: "hw-next-word", "font-family": SERIF, "font-style": "italic" };
  const outline = { x: box.x, y: box.y, width: box.w, height: box.h, rx: 8 };
  const parts = [
    shape("rect", { ...outline, fill: ground, stroke: text, "stroke-width": 1.5 }),
    shape(
      "text",
      {
        ...font,
        x: middle,
        y: box.y + box.h / 2 + 0.34 * size,
        "text-anchor": "middle",
        "font-size": size,
        fill: text,
      },
      next.text,
    ),
  ];
  if (next.before !== null && next.before !== next.text) {
    const isAbove = kind === "line";
    const x = isAbove ? middle : box.x + box.w + 14;
    const y = isAbove ? box.y - 0.32 * size : box.y + box.h / 2 + 0.2 * size;
    const struck = {
      "text-decoration": "line-through",
      "text-anchor": isAbove ? "middle" : "start",
    };
    parts.push(
      shape(
        "text",
        { ...font, ...struck, x, y, "font-size": 0.62 * size, fill: soft },
        next.before,
      ),
    );
  }
  return shape("g", { class: "hw-next" }, ...parts);
}
