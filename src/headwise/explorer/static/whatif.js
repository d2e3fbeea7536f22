// @ts-check
/** The panel of changes: heads silenced or scaled, and what the model then says. */

/** @import {ModelAnswer, Prediction, Similarity, WhatIfAnswer} from "./types.js" */

import * as api from "./api.js";
import { Grid } from "./grid.js";
import { make } from "./head_view.js";
import * as state from "./state.js";

const $ = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));

/** A table that may be too wide, and is then scrolled by keys, too. */
const SCROLLED = {
  class: "scroll",
  tabindex: 0,
  role: "group",
  "aria-label": "What the model says",
};

/** @param {number} count */
const heads = (count) => `${count} ${count === 1 ? "head" : "heads"}`;

export class WhatIfPanel {
  /** @param {ModelAnswer} about @param {{fail: (error: any) => void, say: (text: string) => void}} page */
  constructor(about, page) {
    this.about = about;
    this.page = page;
    this.grid = new Grid($("switches"), about.layers, { press: (name) => this.press(name) });
    this.chosen = "";
    this.said = this.text = /** @type {string} */ ("");
    const isSimilar = about.kind === "similarity";
    $("sentences").hidden = $("sentences-label").hidden = !isSimilar;
    $("sentences").addEventListener("change", () => this.run());
    $("factor").addEventListener("input", () => this.scale(Number($("factor").value)));
    $("reset").addEventListener("click", () => state.set({ off: "" }));
    $("keep").addEventListener("click", () => this.keep());
  }

  /** Heads that are not as they were: L3H1, or L3H1*0.5. @returns {Map<string, number>} */
  factors() {
    const parts = state
      .get("off")
      .split(",")
      .filter(Boolean)
      .map((one) => one.split("*"));
    return new Map(
      parts
        .filter(([name]) => this.grid.squares.has(name))
        .map(([name, factor]) => [
          name,
          factor === undefined ? 0 : Math.max(0, Math.min(2, Number(factor) || 0)),
        ]),
    );
  }

  /** @param {Map<string, number>} factors */
  put(factors) {
    state.set({
      off: [...factors]
        .filter(([, factor]) => factor !== 1)
        .map(([name, factor]) => (factor === 0 ? name : `${name}*${factor}`))
        .join(","),
    });
  }

  /** @param {string} name */
  press(name) {
    this.chosen = name;
    const factors = this.factors();
    factors.set(name, factors.get(name) === 0 ? 1 : 0);
    this.put(factors);
    this.slider();
  }

  slider() {
    const factor = this.factors().get(this.chosen) ?? 1;
    $("scaled").textContent = this.chosen || "the chosen head (press a head first)";
    $("factor").disabled = !this.chosen;
    $("factor").value = String(factor);
    $("factor-said").textContent = factor.toFixed(2);
  }

  /** @param {number} factor */
  scale(factor) {
    if (!this.chosen) return;
    const factors = this.factors();
    factors.set(this.chosen, factor);
    $("factor-said").textContent = factor.toFixed(2);
    this.put(factors);
  }

  /** A new text was read. @param {unknown} _ @param {string} text */
  read(_, text) {
    this.text = text;
    const others = $("sentences").value
      ? $("sentences").value.split("\n").slice(1)
      : this.about.other_texts;
    $("sentences").value = [text.replace(/\s+/g, " "), ...others].join("\n");
    this.said = "";
  }

  show() {
    this.chosen ||= [...this.factors().keys()].at(-1) ?? "";
    this.grid.factors(this.factors());
    this.grid.choose(this.chosen);
    this.slider();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), 40);
  }

  async run() {
    if (!this.text) return; // nothing is read yet
    const lines =
      this.about.kind === "similarity"
        ? $("sentences")
            .value.split("\n")
            .map((/** @type {string} */ one) => one.trim())
            .filter(Boolean)
        : [this.text];
    const texts = lines.slice(0, this.about.max_texts);
    const left =
      lines.length > texts.length
        ? [`The first ${texts.length} of ${lines.length} sentences are compared.`]
        : [];
    const body = { texts, gates: Object.fromEntries(this.factors()) };
    const wanted = JSON.stringify(body);
    if (wanted === this.said || !texts.length) return;
    this.said = wanted;
    this.asking?.abort();
    const mine = (this.asking = new AbortController()),
      outcome = $("outcome");
    outcome.setAttribute("aria-busy", "true");
    if (!outcome.firstChild) outcome.append(make("p", { class: "hint" }, "Working \u2026"));
    try {
      const found = await api.post("/api/whatif", body, mine.signal);
      outcome.replaceChildren(
        ...[...left, ...found.remarks].map((one) => make("p", { class: "hint" }, one)),
        ...(found.similarity ? [this.similarity(found.similarity)] : []),
        ...(found.prediction ? [this.prediction(found.prediction)] : []),
      );
      $("saved").textContent = this.savings(found);
      document.body.dataset.outcome = String(found.heads_off);
    } catch (error) {
      if (mine.signal.aborted) return;
      this.said = "";
      outcome.replaceChildren(); // it would be that of other texts
      this.page.fail(error);
    } finally {
      if (this.asking === mine) outcome.removeAttribute("aria-busy");
    }
  }

  /** What cutting the heads that are off would save. @param {WhatIfAnswer} found */
  savings(found) {
    const scaled = this.scaled(),
      one = found.heads_off === 1;
    if (!found.heads_off)
      return scaled
        ? `${heads(scaled)} scaled, none off: nothing would be cut.`
        : "Press a head to begin.";
    if (found.savings.cannot_cut)
      return `${heads(found.heads_off)} off. ${one ? "It cannot be cut as it is" : "They cannot be cut as they are"}: ${found.savings.cannot_cut}.`;
    const share = ((100 * found.savings.saved) / found.savings.parameters).toFixed(2);
    return `${heads(found.heads_off)} off. Cutting ${one ? "it" : "them"} would save ${found.savings.saved.toLocaleString("en")} parameters (${share}%).`;
  }

  /** How many heads are turned up or down, and not off. */
  scaled() {
    return [...this.factors().values()].filter((factor) => factor !== 0 && factor !== 1).length;
  }

  /** @param {Prediction} found */
  prediction(found) {
    const top = Math.max(...found.before, ...found.after);
    const bar = (/** @type {number} */ value, /** @type {string} */ kind) =>
      make(
        "svg",
        { class: "bars", viewBox: "0 0 200 12", "aria-hidden": "true" },
        make("rect", {
          class: kind,
          x: 0,
          y: 1,
          height: 10,
          width: ((198 * value) / top).toFixed(1),
        }),
      );
    const percent = (/** @type {number} */ value) =>
      `${(100 * value).toFixed(value < 0.001 ? 3 : 1)}%`;
    return make(
      "div",
      SCROLLED,
      make(
        "table",
        { class: "predicted" },
        make(
          "caption",
          {},
          `${found.title}; ${
            found.divergence < 5e-5
              ? "the two models say the same"
              : `the two models are ${found.divergence.toFixed(4)} nats apart (KL)`
          }`,
        ),
        make(
          "tr",
          {},
          ...[found.noun, "untouched", "", "changed", ""].map((one) =>
            make("th", { scope: "col" }, one),
          ),
        ),
        ...found.names.map((/** @type {string} */ name, /** @type {number} */ at) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, name),
            make("td", { class: "number" }, percent(found.before[at])),
            make("td", {}, bar(found.before[at], "bar-rect")),
            make("td", { class: "number" }, percent(found.after[at])),
            make("td", {}, bar(found.after[at], "bar-rect other")),
          ),
        ),
      ),
    );
  }

  /** @param {Similarity} found */
  similarity(found) {
    const isMoved = found.after.some((/** @type {number[]} */ row, /** @type {number} */ at) =>
      row.some((value, other) => Math.abs(value - found.before[at][other]) >= 0.0005),
    );
    const table = (/** @type {number[][]} */ matrix, /** @type {string} */ words) =>
      make(
        "table",
        { class: "matrix" },
        make("caption", {}, words),
        make(
          "tr",
          {},
          make("td", {}),
          ...matrix.map((_, at) => make("th", { scope: "col" }, String(at + 1))),
        ),
        ...matrix.map((row, at) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, String(at + 1)),
            ...row.map((value, other) => {
              const moved = value - found.before[at][other],
                change = `${moved > 0 ? "+" : "\u2212"}${Math.abs(moved).toFixed(3)}`;
              return make(
                "td",
                {},
                value.toFixed(3),
                ...(isMoved
                  ? [make("small", {}, Math.abs(moved) >= 0.0005 ? change : "\u00a0")]
                  : []),
              ); // both tables are as high
            }),
          ),
        ),
      );
    const kept = found.kept
      .map((/** @type {number} */ one, /** @type {number} */ at) => `${at + 1}: ${one.toFixed(3)}`)
      .join(", ");
    return make(
      "div",
      SCROLLED,
      make("h3", {}, "How alike the sentences are (cosine)"),
      make(
        "div",
        { class: "matrices" },
        table(found.before, "Untouched"),
        table(found.after, "Changed"),
      ),
      make("p", { class: "hint" }, `Each sentence beside its own untouched embedding: ${kept}.`),
    );
  }

  async keep() {
    const off = [...this.factors()].filter(([, factor]) => factor === 0).map(([name]) => name),
      scaled = this.scaled();
    if (!off.length) return this.page.say("No head is off yet: press some first.");
    try {
      const answer = await api.posted("/api/cutplan", { heads: off });
      api.save(await answer.blob(), "plan.json");
      const left = scaled
        ? ` ${heads(scaled)} scaled, not off, and left out: a plan only says which heads go.`
        : "";
      const named = this.about.loads_as,
        how = named
          ? `headwise prune ${named} --plan plan.json --out smaller`
          : 'headwise.cut(model, headwise.CutPlan.read("plan.json").heads) in Python';
      $("saved").textContent =
        `Saved plan.json with ${heads(off.length)}.${left} Cut ${off.length === 1 ? "it" : "them"} with: ${how}`;
    } catch (error) {
      this.page.fail(error);
    }
  }
}
