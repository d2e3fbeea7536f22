// @ts-check
/** The What if panel: heads switched off or scaled, and the model's answer before and after. */

/** @import {ModelAnswer, TextAnswer} from "../types.js" */
/** @import {Page} from "../page.js" */
/** @import {Side} from "./generated.js" */

import * as api from "../api.js";
import { TextData } from "../stage/data.js";
import { allHeads, chosenHeads, hasHead } from "../stage/frame.js";
import { Grid } from "../stage/grid.js";
import { gridShape } from "../stage/grid_shape.js";
import { Legend } from "../stage/legend.js";
import { Stage } from "../stage/stage.js";
import { Answers } from "./answers.js";
import { Bars } from "./bars.js";
import * as gates from "./gates.js";
import { Generated } from "./generated.js";
import { HeadFactor } from "./head_factor.js";
import { keptSentence } from "./keeping.js";
import { SentenceEditor } from "./sentence_editor.js";
import { SentenceList } from "./sentence_list.js";
import { build } from "./whatif_dom.js";
import { draw, drawStage } from "./whatif_draw.js";
import { switches } from "./whatif_picture.js";

/** Widths in px of the grid's labels and of its largest cells. */
const GRID_LABEL = 30,
  GRID_CELL = 43;

export class WhatIfPanel {
  /** @param {ModelAnswer} about @param {Page} page */
  constructor(about, page) {
    this.about = about;
    this.page = page;
    this.host = page.host;
    this.all = allHeads(about).length;
    const el = /** @type {HTMLElement} */ (document.getElementById("whatif"));
    this.parts = build(el);
    this.el = el;
    this.answers = new Answers(
      () => this.isIdle(),
      () => this.draw(),
      (error) => page.fail(error),
    );
    /** Weights of the text, and of a generated line. @type {TextData | null} */
    this.data = null;
    /** @type {TextData | null} */
    this.lineData = null;
    this.lineKey = "";
    this.textName = "";
    /** What the pointer is on. @type {{word: number | null, head: string | null}} */
    this.hovered = { word: null, head: null };
    /** A sentence on saved cuts, until something changes. */
    this.kept = "";
    this.editor = new SentenceEditor(el, this.parts, page);
    /** Waits until a headline is read out. */
    this.speaking = 0;
    const { parts, host } = this;
    this.stage = new Stage(parts.stage, {
      hover: (word) => this.point({ word }),
      lock: (word) => {
        const at = word === null ? "" : String(word);
        host.set({ word: at === host.get("word") ? "" : at }, "push");
      },
      go: (word) => host.set({ word: String(word) }, "replace"),
    });
    this.grid = new Grid(
      parts.grid,
      about.layers,
      {
        choose: (name) => host.set({ head: name }, "push"),
        hover: (name) => this.point({ head: name }),
        toggle: (names, isOff) => this.toggle(names, isOff),
      },
      "Heads to switch off",
    );
    this.legend = new Legend(parts.legend, (role) => host.set({ only: role ?? "" }, "push"));
    this.bars = new Bars(parts.bars);
    this.generated = new Generated(parts.generated, (side) =>
      host.set({ line: side, word: "" }, "push"),
    );
    this.factor = new HeadFactor(parts.factor, {
      scale: (factor, isDone) => this.scale(factor, isDone),
    });
    this.sentences = new SentenceList(parts.sentences, about.max_texts, {
      first: (text) => this.editor.readText(text),
      others: (texts) => host.set({ others: texts.join("\n") || "-" }, "push"),
    });
    this.connect();
  }

  connect() {
    const { parts, about, host } = this;
    const wide = (GRID_LABEL + GRID_CELL * gridShape(about.layers).across) / 16;
    this.el.style.setProperty("--wi-grid", `${Math.min(47.25, Math.max(34, wide))}rem`);
    parts.sentences.hidden = about.kind !== "similarity";
    parts.change.hidden = about.kind === "similarity"; // the list of sentences changes it
    parts.search.hidden = about.kind === "similarity";
    parts.search.addEventListener("click", () => this.search());
    parts.reset.addEventListener("click", () => host.set({ off: "", found: "", line: "" }, "push"));
    parts.generate.addEventListener("click", () => this.generate());
    parts.keep.addEventListener("click", () => this.keep());
    // Whatever the reader does next is more urgent than random heads.
    host.on((changed) => {
      if (!changed.has("theme")) this.answers.drawRandom();
    });
  }

  /**
   * Whether the panel is seen and needs nothing more urgent than random heads.
   * @returns {boolean}
   */
  isIdle() {
    const { el, host, data } = this;
    if (el.hidden || host.reading().text) return false;
    return [data, this.shownData()].every((each) => each?.isReady([this.head()]) ?? false);
  }

  /** A new text was read. @param {TextAnswer} answer @param {string} text */
  read(answer, text) {
    if (answer.name !== this.textName) this.answers.forget();
    this.textName = answer.name;
    this.hovered = { word: null, head: null };
    this.editor.edit(false);
    this.data = this.dataFor(this.data, answer);
  }

  light() {
    this.draw();
  }

  /** @param {Set<string>} [changed] */
  show(changed) {
    const text = this.host.text();
    if (changed?.has("off")) this.kept = "";
    if (!text) return;
    this.data = this.dataFor(this.data, text);
    this.data.load([this.head()]);
    this.answers.ask(this.texts(text.text), Object.fromEntries(this.factors()));
    this.loadLine();
    this.draw();
  }

  /**
   * Weights of a text with the address's switches.
   * @param {TextData | null} old @param {TextAnswer} text
   */
  dataFor(old, text) {
    const chosen = switches(this.host);
    if (old?.text === text && JSON.stringify(old.switches) === JSON.stringify(chosen)) return old;
    old?.end();
    return new TextData(
      this.host,
      text,
      chosen,
      () => this.draw(),
      (error) => this.page.fail(error),
    );
  }

  factors() {
    return gates.readFactors(this.host.get("off"), (name) => hasHead(this.about, name));
  }

  /** Texts that the model is asked about. @param {string} text */
  texts(text) {
    return this.about.kind === "similarity" ? [text, ...this.others()] : [text];
  }

  /** Sentences to compare with. */
  others() {
    const asked = this.host.get("others");
    const others = asked ? asked.split("\n") : this.about.other_texts;
    return others.filter((text) => text.trim() && text !== "-").slice(0, this.about.max_texts - 1);
  }

  /** The head on the stage: on loan, chosen, or changed last. */
  head() {
    if (this.hovered.head) return this.hovered.head;
    const changed = [...this.factors().keys()].at(-1);
    if (!this.host.get("head") && changed) return changed;
    return chosenHeads(this.host).at(-1) ?? "";
  }

  /**
   * The data on the stage: that of the chosen generated line, or of the text.
   * @returns {TextData | null}
   */
  shownData() {
    const isLine = this.host.get("line") && this.answers.generated;
    return isLine && this.lineData ? this.lineData : this.data;
  }

  /** @param {Partial<{word: number | null, head: string | null}>} what */
  point(what) {
    this.hovered = { ...this.hovered, ...what };
    const data = this.shownData();
    if (data?.long) this.answers.drawRandom(); // other rows and maps are asked for
    if (what.head) data?.load([what.head]);
    drawStage(this);
  }

  /** @param {string[]} names @param {boolean} isOff */
  toggle(names, isOff) {
    const factors = gates.switched(this.factors(), names, isOff);
    const head = names.at(-1) ?? "";
    this.host.set({ off: gates.writeFactors(factors), head, found: "", line: "" }, "push");
  }

  /** @param {number} factor @param {boolean} isDone whether the slider was let go */
  scale(factor, isDone) {
    const head = this.head();
    const factors = new Map(this.factors()).set(head, factor);
    const values = { off: gates.writeFactors(factors), head, found: "", line: "" };
    this.host.set(values, isDone ? "push" : "replace");
  }

  async search() {
    const { answers, host } = this;
    if (answers.work === "search") return answers.stop();
    const text = host.text();
    const heads = text && (await answers.search(text.text));
    if (!heads?.length || host.text() !== text) return;
    host.set({ off: heads.join(","), found: "1", head: heads.at(-1) ?? "", line: "" }, "push");
  }

  async generate() {
    const { answers, host } = this;
    if (answers.work === "generate") return answers.stop();
    const text = host.text();
    if (text) await answers.generate(text.text, Object.fromEntries(this.factors()));
  }

  /** Read the generated line that the address asks for. */
  async loadLine() {
    const side = /** @type {Side | ""} */ (this.host.get("line"));
    const { generated, isCurrent, work } = this.answers;
    if (!side) return;
    if (!generated) {
      if (isCurrent && !work) await this.generate();
      return;
    }
    const { text } = generated[side === "after" ? "after" : "before"];
    if (this.lineKey === text) return;
    this.lineKey = text;
    this.answers.drawRandom();
    try {
      const answer = /** @type {TextAnswer} */ (await api.post("/api/readings", { text }));
      if (this.lineKey !== text) return;
      this.lineData = this.dataFor(this.lineData, answer);
      this.lineData.load([this.head()]);
      this.draw();
    } catch (error) {
      this.lineKey = "";
      this.page.fail(error);
    }
  }

  async keep() {
    const off = gates.offHeads(this.factors());
    try {
      const answer = await api.posted("/api/cutplan", { heads: off });
      api.save(await answer.blob(), "plan.json");
      this.kept = keptSentence(this.about, off.length, gates.scaledHeads(this.factors()).length);
      this.draw();
    } catch (error) {
      this.page.fail(error);
    }
  }

  draw() {
    if (!this.el.hidden) draw(this);
  }
}
