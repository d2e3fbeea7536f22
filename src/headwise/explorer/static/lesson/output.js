// @ts-check
/** Step 6: before Wo each head has its own columns; after Wo each has a part in every number. */

/** @import {LessonHead, OutputFigure} from "../types.js" */
/** @import {Lesson} from "./parts.js" */

import { make } from "../stage/dom.js";
import { percent } from "../stage/numbers.js";
import { NO_ROLE } from "../stage/sentences.js";
import { bars, chip, largest, look, segments, vars } from "./parts.js";
import { sentence } from "./sentence.js";

/** @param {OutputFigure} f @param {Lesson} lesson */
export function output(f, lesson) {
  const { place } = f;
  let isOver = false;
  let isAfter = false;
  let chosen = place.head;
  const width = f.heads.length * f.d_value;
  const tops = {
    before: largest(...f.heads.map((head) => head.concat)),
    after: largest(...f.heads.map((head) => head.contribution)),
    output: largest(f.output),
  };
  const most = Math.max(...f.heads.map(({ share }) => share), 1e-9);
  const lettered = (/** @type {LessonHead} */ head) => {
    const letter = chip(head, lesson);
    letter.title = look(head, lesson).role ?? NO_ROLE;
    return letter;
  };
  const rows = f.heads.map((owner, at) => {
    const band = make("span", { class: "lesson-band" });
    const row = make("button", { type: "button", class: "lesson-owner" });
    row.dataset.head = owner.head.name;
    row.dataset.part = `head ${owner.head.name}`;
    row.append(
      lettered(owner.head),
      make("b", {}, owner.head.name),
      make("span", { class: "lesson-track" }, band),
      make("span", { class: "lesson-adds" }, make("i"), make("b")),
    );
    vars(row, { part: owner.share / most });
    row.addEventListener("click", () => {
      chosen = at;
      draw();
    });
    return { row, band };
  });
  const sides = segments("Side of Wo", ["Before Wo", "After Wo"], (at) => {
    isAfter = at === 1;
    draw();
  });
  sides.el.hidden = true;
  const remark = make("p", { class: "lesson-remark", "aria-live": "polite" });
  const titles = make("div", { class: "lesson-owner is-titles", "aria-hidden": "true" });
  const total = make("div", { class: "lesson-owner is-total" });
  const list = make(
    "div",
    { class: "lesson-owners" },
    titles,
    ...rows.map(({ row }) => row),
    total,
  );
  const el = make(
    "div",
    { class: "lesson-output" },
    sentence(place, lesson),
    sides.el,
    remark,
    list,
  );

  function draw() {
    el.classList.toggle("is-after", isAfter);
    f.heads.forEach((owner, at) => {
      const { row, band } = rows[at];
      vars(row, { tone: look(owner.head, lesson).tone });
      row.setAttribute("aria-pressed", String(at === chosen));
      const part = isAfter ? owner.touched / f.d_model : f.d_value / width;
      vars(band, { left: isAfter ? 0 : owner.columns[0] / width, width: part });
      band.replaceChildren(
        isAfter ? bars(owner.contribution, tops.after) : bars(owner.concat, tops.before),
      );
      const adds = /** @type {HTMLElement} */ (row.lastElementChild?.lastElementChild);
      adds.textContent = isAfter ? percent(owner.share) : "";
      row.setAttribute(
        "aria-label",
        `${owner.head.name}${isAfter ? `, adds ${percent(owner.share)}` : ""}`,
      );
    });
    const size = (isAfter ? f.d_model : width).toLocaleString("en");
    titles.replaceChildren(
      make("span"),
      make("span", {}, "head"),
      make("span", {}, isAfter ? `output: ${size} numbers` : `concat: ${size} numbers`),
      make("span", {}, isAfter ? "adds" : ""),
    );
    const strip = make(
      "span",
      { class: "lesson-track" },
      make("span", { class: "lesson-band" }, bars(f.output, tops.output, "is-ink")),
    );
    vars(/** @type {HTMLElement} */ (strip.firstElementChild), { left: 0, width: 1 });
    total.replaceChildren(make("span"), make("b", {}, "all"), strip, make("span"));
    total.hidden = !isAfter;
    describe();
  }

  function describe() {
    const { head, columns, touched, share } = f.heads[chosen];
    const bias = f.has_bias ? " and the bias" : "";
    const whole = (/** @type {number} */ value) => value.toLocaleString("en");
    remark.textContent = isAfter
      ? `${head.name} has a part in ${whole(touched)} of ${whole(f.d_model)} numbers and adds ` +
        `${percent(share)}. All heads${bias} make up the output.`
      : `${head.name} fills numbers ${whole(columns[0] + 1)} to ${whole(columns[1])}; ` +
        "no other head does.";
  }

  draw();
  return {
    el,
    reveal: () => {
      if (isOver) return;
      isOver = true;
      isAfter = true;
      sides.el.hidden = false;
      sides.press(1);
      draw();
    },
    light: draw,
  };
}
