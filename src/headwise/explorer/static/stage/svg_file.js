// @ts-check
/**
 * The saved picture: headline, stage, notes, map and caption as one SVG file, always light.
 *
 * In: a picture and its texts. Out: XML that needs nothing else, or a PNG of it. Fills are computed
 * colours, so that other programs can read the file.
 */
import { GROUNDS, ROLES } from "./colours.js";
import { shape, toXml } from "./dom.js";
import {
  arcShape,
  cellShape,
  labelShape,
  nextShape,
  noteShape,
  ringShape,
  tabShape,
} from "./draw.js";
import { wordShape } from "./draw_word.js";
import { layOut } from "./layout.js";
import { SANS, SERIF, browserMeasure } from "./measure.js";
import { leftNote, rightNote } from "./picture_notes.js";
import { sidesOf } from "./picture.js";
import { makeScene } from "./scene.js";
import { isInSight } from "./tabs.js";
import { lines, sentence, titles } from "./svg_text.js";
import { barShape, mapShape } from "./svg_map.js";
import { windowHeight, windowTop } from "./window.js";

/** @import {Shape} from "./dom.js" */
/** @import {Layout, Request} from "./layout.js" */
/** @import {Measure} from "./measure.js" */
/** @import {Picture, PictureHead} from "./picture.js" */
/** @import {SavedPart} from "./svg_text.js" */

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
 * The layout with the window that the page shows of a long text, around the chosen word.
 * @param {Layout} layout
 * @param {Picture} picture
 * @returns {Layout}
 */
function windowed(layout, { words, word }) {
  const height = windowHeight(layout, words.length);
  const box = layout.decks[0].rows[word ?? 0];
  if (height === null || !box) return layout;
  const top = windowTop(box, layout);
  return { ...layout, view: { top, bottom: top + height } };
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
      if (!box || !isInSight(box, layout.view ?? null)) return [];
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
    ...scene.cells.filter((cell) => isInSight(cell, layout.view ?? null)).map(cellShape),
    ...scene.arcs.map((arc, index) => arcShape(arc, picture, `arc${index}`)),
    ...words,
    ...scene.notes.map(noteShape),
    ...(next ? [next] : []),
    ...scene.tabs.map((tab) => tabShape(tab, picture)),
    ...scene.labels.map((label) => labelShape(label, picture)),
  );
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
  const count = Math.max(1, heads.length);
  /** @type {Request} */
  const request = { words, columns, heads: count, hidesSpecial, next, pair, shape: "auto" };
  const layout = windowed(layOut(request, measure, width - 2 * margin), picture);
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
  const { top, bottom } = layout.view ?? { top: 0, bottom: layout.height };
  parts.push(moved(stageShape(picture, layout, measure), 0, y - top));
  y += bottom - top + 26;
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
