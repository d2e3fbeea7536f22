// @ts-check
/** One head: its map and sentence, where it looks by distance, its roles, what it adds. */

import * as api from "./api.js";
import { make, render, said } from "./head_view.js";
import * as state from "./state.js";

const LOOKS = [
  ["words", "Whole words", "Pressed: the pieces of a word are shown as one"],
  ["special", "Special tokens", "Pressed: tokens such as [CLS] and [SEP] are shown; press to leave them out"],
  ["sink", "First token", "Pressed: the first token, where heads often rest, counts; press to leave it out of every row"],
  ["values", "Weigh by values", "Pressed: each weight is multiplied by the length of the value it fetches"],
];

/** What anywidget gives a view, for a page: values and who wants to know of them. */
class Model {
  /** @param {Record<string, unknown>} values */
  constructor(values) { this.values = values; this.listeners = /** @type {Record<string, Set<() => void>>} */ ({}); }
  /** @param {string} name */
  get(name) { return this.values[name]; }
  /** @param {string} name @param {unknown} value */
  set(name, value) { this.values[name] = value; for (const one of this.listeners[`change:${name}`] ?? []) one(); }
  /** @param {string} name @param {() => void} listener */
  on(name, listener) { (this.listeners[name] ??= new Set()).add(listener); }
  /** @param {string} name @param {() => void} listener */
  off(name, listener) { this.listeners[name]?.delete(listener); }
  save_changes() {}
}

export class OneHead {
  /** @param {string} name @param {any} panel */
  constructor(name, panel) {
    this.name = name;
    this.panel = panel;
    this.model = new Model({ head: name, row_labels: [], key_labels: [], cells: null, links: [], window: null, token: -1 });
    this.view = make("div");
    this.facts = make("div");
    this.el = make("article", { class: "card", "aria-label": `Head ${name}` }, this.view, this.facts);
    this.shown = /** @type {string} */ ("");
    /** The row that the links begin at. */
    this.linked = 0;
    /** Labels and largest sizes; null while others are awaited, and no part of a map is asked for. @type {any} */
    this.sizes = null;
    this.model.on("change:window", () => this.later());
    this.model.on("change:token", () => this.links());
    this.stop = render({ model: this.model, el: this.view });
    this.view.querySelector("h3").after(this.buttons());
  }

  buttons() {
    const toggles = LOOKS.map(([key, words, title]) => make("button", {
      type: "button", "aria-pressed": "false", "data-look": key, title,
      onclick: () => state.set({ [key]: state.get(key) === "1" ? "0" : "1" }),
    }, words));
    const beside = make("button", { type: "button", "data-beside": "", title: "Pressed: this head stays here while you choose another", onclick: () => this.beside() }, "Beside");
    return make("div", { class: "controls" }, ...toggles, beside,
      make("button", { type: "button", onclick: () => this.image("svg") }, "Save SVG"),
      make("button", { type: "button", onclick: () => this.image("png") }, "Save PNG"));
  }

  /** Keep this head while others are chosen. */
  beside() {
    const kept = state.get("beside").split(",").filter(Boolean);
    const next = kept.includes(this.name) ? kept.filter((one) => one !== this.name) : [...kept, this.name];
    state.set({ beside: next.join(",") });
  }

  look() {
    return {
      is_by_word: this.panel.reading.has_words ? state.get("words") : "0", hides_special: state.get("special") === "1" ? "0" : "1",
      drops_sink: state.get("sink") === "1" ? "0" : "1", is_valued: state.get("values"),
    };
  }

  /** Draw what is chosen now, if it is not what is drawn. */
  show() {
    const { has_words: hasWords, has_special: hasSpecial } = this.panel.reading;
    for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (this.el.querySelectorAll("[data-look]"))) {
      const look = button.dataset.look ?? "";
      // Words are never special tokens: with words there are none to show.
      button.disabled = look === "words" ? !hasWords : look === "special" && (!hasSpecial || this.look().is_by_word === "1");
      button.setAttribute("aria-pressed", String(state.get(look) === "1" && !button.disabled));
    }
    this.el.querySelector("[data-beside]")?.setAttribute("aria-pressed", String(state.get("beside").split(",").includes(this.name)));
    const wanted = api.query({ reading: this.panel.reading.name, scanned: Boolean(this.panel.extra.scan), ...this.look() });
    if (wanted !== this.shown) { this.shown = wanted; this.load(); }
  }

  /** @param {string} what @param {Record<string, unknown>} [more] */
  path(what, more = {}) {
    return `/api/readings/${this.panel.reading.name}/${what}?${api.query({ head: this.name, ...this.look(), ...more })}`;
  }

  async load() {
    clearTimeout(this.timer);
    this.moving?.abort();
    this.loading?.abort();
    const mine = this.loading = new AbortController();
    this.sizes = null;
    try {
      const axes = await api.get(this.path("axes"), mine.signal);
      const cells = await this.cells(null, axes, mine.signal);
      this.sizes = axes;
      Object.assign(this.model.values, { row_labels: axes.rows, key_labels: axes.keys, token: -1, links: [] });
      this.model.set("cells", cells);
      document.body.dataset.head = this.name;
      this.linked = -1;
      await this.links();
      this.tell(await api.get(this.path("head"), mine.signal));
    } catch (error) {
      if (mine.signal.aborted) return;
      this.shown = "";
      this.panel.page.fail(error);
    }
  }

  /** A part of the map, or all of it, thinned out where it is large. @param {{rows: number[], keys: number[]} | null} part @param {any} sizes @param {AbortSignal} signal */
  async cells(part, sizes, signal) {
    const whole = { rows: [0, sizes.rows.length], keys: [0, sizes.keys.length] }, { rows, keys } = part ?? whole;
    const isExact = Math.max(rows[1] - rows[0], keys[1] - keys[0]) <= sizes.tile;
    const found = isExact
      ? await api.numbers(this.path("map", { rows: rows.join(":"), keys: keys.join(":") }), signal)
      : await api.numbers(this.path("overview", { size: sizes.overview }), signal);
    return { ...(isExact ? { rows, keys } : whole), ...found, tile: sizes.tile };
  }

  /** The part that is looked at has moved: fetch it when it rests. */
  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      if (!this.sizes) return;
      this.moving?.abort();
      const mine = this.moving = new AbortController();
      try { this.model.set("cells", await this.cells(/** @type {any} */ (this.model.get("window")), this.sizes, mine.signal)); } catch (error) {
        if (!mine.signal.aborted) this.panel.page.fail(error);
      }
    }, 60);
  }

  /** Links of the first tokens; those of a token far into a long text are fetched when it is chosen. */
  async links() {
    if (!this.sizes) return;
    const token = Math.max(0, /** @type {number} */ (this.model.get("token"))), { tile } = this.sizes, start = Math.floor(token / tile) * tile;
    if (start === this.linked) return;
    this.linked = start;
    const signal = this.loading?.signal;
    try {
      const found = await api.get(this.path("links", { rows: `${start}:${start + tile}` }), signal);
      if (this.linked === start) this.model.set("links", found);
    } catch (error) {
      if (signal?.aborted) return;
      this.linked = -1;
      this.panel.page.fail(error);
    }
  }

  /** @param {any} figures */
  tell(figures) {
    const held = figures.roles.filter((/** @type {any} */ one) => one.is_held);
    const served = figures.served_by ? `Keys and values come from KV head ${figures.served_by.kv_head} of ${figures.served_by.kv_heads}. ` : "";
    const summary = held.length ? held.map((/** @type {any} */ one) => `${one.role}: ${one.meaning}`).join(" ") : "No role stands out.";
    const from = figures.is_scanned ? "" : " (From this text alone.)";
    this.facts.replaceChildren(
      make("p", { class: "hint" }, `${served}${summary}${from}`),
      make("h3", {}, "Where it looks, by distance"), this.profile(figures.profile),
      make("h3", {}, "What it adds, before and after the output projection"), this.contribution(figures.contribution),
      make("details", {}, make("summary", {}, "Evidence for roles"), this.roles(figures)),
      make("details", {}, make("summary", {}, "Every measure"), this.measures(figures.measures)));
  }

  /** @param {any} profile */
  profile(profile) {
    const top = Math.max(...profile.means, 0.01), wide = 600 / profile.means.length;
    const bars = profile.means.map((/** @type {number} */ mean, /** @type {number} */ at) => make("rect", {
      class: "bar-rect", x: (at * wide + 1).toFixed(1), width: (wide - 2).toFixed(1), y: (70 - 66 * mean / top).toFixed(1), height: (66 * mean / top).toFixed(1),
    }, make("title", {}, `${profile.offsets[at] > 0 ? "+" : ""}${profile.offsets[at]}: ${said(mean)}`)));
    const best = profile.means.indexOf(Math.max(...profile.means));
    const labels = profile.offsets.map((/** @type {number} */ offset, /** @type {number} */ at) => offset % 4 && profile.offsets.length > 9 ? "" :
      make("text", { x: ((at + 0.5) * wide).toFixed(1), y: 90, "text-anchor": "middle" }, `${offset > 0 ? "+" : ""}${offset}`));
    return make("svg", { class: "bars", viewBox: "0 0 600 94", role: "img", "aria-label": `Mean weight by distance; most at ${profile.offsets[best]} with ${said(profile.means[best])}` },
      make("line", { x1: 0, x2: 600, y1: 70, y2: 70 }), ...bars, ...labels.filter(Boolean));
  }

  /** @param {any} given */
  contribution(given) {
    if (!given) return make("p", { class: "hint" }, "The output projection of this model is not known.");
    const mean = (/** @type {number[]} */ values) => values.reduce((sum, one) => sum + one, 0) / values.length;
    const words = `Its part of the layer's output has a mean length of ${mean(given.before).toFixed(2)} before Wo and ${mean(given.after).toFixed(2)} after: `
      + `${(100 * given.mean_share).toFixed(1)}% of what all heads give, where an equal share is ${(100 * given.equal_share).toFixed(1)}%.`;
    const all = given.share.length, count = Math.min(all, this.sizes.tile), some = ` A bar is a token's share${count < all ? `, of the first ${count} of ${all.toLocaleString("en")}` : ""}; the line is an equal one.`;
    const wide = 600 / count, top = Math.max(...given.share.slice(0, count), given.equal_share);
    const bars = given.share.slice(0, count).map((/** @type {number} */ share, /** @type {number} */ at) => make("rect", {
      class: "bar-rect other", x: (at * wide).toFixed(2), width: Math.max(0.8, wide - 1).toFixed(2), y: (60 - 56 * share / top).toFixed(1), height: (56 * share / top).toFixed(1),
    }, make("title", {}, `${this.panel.reading.tokens[at]}: ${(100 * share).toFixed(1)}%`)));
    const level = (60 - 56 * given.equal_share / top).toFixed(1);
    return make("div", {}, make("p", { class: "hint" }, words + some), make("svg", { class: "bars", viewBox: "0 0 600 62", role: "img", "aria-label": "Share of the output, token by token; the line is an equal share" },
      ...bars, make("line", { x1: 0, x2: 600, y1: level, y2: level })));
  }

  /** @param {any} figures */
  roles(figures) {
    const number = (/** @type {number | null} */ value) => make("td", { class: "number" }, value == null ? "" : said(value));
    return make("div", { class: "scroll" }, make("table", {}, make("caption", {}, figures.is_scanned ? "From built-in text and sentences" : "From this text alone"),
      make("tr", {}, ...["role", "held"].map((one) => make("th", { scope: "col" }, one)), ...["score", "threshold", "baseline"].map((one) => make("th", { scope: "col", class: "number" }, one))),
      ...figures.roles.map((/** @type {any} */ one) => make("tr", { title: one.meaning }, make("th", { scope: "row" }, one.role, make("small", {}, one.detail)),
        make("td", {}, one.is_held ? "yes" : "no"), number(one.score), number(one.threshold), number(one.baseline)))));
  }

  /** @param {{name: string, value: number, meaning: string}[]} measures */
  measures(measures) {
    return make("div", { class: "scroll" }, make("table", {}, make("caption", {}, "On this text"),
      make("tr", {}, make("th", { scope: "col" }, "measure"), make("th", { scope: "col", class: "number" }, "value")),
      ...measures.map((one) => make("tr", {}, make("th", { scope: "row" }, one.name, make("small", {}, one.meaning)), make("td", { class: "number" }, said(one.value))))));
  }

  /** @param {"svg" | "png"} kind */
  async image(kind) {
    try { await this.save(kind); } catch (error) {
      await this.panel.page.fail(error);
      if (/** @type {any} */ (error).status === 410) await this.save(kind).catch(this.panel.page.fail);
    }
  }

  /** @param {"svg" | "png"} kind */
  async save(kind) {
    const canvas = /** @type {HTMLCanvasElement} */ (this.view.querySelector("canvas")), cells = /** @type {any} */ (this.model.get("cells"));
    const picture = () => new Promise((done) => canvas.toBlob(done, "image/png"));
    if (kind === "png") return api.save(/** @type {Blob} */ (await picture()), `${this.name}.png`);
    if (cells.rows[1] - cells.rows[0] <= this.sizes?.image && cells.keys[0] === cells.rows[0]) {
      const path = `/api/readings/${this.panel.reading.name}/image.svg?${api.query({ head: this.name, ...this.look(), rows: cells.rows.join(":") })}`;
      return api.save(await api.file(path), `${this.name}.svg`);
    }
    const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${canvas.width}" height="${canvas.height}"><image width="100%" height="100%" href="${canvas.toDataURL("image/png")}"/></svg>`;
    return api.save(new Blob([svg], { type: "image/svg+xml" }), `${this.name}.svg`);
  }

  /** Other colours. */
  light() { this.model.set("cells", this.model.get("cells")); }

  end() {
    clearTimeout(this.timer);
    this.loading?.abort();
    this.moving?.abort();
    this.stop();
  }
}
