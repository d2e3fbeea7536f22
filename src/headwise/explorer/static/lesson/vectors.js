// @ts-check
/**
 * Step 2: query, key and value of every piece as small bars, and one dot product number by number.
 */

/** @import {MatchFigure, VectorsFigure} from "../types.js" */
/** @import {Lesson} from "./parts.js" */

import { make } from "../stage/dom.js";
import { isStill } from "../stage/motion.js";
import { Columns } from "./columns.js";
import { bars, counted, largest, look, signed, vars, visible } from "./parts.js";

/** @param {VectorsFigure} f @param {Lesson} lesson */
export function vectors(f, lesson) {
  const { place } = f;
  const words = place.pieces.map(({ text }) => visible(text));
  const here = words[place.position];
  let chosen = f.chosen;
  let isOver = false;
  const tops = {
    query: largest(...f.queries),
    key: largest(...f.keys),
    value: largest(...f.values),
  };
  const quiet = (/** @type {string} */ text) => make("span", { class: "lesson-quiet" }, text);
  const strong = (/** @type {string} */ text) => make("strong", {}, text);

  /** @param {"query" | "key" | "value"} kind @param {number[][]} rows */
  const tiles = (kind, rows) => (/** @type {number} */ at) => {
    const isKey = kind === "key" && f.matches[at].is_seen;
    const el = make(
      isKey ? "button" : "div",
      { class: `lesson-tile is-${kind}` },
      bars(rows[at], tops[kind]),
    );
    el.dataset.part = `${kind} ${at}|${kind === "value" ? "values" : kind}`;
    if (kind === "query" && at === place.position) el.classList.add("is-chosen");
    if (isKey) {
      el.setAttribute("type", "button");
      el.setAttribute("aria-label", `Key of ${words[at]}`);
      el.addEventListener("click", () => choose(at));
    }
    return el;
  };
  const lines = [
    { name: "word", item: null },
    {
      name: "query",
      item: tiles("query", f.queries),
      title: [strong("Query"), quiet("what it looks for")],
    },
    {
      name: "key",
      item: tiles("key", f.keys),
      title: [strong("Key"), quiet("what it can be found by")],
    },
    {
      name: "value",
      item: tiles("value", f.values),
      title: [strong("Value"), quiet("what it hands over")],
    },
  ];
  const columns = new Columns(place, lines, { follow: lesson.follow });
  const product = make("div", { class: "lesson-product", "aria-live": "polite" });
  const el = make("div", { class: "lesson-vectors" }, columns.el, product);
  vars(el, { tone: look(place, lesson).tone });

  /** @param {number} at */
  function choose(at) {
    chosen = at;
    draw(true);
  }

  /** @param {boolean} moves */
  function draw(moves) {
    columns.items.key.forEach((tile, at) => {
      tile.classList.toggle("is-chosen", at === chosen);
      if (tile.tagName === "BUTTON") tile.setAttribute("aria-pressed", String(at === chosen));
    });
    const match = f.matches[chosen];
    const isAsked = chosen === f.chosen && !isOver;
    const word = make("i", {}, words[chosen]);
    const strips = make("div", { class: "lesson-strips" });
    const top = largest(match.products);
    const rows = /** @type {const} */ ([
      ["query of ", here, f.queries[place.position], tops.query, "is-tone"],
      ["key of ", words[chosen], f.keys[chosen], tops.key, "is-tone"],
      ["products", "", match.products, top, "is-ink"],
    ]);
    rows.forEach(([text, name, values, most, kind], row) => {
      const strip = bars(values, most, kind);
      if (row === 2 && isAsked) strip.classList.add("is-veiled");
      if (row === 2 && moves && !isStill()) strip.classList.add("is-growing");
      strips.append(make("span", {}, text, make("i", {}, name)), strip);
    });
    product.replaceChildren(
      make(
        "p",
        {},
        strong("Dot product"),
        " of the query of ",
        make("i", {}, here),
        " and the key of ",
        word,
      ),
      strips,
      terms(match, isAsked),
    );
  }

  /** The largest products in numbers. @param {MatchFigure} match @param {boolean} isAsked */
  function terms(match, isAsked) {
    const rows = match.largest.map(({ number, query, key, product }, at) => {
      const result = isAsked && at === 0 ? "?" : signed(product);
      const cells = [`number ${number}`, signed(query), "\u00d7", signed(key), "=", result];
      const row = make("tr", {}, ...cells.map((cell) => make("td", {}, cell)));
      if (at === 0) row.classList.add("is-first");
      return row;
    });
    const rest = match.products.length - match.largest.length;
    const line = (/** @type {string} */ text, /** @type {string} */ value, name = "") =>
      make("tr", { class: name }, make("td", { colspan: 5 }, text), make("td", {}, value));
    return make(
      "table",
      { class: "lesson-terms" },
      ...rows,
      ...(rest > 0 || Math.abs(match.rest) >= 0.005
        ? [
            line(
              rest > 0 ? `the ${counted(rest, "other product")}` : "rounding",
              signed(match.rest),
            ),
          ]
        : []),
      line("dot product", isAsked ? "?" : signed(match.score), "is-sum"),
    );
  }

  draw(false);
  return {
    el,
    reveal: (/** @type {boolean} */ moves) => {
      if (isOver) return;
      isOver = true;
      draw(moves);
    },
    shown: () => columns.fit(),
    destroy: () => columns.destroy(),
  };
}
