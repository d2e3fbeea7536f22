// @ts-check
/** Two lists of findings, never mixed: in this sentence, and in other text. */

/** @import {Finding, ModelAnswer, StageWord, TextAnswer} from "../types.js" */
/** @import {Part} from "./sentences.js" */

import { make } from "./dom.js";
import { withWord } from "./editing.js";
import { axisOf, stackOf } from "./host.js";
import { chip } from "./legend.js";
import { percent } from "./numbers.js";
import { distance, fill, many, plain, UNKNOWN } from "./sentences.js";
import { wordName } from "./word_names.js";

/** The longest clause, in words, that a swap is told in. */
const CLAUSE = 6;

/**
 * The sentence of a finding.
 * @param {Finding} finding @param {TextAnswer | null} text @param {string} colour
 * @param {number} all
 * @returns {Part[]}
 */
export function findingParts(finding, text, colour, all) {
  const { kind, head, count } = finding;
  const words = text ? axisOf(text, head ? stackOf(head) : "", true).axis : null;
  const at = (/** @type {number | null} */ index, /** @type {StageWord[] | undefined} */ list) => ({
    word: wordName(list ?? [], index ?? -1),
    colour,
  });
  if (kind === "link") {
    const columns = words?.columns ?? words?.rows;
    return [`${head} links `, at(finding.source, words?.rows), " to ", at(finding.target, columns)];
  }
  if (kind === "swap") return swapParts(finding, words?.rows ?? [], text?.start.source ?? null);
  if (kind === "offset") return [`${head} looks ${distance(count ?? 0, "word")}`];
  if (kind === "sink") return [`${head} rests on ${finding.word ?? "the first token"}`];
  return [`${count} of ${many(all, "head")} have no clear role`];
}

/**
 * "What if it was too wide?", if the clause from the chosen word to the new one is short.
 * @param {Finding} finding @param {StageWord[]} rows @param {number | null} source
 * @returns {Part[]}
 */
function swapParts({ text, word }, rows, source) {
  const swapped = { word: word ?? "", colour: "" };
  const place = rows.findIndex((_, at) => withWord(rows, at, word ?? "") === text);
  const target = place < 0 ? null : place;
  if (source !== null && target !== null && source < target && target - source < CLAUSE) {
    const clause = rows.slice(source, target).map(({ text }) => text);
    return [`What if ${clause.join(" ")} `, swapped, "?"];
  }
  if (target !== null && rows[target])
    return ["What if ", { word: rows[target].text, colour: "" }, " were ", swapped, "?"];
  return ["What if the word were ", swapped, "?"];
}

/** Findings without those that read like an earlier one. @param {TextAnswer | null} text */
function different(text) {
  const seen = new Set();
  return (text?.findings ?? []).filter((finding) => {
    const words = plain(findingParts(finding, text, "", 0));
    return !seen.has(words) && seen.add(words);
  });
}

/**
 * @typedef {object} FindingsPicture
 * @property {ModelAnswer} about @property {TextAnswer | null} text
 * @property {"light" | "dark"} theme @property {(finding: Finding) => boolean} isChosen
 * @property {boolean} canScan @property {string} scanning  progress of the scan, or ""
 */

export class Findings {
  /**
   * @param {HTMLElement} el
   * @param {{choose: (finding: Finding) => void, scan: () => void}} on
   */
  constructor(el, on) {
    this.on = on;
    el.classList.add("hv-findings");
    this.here = make("section", { class: "hv-list", "aria-label": "In this sentence" });
    this.everywhere = make("section", { class: "hv-list", "aria-label": "In other text" });
    el.append(this.here, this.everywhere);
    /** @type {[Finding, HTMLElement][]} */
    this.buttons = [];
    this.shown = "";
  }

  /** @param {FindingsPicture} picture */
  show(picture) {
    const { about, text, theme, isChosen, canScan, scanning } = picture;
    const key = JSON.stringify([text?.name, text?.findings, about.scan?.findings, theme, canScan]);
    if (key !== this.shown) {
      this.buttons = [];
      const here = different(text).map((finding) => this.item(finding, picture));
      const title = make("h2", {}, "In this sentence");
      const none = text?.is_unknown ? UNKNOWN : "No link of this sentence stands out.";
      this.here.replaceChildren(
        title,
        here.length ? make("ul", {}, ...here) : make("p", { class: "hv-quiet" }, none),
      );
      this.everywhere.replaceChildren(...this.anyText(picture));
    }
    this.shown = key;
    const scan = this.everywhere.querySelector("button.hv-job");
    if (scan) scan.textContent = scanning || "Find roles";
    for (const [finding, button] of this.buttons) {
      const chosen = isChosen(finding);
      button.classList.toggle("hv-chosen", chosen);
      if (chosen) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
  }

  /** @param {FindingsPicture} picture */
  anyText(picture) {
    const { scan } = picture.about;
    const title = make("h2", {}, "In other text");
    if (scan) {
      if (scan.tokens) title.textContent = `On ${many(scan.tokens, "token")} of other text`;
      const items = scan.findings.map((finding) => this.item(finding, picture));
      return [title, make("ul", {}, ...items)];
    }
    const why = "Roles are found by reading built-in text and sentences of known grammar.";
    const button = make("button", { type: "button", class: "hv-button hv-job" }, "Find roles");
    button.addEventListener("click", () => this.on.scan());
    const left = "Roles were not measured when this file was saved.";
    const say = make("p", { class: "hv-quiet" }, picture.canScan ? why : left);
    return picture.canScan ? [title, say, button] : [title, say];
  }

  /** @param {Finding} finding @param {FindingsPicture} picture */
  item(finding, { about, text, theme }) {
    const facts = finding.role ? about.roles[finding.role] : null;
    const colour = facts ? facts[theme] : "";
    const all = about.layers.reduce((sum, { heads }) => sum + heads, 0);
    const parts = findingParts(finding, text, colour, all);
    const sentence = make("span", { class: "hv-finding" });
    fill(sentence, parts);
    const mark = chip(facts, theme);
    if (finding.kind === "swap") mark.textContent = "?";
    const end = make("b", {});
    if (finding.share !== null) {
      end.textContent = percent(finding.share);
      end.style.color = colour;
    } else if (finding.kind === "swap") end.textContent = "\u2192";
    if (finding.kind === "unclear")
      return make("li", {}, make("span", { class: "hv-row" }, mark, sentence, end));
    const share = finding.share === null ? "" : `, ${percent(finding.share)}`;
    const button = make(
      "button",
      { type: "button", class: "hv-row", "aria-label": `${plain(parts)}${share}` },
      mark,
      sentence,
      end,
    );
    button.addEventListener("click", () => this.on.choose(finding));
    this.buttons.push([finding, button]);
    return make("li", {}, button);
  }
}
