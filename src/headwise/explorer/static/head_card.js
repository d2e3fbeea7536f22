// @ts-check
/** The card of one head: its map and sentence, mean weight by distance, roles and output. */

/** @import {Contribution, HeadAnswer, MapCells, MeasureValue, Profile} from "./types.js" */
/** @import {Cells, Link, Values} from "./head_view.js" */
/** @import {HeadsPanel} from "./heads.js" */

import * as api from "./api.js";
import { format, make, render } from "./head_view.js";
import * as state from "./state.js";

const TOGGLES = [
  ["words", "Whole words", "Pressed: the pieces of a word are shown as one"],
  [
    "special",
    "Special tokens",
    "Pressed: tokens such as [CLS] and [SEP] are shown; press to leave them out",
  ],
  [
    "sink",
    "First token",
    "Pressed: the first token, where heads often rest, counts; press to leave it out of every row",
  ],
  [
    "values",
    "Weigh by values",
    "Pressed: each weight is multiplied by the length of the value it fetches",
  ],
];
const LATER = 60;

/** The values that a head view draws, with listeners, like anywidget's model. */
class Model {
  /** @param {Values} values */
  constructor(values) {
    this.values = values;
    this.listeners = /** @type {Record<string, Set<() => void>>} */ ({});
  }
  /** @template {keyof Values} Name @param {Name} name @returns {Values[Name]} */
  get(name) {
    return this.values[name];
  }
  /** @template {keyof Values} Name @param {Name} name @param {Values[Name]} value */
  set(name, value) {
    this.values[name] = value;
    for (const listener of this.listeners[`change:${name}`] ?? []) listener();
  }
  /** @param {string} name @param {() => void} listener */
  on(name, listener) {
    (this.listeners[name] ??= new Set()).add(listener);
  }
  /** @param {string} name @param {() => void} listener */
  off(name, listener) {
    this.listeners[name]?.delete(listener);
  }
  save_changes() {}
}

/** Cells with their values decoded to numbers. @param {MapCells} cells @returns {Cells} */
const decode = (cells) => ({ ...cells, values: api.twoBytes(cells.values) });

export class HeadCard {
  /** @param {string} name @param {HeadsPanel} panel */
  constructor(name, panel) {
    this.name = name;
    this.panel = panel;
    this.model = new Model({
      head: name,
      row_labels: [],
      key_labels: [],
      cells: null,
      links: [],
      window: null,
      token: -1,
    });
    this.view = make("div");
    this.facts = make("div");
    const label = `Head ${name}`;
    this.el = make("article", { class: "card", "aria-label": label }, this.view, this.facts);
    /** The request whose answer is drawn or awaited. */
    this.shown = "";
    /** First row that the links cover. */
    this.linked = 0;
    /** The head's answer; null while waiting for another. @type {HeadAnswer | null} */
    this.answer = null;
    /** The whole map. @type {Cells | null} */
    this.whole = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.loading = new AbortController();
    this.moving = new AbortController();
    this.model.on("change:window", () => this.moveLater());
    this.model.on("change:token", () => this.link());
    this.stop = render({ model: this.model, el: this.view });
    this.view.querySelector("h3")?.after(this.buttons());
  }

  buttons() {
    const toggles = TOGGLES.map(([key, words, title]) =>
      make(
        "button",
        {
          type: "button",
          "aria-pressed": "false",
          "data-look": key,
          title,
          onclick: () => state.set({ [key]: state.get(key) === "1" ? "0" : "1" }),
        },
        words,
      ),
    );
    const title = "Pressed: this head stays here while you choose another";
    const pin = { type: "button", "data-beside": "", title, onclick: () => this.pin() };
    const save = (/** @type {"svg" | "png"} */ kind) =>
      make(
        "button",
        { type: "button", onclick: () => this.image(kind) },
        `Save ${kind.toUpperCase()}`,
      );
    const beside = make("button", pin, "Beside");
    return make("div", { class: "controls" }, ...toggles, beside, save("svg"), save("png"));
  }

  /** Pin this head, so that it stays when another is chosen, or unpin it. */
  pin() {
    const pinned = state.get("beside").split(",").filter(Boolean);
    const next = pinned.includes(this.name)
      ? pinned.filter((name) => name !== this.name)
      : [...pinned, this.name];
    state.set({ beside: next.join(",") });
  }

  options() {
    return {
      is_by_word: this.panel.text?.has_words ? state.get("words") : "0",
      hides_special: state.get("special") === "1" ? "0" : "1",
      drops_sink: state.get("sink") === "1" ? "0" : "1",
      is_valued: state.get("values"),
    };
  }

  /** Draw the head with the current options, unless that is what is shown. */
  show() {
    const { text } = this.panel;
    if (!text) return;
    const buttons = /** @type {NodeListOf<HTMLButtonElement>} */ (
      this.el.querySelectorAll("[data-look]")
    );
    for (const button of buttons) {
      const look = button.dataset.look ?? "";
      // Words are never special tokens, so there are none to show by word.
      const isBare = !text.has_special || this.options().is_by_word === "1";
      button.disabled = look === "words" ? !text.has_words : look === "special" && isBare;
      button.setAttribute("aria-pressed", String(state.get(look) === "1" && !button.disabled));
    }
    const isPinned = state.get("beside").split(",").includes(this.name);
    this.el.querySelector("[data-beside]")?.setAttribute("aria-pressed", String(isPinned));
    const scanned = Boolean(this.panel.jobGrids.scan);
    const request = api.query({ text: text.name, scanned, ...this.options() });
    if (request === this.shown) return;
    this.shown = request;
    this.load();
  }

  /** @param {string} [part] @param {Record<string, unknown>} [more] */
  path(part = "", more = {}) {
    const head = `/api/readings/${this.panel.text?.name}/heads/${this.name}`;
    return `${head}${part}?${api.query({ ...this.options(), ...more })}`;
  }

  /** Fetch everything about the head in one request and draw it. */
  async load() {
    clearTimeout(this.timer);
    this.moving.abort();
    this.loading.abort();
    const { signal } = (this.loading = new AbortController());
    this.answer = null;
    try {
      const answer = /** @type {HeadAnswer} */ (await api.get(this.path(), signal));
      const labels = this.panel.text?.labels[answer.stack][answer.view];
      if (!labels) return;
      this.answer = answer;
      this.whole = decode(answer.cells);
      this.linked = 0;
      Object.assign(this.model.values, {
        row_labels: labels.rows,
        key_labels: labels.keys ?? labels.rows,
        token: -1,
        links: answer.links,
      });
      this.model.set("cells", this.whole);
      this.describe(answer);
      document.body.dataset.head = this.name;
    } catch (error) {
      if (signal.aborted) return;
      this.shown = "";
      this.panel.page.fail(error);
    }
  }

  /** Show another part of the map once the user has stopped moving. */
  moveLater() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.move(), LATER);
  }

  async move() {
    const { answer, whole } = this;
    const part = this.model.get("window");
    if (!answer || !whole || !part) return;
    this.moving.abort();
    const { signal } = (this.moving = new AbortController());
    const isExact = [part.rows, part.keys].every(([start, stop]) => stop - start <= whole.tile);
    if (!isExact) return this.model.set("cells", whole);
    const path = this.path("/map", { rows: part.rows.join(":"), keys: part.keys.join(":") });
    try {
      const cells = /** @type {MapCells} */ (await api.get(path, signal));
      this.model.set("cells", decode(cells));
    } catch (error) {
      if (!signal.aborted) this.panel.page.fail(error);
    }
  }

  /** Fetch the chosen token's links if they have not been loaded. */
  async link() {
    if (!this.whole || !this.answer) return;
    const { tile } = this.whole;
    const start = Math.floor(Math.max(0, this.model.get("token")) / tile) * tile;
    if (start === this.linked) return;
    this.linked = start;
    const { signal } = this.loading;
    try {
      const path = this.path("/links", { rows: `${start}:${start + tile}` });
      const links = /** @type {Link[]} */ (await api.get(path, signal));
      if (this.linked === start) this.model.set("links", links);
    } catch (error) {
      if (signal.aborted) return;
      this.linked = -1;
      this.panel.page.fail(error);
    }
  }

  /** @param {HeadAnswer} answer */
  describe(answer) {
    const { served_by: served } = answer;
    const held = answer.roles.filter((role) => role.is_held);
    const from = served
      ? `Keys and values come from KV head ${served.kv_head} of ${served.kv_heads}. `
      : "";
    const summary = held.map((role) => `${role.role}: ${role.meaning}`).join(" ");
    const note = answer.is_scanned ? "" : " (From this text alone.)";
    this.facts.replaceChildren(
      make("p", { class: "hint" }, `${from}${summary || "No role stands out."}${note}`),
      make("h3", {}, "Where it looks, by distance"),
      this.profile(answer.profile),
      make("h3", {}, "What it adds, before and after the output projection"),
      this.contribution(answer.contribution),
      make("details", {}, make("summary", {}, "Evidence for roles"), this.roles(answer)),
      make("details", {}, make("summary", {}, "Every measure"), this.measures(answer.measures)),
    );
  }

  /** @param {Profile} profile */
  profile({ offsets, means }) {
    const top = Math.max(...means, 0.01);
    const wide = 600 / means.length;
    const signed = (/** @type {number} */ offset) => `${offset > 0 ? "+" : ""}${offset}`;
    const bars = means.map((mean, at) =>
      make(
        "rect",
        {
          class: "bar-rect",
          x: (at * wide + 1).toFixed(1),
          width: (wide - 2).toFixed(1),
          y: (70 - (66 * mean) / top).toFixed(1),
          height: ((66 * mean) / top).toFixed(1),
        },
        make("title", {}, `${signed(offsets[at])}: ${format(mean)}`),
      ),
    );
    const labels = offsets.flatMap((offset, at) => {
      if (offset % 4 && offsets.length > 9) return [];
      const place = { x: ((at + 0.5) * wide).toFixed(1), y: 90, "text-anchor": "middle" };
      return [make("text", place, signed(offset))];
    });
    const best = means.indexOf(Math.max(...means));
    const most = `Mean weight by distance; most at ${offsets[best]} with ${format(means[best])}`;
    return make(
      "svg",
      { class: "bars", viewBox: "0 0 600 94", role: "img", "aria-label": most },
      make("line", { x1: 0, x2: 600, y1: 70, y2: 70 }),
      ...bars,
      ...labels,
    );
  }

  /** @param {Contribution | null} contribution */
  contribution(contribution) {
    if (!contribution) {
      const unknown = "The output projection of this model is not known.";
      return make("p", { class: "hint" }, unknown);
    }
    const mean = (/** @type {number[]} */ values) =>
      (values.reduce((sum, value) => sum + value, 0) / values.length).toFixed(2);
    const percent = (/** @type {number} */ value) => `${(100 * value).toFixed(1)}%`;
    const { before, after, share, mean_share, equal_share } = contribution;
    const all = share.length;
    const count = Math.min(all, this.whole?.tile ?? all);
    const some = count < all ? `, of the first ${count} of ${all.toLocaleString("en")}` : "";
    const words =
      `Its part of the layer's output has a mean length of ${mean(before)} before Wo and ` +
      `${mean(after)} after: ${percent(mean_share)} of what all heads give, where an equal share ` +
      `is ${percent(equal_share)}. A bar is a token's share${some}; the line is an equal one.`;
    const wide = 600 / count;
    const top = Math.max(...share.slice(0, count), equal_share);
    const bars = share.slice(0, count).map((value, at) =>
      make(
        "rect",
        {
          class: "bar-rect other",
          x: (at * wide).toFixed(2),
          width: Math.max(0.8, wide - 1).toFixed(2),
          y: (60 - (56 * value) / top).toFixed(1),
          height: ((56 * value) / top).toFixed(1),
        },
        make("title", {}, `${this.panel.text?.tokens[at]}: ${percent(value)}`),
      ),
    );
    const level = (60 - (56 * equal_share) / top).toFixed(1);
    const label = "Share of the output, token by token; the line is an equal share";
    return make(
      "div",
      {},
      make("p", { class: "hint" }, words),
      make(
        "svg",
        { class: "bars", viewBox: "0 0 600 62", role: "img", "aria-label": label },
        ...bars,
        make("line", { x1: 0, x2: 600, y1: level, y2: level }),
      ),
    );
  }

  /** @param {HeadAnswer} answer */
  roles(answer) {
    const number = (/** @type {number | null} */ value) =>
      make("td", { class: "number" }, value == null ? "" : format(value));
    const from = answer.is_scanned ? "From built-in text and sentences" : "From this text alone";
    const titles = ["role", "held", "score", "threshold", "baseline"].map((title, at) =>
      make("th", { scope: "col", class: at < 2 ? null : "number" }, title),
    );
    const rows = answer.roles.map((role) =>
      make(
        "tr",
        { title: role.meaning },
        make("th", { scope: "row" }, role.role, make("small", {}, role.detail)),
        make("td", {}, role.is_held ? "yes" : "no"),
        number(role.score),
        number(role.threshold),
        number(role.baseline),
      ),
    );
    const table = make("table", {}, make("caption", {}, from), make("tr", {}, ...titles), ...rows);
    return make("div", { class: "scroll" }, table);
  }

  /** @param {MeasureValue[]} measures */
  measures(measures) {
    const titles = [
      make("th", { scope: "col" }, "measure"),
      make("th", { scope: "col", class: "number" }, "value"),
    ];
    const rows = measures.map(({ name, value, meaning }) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, name, make("small", {}, meaning)),
        make("td", { class: "number" }, format(value)),
      ),
    );
    const caption = make("caption", {}, "On this text");
    const table = make("table", {}, caption, make("tr", {}, ...titles), ...rows);
    return make("div", { class: "scroll" }, table);
  }

  /**
   * Save the map; if the server no longer has the text in memory, it reads it again first.
   * @param {"svg" | "png"} kind
   */
  async image(kind) {
    try {
      await this.save(kind);
    } catch (error) {
      await this.panel.page.fail(error);
      const isGone = error instanceof api.Refused && error.status === 410;
      if (isGone) await this.save(kind).catch(this.panel.page.fail);
    }
  }

  /** @param {"svg" | "png"} kind */
  async save(kind) {
    const canvas = this.view.querySelector("canvas");
    const cells = this.model.get("cells");
    if (!canvas || !cells) return;
    if (kind === "png") {
      const picture = await new Promise((done) => canvas.toBlob(done, "image/png"));
      return api.save(/** @type {Blob} */ (picture), `${this.name}.png`);
    }
    const size = cells.rows[1] - cells.rows[0];
    if (size <= (this.answer?.max_image ?? 0) && cells.keys[0] === cells.rows[0]) {
      const path = this.path("/image.svg", { rows: cells.rows.join(":") });
      return api.save(await api.file(path), `${this.name}.svg`);
    }
    const image = `<image width="100%" height="100%" href="${canvas.toDataURL("image/png")}"/>`;
    const shape = `width="${canvas.width}" height="${canvas.height}"`;
    const svg = `<svg xmlns="http://www.w3.org/2000/svg" ${shape}>${image}</svg>`;
    return api.save(new Blob([svg], { type: "image/svg+xml" }), `${this.name}.svg`);
  }

  /** Draw again after the theme has changed. */
  light() {
    this.model.set("cells", this.model.get("cells"));
  }

  end() {
    clearTimeout(this.timer);
    this.loading.abort();
    this.moving.abort();
    this.stop();
  }
}
