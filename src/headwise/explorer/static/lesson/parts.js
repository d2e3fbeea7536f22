// @ts-check
/** Small parts of the lesson's figures: buttons in a row, vectors, chips of heads, numbers. */

/** @import {LessonHead, ModelAnswer} from "../types.js" */

import { ROLES } from "../stage/colours.js";
import { make, svg } from "../stage/dom.js";
import { isStill } from "../stage/motion.js";

/**
 * What a figure may ask of the lesson.
 * @typedef {object} Lesson
 * @property {ModelAnswer} about
 * @property {() => "light" | "dark"} theme
 * @property {(position: number) => void} follow follow another piece of the text
 */

/**
 * A step's figure.
 * @typedef {object} Figure
 * @property {HTMLElement} el
 * @property {(moves: boolean) => void} reveal the question is answered: show the rest
 * @property {(target: string) => void} [aim] a name in the text is pointed at
 * @property {() => void} [shown] the figure is on the page
 * @property {() => void} [light] the theme has changed
 * @property {() => void} [destroy]
 */

/**
 * A number with `digits` decimals and a minus as wide as a digit.
 * @param {number} value
 * @param {number} [digits]
 */
export const signed = (value, digits = 2) =>
  value
    .toFixed(digits)
    .replace(/^-0\.?0*$/, (zero) => zero.slice(1))
    .replace("-", "\u2212");

/** A power of e as the lesson prints it: 46, 6.9, 0.3, <0.1. @param {number} value */
export function power(value) {
  if (value < 0.05) return "<0.1";
  if (!Number.isFinite(value) || value >= 1e9) return "huge";
  return value >= 9.95 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}

/** Three significant digits, or a whole number. @param {number} value */
export function number(value) {
  if (Number.isInteger(value)) return value.toLocaleString("en").replace("-", "\u2212");
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e6) return value.toExponential(1).replaceAll("-", "\u2212");
  return signed(value, Math.max(0, Math.min(5, 2 - Math.floor(Math.log10(size)))));
}

/** @param {number} count @param {string} noun */
export const counted = (count, noun) =>
  `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** @param {string} text a word for a label that stands alone */
export const visible = (text) => text.trim() || "\u00b7";

/** Colour of a head on the page, and its letter. @param {LessonHead} head @param {Lesson} lesson */
export function look(head, lesson) {
  const role = head.roles?.[0] ?? null;
  const colours = ROLES[lesson.theme()];
  return {
    role,
    letter: (role && lesson.about.roles[role]?.letter) || "\u00b7",
    colour: colours[role ?? "none"] ?? colours.none,
    tone: `var(--role-${role && role in colours ? role : "none"})`,
  };
}

/** A head's letter on its role's colour. @param {LessonHead} head @param {Lesson} lesson */
export function chip(head, lesson) {
  const { role, letter, tone } = look(head, lesson);
  const el = make("span", { class: role ? "lesson-chip" : "lesson-chip is-none" }, letter);
  el.style.setProperty("--tone", tone);
  return el;
}

/**
 * A head's colour as a dot, without its letter: roles come in the last step.
 * @param {LessonHead} head
 * @param {Lesson} lesson
 */
export function dot(head, lesson) {
  const el = make("span", { class: "lesson-dot-of", "aria-hidden": "true" });
  el.style.setProperty("--tone", look(head, lesson).tone);
  return el;
}

/**
 * Buttons of which exactly one is pressed.
 * @param {string} label @param {string[]} texts @param {(at: number) => void} choose
 */
export function segments(label, texts, choose) {
  const buttons = texts.map((text, at) => {
    const button = make("button", { type: "button" }, text);
    button.addEventListener("click", () => {
      press(at);
      choose(at);
    });
    return button;
  });
  /** @param {number} at */
  const press = (at) =>
    buttons.forEach((button, other) => button.setAttribute("aria-pressed", String(other === at)));
  press(0);
  const el = make("div", { class: "lesson-segments", role: "group", "aria-label": label });
  el.append(...buttons);
  return { el, press };
}

/**
 * A vector as small bars, up if positive and down if negative.
 * @param {number[]} values @param {number} top length of the largest bar @param {string} [look]
 */
export function bars(values, top, look = "") {
  const wide = values.length > 96 ? 1 : 0.72;
  const path = values
    .map((value, at) => {
      const high = Math.max(0.25, (19 * Math.min(Math.abs(value), top)) / (top || 1));
      const left = (at + (1 - wide) / 2).toFixed(2);
      const up = value < 0 ? high : -high;
      return `M${left} 20h${wide}v${up.toFixed(2)}h${-wide}z`;
    })
    .join("");
  return svg(
    "svg",
    {
      class: `lesson-bars ${look}`,
      viewBox: `0 0 ${values.length} 40`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    },
    svg("path", { class: "zero", d: `M0 20h${values.length}` }),
    svg("path", { d: path }),
  );
}

/** The largest size among some numbers. @param {...number[]} rows */
export const largest = (...rows) => Math.max(1e-9, ...rows.flat().map(Math.abs));

/** Wait, unless motion is reduced. @param {number} milliseconds */
export const pause = (milliseconds) =>
  isStill() ? Promise.resolve() : new Promise((resolve) => void setTimeout(resolve, milliseconds));

/**
 * Set custom properties of an element.
 * @template {HTMLElement | SVGElement} Kind
 * @param {Kind} el
 * @param {Record<string, string | number>} values
 * @returns {Kind}
 */
export function vars(el, values) {
  for (const [name, value] of Object.entries(values))
    el.style.setProperty(`--${name}`, String(value));
  return el;
}
