// @ts-check
/** Figures for the warm-up and the first three steps: why many heads, projections, heads. */

/** @import {HeadsFigure, ProjectionsFigure, RowFigure} from "./types.js" */
/** @import {WarmUpFigure, WhyManyFigure} from "./types.js" */

import { make } from "./head_view.js";
import {
  counted,
  label,
  matrix,
  named,
  share,
  standing,
  strip,
  styled,
  toggles,
} from "./lesson_parts.js";

/** @typedef {import("./lesson_parts.js").Panel} Panel */

/** Words for the axes of a shape. */
const AXES = /** @type {Record<string, string>} */ ({
  batch: "text",
  heads: "head",
  kv_heads: "KV head",
  position: "token",
  query: "token",
  key: "token",
  d_model: "number",
  d_key: "number",
  d_value: "number",
  concat: "number",
});

/** Space for a token's vertical label, in sixteenths of a rem. */
const NARROWEST = 13;

/** The example "Cat sleeps", step by step, in either head. @param {WarmUpFigure} f */
export function warmUp(f) {
  const flow = make("div", { class: "lesson-flow" });
  const summary = make("p", { class: "lesson-said", "aria-live": "polite" });
  const size = f.queries[0][0].length;
  const draw = (/** @type {number} */ head) => {
    const own = [head * size, (head + 1) * size],
      words = f.tokens,
      at = `head ${head}`;
    const sharp = f.weights[head].map((row) => Math.max(...row)),
      best = sharp.indexOf(Math.max(...sharp)),
      other = words[1 - best].replace(/^./, (letter) => letter.toUpperCase());
    flow.replaceChildren(
      matrix("1. Input", `what comes in; ${at} reads the marked columns`, f.input, words, {
        marked: own,
      }),
      matrix("2. Query, key, value", `of ${at}; all three the same here`, f.queries[head], words),
      matrix("3. Scores", "query of the row times key of the column", f.scores[head], words, {
        columns: words,
      }),
      matrix("4. Scaled", `divided by the square root of ${size}`, f.scaled[head], words, {
        columns: words,
      }),
      matrix("5. Weights", "softmax: each row adds up to 1", f.weights[head], words, {
        columns: words,
        bars: true,
      }),
      matrix("6. Mixed", "weights times values", f.mixed[head], words),
      matrix("7. Concat", `heads side by side; ${at} is marked`, f.concat, words, { marked: own }),
      matrix("8. Wo", `the rows that ${at} meets are marked`, f.Wo, ["", "", "", ""], {
        across: own,
      }),
      matrix("9. Output", "concat times Wo", f.output, words),
    );
    summary.textContent =
      `In ${at}, ${words[best]} stays sharp: it gives ${share(sharp[best])} to one word. ` +
      `${other} shares evenly.`;
  };
  draw(0);
  return make("div", {}, toggles("Head", ["Head 0", "Head 1"], draw), summary, flow);
}

/** Every head's row of weights, and the average row. @param {WhyManyFigure} f */
export function whyMany(f) {
  const { tokens } = f.place,
    isWhole = f.keys.length === tokens.length,
    top = Math.max(...f.heads.map((head) => head.largest), f.single.largest);
  const summary = make("p", { class: "lesson-said", "aria-live": "polite" });
  const like = (/** @type {number} */ nats) => `${nats.toFixed(2)} nats`;
  const look = (/** @type {RowFigure} */ row) =>
    `${share(row.largest)} on ${named(tokens, row.largest_key)}`;
  const rows = f.heads.map((head, at) =>
    make(
      "button",
      {
        type: "button",
        class: "lesson-row",
        "data-head": head.name,
        "aria-label": `${head.name}: ${look(head)}, entropy ${like(head.entropy)}`,
        onclick: () => choose(at),
        onkeydown: (/** @type {KeyboardEvent} */ event) => {
          const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
          if (!move) return;
          event.preventDefault();
          choose(at + move);
          rows[chosen].focus();
        },
      },
      make("span", {}, head.name),
      standing(head.weights, top),
      make("span", { class: "number" }, like(head.entropy)),
    ),
  );
  let chosen = f.place.head;
  const choose = (/** @type {number} */ at) => {
    chosen = Math.max(0, Math.min(rows.length - 1, at));
    rows.forEach((row, other) => {
      row.setAttribute("aria-pressed", String(other === chosen));
      row.tabIndex = other === chosen ? 0 : -1;
    });
    back.disabled = chosen === 0;
    on.disabled = chosen === rows.length - 1;
    const head = f.heads[chosen],
      average = f.single.weights[f.keys.indexOf(head.largest_key)],
      rest = isWhole ? "" : ` Of its whole row, ${share(head.resting)} was left out.`;
    summary.textContent =
      `${head.name} puts ${look(head)}, and is as blurred as an even look at ` +
      `${Math.exp(head.entropy).toFixed(1)} tokens. The average row puts ${share(average)} there.` +
      rest;
  };
  const back = make(
    "button",
    { type: "button", onclick: () => choose(chosen - 1) },
    "Previous head",
  );
  const on = make("button", { type: "button", onclick: () => choose(chosen + 1) }, "Next head");
  const single = make(
    "div",
    {
      class: "lesson-row single",
      role: "img",
      "aria-label": `Average of all heads: ${look(f.single)}, entropy ${like(f.single.entropy)}`,
    },
    make("span", {}, "average"),
    standing(f.single.weights, top),
    make("span", { class: "number" }, like(f.single.entropy)),
  );
  const axis = make(
    "div",
    { class: "lesson-row axis" },
    make("span"),
    make("div", { class: "lesson-axis" }, ...f.keys.map((at) => label(tokens[at]))),
    make("span"),
  );
  choose(chosen);
  return make(
    "div",
    {},
    make("div", { class: "controls" }, back, on),
    summary,
    make(
      "div",
      { class: "scroll" },
      styled(
        make(
          "div",
          {
            role: "group",
            "aria-label": `Rows of weights of ${named(tokens, f.place.position)}, a row a head`,
          },
          ...rows,
          single,
          axis,
        ),
        { minWidth: `${(150 + NARROWEST * f.keys.length) / 16}rem` },
      ),
    ),
    make(
      "p",
      { class: "legend" },
      `Bars are weights, all to one scale${isWhole ? "" : ", without the tokens left out"}; the ` +
        `number beside a row is its entropy. The heads' rows have ${like(f.mean_entropy)} and a ` +
        `largest weight of ${share(f.mean_largest)}, on average; their average row has ` +
        `${like(f.single.entropy)} and ${share(f.single.largest)}.`,
    ),
  );
}

/** A shape such as [batch 1, heads 12], in words. @param {string} shape */
function inWords(shape) {
  const axes = [...shape.matchAll(/(\w+) (\d+)/g)].filter(([, name]) => name !== "batch");
  return axes.map(([, name, count]) => counted(Number(count), AXES[name] ?? name)).join(" \u00d7 ");
}

/**
 * One token's input, query, key and value; another token can be chosen.
 * @param {ProjectionsFigure} f @param {Panel} panel
 */
export function projections(f, panel) {
  const { tokens, position, name } = f.place;
  const picker = make(
    "div",
    { class: "lesson-tokens", role: "group", "aria-label": "Token to follow" },
    ...tokens.map((token, at) =>
      make(
        "button",
        {
          type: "button",
          class: "token",
          "aria-pressed": String(at === position),
          "data-token": at,
          onclick: () => {
            if (at !== position) panel.choose(at);
          },
        },
        label(token),
      ),
    ),
  );
  const kv = `of KV head ${f.kv_head}`,
    own = f.is_grouped ? kv : `in ${name}`;
  return make(
    "div",
    {},
    picker,
    ...(f.input
      ? [strip("Input", `of ${named(tokens, position)}: all heads read it`, f.input)]
      : []),
    strip("Query", `in ${name}: what it looks for`, f.query),
    strip("Key", `${own}: what it is found by`, f.key),
    strip("Value", `${own}: what it hands over`, f.value),
    make(
      "p",
      { class: "legend" },
      "Bars go up for numbers above 0 and down for those below. Point at one, or walk with the " +
        "arrow keys, to read it.",
    ),
    make(
      "div",
      { class: "scroll", tabindex: 0, role: "group", "aria-label": "Shapes" },
      make(
        "table",
        {},
        make("caption", {}, "The same for your whole text"),
        make(
          "tr",
          {},
          ...["step", "shape", "how it is made"].map((title) =>
            make("th", { scope: "col" }, title),
          ),
        ),
        ...f.shapes.map(({ step, shape, formula }) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, step),
            make("td", {}, inWords(shape)),
            make("td", { class: "lesson-formula" }, formula),
          ),
        ),
      ),
    ),
  );
}

/** A width cut into one piece per head, and other ways to cut it. @param {HeadsFigure} f */
export function heads(f) {
  const own = f.table.findIndex((row) => row.is_own);
  const widest = Math.max(...f.table.map((row) => row.numbers));
  const pieces = make("div"),
    summary = make("p", { class: "lesson-said", "aria-live": "polite" });
  const number = (/** @type {number} */ value) =>
    make("td", { class: "number" }, value.toLocaleString("en"));
  const rows = f.table.map((row, at) =>
    make(
      "tr",
      { onclick: () => choose(at) },
      make(
        "th",
        { scope: "row" },
        make(
          "button",
          {
            type: "button",
            "data-heads": row.num_heads,
            "aria-label": counted(row.num_heads, "head"),
          },
          row.num_heads.toLocaleString("en"),
        ),
      ),
      number(row.d_key),
      number(row.numbers),
      number(row.scores),
      number(row.multiply_adds),
      make("td", {}, [...(row.is_own ? ["this model"] : []), ...row.remarks].join(", ")),
    ),
  );
  const choose = (/** @type {number} */ at) => {
    const row = f.table[at];
    rows.forEach((line, other) => {
      line.className = other === at ? "chosen" : "";
      line.querySelector("button")?.setAttribute("aria-pressed", String(other === at));
    });
    const gap = row.num_heads > 64 ? 0.08 * row.d_key : 0.004 * widest;
    const drawn = Array.from({ length: row.num_heads }, (_, head) =>
      make("rect", {
        class: row.is_own && head === f.place.head ? "own" : head % 2 ? "odd" : "even",
        x: (head * row.d_key + gap / 2).toFixed(3),
        y: 0,
        height: 30,
        width: (row.d_key - gap).toFixed(3),
      }),
    );
    const [start, last] = [f.columns[0], f.columns[1] - 1].map((at) => at.toLocaleString("en"));
    const where = row.is_own ? ` ${f.place.name} is marked: numbers ${start} to ${last}.` : "";
    const pieceWords = `${counted(row.num_heads, "head")} of ${counted(row.d_key, "number")}`;
    summary.textContent = `${pieceWords}: ${row.numbers.toLocaleString("en")} in all.${where}`;
    pieces.replaceChildren(
      make(
        "svg",
        {
          class: "lesson-pieces",
          viewBox: `0 0 ${widest} 30`,
          preserveAspectRatio: "none",
          role: "img",
          "aria-label": summary.textContent,
        },
        ...drawn,
      ),
    );
  };
  choose(own);
  const titles = ["heads", "each", "together", "scores", "multiply-adds", "remarks"],
    [tokens, most] = [counted(f.num_tokens, "token"), f.num_tokens.toLocaleString("en")];
  return make(
    "div",
    {},
    summary,
    pieces,
    ...(f.groups.length < f.num_heads ? [groups(f)] : []),
    make(
      "div",
      { class: "scroll" },
      make(
        "table",
        { class: "lesson-choices" },
        make(
          "caption",
          {},
          `Ways to share out ${f.d_model.toLocaleString("en")} numbers, for your ${tokens}`,
        ),
        make(
          "tr",
          {},
          ...titles.map((title, at) =>
            make("th", { scope: "col", class: at > 0 && at < 5 ? "number" : "" }, title),
          ),
        ),
        ...rows,
      ),
    ),
    make(
      "p",
      { class: "legend" },
      "Heads of 64 to 128 numbers are usual. A head of fewer numbers than there are tokens " +
        `cannot make every map of ${most} by ${most}: its rank is too low.`,
    ),
  );
}

/** Which heads share keys and values. @param {HeadsFigure} f */
function groups(f) {
  return make(
    "ul",
    { class: "lesson-groups", "aria-label": "KV heads and the heads that read them" },
    ...f.groups.map((served, kv) =>
      make(
        "li",
        {},
        make("strong", {}, `KV head ${kv}`),
        make("span", {}, served.map((head) => `H${head}`).join(" ")),
        ...(served.includes(f.place.head) ? [make("em", {}, `serves ${f.place.name}`)] : []),
      ),
    ),
  );
}
