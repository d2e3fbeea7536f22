// @ts-check
/** Three patterns of small maps with their meanings, so that a grid of them can be read. */

import { make, svg } from "./dom.js";

/** Cells along each side of a pattern. */
const SIDE = 6;
/** Dark cells of each pattern, as row and column. @type {[string, (row: number, column: number)
 * => boolean][]} */
const PATTERNS = [
  ["diagonal: words look at neighbours", (row, column) => row === column + 1],
  ["column: all look at one word", (_, column) => column === 1],
  ["spots: certain words only", (row, column) => [8, 22, 27, 34].includes(SIDE * row + column)],
];

/** @param {(row: number, column: number) => boolean} isDark */
function picture(isDark) {
  const places = Array.from({ length: SIDE * SIDE }, (_, at) => [Math.floor(at / SIDE), at % SIDE]);
  const cells = places
    .filter(([row, column]) => isDark(row, column))
    .map(([y, x]) => svg("rect", { x, y, width: 1, height: 1 }));
  return svg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, "aria-hidden": "true" }, ...cells);
}

/** The patterns as a list. */
export function patterns() {
  const items = PATTERNS.map(([words, isDark]) => make("li", {}, picture(isDark), words));
  return make(
    "ul",
    { class: "hv-patterns hv-if-maps", "aria-label": "How to read a square" },
    ...items,
  );
}
