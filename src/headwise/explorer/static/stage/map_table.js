// @ts-check
/** The map as a table, for readers who cannot see it; long texts show only the chosen row. */

/** @import {MapPicture} from "./map.js" */

import { make } from "./dom.js";
import { percent } from "./numbers.js";

/** Largest number of cells in a table. */
const MOST = 5000;

/** @param {MapPicture} picture */
export function mapTable(picture) {
  const { rows, columns, share, row, isLookedAt } = picture;
  const isLarge = rows.length * columns.length > MOST;
  const shown = (isLarge ? [row ?? 0] : [...rows.keys()]).filter(
    (at) => isLarge || rows[at].kind !== "special",
  );
  const across = [...columns.keys()].filter(
    (at) => !(picture.hidesSpecial && columns[at].kind === "special"),
  );
  const print = (/** @type {number} */ from, /** @type {number} */ to) => {
    const value = share(from, to);
    return make("td", {}, value === null ? "" : percent(value));
  };
  const caption = isLarge
    ? "The chosen word\u2019s row. Each number is the share of its attention on a word."
    : "Each row looks at each column.";
  const table = make("table", {}, make("caption", {}, caption));
  if (isLarge) {
    // One line per word: a row of hundreds of columns could not be read.
    for (const to of across)
      table.append(
        make("tr", {}, make("th", { scope: "row" }, columns[to].text), print(shown[0], to)),
      );
    return table;
  }
  table.append(
    make(
      "tr",
      {},
      make("td", {}),
      ...across.map((to) => make("th", { scope: "col" }, columns[to].text)),
    ),
    ...shown.map((from) =>
      make(
        "tr",
        { class: from === row && !isLookedAt ? "hv-chosen" : null },
        make("th", { scope: "row" }, rows[from].text),
        ...across.map((to) => print(from, to)),
      ),
    ),
  );
  return table;
}
