// @ts-check
/** Widths of texts in the fonts that are really there, each measured once. */

/** The font stacks of the specification. stage.css has the same. */
export const SERIF =
  'Charter, "Bitstream Charter", "Iowan Old Style", Georgia, "Noto Serif", Cambria, serif';
export const SANS = 'Inter, system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

/** Size at which texts are measured; widths at other sizes are in proportion. */
const MEASURED = 100;

/**
 * @typedef {object} Measure
 * @property {(text: string, size: number, isItalic?: boolean) => number} word  width in serif
 * @property {(text: string, size: number, weight?: number) => number} label  width in sans
 */

/** @type {Map<string, number>} */
const widths = new Map();

/** Most texts that are remembered; a long session reads many. */
const MOST = 20_000;

/** @type {CanvasRenderingContext2D | null} */
let context = null;

/**
 * @param {string} font without its size
 * @param {string} family
 * @param {string} text
 */
function width(font, family, text) {
  const key = `${font} ${family} ${text}`;
  let known = widths.get(key);
  if (known === undefined) {
    context ??= document.createElement("canvas").getContext("2d");
    if (!context) throw new Error("this browser cannot measure text: it has no 2D canvas");
    context.font = `${font} ${MEASURED}px ${family}`;
    known = context.measureText(text).width;
    if (widths.size >= MOST) widths.clear();
    widths.set(key, known);
  }
  return known;
}

/**
 * Widths in the browser's fonts.
 * @param {string} [serif]
 * @param {string} [sans]
 * @returns {Measure}
 */
export function browserMeasure(serif = SERIF, sans = SANS) {
  return {
    word: (text, size, isItalic = false) =>
      (width(isItalic ? "italic 400" : "400", serif, text) * size) / MEASURED,
    label: (text, size, weight = 400) => (width(String(weight), sans, text) * size) / MEASURED,
  };
}

/**
 * The wider of two words in the box of the next word.
 * @param {string} one
 * @param {string} other
 */
export function wider(one, other) {
  const width = (/** @type {string} */ text) => browserMeasure().word(text, MEASURED, true);
  return other && width(other) > width(one) ? other : one;
}
