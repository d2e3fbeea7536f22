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

/** @param {ByHandFigure} f */
export function byHand(f) {
  const size = f.queries[0][0].length,
    words = f.tokens;
  const flow = make("div", { class: "lesson-matrices" });
  const said = make("p", { class: "lesson-said", "aria-live": "polite" });
  let isOver = false;
  let head = 0;
  function draw() {
    const own = [head * size, (head + 1) * size];
    const at = `head ${head}`;
    const columns = words;
    const isVeiled = !isOver && head === 1;
    flow.replaceChildren(
      matrix("1. Input", `${at} reads the marked columns`, f.input, words, { marked: own }),
      matrix("2. Query, key, value", "the same here", f.queries[head], words),
      matrix("3. Dot products", "query of the row, key of the column", f.scores[head], words, {
        columns,
      }),
      matrix("4. Scores", `divided by \u221a${size}`, f.scaled[head], words, { columns }),
      ...(isVeiled
        ? [make("p", { class: "lesson-veil" }, "5. Shares: your question")]
        : [
            matrix("5. Shares", "softmax: each row makes 1", f.weights[head], words, { columns }),
            matrix("6. Sums", "shares times values", f.mixed[head], words),
            matrix("7. Concat", `${at} is marked`, f.concat, words, { marked: own }),
            matrix("8. Wo", `${at} meets the marked rows`, f.Wo, ["", "", "", ""], { across: own }),
            matrix("9. Output", "concat times Wo", f.output, words),
          ]),
    );
    const sharp = f.weights[head].map((row) => Math.max(...row));
    const best = sharp.indexOf(Math.max(...sharp));
    said.textContent = isVeiled
      ? "Answer the question to see the rest of head 1."
      : `In ${at}, ${words[best]} has the sharp row: ${sharp[best].toFixed(2)} on one word.`;
  }
  const choice = segments("Head", ["Head 0", "Head 1"], (at) => {
    head = at;
    draw();
  });
  draw();
  return {
    el: make("div", { class: "lesson-by-hand" }, choice.el, said, flow),
    reveal: () => {
      isOver = true;
      head = 1;
      choice.press(1);
      draw();
    },
  };
}
