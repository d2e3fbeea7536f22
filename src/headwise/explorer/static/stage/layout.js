// @ts-check
/**
 * Where words and cells stand: on one line, on several, or one below the other.
 *
 * In: words, the width, and a way to measure text. Out: boxes in units of 1/16 rem. Depends on the
 * text, the width and the font only, never on what is chosen: nothing moves when one points.
 */
import { oneLine } from "./layout_line.js";
import { vertical } from "./layout_vertical.js";
import { wrapped } from "./layout_wrapped.js";

/** @import {StageWord} from "../types.js" */
/** @import {Measure} from "./measure.js" */

/**
 * @typedef {object} Box a word
 * @property {number} at its index
 * @property {number} line
 * @property {number} x
 * @property {number} y
 * @property {number} w
 * @property {number} h
 * @property {boolean} [isRoomy] whether the box has room for an outline of the word
 * @property {{left: number, right: number}} [room] half the gaps to the neighbours of its line
 */

/** @typedef {{x: number, y: number, w: number, h: number}} Rect */

/**
 * The part of a long text that is in sight. Tabs have bands of their own between `edge` and its
 * top, and between its bottom and `foot`; without these they stand at its top and bottom.
 * @typedef {{top: number, bottom: number, edge?: number, foot?: number}} View
 */

/**
 * One sentence on the stage, or two for cross-attention.
 * @typedef {object} Deck
 * @property {(Box | null)[]} rows words that look; null for one that is not shown
 * @property {(Box | null)[]} columns words looked at; the same as `rows` unless they differ
 * @property {(Rect | null)[][]} cells by head, then by column
 * @property {boolean} isBelow whether arcs hang below the words
 * @property {(Rect | null)[]} [beside] cells of the second sentence's columns, beside this one's
 */

/**
 * @typedef {object} Layout
 * @property {"line" | "wrapped" | "vertical"} shape
 * @property {number} width
 * @property {number} height
 * @property {number} size font size of the words
 * @property {Deck[]} decks one, or two for a pair
 * @property {number} rise height of the highest arc, Hmax
 * @property {number} lines
 * @property {number} pitch distance between lines; 0 if there is only one
 * @property {Rect | null} next the box at the end of the sentence
 * @property {boolean} isMirrored right-to-left text
 * @property {View | null} [view] only this part is in sight
 */

/**
 * @typedef {object} Request
 * @property {StageWord[]} words
 * @property {StageWord[] | null} columns
 * @property {number} heads number of rows of cells
 * @property {boolean} hidesSpecial
 * @property {{words: StageWord[], aligned: (number | null)[][]} | null} pair
 * @property {{text: string, before: string | null, widest?: string} | null} next `widest`: a word
 *   for which the box has room too
 * @property {"auto" | "vertical"} shape
 * @property {number} [least] smallest size of words on one line, if smaller than usual
 */

/** Below this width words stand one below the other. */
export const NARROW = 560;

/** @param {string} text whether its first letter is of a right-to-left script */
export function isRightToLeft(text) {
  const letter = /\p{L}/u.exec(text)?.[0];
  return (
    letter !== undefined && /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}]/u.test(letter)
  );
}

/**
 * Tell every word how far its pill may reach without covering a neighbour.
 * @param {(Box | null)[]} boxes
 */
function giveRoom(boxes) {
  const shown = boxes.filter((box) => box !== null);
  shown.forEach((box, place) => {
    const [before, after] = [shown[place - 1], shown[place + 1]];
    const left = before?.line === box.line ? (box.x - before.x - before.w) / 2 : Infinity;
    const right = after?.line === box.line ? (after.x - box.x - box.w) / 2 : Infinity;
    box.room = { left: Math.max(0, left), right: Math.max(0, right) };
  });
}

/** @template {Rect} T @param {T | null} box @param {number} width @returns {T | null} */
const turned = (box, width) => box && { ...box, x: width - box.x - box.w };

/** @param {Box | null} box @param {number} width @returns {Box | null} */
function turnedWord(box, width) {
  const { left, right } = box?.room ?? { left: Infinity, right: Infinity };
  return box && { ...box, ...turned(box, width), room: { left: right, right: left } };
}

/**
 * The layout as a mirror shows it, for text that is read from right to left.
 * @param {Layout} layout
 * @returns {Layout}
 */
export function mirrored(layout) {
  const { width } = layout;
  const decks = layout.decks.map((deck) => {
    const rows = deck.rows.map((box) => turnedWord(box, width));
    return {
      ...deck,
      rows,
      columns:
        deck.columns === deck.rows ? rows : deck.columns.map((box) => turnedWord(box, width)),
      cells: deck.cells.map((row) => row.map((cell) => turned(cell, width))),
      beside: deck.beside?.map((cell) => turned(cell, width)),
    };
  });
  return { ...layout, decks, next: turned(layout.next, width), isMirrored: true };
}

/**
 * Positions of all words and cells.
 * @param {Request} request
 * @param {Measure} measure
 * @param {number} width
 * @returns {Layout}
 */
export function layOut(request, measure, width) {
  const isNarrow = request.shape === "vertical" || width < NARROW;
  const line = isNarrow || request.columns ? null : oneLine(request, measure, width);
  const layout = isNarrow
    ? vertical(request, measure, width)
    : (line ?? wrapped(request, measure, width));
  for (const { rows, columns } of layout.decks) {
    if (layout.shape !== "vertical") new Set([rows, columns]).forEach(giveRoom);
  }
  const text = request.words.map((word) => (word.kind === "special" ? "" : word.text)).join(" ");
  return isRightToLeft(text) ? mirrored(layout) : layout;
}
