// @ts-check
/** The What if panel: heads silenced or scaled, and the model's output with them. */

/** @import {ModelAnswer, Prediction, Similarity, WhatIfAnswer} from "./types.js" */
/** @import {Page} from "./page.js" */

import * as api from "./api.js";
import { Grid } from "./grid.js";
import { make } from "./head_view.js";
import { byId } from "./page.js";
import * as state from "./state.js";

/** Attributes of a table that may be too wide; keys can scroll it, too. */
const SCROLLED = {
  class: "scroll",
  tabindex: 0,
  role: "group",
  "aria-label": "What the model says",
};

/** @param {number} count */
const heads = (count) => `${count} ${count === 1 ? "head" : "heads"}`;

export class WhatIfPanel {
  /** @param {ModelAnswer} about @param {Page} page */
  constructor(about, page) {
    this.about = about;
    this.page = page;
    this.sentences = byId("sentences", HTMLTextAreaElement);
    this.factor = byId("factor", HTMLInputElement);
    this.factorText = byId("factor-said", HTMLOutputElement);
    this.outcome = byId("outcome", HTMLElement);
    this.saved = byId("saved", HTMLElement);
    const press = (/** @type {string} */ name) => this.press(name);
    this.grid = new Grid(byId("switches", HTMLElement), about.layers, { press });
    this.chosen = this.text = /** @type {string} */ ("");
    /** The request whose answer is shown or awaited. */
    this.sent = "";
    this.sentences.hidden = about.kind !== "similarity";
    byId("sentences-label", HTMLElement).hidden = this.sentences.hidden;
    this.sentences.addEventListener("change", () => this.run());
    this.factor.addEventListener("input", () => this.scale(Number(this.factor.value)));
    byId("reset", HTMLElement).addEventListener("click", () => state.set({ off: "" }));
    byId("keep", HTMLElement).addEventListener("click", () => this.keep());
  }

  /** Factors of changed heads, from L3H1 (silenced) or L3H1*0.5. @returns {Map<string, number>} */
  factors() {
    const parts = state
      .get("off")
      .split(",")
      .filter(Boolean)
      .map((part) => part.split("*"));
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
    byId("scaled", HTMLElement).textContent = this.chosen || "the chosen head (press a head first)";
    this.factor.disabled = !this.chosen;
    this.factor.value = String(factor);
    this.factorText.textContent = factor.toFixed(2);
  }

  /** @param {number} factor */
  scale(factor) {
    if (!this.chosen) return;
    const factors = this.factors();
    factors.set(this.chosen, factor);
    this.factorText.textContent = factor.toFixed(2);
    this.put(factors);
  }

  /** A new text was read. @param {unknown} _ @param {string} text */
  read(_, text) {
    this.text = text;
    const { value } = this.sentences;
    const others = value ? value.split("\n").slice(1) : this.about.other_texts;
    this.sentences.value = [text.replace(/\s+/g, " "), ...others].join("\n");
    this.sent = "";
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
    if (!this.text) return; // no text has been read yet
    const lines =
      this.about.kind === "similarity"
        ? this.sentences.value
            .split("\n")
            .map((line) => line.trim())
            .filter(Boolean)
        : [this.text];
    const texts = lines.slice(0, this.about.max_texts);
    const left =
      lines.length > texts.length
        ? [`The first ${texts.length} of ${lines.length} sentences are compared.`]
        : [];
    const body = { texts, gates: Object.fromEntries(this.factors()) };
    const request = JSON.stringify(body);
    if (request === this.sent || !texts.length) return;
    this.sent = request;
    this.asking?.abort();
    const mine = (this.asking = new AbortController()),
      { outcome } = this;
    outcome.setAttribute("aria-busy", "true");
    if (!outcome.firstChild) outcome.append(make("p", { class: "hint" }, "Working \u2026"));
    try {
      const answer = /** @type {WhatIfAnswer} */ (await api.post("/api/whatif", body, mine.signal));
      outcome.replaceChildren(
        ...[...left, ...answer.remarks].map((remark) => make("p", { class: "hint" }, remark)),
        ...(answer.similarity ? [this.similarity(answer.similarity)] : []),
        ...(answer.prediction ? [this.prediction(answer.prediction)] : []),
      );
      this.saved.textContent = this.savings(answer);
      document.body.dataset.outcome = String(answer.heads_off);
    } catch (error) {
      if (mine.signal.aborted) return;
      this.sent = "";
      outcome.replaceChildren(); // the last outcome may be for other texts
      this.page.fail(error);
    } finally {
      if (this.asking === mine) outcome.removeAttribute("aria-busy");
    }
  }

  /** Sentence on the savings if the silenced heads were cut. @param {WhatIfAnswer} answer */
  savings({ heads_off: off, savings }) {
    const scaled = this.scaled();
    if (!off)
      return scaled
        ? `${heads(scaled)} scaled, none off: nothing would be cut.`
        : "Press a head to begin.";
    if (savings.cannot_cut) {
      const they = off === 1 ? "It cannot be cut as it is" : "They cannot be cut as they are";
      return `${heads(off)} off. ${they}: ${savings.cannot_cut}.`;
    }
    const share = ((100 * savings.saved) / savings.parameters).toFixed(2);
    const parameters = `${savings.saved.toLocaleString("en")} parameters (${share}%)`;
    return `${heads(off)} off. Cutting ${off === 1 ? "it" : "them"} would save ${parameters}.`;
  }

  /** Number of heads that are scaled but not silenced. */
  scaled() {
    return [...this.factors().values()].filter((factor) => factor !== 0 && factor !== 1).length;
  }

  /** @param {Prediction} prediction */
  prediction({ noun, title, names, before, after, divergence }) {
    const isSame = divergence < 5e-5,
      distance = `are ${divergence.toFixed(4)} nats apart (KL)`,
      top = Math.max(...before, ...after);
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
        make("caption", {}, `${title}; the two models ${isSame ? "say the same" : distance}`),
        make(
          "tr",
          {},
          ...[noun, "untouched", "", "changed", ""].map((heading) =>
            make("th", { scope: "col" }, heading),
          ),
        ),
        ...names.map((name, at) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, name),
            make("td", { class: "number" }, percent(before[at])),
            make("td", {}, bar(before[at], "bar-rect")),
            make("td", { class: "number" }, percent(after[at])),
            make("td", {}, bar(after[at], "bar-rect other")),
          ),
        ),
      ),
    );
  }

  /** @param {Similarity} similarity */
  similarity({ before, after, kept }) {
    const isMoved = after.some((row, at) =>
      row.some((value, other) => Math.abs(value - before[at][other]) >= 0.0005),
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
              const moved = value - before[at][other],
                change = `${moved > 0 ? "+" : "\u2212"}${Math.abs(moved).toFixed(3)}`;
              return make(
                "td",
                {},
                value.toFixed(3),
                ...(isMoved
                  ? [make("small", {}, Math.abs(moved) >= 0.0005 ? change : "\u00a0")]
                  : []),
              ); // so both tables are equally high
            }),
          ),
        ),
      );
    const cosines = kept.map((cosine, at) => `${at + 1}: ${cosine.toFixed(3)}`).join(", ");
    return make(
      "div",
      SCROLLED,
      make("h3", {}, "How alike the sentences are (cosine)"),
      make("div", { class: "matrices" }, table(before, "Untouched"), table(after, "Changed")),
      make("p", { class: "hint" }, `Each sentence beside its own untouched embedding: ${cosines}.`),
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
      const model = this.about.loads_as,
        how = model
          ? `headwise prune ${model} --plan plan.json --out smaller`
          : 'headwise.cut(model, headwise.CutPlan.read("plan.json").heads) in Python';
      const them = off.length === 1 ? "it" : "them";
      const saved = `Saved plan.json with ${heads(off.length)}.`;
      this.saved.textContent = `${saved}${left} Cut ${them} with: ${how}`;
    } catch (error) {
      this.page.fail(error);
    }
  }
}
