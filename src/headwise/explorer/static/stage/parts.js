// @ts-check
/** The parts of the view in the document: where they stand at each width, and what they show. */

/** @import {View} from "./view.js" */
/** @import {Frame} from "./view_pictures.js" */

import { make } from "./dom.js";
import { Findings } from "./findings.js";
import { allHeads, roleColour, shownRole } from "./frame.js";
import { Grid, wantsRow } from "./grid.js";
import { GridBar } from "./grid_bar.js";
import { HeadFacts } from "./head_facts.js";
import { Headline } from "./headline.js";
import { Legend } from "./legend.js";
import { HeadMap } from "./map.js";
import { MapBar } from "./map_bar.js";
import { notesOf } from "./notes.js";
import { Ranking, rankHeads } from "./pair.js";
import { fill } from "./sentences.js";
import { Stage } from "./stage.js";
import { Tools } from "./tools.js";
import * as pictures from "./view_pictures.js";

/** Widths of the view in rem below which it takes the 1024 order, and the phone's. */
const WIDE = 69,
  MIDDLE = 41;
/** Width in px of the grid's column. */
const GRID_COLUMN = 548;

export class Parts {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    const { host } = view;
    /** @type {"wide" | "middle" | "narrow"} */
    this.size = "wide";
    this.root = make("div", { class: "hw-view", "data-size": "wide" });
    const section = (/** @type {string} */ name, /** @type {string} */ label) =>
      make("section", { class: `hw-${name}`, "aria-label": label });
    this.toolBox = make("div", { role: "group", "aria-label": "Sentence and view" });
    this.headBox = make("div", { class: "hw-heading" });
    this.top = make("div", { class: "hw-top" }, this.toolBox, this.headBox);
    this.stageBox = make("div", { class: "hw-stage-box" });
    this.editor = make("div", { class: "hw-editor-box", hidden: true });
    this.noteLeft = make("p", {});
    this.noteRight = make("p", {});
    this.notes = make("div", { class: "hw-notes" }, this.noteLeft, this.noteRight);
    this.rankBox = section("rank", "Heads by how much the swap moves them");
    this.mapBox = section("map-panel", "Map of the head");
    this.gridBox = section("grid-panel", "All heads");
    this.findBox = make("div", {});
    this.factBox = make("div", { class: "hw-fact-box" });
    this.missing = make("p", { class: "hw-missing" }, host.missing ?? "");
    this.missing.hidden = !host.missing;
    this.below = make("div", { class: "hw-below" });
    this.build();
    this.isRow = wantsRow(host.about.layers, GRID_COLUMN);
    this.root.classList.toggle("hw-grid-row-below", this.isRow);
    this.watcher = new ResizeObserver(() => this.measure());
    this.isAttached = false;
  }

  build() {
    const { view } = this;
    const { host } = view;
    this.stage = new Stage(this.stageBox, {
      hover: (word) => view.point({ word }),
      lock: (word) => (view.editing.isSwapping && word !== null ? view.editing.open(word) : view.lock(word)),
      go: (word) => view.host.set({ word: String(word) }, "push"),
    });
    this.headline = new Headline(this.headBox, (role) => host.set({ role }, "push"));
    this.mapBar = new MapBar(this.mapBox, view);
    this.map = new HeadMap(make("div", { class: "hw-map-box" }), {
      hover: (cell) => view.point(cell ? { word: cell.row, target: cell.column, ...this.loan() } : {}),
      lock: (row) => view.lock(row),
      table: (isTable) => host.set({ table: isTable ? "1" : "" }, "push"),
      part: (part) => view.data?.loadTile(view.tab, part),
    });
    this.mapBox.append(this.map.el);
    this.gridBar = new GridBar(this.gridBox, view);
    const cells = make("div", { class: "hw-grid-box" });
    const count = allHeads(host.about).length;
    this.grid = new Grid(
      cells,
      host.about.layers,
      {
        choose: (name, isAdded) => view.choose(name, isAdded),
        hover: (head) => view.point({ head }),
      },
      `All ${count} heads`,
    );
    const legend = make("div", { role: "group", "aria-label": "Roles" });
    this.gridBox.append(cells, legend, this.gridBar.scale);
    this.legend = new Legend(legend, (role) => {
      view.only = role;
      view.show();
    });
    this.findings = new Findings(this.findBox, {
      choose: (finding) => view.take(finding),
      scan: () => view.jobs.toggle("scan"),
    });
    this.ranking = new Ranking(this.rankBox, (head, isAdded) => view.choose(head, isAdded));
    if (host.headFacts)
      this.facts = new HeadFacts(this.factBox, {
        ask: () => this.askFacts(),
        failed: (error) => view.fail(error),
      });
  }

  /** A cell of the map belongs to the head of its tab. */
  loan() {
    const { tab } = this.view;
    const heads = this.view.frame().chosen;
    return heads.length > 1 ? { head: tab } : {};
  }

  askFacts() {
    const { host, tab, data } = this.view;
    if (!host.headFacts || !data) throw new Error("there is no text yet");
    return host.headFacts(data.text, tab);
  }

  /** Tools need what the view can save, which is made after the parts. */
  makeTools() {
    const { view } = this;
    const { host } = view;
    return new Tools(this.toolBox, {
      edit: host.read && (() => view.editing.start()),
      swap: host.pair && (() => view.editing.swap()),
      set: (key, value) => view.turn(key, value),
      save: view.saves,
      side: (side) => host.set({ side }, "push"),
      close: () => host.set({ swap: "", side: "both" }, "push"),
    });
  }

  get tools() {
    return (this.toolbar ??= this.makeTools());
  }

  destroy() {
    this.watcher.disconnect();
    this.stage.destroy();
    this.headline.destroy();
    this.map.destroy();
    this.grid.destroy();
    this.toolbar?.destroy();
  }

  /** The button of a word on the stage. @param {number} at @returns {HTMLElement | null} */
  wordButton(at) {
    return this.stageBox.querySelector(`[data-word="${at}"]`);
  }

  attach() {
    this.isAttached = true;
    this.view.el.replaceChildren(this.root);
    this.root.dataset.theme = this.view.host.theme();
    this.measure();
    this.arrange();
    this.watcher.observe(this.root);
  }

  measure() {
    const unit = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const width = this.root.clientWidth / unit;
    if (!width) return;
    const size = width >= WIDE ? "wide" : width >= MIDDLE ? "middle" : "narrow";
    if (size === this.size) return;
    this.size = size;
    this.arrange();
    if (this.view.data) this.view.show();
  }

  /** Order in the document equals order on the screen. */
  arrange() {
    const { size, mapBox, gridBox, findBox } = this;
    this.root.dataset.size = size;
    const isNarrow = size === "narrow";
    const parts = {
      wide: this.isRow ? [mapBox, findBox, gridBox] : [mapBox, gridBox, findBox],
      middle: [findBox, mapBox, gridBox],
      narrow: [findBox, gridBox, mapBox],
    }[size];
    const first = isNarrow ? [this.headBox] : [this.toolBox, this.headBox];
    this.top.replaceChildren(...first);
    this.below.replaceChildren(this.rankBox, ...parts);
    this.root.replaceChildren(
      this.top,
      this.editor,
      this.stageBox,
      this.notes,
      ...(isNarrow ? [this.toolBox] : []),
      this.below,
      this.factBox,
      this.missing,
    );
  }

  /** @param {Frame} frame */
  show(frame) {
    if (!this.isAttached) this.attach();
    const { view } = this;
    const { host } = view;
    const reading = host.reading();
    const isPair = frame.pair?.side === "both";
    this.root.dataset.theme = host.theme();
    this.root.classList.toggle("hw-waiting", Boolean(reading.text));
    this.root.classList.toggle("hw-paired", isPair);
    const picture = pictures.stagePicture(frame);
    const error = view.error || reading.error;
    this.headline.show(pictures.headlinePicture(frame, error, this.remark(frame)));
    this.tools.show(this.toolsPicture(frame));
    if (!view.editing.isOn) this.stage.show(picture);
    const notes = notesOf(frame, picture, this.stage.layout?.shape ?? "line");
    fill(this.noteLeft, notes.left);
    this.noteRight.textContent = notes.right;
    this.mapBar.show(frame);
    this.map.show(pictures.mapPicture(frame));
    this.gridBar.show(frame);
    const { measures, names } = this.gridBar.columns(frame);
    this.grid.show(pictures.gridPicture(frame, measures, names, view.only));
    this.showLegend(frame, Boolean(measures[host.get("grid")]));
    this.showFindings(frame);
    this.showRanking(frame, isPair);
    const key = `${frame.data.text.name} ${view.tab} ${Boolean(host.about.scan)}`;
    this.facts?.show(key, view.tab, host.about, host.theme());
  }

  /** @param {Frame} frame */
  remark({ heads, chosen, pair }) {
    if (this.view.remark) return this.view.remark;
    if (pair) return "one word swapped";
    return heads.length > 1 && heads === chosen ? "shift-click a small map to add or remove one" : "";
  }

  /** @param {Frame} frame @param {boolean} isMeasure */
  showLegend({ host }, isMeasure) {
    const roles = pictures.rolesOfAll(host);
    this.legend.show(host.about.roles, roles, host.theme(), this.view.only);
    this.legend.el.hidden = isMeasure;
  }

  /** @param {Frame} frame */
  showFindings({ host, data }) {
    const { view } = this;
    this.findings.show({
      about: host.about,
      text: view.data?.text ?? data.text,
      theme: host.theme(),
      isChosen: (finding) => view.isTaken(finding),
      canScan: Boolean(host.job),
      scanning: view.jobs.running.scan ?? "",
    });
  }

  /** @param {Frame} frame @param {boolean} isPair */
  showRanking(frame, isPair) {
    const { host, data, heads, word, pair } = frame;
    const partner = pair?.partner(word) ?? null;
    this.rankBox.hidden = !isPair || word === null || partner === null;
    if (this.rankBox.hidden || !pair || word === null || partner === null) return;
    const all = allHeads(host.about);
    const role = shownRole(host, heads[0]);
    this.ranking.show({
      ranked: rankHeads(all, data, pair.data, pair.aligned, word, partner),
      source: { word: data.rows(heads[0])[word].text, colour: roleColour(host, role) },
      count: all.length,
      chosen: frame.chosen,
      facts: host.about.roles,
      role: (head) => pictures.leadOf(host, head),
      colour: (head) => roleColour(host, pictures.leadOf(host, head)),
      theme: host.theme(),
    });
  }

  /** @param {Frame} frame */
  toolsPicture({ host, data, pair, heads }) {
    const swapped = pair && pairWords(frameWords(data, heads[0]), pair);
    /** @type {Record<string, string>} */
    const disabled = {};
    if (data.text.why_no_words) disabled.words = data.text.why_no_words;
    if (!data.rows(heads[0]).some(({ kind }) => kind === "special"))
      disabled.special = "This text has no special tokens.";
    return {
      get: (/** @type {string} */ key) => host.get(key),
      disabled,
      pair: pair && swapped ? { words: swapped, side: pair.side } : null,
      isEditing: this.view.editing.isOn,
    };
  }
}

/** @param {import("./data.js").TextData} data @param {string} head */
const frameWords = (data, head) => data.rows(head);

/**
 * The word that differs, in both sentences; "First" and "Second" if there is no one word.
 * @param {import("../types.js").StageWord[]} words
 * @param {NonNullable<Frame["pair"]>} pair @returns {[string, string]}
 */
function pairWords(words, pair) {
  const other = pair.data.rows(pair.data.host.about.layers[0].name + "H0");
  const changed = pair.aligned.filter(
    ([from, to]) =>
      from !== null && to !== null && words[from]?.text !== other[to]?.text,
  );
  const [from, to] = changed[0] ?? [];
  if (changed.length !== 1 || from == null || to == null) return ["First", "Second"];
  return [words[from].text, other[to].text];
}
