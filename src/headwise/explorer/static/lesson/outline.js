// @ts-check
/** The steps: a row of numbers, the buttons Back and Next, and which steps are done. */

/** @import {StepTitle} from "../types.js" */

import { make } from "../stage/dom.js";

const KEPT = "headwise-lesson";
/** The steps with a number; the exercise comes after them. */
const NUMBERED = 7;

/** Answered steps, and whether an answer was right. @returns {Record<string, boolean>} */
export function storedDone() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? "{}") ?? {};
  } catch {
    return {};
  }
}

/** @param {Record<string, boolean>} done */
export function storeDone(done) {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify(done));
  } catch {
    /* then only this page shows the marks */
  }
}

/** @param {number} minutes */
const inMinutes = (minutes) => `${Math.floor(minutes) || ""}${minutes % 1 ? "\u00bd" : ""} min`;

/** A title inside a sentence, without what follows its comma. @param {string} title */
const nextName = (title) =>
  title.replace(/, and .*$/, "").replace(/^[A-Z](?=[a-z]{2})/, (letter) => letter.toLowerCase());

export class Outline {
  /** @param {(name: string) => void} go */
  constructor(go) {
    this.go = go;
    this.el = make("nav", { class: "lesson-steps", "aria-label": "Steps of the lesson" });
    /** @type {StepTitle[]} */
    this.steps = [];
  }

  /**
   * A link to a step, which opens in another tab as usual.
   * @param {string} name
   * @param {...(Node | string)} content
   */
  link(name, ...content) {
    const { hash } = location;
    const values = new URLSearchParams(hash.slice(1));
    values.set("panel", "lesson");
    values.set("step", name);
    const link = make("a", { href: `#${values}` }, ...content);
    link.dataset.step = name;
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.go(name);
    });
    return link;
  }

  /** @param {StepTitle[]} steps @param {number} at @param {Record<string, boolean>} done */
  draw(steps, at, done) {
    this.steps = steps;
    const items = steps.map(({ name, title, minutes }, number) => {
      const isDone = name in done;
      const text = number < NUMBERED ? String(number + 1) : "By hand";
      const link = this.link(name, text);
      link.classList.toggle("is-done", isDone);
      if (number === at) link.setAttribute("aria-current", "step");
      const state = isDone ? ", answered" : "";
      link.setAttribute(
        "aria-label",
        `${number < NUMBERED ? `Step ${number + 1}: ` : ""}${title}${state}`,
      );
      link.title = `${title}, ${inMinutes(minutes)}`;
      return make("li", {}, link);
    });
    this.el.replaceChildren(make("ol", {}, ...items));
  }

  /** A pointer to the exercise. @param {string} name */
  aside(name) {
    const step = this.steps.find((each) => each.name === name);
    return make(
      "p",
      { class: "lesson-aside" },
      "Every number of a small example: ",
      this.link(name, step?.title ?? name),
      ".",
    );
  }

  /** @param {StepTitle[]} steps @param {number} at */
  moves(steps, at) {
    const back = make("button", { type: "button", class: "lesson-back" }, "Back");
    const before = at < NUMBERED ? steps[at - 1] : steps[NUMBERED - 2];
    back.disabled = !before;
    back.addEventListener("click", () => before && this.go(before.name));
    const after = at < NUMBERED - 1 ? steps[at + 1] : at === NUMBERED ? steps[NUMBERED - 1] : null;
    const next = make("button", { type: "button", class: "lesson-forward" });
    if (after) {
      next.append(`Next: ${nextName(after.title)}`);
      next.addEventListener("click", () => this.go(after.name));
    }
    const end = make(
      "p",
      { class: "lesson-end" },
      "This was the last step. Change the sentence, and go through it once more.",
    );
    return make("div", { class: "lesson-moves" }, back, after ? next : end);
  }
}
