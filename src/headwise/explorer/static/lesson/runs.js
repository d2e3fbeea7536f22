// @ts-check
/**
 * Sentences of the lesson: new terms stand out, and names light up what they name in the figure.
 */

/** @import {ProseRun} from "../types.js" */

import { make } from "../stage/dom.js";

/** @typedef {(target: string) => void} Light called with a part of the figure, or "" for none */

/**
 * A sentence's runs as nodes. Names that light up are buttons, so that keys reach them.
 * @param {ProseRun[]} runs @param {Light} [light] without it names are plain
 * @returns {(Node | string)[]}
 */
export function nodes(runs, light) {
  /** @type {(Node | string)[]} */
  const all = [];
  let held = "";
  runs.forEach((run, at) => {
    const made = node({ ...run, text: run.text.slice(held.length) }, light);
    held = "";
    const mark = made instanceof Node ? /^[.,:;?!)\u201d]+/.exec(runs[at + 1]?.text ?? "") : null;
    if (mark && runs[at + 1].kind === "text") {
      held = mark[0]; // a mark never begins a line
      all.push(make("span", { class: "lesson-held" }, made, held));
    } else all.push(made);
  });
  return all;
}

/** @param {ProseRun} run @param {Light} [light] @returns {Node | string} */
function node({ text, kind, target }, light) {
  if (kind === "text") return text;
  if (kind === "term") return make("strong", {}, text);
  const look = kind === "word" ? "lesson-word" : "lesson-part";
  if (!target || !light) return make("bdi", { class: look }, text);
  const button = make("button", { type: "button", class: `${look} lesson-name` }, text);
  button.dataset.target = target;
  let isPinned = false;
  button.addEventListener("pointerenter", () => light(target));
  button.addEventListener("focus", () => light(target));
  for (const name of ["pointerleave", "blur"])
    button.addEventListener(name, () => {
      if (name === "blur") isPinned = false;
      if (!isPinned) light("");
    });
  button.addEventListener("click", () => {
    isPinned = !isPinned;
    light(isPinned ? target : "");
  });
  return button;
}

/** A paragraph of runs. @param {ProseRun[]} runs @param {Light} [light] */
export const paragraph = (runs, light) => make("p", {}, ...nodes(runs, light));

/** The text of some runs. @param {ProseRun[]} runs */
export const plain = (runs) => runs.map(({ text }) => text).join("");

/**
 * Light up the parts of a figure that a name stands for. Elements list their names in data-part,
 * separated by "|"; words on the stage are known by their number.
 * @param {HTMLElement} figure @param {string} target
 */
export function lightUp(figure, target) {
  for (const lit of figure.querySelectorAll(".is-lit")) lit.classList.remove("is-lit");
  if (!target) return;
  for (const element of figure.querySelectorAll("[data-part]")) {
    const names = element.getAttribute("data-part")?.split("|") ?? [];
    if (names.includes(target)) element.classList.add("is-lit");
  }
  const [kind, number] = target.split(" ");
  const side = { word: "0", other: "1" }[kind];
  if (side)
    figure
      .querySelector(`.hw-button[data-side="${side}"][data-word="${number}"] .hw-pill`)
      ?.classList.add("is-lit");
}
