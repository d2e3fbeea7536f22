// @ts-check
/** "About this head": distances, output, measures in groups, and the evidence for its roles. */

/** @import {Contribution, HeadAnswer, MeasureValue, ModelAnswer, Profile} from "../types.js" */

import { make, svg } from "./dom.js";
import { chip } from "./legend.js";
import { percent } from "./numbers.js";
import { distance } from "./sentences.js";

const ALL = "All columns";

/**
 * A number with three decimals up to 1, two up to 1000 and none beyond.
 * @param {number} value
 */
export function format(value) {
  const size = Math.abs(value);
  if (size < 0.0005) return value > 0 ? "<0.001" : value < 0 ? "\u2212<0.001" : "0";
  return value.toFixed(size < 1.0005 ? 3 : size < 1000 ? 2 : 0);
}

export class HeadFacts {
  /**
   * @param {HTMLElement} el
   * @param {{ask: () => Promise<HeadAnswer>, failed: (error: unknown) => void}} on
   */
  constructor(el, on) {
    this.on = on;
    this.summary = make("summary", {}, "About this head");
    this.body = make("div", { class: "hv-facts-body" });
    this.details = make("details", { class: "hv-facts" }, this.summary, this.body);
    this.details.addEventListener("toggle", () => this.fetch());
    el.append(this.details);
    /** Text and head of the answer that is shown or awaited. */
    this.key = "";
    this.asked = "";
  }

  /** @param {string} key text and head @param {string} head @param {ModelAnswer} about
   * @param {"light" | "dark"} theme */
  show(key, head, about, theme) {
    this.summary.textContent = `About ${head}`;
    this.about = about;
    this.theme = theme;
    this.key = key;
    this.fetch();
  }

  /** Ask for the facts once the element is open: one request per head. */
  async fetch() {
    if (!this.details.open || this.asked === this.key || !this.key) return;
    const mine = (this.asked = this.key);
    this.body.setAttribute("aria-busy", "true");
    try {
      const answer = await this.on.ask();
      if (mine === this.asked) this.draw(answer);
    } catch (error) {
      if (mine !== this.asked) return;
      this.asked = "";
      this.on.failed(error);
    }
  }

  /** @param {HeadAnswer} answer */
  draw(answer) {
    this.body.removeAttribute("aria-busy");
    const served = answer.served_by;
    const shared =
      served &&
      `It shares keys and values: it reads KV head ${served.kv_head} of ${served.kv_heads}.`;
    this.body.replaceChildren(
      make(
        "div",
        {},
        ...(shared ? [make("p", {}, shared)] : []),
        part("How far it looks", profile(answer.profile)),
        part("What it adds to its layer", contribution(answer.contribution)),
      ),
      part("Evidence for roles", this.evidence(answer)),
      part("Measures on this text", this.measures(answer.measures)),
    );
  }

  /** @param {HeadAnswer} answer */
  evidence(answer) {
    const number = (/** @type {number | null} */ value) =>
      make("td", { class: "hv-number" }, value === null ? "" : format(value));
    const from = answer.is_scanned
      ? "From built-in text and sentences of known grammar."
      : "From this text only: Find roles reads more.";
    const titles = ["Role", "Held", "Score", "Needed", "By chance"].map((title, at) =>
      make("th", { scope: "col", class: at < 2 ? null : "hv-number" }, title),
    );
    const rows = answer.roles.map((role) =>
      make(
        "tr",
        { title: role.meaning },
        make(
          "th",
          { scope: "row" },
          chip(this.about?.roles[role.role] ?? null, this.theme ?? "light"),
          ` ${role.role} `,
          make("small", {}, role.detail),
        ),
        make("td", {}, role.is_held ? "yes" : "no"),
        number(role.score),
        number(role.threshold),
        number(role.baseline),
      ),
    );
    return make(
      "div",
      { class: "hv-scroll", tabindex: 0, role: "group", "aria-label": "Evidence for roles" },
      make("table", {}, make("caption", {}, from), make("tr", {}, ...titles), ...rows),
    );
  }

  /** Measures by group, by their meaning; raw names are behind "All columns".
   * @param {MeasureValue[]} measures */
  measures(measures) {
    const groups = this.about?.measure_groups ?? {};
    /** @type {Record<string, string>} */
    const words = { ...this.about?.measures };
    for (const names of Object.values(this.about?.job_measures ?? {})) Object.assign(words, names);
    const known = new Map(measures.map((measure) => [measure.name, measure]));
    const lists = Object.entries(groups).flatMap(([group, names]) => {
      const shown = names.flatMap((name) => known.get(name) ?? []);
      if (!shown.length) return [];
      const rows = shown.map(({ name, value, meaning }) =>
        make(
          "tr",
          { title: meaning },
          make("th", { scope: "row" }, words[name] ?? meaning),
          make("td", { class: "hv-number" }, format(value)),
        ),
      );
      return [make("table", {}, make("caption", {}, group), ...rows)];
    });
    const raw = measures.map(({ name, value, meaning }) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, make("code", {}, name), " ", make("small", {}, meaning)),
        make("td", { class: "hv-number" }, format(value)),
      ),
    );
    const all = make("details", {}, make("summary", {}, ALL), make("table", {}, ...raw));
    return make("div", {}, ...lists, all);
  }
}

/** @param {string} title @param {Node} body */
const part = (title, body) => make("section", {}, make("h3", {}, title), body);

/** Mean weight by distance, as bars. @param {Profile} profile */
function profile({ offsets, means }) {
  const top = Math.max(...means, 0.01);
  const wide = 600 / Math.max(1, means.length);
  const best = means.indexOf(Math.max(...means));
  const most =
    `Each bar: the mean share at a distance, over the tokens that have one there. Highest is ` +
    `${distance(offsets[best] ?? 0, "token")}, ${percent(means[best] ?? 0)}.`;
  const bars = means.map((mean, at) =>
    svg(
      "rect",
      {
        x: (at * wide + 1).toFixed(1),
        width: Math.max(1, wide - 2).toFixed(1),
        y: (70 - (66 * mean) / top).toFixed(1),
        height: ((66 * mean) / top).toFixed(1),
      },
      svg("title", {}, `${distance(offsets[at], "token")}: ${percent(mean)}`),
    ),
  );
  const labels = offsets.flatMap((offset, at) => {
    if (offset % 4 && offsets.length > 9) return [];
    const words = `${offset > 0 ? "+" : offset < 0 ? "\u2212" : ""}${Math.abs(offset)}`;
    return [
      svg("text", { x: ((at + 0.5) * wide).toFixed(1), y: 88, "text-anchor": "middle" }, words),
    ];
  });
  return make(
    "div",
    {},
    make("p", {}, most),
    svg(
      "svg",
      { class: "hv-chart", viewBox: "0 0 600 94", role: "img", "aria-label": most },
      svg("line", { x1: 0, x2: 600, y1: 70, y2: 70 }),
      ...bars,
      ...labels,
    ),
  );
}

/** @param {Contribution | null} contribution */
function contribution(contribution) {
  if (!contribution) return make("p", {}, "The output projection of this model is not known.");
  const mean = (/** @type {number[]} */ values) =>
    (values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length)).toFixed(2);
  const { before, after, mean_share, equal_share } = contribution;
  return make(
    "p",
    {},
    `${percent(mean_share)} of its layer\u2019s output; an equal share would be ` +
      `${percent(equal_share)}. The mean length of its part is ${mean(before)} before the output ` +
      `projection Wo and ${mean(after)} after it.`,
  );
}
