// @ts-check
/** Names, headlines and lines of text in a saved picture. */
import { GROUNDS } from "./colours.js";
import { shape } from "./dom.js";
import { SANS, SERIF } from "./measure.js";

/** @import {Shape} from "./dom.js" */
/** @import {Measure} from "./measure.js" */
/** @import {Picture} from "./picture.js" */

/** A piece of a sentence; a word of the text may have its own colour. @typedef {string |
 * {word: string, colour?: string}} SavedPart */

/**
 * A sentence as SVG text; words of the text are in serif italics.
 * @param {SavedPart[]} parts
 * @param {Record<string, string | number>} attributes
 * @param {boolean} isTinted whether words keep their colours
 * @returns {Shape}
 */
export function sentence(parts, attributes, isTinted) {
  const spans = parts.map((part) => {
    if (typeof part === "string") return part;
    const fill = isTinted && part.colour?.startsWith("#") ? part.colour : null;
    return shape("tspan", { "font-family": SERIF, "font-style": "italic", fill }, part.word);
  });
  return shape("text", { "xml:space": "preserve", ...attributes }, ...spans);
}

/**
 * Names and roles of the heads.
 * @param {Picture} picture
 * @param {Measure} measure
 * @returns {Shape}
 */
export function titles(picture, measure) {
  const { text, ground, soft } = GROUNDS.light;
  let x = 0;
  const parts = picture.heads.flatMap(({ name, role, letter, colour }) => {
    const font = { "font-family": SANS, "font-size": 14 };
    const own = [shape("text", { x, y: 17, ...font, "font-weight": 600, fill: text }, name)];
    x += measure.label(name, 14, 600) + 9;
    if (role) {
      const width = measure.label(role, 13, 500) + 42;
      const pill = { x, y: 0.75, width, height: 23.5, rx: 11.75, stroke: colour };
      own.push(
        shape("rect", { ...pill, fill: colour, "fill-opacity": 0.1, "stroke-width": 1.5 }),
        shape("circle", { cx: x + 14, cy: 12.5, r: 8.5, fill: colour }),
        shape(
          "text",
          {
            ...{ x: x + 14, y: 16.5, "text-anchor": "middle", fill: ground },
            ...{ "font-family": SANS, "font-size": 11, "font-weight": 700 },
          },
          letter,
        ),
        shape(
          "text",
          { x: x + 29, y: 17, ...font, "font-size": 13, "font-weight": 500, fill: colour },
          role,
        ),
      );
      x += width + 22;
    } else {
      const none = "no clear role";
      own.push(shape("text", { x, y: 17, ...font, "font-size": 13, fill: soft }, none));
      x += measure.label(none, 13) + 22;
    }
    return own;
  });
  return shape("g", {}, ...parts);
}

/**
 * Lines of a text that are not wider than `width`.
 * @param {string} text
 * @param {number} size
 * @param {number} width
 * @param {Measure} measure
 * @returns {string[]}
 */
export function lines(text, size, width, measure) {
  /** @type {string[]} */
  const all = [];
  for (const word of text.split(" ")) {
    const last = all[all.length - 1];
    const longer = `${last} ${word}`;
    if (last !== undefined && measure.label(longer, size) <= width) all[all.length - 1] = longer;
    else all.push(word);
  }
  return all;
}
