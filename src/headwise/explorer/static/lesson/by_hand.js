// @ts-check
/** The exercise by hand: two words, two heads, every number. */

/** @import {ByHandFigure} from "../types.js" */

import { make } from "../stage/dom.js";
import { segments, signed } from "./parts.js";

/**
 * A small matrix with named rows.
 * @param {string} title @param {string} formula @param {number[][]} rows @param {string[]} names
 * @param {{columns?: string[], marked?: number[], across?: number[]}} [how] names of columns, and
 *   ranges of columns or rows to mark
 */
function matrix(title, formula, rows, names, how = {}) {
  const isIn = (/** @type {number[] | undefined} */ part, /** @type {number} */ at) =>
    part !== undefined && at >= part[0] && at < part[1];
  const head = how.columns?.map((name) => make("th", { scope: "col" }, name));
  return make(
    "table",
    { class: "lesson-matrix" },
    make("caption", {}, make("strong", {}, title), ` ${formula}`),
    ...(head ? [make("tr", {}, make("td", { class: "is-corner" }), ...head)] : []),
    ...rows.map((row, at) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, names[at] ?? ""),
        ...row.map((value, column) => {
          const isMarked = isIn(how.marked, column) || isIn(how.across, at);
          return make(
            "td",
            { class: isMarked ? "is-marked" : null },
            signed(value).replace(/\.00$/, ""),
          );
        }),
      ),
    ),
  );
}

/** Tables that are given, Wo among them; the others are for the learner to work out. */
const GIVEN = [0, 1, 7];

/** @param {ByHandFigure} f */
export function byHand(f) {
  const size = f.queries[0][0].length,
    words = f.tokens;
  const flow = make("div", { class: "lesson-matrices" });
  const note = make("p", { class: "lesson-remark", "aria-live": "polite" });
  let isOver = false;
  let head = 0;
  /** Tables that are uncovered, as "head table". @type {Set<string>} */
  const open = new Set();

  /** Tables of the head, in order. @returns {Parameters<typeof matrix>[]} */
  function tables() {
    const marked = [head * size, (head + 1) * size];
    const at = `head ${head}`;
    const columns = words;
    return [
      ["1. Input", `${at} reads the marked columns`, f.input, words, { marked }],
      ["2. Query, key, value", "the same here", f.queries[head], words],
      [
        "3. Dot products",
        "query of the row, key of the column",
        f.scores[head],
        words,
        { columns },
      ],
      ["4. Scores", `divided by \u221a${size}`, f.scaled[head], words, { columns }],
      ["5. Shares", "softmax: each row makes 1", f.weights[head], words, { columns }],
      ["6. Sums", "shares times values", f.mixed[head], words],
      ["7. Concat", `${at} is marked`, f.concat, words, { marked }],
      ["8. Wo", `${at} meets the marked rows`, f.Wo, ["", "", "", ""], { across: marked }],
      ["9. Output", "concat times Wo", f.output, words],
    ];
  }

  /**
   * A covered table: a button that shows its numbers.
   * @param {string} title @param {string} formula @param {number} at
   */
  function cover(title, formula, at) {
    const button = make(
      "button",
      { type: "button", class: "lesson-cover" },
      make("strong", {}, title),
      ` ${formula}`,
      make("span", {}, "Show the numbers"),
    );
    button.addEventListener("click", () => {
      open.add(`${head} ${at}`);
      draw();
      /** @type {HTMLElement | null} */ (flow.querySelector("button"))?.focus();
    });
    return button;
  }

  function draw() {
    const all = tables();
    const isAsked = !isOver && head === 1; // the question is the first table that stays covered
    const last = isAsked ? all.findIndex(([title]) => title.startsWith("5")) : all.length;
    flow.replaceChildren(
      ...all.slice(0, last).map((table, at) => {
        const isOpen = isOver || GIVEN.includes(at) || open.has(`${head} ${at}`);
        return isOpen ? matrix(...table) : cover(table[0], table[1], at);
      }),
      ...(isAsked ? [make("p", { class: "lesson-veil" }, "5. Shares: your question")] : []),
    );
    const sharp = f.weights[head].map((row) => Math.max(...row));
    const best = sharp.indexOf(Math.max(...sharp));
    const row = `In head ${head}, ${words[best]} has the sharp row: ${sharp[best].toFixed(2)}`;
    if (isAsked) note.textContent = "Answer the question to see the rest of head 1.";
    else if (isOver || open.has(`${head} 4`)) note.textContent = `${row} on one word.`;
    else note.textContent = "Work out the next table, then click or tap it.";
  }
  const choice = segments("Head", ["Head 0", "Head 1"], (at) => {
    head = at;
    draw();
  });
  draw();
  return {
    el: make("div", { class: "lesson-by-hand" }, choice.el, note, flow),
    reveal: () => {
      isOver = true;
      head = 1;
      choice.press(1);
      draw();
    },
  };
}
