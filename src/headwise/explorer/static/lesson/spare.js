// @ts-check
/** Step 7: heads silenced one by one and together, beside as many random heads. */

/** @import {SpareFigure, TogetherFigure} from "../types.js" */
/** @import {Lesson} from "./parts.js" */

import { make } from "../stage/dom.js";
import { percent } from "../stage/numbers.js";
import { Curve, stepsText } from "./curve.js";
import { chip, counted, look, number, vars } from "./parts.js";
import { LessonStage } from "./stage_part.js";

/** @param {SpareFigure} f @param {Lesson} lesson */
export function spare(f, lesson) {
  const { place } = f;
  const mine = f.heads.findIndex(({ head }) => head.name === place.name);
  let isOver = false;
  /** The head that is silent alone. @type {number | null} */
  let alone = null;
  /** Number of the step that is silent together; -1: none. */
  let step = -1;
  const words = f.next.length ? place.words.slice(0, f.last + 1) : place.words;
  const stage = new LessonStage(place, lesson);
  const squares = f.heads.map((_, at) => square(at));
  const grid = makeGrid();
  const remark = make("p", { class: "lesson-remark", "aria-live": "polite" });
  const next = make("div", { class: "lesson-next" });
  const curve = new Curve(f);
  const slider = makeSlider();
  const together = make("div", { class: "lesson-together", hidden: true }, curve.el, slider);
  const legend = makeLegend();
  const columns = make(
    "div",
    { class: "lesson-spare-row" },
    grid,
    make("div", { class: "lesson-answer" }, remark, next, together),
    legend,
  );
  const el = make("div", { class: "lesson-spare" }, stage.el, columns);

  /** @param {number} at */
  function square(at) {
    const { head } = f.heads[at];
    const el = make("button", { type: "button", class: "lesson-square" });
    el.append(look(head, lesson).letter);
    el.dataset.head = head.name;
    el.dataset.part = `head ${head.name}`;
    el.addEventListener("click", () => {
      alone = alone === at ? null : at;
      step = -1;
      draw();
    });
    return el;
  }

  function makeGrid() {
    const el = make("div", {
      class: "lesson-grid",
      role: "group",
      "aria-label": "Heads to silence",
    });
    const counts = f.layers.map(
      (layer) => f.heads.filter(({ head }) => inLayer(head.name, layer)).length,
    );
    const most = Math.max(...counts);
    const isAcross = f.layers.length > most;
    vars(el, {
      across: isAcross ? f.layers.length : most,
      down: isAcross ? most : f.layers.length,
    });
    el.classList.toggle("is-turned", isAcross);
    el.classList.toggle("is-small", f.heads.length > 100);
    let at = 0;
    f.layers.forEach((layer, row) => {
      const [x, y] = isAcross ? ["row", "column"] : ["column", "row"];
      const label = make("span", { class: "lesson-grid-label", "aria-hidden": "true" });
      label.textContent =
        isAcross && f.layers.length > 12 && row % 5 ? "" : layer.replace(/^.*(?=L)/, "");
      el.append(vars(label, { [x]: 1, [y]: row + 2 }));
      for (let head = 0; head < counts[row]; head++) {
        el.append(vars(squares[at], { [x]: head + 2, [y]: row + 2 }));
        at += 1;
      }
    });
    return el;
  }

  function makeSlider() {
    const range = make("input", {
      type: "range",
      id: "lesson-silent",
      min: 0,
      max: f.together.length,
      step: 1,
      value: 0,
    });
    range.addEventListener("input", () => {
      step = Number(range.value) - 1;
      alone = null;
      draw();
    });
    const label = make(
      "label",
      { for: "lesson-silent" },
      `Silence together, the least missed first, in ${stepsText(f)}`,
    );
    return make("div", { class: "lesson-tools" }, label, range);
  }

  /** Roles in the grid, with their meanings. */
  function makeLegend() {
    const roles = [...new Set(f.heads.flatMap(({ head }) => head.roles?.slice(0, 1) ?? []))];
    const order = Object.keys(lesson.about.roles);
    roles.sort((left, right) => order.indexOf(left) - order.indexOf(right));
    const items = roles.map((role) => {
      const about = lesson.about.roles[role];
      const text = about?.phrase ?? about?.meaning ?? "";
      return make(
        "li",
        {},
        chip({ name: role, roles: [role] }, lesson),
        make("span", {}, make("b", {}, role), ` ${text}`),
      );
    });
    return make("ul", { class: "lesson-legend" }, ...items);
  }

  /** Indices of the silent heads. */
  function silent() {
    if (alone !== null) return [alone];
    return step < 0 ? [] : f.order.slice(0, f.together[step].count);
  }

  function draw() {
    const off = new Set(silent());
    squares.forEach((el, at) => {
      const { head } = f.heads[at];
      const isOff = off.has(at);
      const role = head.roles?.length ? head.roles[0] : "no clear role";
      el.classList.toggle("is-off", isOff);
      el.classList.toggle("is-mine", at === mine);
      el.setAttribute("aria-pressed", String(isOff));
      el.setAttribute("aria-label", `${head.name}, ${head.roles ? role : "role not measured"}`);
      el.title = `${head.name}: ${role}`;
      vars(el, { tone: look(head, lesson).tone });
      el.classList.toggle("is-none", !head.roles?.length);
    });
    drawStage(off);
    describe();
    drawNext();
    curve.draw(step);
    /** @type {HTMLInputElement} */ (slider.querySelector("input")).value = String(step + 1);
  }

  /** @param {Set<number>} off */
  function drawStage(off) {
    const at = alone ?? mine;
    const { head } = f.heads[at];
    const row = f.weights[at].slice(0, words.length);
    const found = answer();
    const before = f.next[0]?.token ?? null;
    stage.show({
      words,
      heads: [
        {
          ...stage.head(head, (word) => (word === place.word ? row : null)),
          isOff: off.has(at),
        },
      ],
      next: found?.likeliest
        ? {
            text: found.likeliest.token,
            before: found.likeliest.token === before ? null : before,
          }
        : before
          ? { text: before, before: null }
          : null,
      isStill: true,
    });
  }

  /** What is known about the present state; null: all heads are on. */
  const answer = () => (alone !== null ? f.heads[alone] : step < 0 ? null : f.together[step]);

  function describe() {
    const found = answer();
    if (!found) {
      const all = `All ${counted(f.heads.length, "head")} are on. `;
      remark.replaceChildren(all, "Choose one to silence it. ", f.alone);
      return;
    }
    const name = alone !== null ? `${f.heads[alone].head.name} is silent. ` : "";
    const many =
      alone === null
        ? `${counted(/** @type {TogetherFigure} */ (found).count, "head")} silent. `
        : "";
    remark.replaceChildren(make("strong", {}, name || many), value(found));
    if (alone !== null)
      remark.append(
        ` Number ${f.heads[alone].rank} of ${f.heads.length}, counted from the most missed.`,
      );
    else remark.append(...randomText(/** @type {TogetherFigure} */ (found)));
  }

  /** @param {{value: number, likeliest: {token: string, probability: number} | null}} found */
  function value({ value, likeliest }) {
    if (likeliest) {
      const same = likeliest.token === f.next[0].token;
      const stays = same ? "The next word stays " : "The next word becomes ";
      return `${stays}\u201c${likeliest.token.trim()}\u201d, ${percent(likeliest.probability)}.`;
    }
    if (f.unit === "cosine")
      return `Cosine with the unchanged answer: ${value.toFixed(value > 0.99 ? 4 : 2)}.`;
    return `${f.unit === "loss" ? "Loss" : "Change in nats"}: ${number(value)}.`;
  }

  /** @param {TogetherFigure} found */
  function randomText({ count, random, random_kept }) {
    if (!random.length) return [];
    if (f.next.length) {
      return [` With ${count} random heads the word stays in ${random_kept} of ${f.draws} draws.`];
    }
    const [low, high] = [Math.min(...random), Math.max(...random)];
    const digits = (/** @type {number} */ value) =>
      f.unit === "cosine" ? value.toFixed(2) : number(value);
    return [` With ${count} random heads: ${digits(low)} to ${digits(high)}, in ${f.draws} draws.`];
  }

  /** A causal model's next words, before and after. */
  function drawNext() {
    next.hidden = !f.next.length;
    const after = answer()?.next;
    const top = Math.max(...f.next.map(({ probability }) => probability), ...(after ?? [0]), 0.01);
    const rows = f.next.map(({ token, probability }, at) => {
      const bar = (/** @type {number} */ part, /** @type {string} */ kind) =>
        vars(
          make(
            "span",
            { class: `lesson-next-bar ${kind}` },
            make("i"),
            make("b", {}, percent(part)),
          ),
          {
            part: part / top,
          },
        );
      return make(
        "div",
        { class: "lesson-next-row" },
        make("bdi", {}, token.trim() || "\u00b7"),
        make(
          "span",
          {},
          bar(probability, "is-before"),
          ...(after ? [bar(after[at], "is-after")] : []),
        ),
      );
    });
    next.replaceChildren(...rows);
  }

  draw();
  return {
    el,
    reveal: () => {
      if (isOver) return;
      isOver = true;
      together.hidden = false;
      alone = null;
      step = f.limit; // as many heads as the answer says
      draw();
    },
    light: draw,
    destroy: () => {
      stage.destroy();
      curve.room.destroy();
    },
  };
}

/** @param {string} head @param {string} layer */
const inLayer = (head, layer) => head.slice(0, head.lastIndexOf("H")) === layer;
