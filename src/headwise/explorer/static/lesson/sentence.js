// @ts-check
/** The sentence as one line of words, without arcs. */

/** @import {Place} from "../types.js" */
/** @import {Lesson} from "./parts.js" */

import { make } from "../stage/dom.js";
import { look, vars, visible } from "./parts.js";

/** @param {Place} place @param {Lesson} lesson */
export function sentence(place, lesson) {
  const words = place.words.map((word, at) => {
    const kind = word.kind === "special" ? "is-special" : word.kind === "mark" ? "is-mark" : "";
    const here = at === place.word ? "is-here" : "";
    const el = make("span", { class: `lesson-piece ${kind} ${here}` }, visible(word.text));
    el.dataset.part = `word ${at}`;
    return el;
  });
  const el = make("p", { class: "lesson-sentence" });
  words.forEach((word, at) => el.append(at && place.words[at].space ? " " : "", word));
  return vars(el, { tone: look(place, lesson).tone });
}
