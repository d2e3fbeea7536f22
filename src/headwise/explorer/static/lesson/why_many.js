// @ts-check
/** Step 1: one head's links, the same with a word swapped, and several heads beside their average. */

/** @import {RowFigure, WhyManyFigure} from "../types.js" */
/** @import {Lesson} from "./parts.js" */
/** @import {PictureHead} from "../stage/picture.js" */

import { make } from "../stage/dom.js";
import { percent, points } from "../stage/numbers.js";
import { chip, segments } from "./parts.js";
import { LessonStage } from "./stage_part.js";

/** @param {WhyManyFigure} f @param {Lesson} lesson */
export function whyMany(f, lesson) {
  const { place, swap } = f;
  const head = { name: place.name, roles: place.roles };
  const hasSwap = swap !== null;
  let view = "one";
  let isOver = false;
  let isLooking = hasSwap;
  const stage = new LessonStage(place, lesson);
  const names = ["One head", ...(hasSwap ? ["Swap"] : [])];
  const views = ["one", ...(hasSwap ? ["swap"] : [])];
  if (f.rows.length > 1) {
    names.push(`${f.rows.length} heads`);
    views.push("several");
  }
  const choice = segments("What the picture shows", names, (at) => {
    view = views[at];
    draw();
  });
  choice.el.hidden = true;
  const title = make("p", { class: "lesson-caption" });
  const average = make("div", { class: "lesson-average", hidden: true });
  const el = make("div", { class: "lesson-why" }, choice.el, title, stage.el, average);

  /** @param {number[][]} weights @returns {PictureHead} */
  const one = (weights) => stage.head(head, (at) => weights[at] ?? null);

  function draw() {
    average.hidden = view !== "several";
    title.replaceChildren(...caption());
    if (view === "several") {
      const heads = f.rows.map((row) =>
        stage.head(row.head ?? head, (at) => (at === place.word ? row.weights : null)),
      );
      stage.show({ heads, isStill: true });
      drawAverage();
    } else if (view === "swap" && swap) {
      const { words, weights, word, aligned } = swap;
      const heads = [one(weights)];
      stage.show({ heads: [one(f.weights)], pair: { words, heads, aligned, word } });
    } else {
      stage.show({ heads: [one(f.weights)], isBare: !isLooking });
    }
  }

  function caption() {
    const mark = chip(head, lesson);
    if (view === "several") {
      return [
        make("strong", {}, `${f.rows.length} heads`),
        " look from the same word, each elsewhere",
      ];
    }
    const name = make("strong", {}, head.name);
    if (view === "swap" && swap) return [mark, name, " reads both sentences", changes()];
    return [mark, name, isLooking ? " looks" : " is about to look"];
  }

  /** Largest change of the swap. */
  function changes() {
    if (!swap) return "";
    const row = f.weights[place.word],
      other = swap.weights[swap.word];
    const moved = swap.aligned.flatMap(([at, there]) =>
      at === null || there === null ? [] : [{ at, by: other[there] - row[at] }],
    );
    moved.sort((left, right) => Math.abs(right.by) - Math.abs(left.by));
    const [first] = moved;
    return first ? `: ${place.words[first.at].text} ${points(first.by)} points` : "";
  }

  /** The row that one head would need, under the words of the stage. */
  function drawAverage() {
    const { weights, largest, entropy } = f.average;
    const cells = weights.map((weight, at) => {
      const cell = make(
        "span",
        { class: "lesson-average-bar" },
        make("i"),
        make("b", {}, percent(weight)),
      );
      cell.style.setProperty("--part", String(weight));
      cell.dataset.part = `word ${at}`;
      return make(
        "span",
        { class: "lesson-average-word" },
        cell,
        make("bdi", {}, place.words[at].text),
      );
    });
    average.replaceChildren(
      make("p", {}, make("strong", {}, "Their average"), " one row for all of them"),
      make("div", { class: "lesson-average-row" }, ...cells),
      make("p", { class: "lesson-measure" }, ...measures(f.rows, largest, entropy)),
    );
  }

  /** @param {RowFigure[]} rows @param {number} largest @param {number} entropy */
  const measures = (rows, largest, entropy) => [
    "Largest share: ",
    ...rows.flatMap((row) => [
      row.head ? `${row.head.name} ` : "",
      make("b", {}, percent(row.largest)),
      ", ",
    ]),
    "average ",
    make("b", {}, percent(largest)),
    ". Entropy: heads ",
    make("b", {}, f.mean_entropy.toFixed(2)),
    ", average ",
    make("b", {}, entropy.toFixed(2)),
    " nats.",
  ];

  draw();
  return {
    el,
    reveal: (/** @type {boolean} */ moves) => {
      if (isOver) return;
      isOver = true;
      isLooking = true;
      choice.el.hidden = views.length < 2;
      if (hasSwap) {
        view = "swap";
        choice.press(1);
      }
      if (!moves && hasSwap) {
        view = "swap";
      }
      draw();
    },
    light: draw,
    destroy: () => stage.destroy(),
  };
}
