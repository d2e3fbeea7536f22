// @ts-check
/** The palette of both themes, the colour scale of shares, and ink that can be read on it. */

/** @typedef {"light" | "dark"} Theme */
/** @typedef {[number, number, number]} Triple */

/**
 * Colours of the page. stage.css has the same values for HTML.
 * @type {Record<Theme, Record<"ground" | "raised" | "cell" | "line" | "text" | "soft" | "quiet" |
 *   "rest", string>>}
 */
export const GROUNDS = {
  light: {
    ground: "#ffffff",
    raised: "#f5f6f8",
    cell: "#f4f5f7",
    line: "#dfe3e8",
    text: "#161a21",
    soft: "#5a6472",
    quiet: "#6f7986",
    rest: "#7d8794",
  },
  dark: {
    ground: "#12151b",
    raised: "#1b2029",
    cell: "#1d222b",
    line: "#333b47",
    text: "#eef1f5",
    soft: "#a6b0be",
    quiet: "#8792a1",
    rest: "#8d97a5",
  },
};

/**
 * Colours of the roles, in lead order; "none" is for heads without a clear role.
 * @type {Record<Theme, Record<string, string>>}
 */
export const ROLES = {
  light: {
    induction: "#8257e6",
    duplicate: "#431458",
    coreference: "#a80f68",
    positional: "#1650b8",
    syntactic: "#0e5a2c",
    semantic: "#c65300",
    sink: "#0a7f8c",
    delimiter: "#6e5a10",
    broad: "#6b7480",
    none: "#8b95a3",
  },
  dark: {
    induction: "#c4b2ff",
    duplicate: "#efd3f7",
    coreference: "#ff86c2",
    positional: "#4f9bff",
    syntactic: "#9be8a0",
    semantic: "#ff9a3d",
    sink: "#35cfd6",
    delimiter: "#b8a04a",
    broad: "#8e99a8",
    none: "#747e8c",
  },
};

/**
 * Red, green and blue, 0 to 255.
 * @param {string} hex "#rrggbb"
 * @returns {Triple}
 */
export function channels(hex) {
  const value = Number.parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** @param {number} value one channel, 0 to 255 */
function toLinear(value) {
  const share = value / 255;
  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
}

/** @param {number} light one linear channel, 0 to 1 */
function fromLinear(light) {
  const share = light <= 0.0031308 ? 12.92 * light : 1.055 * light ** (1 / 2.4) - 0.055;
  return Math.round(255 * Math.min(1, Math.max(0, share)));
}

/**
 * A colour in OKLab (Ottosson 2020).
 * @param {string} hex
 * @returns {Triple}
 */
export function toOklab(hex) {
  const [r, g, b] = channels(hex).map(toLinear);
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

/**
 * The nearest colour of a screen to one in OKLab.
 * @param {Triple} lab
 * @returns {string}
 */
export function fromOklab([L, a, b]) {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const rgb = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return "#" + rgb.map((light) => fromLinear(light).toString(16).padStart(2, "0")).join("");
}

/** @type {Map<string, Triple>} */
const labs = new Map();

/** @param {string} hex */
function cachedLab(hex) {
  let lab = labs.get(hex);
  if (!lab) labs.set(hex, (lab = toOklab(hex)));
  return lab;
}

/**
 * Fill of a cell: the empty cell and the colour, mixed in OKLab by the square root of the share.
 * @param {Theme} theme
 * @param {string} colour "#rrggbb"
 * @param {number} share 0 to 1
 * @returns {string}
 */
export function mix(theme, colour, share) {
  const part = Math.sqrt(Math.min(1, Math.max(0, share)));
  const from = cachedLab(GROUNDS[theme].cell);
  const to = cachedLab(colour);
  const between = from.map((value, index) => value + part * (to[index] - value));
  return fromOklab(/** @type {Triple} */ (between));
}

/** @param {string} hex */
function luminance(hex) {
  const [r, g, b] = channels(hex).map(toLinear);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/**
 * Contrast of two colours as WCAG defines it, 1 to 21.
 * @param {string} one
 * @param {string} other
 * @returns {number}
 */
export function contrast(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

/**
 * Colour of a number on a cell: soft for shares under 5% where that can be read, otherwise black
 * or white, whichever contrasts more.
 * @param {string} fill
 * @param {Theme} theme
 * @param {number} share
 * @returns {string}
 */
export function ink(fill, theme, share) {
  const soft = GROUNDS[theme].soft;
  if (Math.round(100 * share) < 5 && contrast(soft, fill) >= 4.5) return soft;
  return contrast("#000000", fill) >= contrast("#ffffff", fill) ? "#000000" : "#ffffff";
}
