// @ts-check
/** The pair: how a swap moves the attention of a word, in every head. */

/** @import {RoleFacts, StageWord} from "../types.js" */
/** @import {TextData} from "./data.js" */
/** @import {Moves, Word} from "./sentences.js" */

import { make } from "./dom.js";
import { chip } from "./legend.js";
import { percent, points, rounded } from "./numbers.js";
import { fill } from "./sentences.js";
import { wordName } from "./word_names.js";

/** A pair of indices; null for a word without a partner. @typedef {(number | null)[]} Match */

/** Number of heads in the ranking, and of changes named beside each. */
const RANKED = 12,
  NAMED = 2;
const NONE = "In every head, less than 1% of its attention goes elsewhere.";
const NONE_EARLIER =
  "This model reads from left to right: only words from the swapped one on change.";
/** Smallest change, in points, that is named. */
const LEAST = 3;

/**
 * Change of each column's share, by the alignment.
 * @param {ArrayLike<number>} before @param {ArrayLike<number>} after @param {Match[]} aligned
 */
export function changes(before, after, aligned) {
  return aligned.map(([from, to]) => ({
    from,
    to,
    before: from === null ? 0 : before[from],
    after: to === null ? 0 : after[to],
  }));
}

/**
 * Share of a row that goes elsewhere: the total variation distance of the aligned rows, 0 to 1.
 * @param {{before: number, after: number}[]} moved
 */
export const moved = (moved) =>
  moved.reduce((sum, { before, after }) => sum + Math.abs(after - before), 0) / 2;

/**
 * A column's word; both, if the swap changed it.
 * @param {Match} match @param {StageWord[]} first @param {StageWord[]} second
 */
function nameOf([from, to], first, second) {
  const one = from === null ? null : wordName(first, from),
    other = to === null ? null : wordName(second, to);
  if (one === null || other === null) return one ?? other ?? "";
  return one === other ? one : `${one}/${other}`;
}

/**
 * What the headline of a pair says.
 * @param {object} pair
 * @param {ArrayLike<number>} pair.before @param {ArrayLike<number>} pair.after
 * @param {Match[]} pair.aligned @param {StageWord[]} pair.first @param {StageWord[]} pair.second
 * @param {boolean[]} pair.rests  resting places among the first sentence's columns
 * @param {Word} pair.source @param {(column: number | null) => string} pair.colour
 * @returns {Moves}
 */
export function movesOf({ before, after, aligned, first, second, rests, source, colour }) {
  const all = changes(before, after, aligned).map((change) => ({
    ...change,
    points: rounded(change.after - change.before),
    word: {
      word: nameOf([change.from, change.to], first, second),
      colour: colour(change.from),
    },
    isResting: change.from !== null && rests[change.from],
  }));
  const size = (/** @type {{points: number}} */ change) => Math.abs(change.points);
  const large = all.filter((change) => size(change) >= LEAST);
  large.sort((one, other) => size(other) - size(one));
  // A change of a word is the story; a resting place gains or loses what the words do not keep.
  const most = large.find(({ isResting }) => !isResting) ?? large[0] ?? null;
  const swapped = aligned.find(
    ([from, to]) => to !== null && (from === null || first[from].text !== second[to].text),
  );
  return {
    source,
    swapped: swapped ? { word: second[swapped[1] ?? 0].text, colour: "" } : null,
    most: most && { word: most.word, before: most.before, after: most.after },
    others: most
      ? large.filter((change) => Math.sign(change.points) === -Math.sign(most.points))
      : [],
  };
}

/**
 * @typedef {object} Ranked
 * @property {string} head @property {number} share
 * @property {string} words  the largest changes
 */

/**
 * Heads by how much of the word's attention the swap moves, most first.
 * @param {string[]} heads @param {TextData} one @param {TextData} other
 * @param {Match[]} aligned @param {number} at @param {number} partner
 * @returns {Ranked[]}
 */
export function rankHeads(heads, one, other, aligned, at, partner) {
  /** @type {Ranked[]} */
  const ranked = [];
  for (const head of heads) {
    const before = one.line(head, at, false),
      after = other.line(head, partner, false);
    if (!before || !after || before.length !== one.columns(heads[0]).length) continue;
    const all = changes(before, after, aligned);
    const first = one.columns(head),
      second = other.columns(head);
    const largest = [...all]
      .sort((a, b) => Math.abs(b.after - b.before) - Math.abs(a.after - a.before))
      .slice(0, NAMED)
      .filter((change) => rounded(Math.abs(change.after - change.before)) > 0)
      .map(
        (change) =>
          `${nameOf([change.from, change.to], first, second)} ` +
          points(change.after - change.before),
      );
    ranked.push({ head, share: moved(all), words: largest.join(", ") });
  }
  return ranked.sort((a, b) => b.share - a.share);
}

/**
 * @typedef {object} RankingPicture
 * @property {Ranked[]} ranked @property {Word} source @property {number} count  all heads
 * @property {string[]} chosen @property {Record<string, RoleFacts>} facts
 * @property {(head: string) => string | null} role @property {(head: string) => string} colour
 * @property {"light" | "dark"} theme @property {boolean} isCausal
 */

export class Ranking {
  /** @param {HTMLElement} el @param {(head: string, isAdded: boolean) => void} choose */
  constructor(el, choose) {
    this.choose = choose;
    this.title = make("h2", {});
    this.list = make("ol", { class: "hv-ranking" });
    this.none = make("p", { class: "hv-quiet", hidden: true });
    el.append(this.title, this.none, this.list);
    this.shown = "";
  }

  /** @param {RankingPicture} picture */
  show(picture) {
    const { ranked, source, count, chosen, facts, theme, isCausal } = picture;
    const key = JSON.stringify([ranked.slice(0, RANKED), source, chosen, theme]);
    if (key === this.shown) return;
    this.shown = key;
    const focused = this.list.querySelector(":focus")?.getAttribute("data-head");
    const grey = make("span", {});
    const shown = Math.min(RANKED, ranked.length);
    const which = shown < count ? `the ${shown} of ${count} heads that change most` : "all heads";
    const [first] = ranked;
    const gist = first && `in ${first.head}, ${percent(first.share)} of its attention`;
    grey.textContent = first ? `${which}: ${gist} goes elsewhere than before` : "";
    fill(this.title, ["Where the swap moves ", { ...source, colour: "" }, " most "]);
    this.title.append(grey);
    const largest = ranked[0]?.share ?? 0;
    this.none.hidden = rounded(largest) > 0;
    this.list.hidden = !this.none.hidden;
    if (!this.none.hidden) {
      fill(this.title, ["The swap moves ", { ...source, colour: "" }, " in no head"]);
      this.none.textContent = isCausal ? NONE_EARLIER : NONE;
    }
    const top = Math.max(0.01, largest) * 1.1;
    const items = ranked.slice(0, RANKED).map(({ head, share, words }) => {
      const role = picture.role(head);
      const bar = make("span", { class: "hv-moved", "aria-hidden": "true" }, make("span", {}));
      const inner = /** @type {HTMLElement} */ (bar.firstElementChild);
      inner.style.width = `${(100 * share) / top}%`;
      inner.style.background = picture.colour(head);
      const button = make(
        "button",
        {
          type: "button",
          "data-head": head,
          class: chosen.includes(head) ? "hv-chosen" : null,
          "aria-label": `${head}, ${percent(share)} goes elsewhere: ${words}`,
        },
        chip(role ? facts[role] : null, theme),
        make("span", { class: "hv-ranked" }, head),
        bar,
        make("span", { class: "hv-number" }, percent(share)),
        make("span", { class: "hv-changes" }, words),
      );
      button.addEventListener("click", (event) => this.choose(head, event.shiftKey));
      return make("li", {}, button);
    });
    this.list.replaceChildren(...items);
    if (focused)
      /** @type {HTMLElement | null} */ (
        this.list.querySelector(`[data-head="${focused}"]`)
      )?.focus();
  }
}
