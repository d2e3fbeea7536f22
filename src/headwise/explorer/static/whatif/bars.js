// @ts-check
/** Bars before and after: grey with all heads on, ink with the change. */

/** @import {Prediction, RandomAnswer, Similarity} from "../types.js" */

import { make } from "../stage/dom.js";
import { percent } from "../stage/numbers.js";
import { blankName, cosine, counted, sentencePairs } from "./whatif_sentences.js";

const RANDOM = "random heads";
/** Most rows of bars. */
const ROWS = 6;

/**
 * @typedef {object} Row
 * @property {string} label @property {boolean} isWord  set in the type of the text
 * @property {number} before @property {number} after
 * @property {number[]} draws  values with random heads; empty until they are known
 */

/**
 * The likeliest words before or after, the longest bar first.
 * @param {Prediction} prediction @param {RandomAnswer | null} random
 */
export function predictionRows({ names, before, after }, random) {
  /** @type {Row[]} */
  const rows = names.map((label, at) => ({
    label: blankName(label) || label,
    isWord: !blankName(label),
    before: before[at],
    after: after[at],
    draws: random?.values[random.names.indexOf(label)] ?? [],
  }));
  const length = (/** @type {Row} */ row) => Math.max(row.before, row.after);
  return rows.sort((one, other) => length(other) - length(one)).slice(0, ROWS);
}

/**
 * The most alike pairs of sentences.
 * @param {Similarity} similarity @param {RandomAnswer | null} random @returns {Row[]}
 */
export const similarityRows = (similarity, random) =>
  sentencePairs(similarity)
    .slice(0, ROWS)
    .map(({ one, other, before, after, at }) => ({
      label: `${one + 1} and ${other + 1}`,
      isWord: false,
      before,
      after,
      draws: random?.values[at] ?? [],
    }));

/** What the bracket under the bars is. @param {number} draws */
export const rangeKey = (draws) =>
  draws === 1 ? "one random draw" : `the range of ${counted(draws)} random draws`;

export class Bars {
  /** @param {HTMLElement} el */
  constructor(el) {
    this.title = make("h3", { class: "panel-title" });
    this.list = make("ol", { class: "wi-bars" });
    this.remarks = make("div", { class: "wi-remarks" });
    el.append(this.title, this.list, this.remarks);
  }

  /**
   * @param {string} title @param {string} changed  "3 off", or "" if no head is changed
   * @param {Row[]} rows @param {boolean} isCosine @param {string[]} remarks
   */
  show(title, changed, rows, isCosine, remarks) {
    const key = (/** @type {string} */ kind, /** @type {string} */ text) =>
      make("span", { class: "wi-key" }, make("span", { class: `wi-swatch wi-${kind}` }), text);
    const count = Math.max(0, ...rows.map(({ draws }) => draws.length));
    this.title.replaceChildren(
      `${title} `,
      key("before", "all heads on"),
      ...(changed ? [" ", key("after", changed)] : []),
      ...(changed && count ? [" ", key("range", rangeKey(count))] : []),
    );
    const most = Math.max(1e-9, ...rows.flatMap((row) => [row.before, row.after, ...row.draws]));
    const print = isCosine ? cosine : percent;
    const bar = (/** @type {string} */ kind, /** @type {number} */ value) => {
      const line = make("span", { class: `wi-bar wi-${kind}` });
      line.style.setProperty("--share", String(Math.max(0, value) / most));
      const number = make("span", { class: "wi-number" }, print(value));
      return make("span", { class: "wi-line" }, line, number);
    };
    const range = (/** @type {number[]} */ draws) => {
      const [low, high] = [Math.min(...draws), Math.max(...draws)];
      const line = make("span", { class: "wi-range" });
      line.style.setProperty("--low", String(Math.max(0, low) / most));
      line.style.setProperty("--high", String(Math.max(0, high) / most));
      const words = `${RANDOM}: ${print(low)} to ${print(high)}`;
      line.title = words;
      return make(
        "span",
        { class: "wi-line wi-draws" },
        line,
        make("span", { class: "hv-hidden" }, words),
      );
    };
    this.list.classList.toggle("wi-single", !changed);
    this.list.replaceChildren(
      ...rows.map(({ label, isWord, before, after, draws }) =>
        make(
          "li",
          {},
          make("span", { class: isWord ? "wi-name hw-word" : "wi-name", dir: "auto" }, label),
          make(
            "span",
            { class: "wi-lines" },
            bar("before", before),
            ...(changed ? [bar("after", after)] : []),
            ...(changed && draws.length ? [range(draws)] : []),
          ),
        ),
      ),
    );
    this.remarks.replaceChildren(...remarks.map((remark) => make("p", {}, remark)));
  }
}
