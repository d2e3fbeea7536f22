// @ts-check
/**
 * The saved picture: headline, stage, notes, map and caption as one SVG file, always light.
 *
 * In: a picture and its texts. Out: XML that needs nothing else, or a PNG of it. Fills are computed
 * colours, so that other programs can read the file.
 */
import { GROUNDS, ROLES } from "./colours.js";
import { shape, toXml } from "./dom.js";
import { arcShape, cellShape, labelShape, nextShape, noteShape, ringShape } from "./draw.js";
import { wordShape } from "./draw_word.js";
import { layOut } from "./layout.js";
import { SANS, SERIF, browserMeasure } from "./measure.js";
import { leftNote, rightNote } from "./picture_notes.js";
import { sidesOf } from "./picture.js";
import { makeScene } from "./scene.js";
import { barShape, mapShape } from "./svg_map.js";

/** @import {Shape} from "./dom.js" */
/** @import {Layout} from "./layout.js" */
/** @import {Measure} from "./measure.js" */
/** @import {Picture, PictureHead} from "./picture.js" */

/** A piece of a sentence; a word of the text may have its own colour. @typedef {string |
 * {word: string, colour?: string}} SavedPart */

/**
 * @typedef {object} Texts
 * @property {SavedPart[]} headline
 * @property {SavedPart[]} [sub]
 * @property {{left: SavedPart[], right: string} | null} [note] null: none; default: the picture's
 * @property {string} caption
 * @property {boolean} [map] false leaves the map out
 */

/** Width of the file and its margin, in units. */
export const FILE = { width: 1344, margin: 40 };
/** Pixels per unit in a PNG. */
const SCALE = 2;
/** Longest line of the caption. */
const CAPTION = 560;

/**
 * The picture in light colours.
 * @param {Picture} picture
 * @returns {Picture}
 */
function lit(picture) {
  /** @param {PictureHead[]} heads @returns {PictureHead[]} */
  const heads = (heads) =>
    heads.map((head) => ({
      ...head,
      colour: ROLES.light[head.role ?? "none"] ?? ROLES.light.none,
    }));
  const pair = picture.pair && { ...picture.pair, heads: heads(picture.pair.heads) };
  return { ...picture, theme: "light", shape: "auto", heads: heads(picture.heads), pair };
}

/**
 * A sentence as SVG text; words of the text are in serif italics.
 * @param {SavedPart[]} parts
 * @param {Record<string, string | number>} attributes
 * @param {boolean} isTinted whether words keep their colours
 * @returns {Shape}
 */
function sentence(parts, attributes, isTinted) {
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
function titles(picture, measure) {
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
 * The stage alone.
 * @param {Picture} picture in light colours
 * @param {Layout} layout
 * @param {Measure} measure
 * @returns {Shape}
 */
function stageShape(picture, layout, measure) {
  const scene = makeScene(picture, layout, measure);
  const sides = sidesOf(picture);
  const words = sides.flatMap((side, index) => {
    const deck = layout.decks[index];
    const own = side.rows.flatMap(({ text }, at) => {
      const box = deck.rows[at];
      if (!box) return [];
      const state = scene.words[index][at];
      const ring = ringShape(box, state);
      return [...(ring ? [ring] : []), wordShape(box, text, state, layout.size, picture)];
    });
    const columns = scene.columns;
    if (!side.isCross || !columns) return own;
    const others = side.columns.flatMap(({ text }, at) => {
      const box = deck.columns[at];
      return box ? [wordShape(box, text, columns[at], layout.size, picture)] : [];
    });
    return [...own, ...others];
  });
  const next = nextShape(picture, layout);
  return shape(
    "g",
    { class: "hw-stage-picture" },
    ...scene.cells.map(cellShape),
    ...scene.arcs.map((arc, index) => arcShape(arc, picture, `arc${index}`)),
    ...words,
    ...scene.notes.map(noteShape),
    ...(next ? [next] : []),
    ...scene.labels.map((label) => labelShape(label, picture)),
  );
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

/** @param {Shape} what @param {number} x @param {number} y */
const moved = (what, x, y) => shape("g", { transform: `translate(${x} ${y})` }, what);

/**
 * Map, caption and colour bar.
 * @param {Picture} picture in light colours
 * @param {Texts} texts
 * @param {Measure} measure
 * @returns {{shape: Shape, height: number}}
 */
function foot(picture, texts, measure) {
  const map = texts.map === false ? null : mapShape(picture, measure);
  const left = map ? map.width + 56 : 0;
  const caption = lines(texts.caption, 15, CAPTION, measure).map((line, place) =>
    shape(
      "text",
      { y: 15 + place * 22, fill: GROUNDS.light.soft, "font-family": SANS, "font-size": 15 },
      line,
    ),
  );
  const [head] = picture.heads;
  const bar = barShape(head?.colour ?? ROLES.light.none, "scale");
  const high = caption.length * 22 + 16 + bar.height;
  const top = Math.max(0, (map?.height ?? 0) - high);
  const parts = [
    ...(map ? [map.shape] : []),
    moved(shape("g", {}, ...caption), left, top),
    moved(bar.shape, left, top + caption.length * 22 + 14),
  ];
  return { shape: shape("g", {}, ...parts), height: Math.max(map?.height ?? 0, high) };
}

/**
 * The picture as a standalone SVG file.
 * @param {Picture} asked
 * @param {Texts} texts
 * @param {Measure} [measure]
 * @returns {string}
 */
export function stageSvg(asked, texts, measure = browserMeasure()) {
  const picture = lit(asked);
  const { width, margin } = FILE;
  const { heads, words, columns, hidesSpecial, next, pair } = picture;
  const layout = layOut(
    { words, columns, heads: Math.max(1, heads.length), hidesSpecial, next, pair, shape: "auto" },
    measure,
    width - 2 * margin,
  );
  const { text, soft, ground } = GROUNDS.light;
  const tint = heads.length === 1 ? heads[0].colour : text;
  /** @param {SavedPart[]} parts */
  const tinted = (parts) =>
    parts.map((part) => (typeof part === "string" ? part : { colour: tint, ...part }));
  const headline = { x: 0, y: 60, "font-family": SERIF, "font-size": 33, fill: text };
  const parts = [titles(picture, measure), sentence(tinted(texts.headline), headline, true)];
  let y = 78;
  if (texts.sub?.length) {
    const place = { x: 0, y: y + 14, "font-family": SANS, "font-size": 15, fill: soft };
    parts.push(sentence(tinted(texts.sub), place, true));
    y += 22;
  }
  parts.push(moved(stageShape(picture, layout, measure), 0, y));
  y += layout.height + 26;
  const note =
    texts.note === undefined
      ? { left: leftNote(picture, layout.shape), right: rightNote(picture, layout.shape) }
      : texts.note;
  if (note) {
    const font = { "font-family": SANS, "font-size": 13, fill: soft };
    const right = { x: width - 2 * margin - 2, y, "text-anchor": "end", ...font };
    parts.push(sentence(note.left, { x: 2, y, ...font }, false));
    parts.push(sentence([note.right], right, false));
    y += 18;
  }
  const below = foot(picture, texts, measure);
  parts.push(moved(below.shape, 0, y + 10));
  const height = Math.ceil(y + 10 + below.height + 2 * margin);
  const title = [...texts.headline.map((part) => (typeof part === "string" ? part : part.word))];
  return toXml(
    shape(
      "svg",
      { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height },
      shape("title", {}, title.join("")),
      shape("desc", {}, texts.caption),
      shape("rect", { width, height, fill: ground }),
      moved(shape("g", { "font-variant-numeric": "tabular-nums" }, ...parts), margin, margin),
    ),
  );
}

/**
 * An SVG file drawn as PNG, at two pixels per unit.
 * @param {string} svg
 * @returns {Promise<Blob>}
 */
export async function toPng(svg) {
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = SCALE * image.naturalWidth;
    canvas.height = SCALE * image.naturalHeight;
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    if (!(blob instanceof Blob))
      throw new Error("the picture is too large for a PNG: save it as SVG");
    return blob;
  } finally {
    URL.revokeObjectURL(address);
  }
}
