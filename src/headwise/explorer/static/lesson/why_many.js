// @ts-check
/**
 * Step 1: one head's links, the same with a word swapped, and several heads beside their average.
 */

/** @import {LessonHead, RowFigure, StageWord, SwapFigure, WhyManyFigure} from "../types.js" */
/** @import {Lesson} from "./parts.js" */
/** @import {PictureHead} from "../stage/picture.js" */

import { make } from "../stage/dom.js";
import { percent, points } from "../stage/numbers.js";
import { dot, segments } from "./parts.js";
import { LessonStage } from "./stage_part.js";

/** @param {WhyManyFigure} f @param {Lesson} lesson */
export function whyMany(f, lesson) {
  const { place, swap, pair } = f;
  const head = { name: place.name, roles: place.roles };
  /** @type {{name: string, text: string, isEarly: boolean}[]} */
  const views = [{ name: "one", text: "One head", isEarly: true }];
  if (pair) views.push({ name: "pair", text: "He or she", isEarly: true });
  if (swap) views.push({ name: "swap", text: "Swap", isEarly: false });
  if (f.rows.length > 1)
    views.push({ name: "several", text: `${f.rows.length} heads`, isEarly: false });
  let view = "one";
  let isOver = false;
  // Without a swap, the question is where the head looks.
  let isLooking = Boolean(swap || pair);
  const stage = new LessonStage(place, lesson);
  const choice = segments(
    "What the picture shows",
    views.map(({ text }) => text),
    (at) => go(views[at].name),
  );
  const title = make("p", { class: "lesson-caption" });
  const average = make("div", { class: "lesson-average", hidden: true });
  const top = make("div", { class: "lesson-top" }, choice.el, title);
  const el = make("div", { class: "lesson-why" }, top, stage.el, average);

  /** @param {string} name */
  function go(name) {
    view = name;
    choice.press(views.findIndex((each) => each.name === name));
    draw();
  }

  /** @param {number[][]} weights @param {LessonHead} [of] @returns {PictureHead} */
  const one = (weights, of = head) => stage.head(of, (at) => weights[at] ?? null);

  function draw() {
    const early = views.filter(({ isEarly }) => isOver || isEarly);
    choice.el.hidden = early.length < 2;
    views.forEach(({ isEarly }, at) => {
      /** @type {HTMLElement} */ (choice.el.children[at]).hidden = !isOver && !isEarly;
    });
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
    } else if (view === "pair" && pair) {
      const { words, word, weights } = pair;
      const first = { words, word, heads: [one(weights, pair.head)] };
      const second = { ...pair.swap, heads: [one(pair.swap.weights, pair.head)] };
      stage.show({ ...first, pair: isOver ? second : null });
    } else {
      stage.show({ heads: [one(f.weights)], isBare: !isLooking });
    }
  }

  function caption() {
    const shown = view === "pair" && pair ? pair.head : head;
    const name = make("strong", {}, shown.name);
    const mark = dot(shown, lesson);
    if (view === "several")
      return [
        make("strong", {}, `${f.rows.length} heads`),
        "look from the same word, each elsewhere",
      ];
    if (view === "pair" && pair)
      return isOver
        ? [
            mark,
            name,
            `reads both sentences: ${changes(pair.words, pair.weights[pair.word], pair.swap)}`,
          ]
        : [mark, name, "reads another sentence"];
    if (view === "swap" && swap)
      return [
        mark,
        name,
        `reads both sentences: ${changes(place.words, f.weights[place.word], swap)}`,
      ];
    if (isLooking) return [mark, name, ...largestShare()];
    return [mark, name, "is about to look"];
  }

  /** The largest share of the word that is followed. */
  function largestShare() {
    const row = f.weights[place.word];
    const at = row.indexOf(Math.max(...row));
    const name = make("i", {}, place.words[at].text);
    return [make("span", {}, "gives ", make("b", {}, percent(row[at])), " to ", name)];
  }

  /**
   * The two largest changes of a swap.
   * @param {StageWord[]} words @param {number[]} row @param {SwapFigure} other
   */
  function changes(words, row, other) {
    const moved = other.aligned.flatMap(([at, there]) =>
      at === null || there === null ? [] : [{ at, by: other.weights[other.word][there] - row[at] }],
    );
    moved.sort((left, right) => Math.abs(right.by) - Math.abs(left.by));
    if (!moved.length || Math.abs(moved[0].by) < 0.005) return "no share moves";
    return moved
      .slice(0, 2)
      .map(({ at, by }) => `${words[at].text} ${points(by)}`)
      .join(", ");
  }

  /** The row that one head would need, under the words of the stage. */
  function drawAverage() {
    const { weights, largest } = f.average;
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
      make("p", { class: "lesson-measure" }, ...measures(f.rows, largest)),
    );
  }

  /** @param {RowFigure[]} rows @param {number} largest */
  const measures = (rows, largest) => [
    "Largest share: ",
    ...rows.flatMap((row) => [
      row.head ? `${row.head.name} ` : "",
      make("b", {}, percent(row.largest)),
      ", ",
    ]),
    "average ",
    make("b", {}, percent(largest)),
    ".",
  ];

  draw();
  return {
    el,
    reveal: () => {
      if (isOver) return;
      isOver = isLooking = true;
      go(pair ? "pair" : swap ? "swap" : "one");
    },
    aim: (/** @type {string} */ target) => {
      const name = target.replace("view ", "");
      if (target.startsWith("view ") && name !== view) go(name);
    },
    light: draw,
    destroy: () => stage.destroy(),
  };
}
