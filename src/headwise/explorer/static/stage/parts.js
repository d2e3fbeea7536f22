// @ts-check
/** The parts of the view in the document: where they stand at each width, and what they show. */

/** @import {View} from "./view.js" */

import { make } from "./dom.js";
import { takeFinding } from "./finding_choice.js";
import { Findings } from "./findings.js";
import { allHeads } from "./frame.js";
import { Grid } from "./grid.js";
import { GridBar } from "./grid_bar.js";
import { wantsRow } from "./grid_shape.js";
import { HeadFacts } from "./head_facts.js";
import { Headline } from "./headline.js";
import { Legend } from "./legend.js";
import { HeadMap } from "./map.js";
import { MapBar } from "./map_bar.js";
import { Ranking } from "./pair.js";
import { Stage } from "./stage.js";
import { Tools } from "./tools.js";

/** Widths of the view in rem below which it takes the 1024 order, and the phone's. */
const WIDE = 69,
  MIDDLE = 41;
/** Width in rem below which map and grid are one below the other, so that maps stay readable. */
const STACKED = 54;
/** Width in px of the grid's column. */
const GRID_COLUMN = 548;

export class Parts {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    const { host } = view;
    /** @type {"wide" | "middle" | "narrow"} */
    this.size = "wide";
    this.root = make("div", { class: "hv-view", "data-size": "wide" });
    const section = (/** @type {string} */ name, /** @type {string} */ label) =>
      make("section", { class: `hv-${name}`, "aria-label": label });
    this.toolBox = make("div", { role: "group", "aria-label": "Sentence and view" });
    this.headBox = make("div", { class: "hv-heading" });
    this.top = make("div", { class: "hv-top" }, this.toolBox, this.headBox);
    this.stageBox = make("div", { class: "hv-stage-box" });
    this.editor = make("div", { class: "hv-editor-box", hidden: true });
    this.noteLeft = make("p", {});
    this.noteRight = make("p", {});
    this.notes = make("div", { class: "hv-notes" }, this.noteLeft, this.noteRight);
    this.rankBox = section("rank", "Heads by how much the swap moves them");
    this.mapBox = section("map-panel", "Map of the head");
    this.gridBox = section("grid-panel", "All heads");
    this.findBox = make("div", {});
    this.factBox = make("div", { class: "hv-fact-box" });
    this.carriersNote = make("p", { class: "hv-carriers", hidden: true });
    this.missing = make("p", { class: "hv-missing" }, host.missing ?? "");
    this.missing.hidden = !host.missing;
    this.below = make("div", { class: "hv-below" });
    this.stage = this.makeStage();
    this.headline = new Headline(this.headBox, (role) => host.set({ role }, "push"));
    this.stageBox.setAttribute("aria-labelledby", this.headline.title.id);
    this.mapBar = new MapBar(this.mapBox, view);
    this.map = this.makeMap();
    this.gridBar = new GridBar(this.gridBox, view);
    this.grid = this.makeGrid();
    this.legend = this.makeLegend();
    this.findings = new Findings(this.findBox, {
      choose: (finding) => takeFinding(view, finding),
      scan: () => view.jobs.toggle("scan"),
    });
    this.ranking = new Ranking(this.rankBox, (head, isAdded) => view.choose(head, isAdded));
    this.facts = this.makeFacts();
    /** @type {Tools | null} */
    this.toolbar = null;
    this.isBroad = wantsRow(host.about.layers, GRID_COLUMN);
    this.root.classList.toggle("hv-broad", this.isBroad);
    this.watcher = new ResizeObserver(() => this.measure());
    this.isAttached = false;
    /** Whether another panel hides the view; what was drawn then is stale. */
    this.isHidden = false;
  }

  makeStage() {
    const { view } = this;
    return new Stage(this.stageBox, {
      hover: (word) => view.point({ word }),
      lock: (word) => (view.editing.isSwapping ? view.editing.open(word) : view.lock(word)),
      go: (word) => view.go(word),
      scroll: (words) => view.scroll(words),
    });
  }

  makeMap() {
    const { view } = this;
    const map = new HeadMap(make("div", { class: "hv-map-box" }), {
      hover: (cell) => view.point(cell ? this.pointed(cell) : {}),
      lock: (row) => view.lock(row),
      table: (isTable) => view.host.set({ table: isTable ? "1" : "" }, "push"),
      part: (part) => view.data?.long?.loadTile(view.tab, part),
    });
    this.mapBox.append(map.el);
    return map;
  }

  makeGrid() {
    const { view } = this;
    const { layers } = view.host.about;
    const cells = make("div", { class: "hv-grid-box" });
    this.gridBox.append(cells, this.carriersNote);
    const actions = {
      choose: (/** @type {string} */ name, /** @type {boolean} */ isAdded) =>
        view.choose(name, isAdded),
      hover: (/** @type {string | null} */ head) => view.point({ head }),
    };
    return new Grid(cells, layers, actions, `All ${allHeads(view.host.about).length} heads`);
  }

  makeLegend() {
    const box = make("div", { role: "group", "aria-label": "Roles" });
    this.gridBox.append(this.gridBar.patterns, box, this.gridBar.scale);
    return new Legend(box, (role) => this.view.host.set({ only: role ?? "" }, "push"));
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

  /** @returns {HeadFacts | null} */
  makeFacts() {
    const { view } = this;
    if (!view.host.headFacts) return null;
    return new HeadFacts(this.factBox, {
      ask: () => {
        const { host, tab, data } = view;
        if (!host.headFacts || !data) throw new Error("there is no text yet");
        return host.headFacts(data.text, tab);
      },
      failed: (error) => view.fail(error),
    });
  }

  /**
   * A hovered cell: its word and target, in the head of the map's tab.
   * @param {{row: number, column: number}} cell
   */
  pointed({ row, column }) {
    const { tab } = this.view;
    const isMany = this.view.frame().chosen.length > 1;
    const isBy = this.view.host.get("by") === "1";
    const [word, target] = isBy ? [column, row] : [row, column];
    return { word, target, head: isMany ? tab : null };
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
    return this.stageBox.querySelector(`[data-word="${at}"][data-side="0"]`);
  }

  attach() {
    this.isAttached = true;
    this.view.el.replaceChildren(this.root);
    this.root.dataset.theme = this.view.host.theme();
    this.arrange(); // before the first picture: moving the stage would undo its scrolling
    this.measure();
    this.watcher.observe(this.root);
  }

  measure() {
    const unit = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const width = this.root.clientWidth / unit;
    const isBack = width > 0 && this.isHidden;
    this.isHidden = !width;
    if (!width) return;
    const size =
      width >= WIDE ? "wide" : width >= (this.view.host.narrow ?? MIDDLE) ? "middle" : "narrow";
    this.root.classList.toggle("hv-stacked", size === "middle" && width < STACKED);
    const isOther = size !== this.size;
    this.size = size;
    if (isOther) this.arrange();
    if ((isOther || isBack) && this.view.data) this.view.show();
  }

  /** Order in the document equals order on the screen. */
  arrange() {
    const { size, mapBox, gridBox, findBox } = this;
    this.root.dataset.size = size;
    const isNarrow = size === "narrow";
    const { rankBox } = this;
    const parts = this.isBroad
      ? {
          wide: [mapBox, rankBox, findBox, gridBox],
          middle: [rankBox, mapBox, findBox, gridBox],
          narrow: [rankBox, findBox, mapBox, gridBox], // its grid is tall
        }[size]
      : {
          wide: [rankBox, mapBox, gridBox, findBox],
          middle: [rankBox, findBox, mapBox, gridBox],
          narrow: [rankBox, findBox, gridBox, mapBox],
        }[size];
    const first = isNarrow ? [this.headBox] : [this.toolBox, this.headBox];
    this.top.replaceChildren(...first);
    this.below.replaceChildren(...parts);
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
}
