// @ts-check
/** The title of the grid, the switch between maps and one word, and the choice of a measure. */

/** @import {View} from "./view.js" */
/** @import {Frame} from "./view_pictures.js" */

import { make } from "./dom.js";
import { allHeads, chosenHeads } from "./frame.js";
import { format } from "./head_facts.js";
import { patterns } from "./patterns.js";
import { A_HEAD, capital, fill, gridHint } from "./sentences.js";
import { hasBars } from "./view_pictures.js";

const RAW = "All columns";

export class GridBar {
  /** @param {HTMLElement} el @param {View} view */
  constructor(el, view) {
    this.view = view;
    const { host } = view;
    this.title = make("h2", { class: "hv-title" });
    this.maps = make("button", { type: "button" }, "Maps");
    this.word = make("button", { type: "button" }, make("i", { class: "hw-word", dir: "auto" }));
    this.maps.addEventListener("click", () => {
      const isSeveral = chosenHeads(host).length > 1;
      host.set({ grid: isSeveral ? "maps" : "" }, "push");
    });
    this.word.addEventListener("click", () => host.set({ grid: "word" }, "push"));
    const pair = make(
      "span",
      { class: "hv-segments", role: "group", "aria-label": "Small maps show" },
      this.maps,
      this.word,
    );
    this.select = make("select", { class: "hv-select", "aria-label": "Colour heads by a measure" });
    this.select.addEventListener("change", () => host.set({ grid: this.select.value }, "push"));
    this.scale = make("div", { class: "hv-measure", hidden: true });
    /** How the squares are read; view.css leaves it out where they have no map. */
    this.hint = make("span", { class: "hv-if-maps" });
    this.patterns = patterns();
    el.append(
      make(
        "div",
        { class: "hv-panel-bar" },
        this.title,
        make("span", { class: "hv-panel-tools" }, pair, this.select),
      ),
      make("p", { class: "hv-grid-hint" }, A_HEAD, " ", this.hint),
    );
    this.filled = "";
  }

  /** Measures of this text and of finished jobs. @param {Frame} frame */
  columns({ host }) {
    const names = allHeads(host.about);
    /** @type {Record<string, (number | null)[]>} */
    const measures = {};
    /** @type {Record<string, string>} */
    const words = { ...host.about.measures };
    for (const grid of [this.view.data?.text.heads, ...Object.values(this.view.jobs.grids)]) {
      if (!grid) continue;
      Object.assign(words, grid.words);
      const place = new Map(grid.names.map((name, at) => [name, at]));
      for (const [measure, column] of Object.entries(grid.measures))
        measures[measure] = names.map((name) => column[place.get(name) ?? -1] ?? null);
    }
    return { measures, names, words };
  }

  /** @param {Frame} frame */
  show(frame) {
    const { host, word, data, heads, isLookedAt } = frame;
    const mode = host.get("grid");
    const { measures, words } = this.columns(frame);
    this.fill(frame, words);
    const own = isLookedAt ? data.columns(heads[0]) : data.rows(heads[0]);
    const name = word === null ? "" : (own[word]?.text ?? "");
    const isBars = hasBars(frame);
    const all = allHeads(host.about).length;
    const tail = make("span", {});
    if (mode in words) fill(tail, [words[mode].charAt(0).toLowerCase() + words[mode].slice(1)]);
    else tail.textContent = "on this sentence";
    const heading = all === 1 ? "The only head" : `All ${all} heads`;
    const pointed = { word: name, colour: "" };
    if (isBars && isLookedAt) fill(this.title, ["What looks at ", pointed]);
    else if (isBars) fill(this.title, ["Where ", pointed, " looks"]);
    else this.title.replaceChildren(heading, " ", tail);
    this.maps.setAttribute("aria-pressed", String(!(mode in words) && !isBars));
    this.word.setAttribute("aria-pressed", String(isBars));
    const locked = frame.locked === null ? "" : (own[frame.locked]?.text ?? "");
    this.word.disabled = frame.locked === null && !isBars;
    /** @type {HTMLElement} */ (this.word.firstChild).textContent =
      (isBars ? name : locked) || "word";
    this.select.value = mode in words ? mode : "";
    this.showScale(frame, mode, measures, words);
    const isMeasure = mode in words;
    fill(this.hint, isMeasure ? [] : gridHint(isBars ? pointed : null, isLookedAt, heads.length));
    this.patterns.hidden = isMeasure || isBars;
  }

  /** List the measures by group; those without a group are behind "All columns".
   * @param {Frame} frame @param {Record<string, string>} words */
  fill({ host }, words) {
    for (const measures of Object.values(host.about.job_measures)) Object.assign(words, measures);
    const key = Object.keys(words).join();
    if (key === this.filled) return;
    this.filled = key;
    const grouped = new Set(Object.values(host.about.measure_groups).flat());
    const option = (/** @type {string} */ name) => new Option(capital(words[name] ?? name), name);
    const groups = Object.entries(host.about.measure_groups).map(([group, names]) => {
      const known = names.filter((name) => name in words);
      return known.length ? [make("optgroup", { label: group }, ...known.map(option))] : [];
    });
    const rest = Object.keys(words).filter((name) => !grouped.has(name));
    const others = rest.length ? [make("optgroup", { label: RAW }, ...rest.map(option))] : [];
    this.select.replaceChildren(new Option("Measure \u2026", ""), ...groups.flat(), ...others);
  }

  /** The scale of a measure, or the way to measure it.
   * @param {Frame} frame @param {string} mode @param {Record<string, (number | null)[]>} measures
   * @param {Record<string, string>} words */
  showScale({ host }, mode, measures, words) {
    this.scale.hidden = !(mode in words);
    if (!(mode in words)) return;
    const known = (measures[mode] ?? []).filter((value) => value !== null);
    if (known.length) {
      const from = format(Math.min(...known)),
        to = format(Math.max(...known));
      this.scale.textContent = `${capital(words[mode])}: ${from} (faint) to ${to} (strong).`;
      return;
    }
    const { job_measures: jobs } = host.about;
    const job = Object.keys(jobs).find((name) => mode in jobs[name]);
    if (!job || !host.job) {
      this.scale.textContent = `${capital(words[mode])}: not measured on this text.`;
      return;
    }
    const start = job === "scan" ? "Find roles" : "Measure importance";
    const running = this.view.jobs.running[job];
    const button = make("button", { type: "button", class: "hv-button" }, running || start);
    button.addEventListener("click", () => this.view.jobs.toggle(job));
    this.scale.replaceChildren(`${capital(words[mode])}: not measured yet. `, button);
  }
}
