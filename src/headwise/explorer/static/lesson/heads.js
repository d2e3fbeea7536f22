// @ts-check
/** Step 5: one long query, cut into a slice for each head; each slice has links of its own. */

/** @import {HeadsFigure} from "../types.js" */
/** @import {Lesson} from "./parts.js" */

import { make } from "../stage/dom.js";
import { bars, dot, largest, look, vars } from "./parts.js";
import { LessonStage } from "./stage_part.js";

/** Heads on the stage at a time. */
const MOST = 4;
const STEPS = /** @type {Record<string, string>} */ ({
  input: "comes in",
  queries: "cut into heads",
  scores: "scores",
  mixed: "sums",
  concat: "side by side",
  output: "goes out",
});

/** @param {HeadsFigure} f @param {Lesson} lesson */
export function heads(f, lesson) {
  const { place } = f;
  let isOver = false;
  /** Heads on the stage, by number. */
  let chosen = [place.head];
  const stage = new LessonStage(place, lesson);
  const top = largest(f.query);
  const slices = f.heads.map(({ head, columns }, at) => {
    const slice = make("button", { type: "button", class: "lesson-slice" });
    slice.append(bars(f.query.slice(columns[0], columns[1]), top), dot(head, lesson));
    slice.append(make("span", {}, head.name.replace(/^.*(?=H)/, "")));
    slice.dataset.head = head.name;
    slice.dataset.part = `head ${head.name}`;
    slice.title = `${head.name}: numbers ${columns[0] + 1} to ${columns[1]}`;
    slice.setAttribute("aria-label", `${head.name}, numbers ${columns[0] + 1} to ${columns[1]}`);
    slice.addEventListener("click", () => choose(at));
    return slice;
  });
  const row = make("div", {
    class: "lesson-slices is-whole",
    role: "group",
    "aria-label": "Heads",
  });
  row.append(...slices);
  vars(row, { count: slices.length });
  const groups = make("div", { class: "lesson-groups", hidden: true });
  const caption = make("p", { class: "lesson-caption" });
  const shapes = make("div", { class: "lesson-shapes", hidden: true });
  const el = make("div", { class: "lesson-heads" }, stage.el, caption, row, groups, shapes);

  /** @param {number} at */
  function choose(at) {
    if (!isOver) return;
    const isOn = chosen.includes(at);
    if (isOn && chosen.length === 1) return;
    chosen = isOn ? chosen.filter((other) => other !== at) : [...chosen, at].slice(-MOST);
    draw();
  }

  function draw() {
    const shown = [...chosen].sort((left, right) => left - right).map((at) => f.heads[at]);
    stage.show({
      heads: shown.map(({ head, weights }) =>
        stage.head(head, (at) => (at === place.word ? weights : null)),
      ),
      isStill: true,
    });
    slices.forEach((slice, at) => {
      slice.setAttribute("aria-pressed", String(chosen.includes(at)));
      vars(slice, { tone: look(f.heads[at].head, lesson).tone });
      slice.disabled = !isOver;
    });
    const word = make("i", {}, place.words[place.word].text);
    const width = f.query.length.toLocaleString("en");
    caption.replaceChildren(
      make("strong", {}, "Query"),
      make("span", {}, "of ", word),
      isOver ? `${f.heads.length} slices of ${f.d_key} numbers` : `${width} numbers`,
    );
  }

  /** Which heads share a key and a value. */
  function drawGroups() {
    const size = f.heads.length / f.num_kv_heads;
    vars(groups, { count: f.num_kv_heads });
    for (let group = 0; group < f.num_kv_heads; group++) {
      const first = group * size;
      const text = `KV head ${group}: H${first} to H${first + size - 1}`;
      groups.append(make("span", {}, text));
    }
    groups.hidden = f.num_kv_heads === f.heads.length;
  }

  /** Shapes of the whole text, from step to step. */
  function drawShapes() {
    const items = f.shapes.map(({ step, shape, axes }) =>
      make(
        "span",
        { title: axes.join(" \u00d7 ") },
        make("b", {}, shape.map((size) => size.toLocaleString("en")).join(" \u00d7 ")),
        make("small", {}, STEPS[step] ?? step),
      ),
    );
    shapes.replaceChildren(
      make(
        "p",
        { class: "lesson-caption" },
        make("strong", {}, "Shapes"),
        ` for all ${place.pieces.length} pieces`,
      ),
      make("div", { class: "lesson-shape-row" }, ...items),
      make(
        "p",
        { class: "lesson-note" },
        "What heads cost, with sliders: the tab ",
        make("a", { href: "#panel=plan" }, "Plan"),
        ".",
      ),
    );
  }

  drawGroups();
  drawShapes();
  groups.hidden = true;
  draw();
  return {
    el,
    reveal: () => {
      if (isOver) return;
      isOver = true;
      chosen = [...f.shown];
      row.classList.remove("is-whole");
      groups.hidden = f.num_kv_heads === f.heads.length;
      shapes.hidden = false;
      draw();
    },
    light: draw,
    destroy: () => stage.destroy(),
  };
}
