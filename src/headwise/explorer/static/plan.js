// @ts-check
/** The planner: costs of the attention that sliders choose, beside those of known models. */

/** @import {HeadChoiceAnswer, LoadedPlanAnswer, ModelAnswer, PlanAnswer} from "./types.js" */
/** @import {Page} from "./page.js" */
/** @import {Axis} from "./plan/plan_chart.js" */
/** @import {Name, Sizes} from "./plan/plan_sizes.js" */

import * as api from "./api.js";
import { AXES, isAxis, PlanChart } from "./plan/plan_chart.js";
import { headline, kicker, NO_BIASES, REMARKS, SHARED, summary } from "./plan/plan_sentences.js";
import * as sizes from "./plan/plan_sizes.js";
import { choiceTable, costTable } from "./plan/plan_tables.js";
import { make } from "./stage/dom.js";

/** Milliseconds without a change before the costs are asked for. */
const REST = 50;
/** Costs of a model that reads both ways: it has no KV cache. */
const USUAL_AXES = ["parameters_attention", "cache_bytes"],
  AXES_BOTH_WAYS = ["parameters_attention", "multiply_adds_per_token"];
export class PlanPanel {
  /** @param {ModelAnswer} about @param {Page} page */
  constructor(about, page) {
    this.about = about;
    this.page = page;
    this.host = page.host;
    /** @type {PlanAnswer[] | null} */
    this.known = null;
    /** @type {LoadedPlanAnswer | null} */
    this.loaded = null;
    /** What is drawn. @type {{plan: PlanAnswer, choices: HeadChoiceAnswer[]} | null} */
    this.drawn = null;
    this.usual = sizes.USUAL;
    this.sizes = sizes.USUAL;
    /** KV heads that were asked for; fewer are used if they do not divide the heads. */
    this.asked = 0;
    this.sent = "";
    /** @type {Map<Name, {input: HTMLInputElement, output: HTMLOutputElement, values: number[]}>} */
    this.sliders = new Map();
    this.build(/** @type {HTMLElement} */ (document.getElementById("plan")));
  }

  /** @param {HTMLElement} el */
  build(el) {
    this.el = el;
    this.kicker = make("p", { class: "panel-kicker" });
    this.headline = make("h2", { class: "panel-headline", id: "plan-title" });
    this.sub = make("p", { class: "panel-sub", "aria-live": "polite" });
    this.reset = make("button", { type: "button", class: "hv-button" }, "Back to the loaded model");
    this.reset.addEventListener("click", () => this.put(this.usual, "push"));
    this.from = make("select", { id: "plan-from" });
    this.from.addEventListener("change", () => this.startFrom(this.from?.value ?? ""));
    this.costs = make("div", { class: "pl-scroll", tabindex: 0, role: "group" });
    this.costs.setAttribute("aria-label", "Costs");
    this.choices = make("div", { class: "pl-scroll", tabindex: 0, role: "group" });
    this.choices.setAttribute("aria-label", "Ways to share the width");
    const plot = make("div", { class: "pl-chart" });
    const across = this.axis("across"),
      up = this.axis("up");
    el.classList.add("pl", "hv-view");
    el.setAttribute("aria-labelledby", "plan-title");
    el.replaceChildren(
      make(
        "div",
        { class: "pl-top" },
        make("div", { class: "pl-heading" }, this.kicker, this.headline, this.sub),
        make("div", { class: "pl-tools" }, this.reset),
      ),
      make(
        "div",
        { class: "panel-columns pl-columns" },
        make(
          "div",
          {},
          make("h3", { class: "panel-title" }, "Sizes"),
          make("label", { class: "pl-from" }, "Start from ", this.from),
          make("div", { class: "pl-sliders" }, ...sizes.SLIDERS.map((each) => this.slider(each))),
          this.direction(),
        ),
        make("div", {}, make("div", { class: "pl-axes" }, across, up), plot),
      ),
      make(
        "div",
        { class: "panel-columns pl-columns pl-tables" },
        make(
          "div",
          {},
          make("h3", { class: "panel-title" }, "What attention costs, in bfloat16"),
          this.costs,
        ),
        make(
          "div",
          {},
          make("h3", { class: "panel-title" }, "What many heads cost"),
          make("p", { class: "pl-note" }, SHARED),
          this.choices,
          make("p", { class: "pl-note" }, REMARKS),
        ),
      ),
    );
    this.chart = new PlanChart(plot);
  }

  /** @param {"across" | "up"} side */
  axis(side) {
    const options = Object.entries(AXES).map(([name, title]) => new Option(title, name));
    const select = make("select", { "data-axis": side }, ...options);
    select.addEventListener("change", () => {
      const axes = [...this.axes()];
      axes[side === "up" ? 1 : 0] = /** @type {Axis} */ (select.value);
      this.host.set({ axes: axes.join(",") }, "push");
    });
    return make("label", {}, side === "up" ? "Up " : "Across ", select);
  }

  /** @param {{name: Name, words: string, values: number[]}} slider */
  slider({ name, words, values }) {
    const id = `plan-${name}`;
    const output = make("output", { for: id });
    const input = make("input", { type: "range", min: 0, step: 1, id });
    const value = () => this.sliders.get(name)?.values[Number(input.value)] ?? values[0];
    input.addEventListener("input", () => {
      if (name === "kv_heads") this.asked = value();
      this.move(sizes.moved(this.sizes, name, value(), this.kvAsked(name)));
    });
    input.addEventListener("change", () => this.put(this.sizes, "push"));
    this.sliders.set(name, { input, output, values });
    return make("div", { class: "pl-slider" }, make("label", { for: id }, words), input, output);
  }

  /** KV heads to keep when the heads change. @param {Name} name */
  kvAsked(name) {
    const { heads, kv_heads: kv } = this.sizes;
    if (name !== "heads") return this.asked;
    if (heads === kv) return Infinity; // each head has its own
    return this.asked || kv;
  }

  direction() {
    this.causal = make("input", { type: "checkbox", id: "plan-causal" });
    this.causal.addEventListener("change", () =>
      this.put({ ...this.sizes, isCausal: Boolean(this.causal?.checked) }, "push"),
    );
    return make(
      "label",
      { class: "pl-check", for: "plan-causal" },
      this.causal,
      " Causal: tokens only look back, and keys and values are cached",
    );
  }

  /** Axes of the address, or those that suit the model. @returns {Axis[]} */
  axes() {
    const asked = this.host.get("axes").split(",");
    const usual = this.usual.isCausal ? USUAL_AXES : AXES_BOTH_WAYS;
    return /** @type {Axis[]} */ (asked.length === 2 && asked.every(isAxis) ? asked : usual);
  }

  /** Fetch the known models and the loaded one, once. */
  async load() {
    const answers = await Promise.all([api.get("/api/plan/known"), api.get("/api/plan/loaded")]);
    const [known, loaded] = /** @type {[PlanAnswer[], LoadedPlanAnswer]} */ (answers);
    if (this.known) return;
    this.known = known.filter(({ name }) => name !== this.about.name || !loaded.plan);
    this.loaded = loaded;
    if (loaded.plan) {
      loaded.plan.name = this.about.title;
      this.usual = sizes.sizesOf(loaded.plan);
    }
    this.listModels();
  }

  async show() {
    try {
      if (!this.known) await this.load();
    } catch (error) {
      await this.page.fail(error);
      return;
    }
    this.move(sizes.readSizes(this.host.get("plan"), this.usual));
    this.draw();
  }

  listModels() {
    const own = this.loaded?.plan ? [new Option(`${this.about.title} (loaded)`, "loaded")] : [];
    const known = (this.known ?? []).map(({ name }) => new Option(name, name));
    this.from?.replaceChildren(...own, ...known, new Option("sizes of your own", ""));
  }

  /** @param {string} name */
  startFrom(name) {
    const plan = this.known?.find((each) => each.name === name);
    if (name === "loaded") this.put(this.usual, "push");
    else if (plan) this.put(sizes.sizesOf(plan), "push");
  }

  /** @param {Sizes} next @param {"push" | "replace"} how */
  put(next, how) {
    this.move(next);
    this.host.set({ plan: sizes.writeSizes(next, this.usual) }, how);
  }

  /** Move the sliders, and ask for the costs. @param {Sizes} next */
  move(next) {
    this.sizes = next;
    for (const { name, values } of sizes.SLIDERS) {
      const slider = this.sliders.get(name);
      if (!slider) continue;
      slider.values = sizes.withValue(values, next[name]);
      slider.input.max = String(slider.values.length - 1);
      slider.input.value = String(slider.values.indexOf(next[name]));
      const text = next[name].toLocaleString("en");
      slider.output.textContent = text;
      slider.input.setAttribute("aria-valuetext", text);
    }
    if (this.causal) this.causal.checked = next.isCausal;
    if (this.reset) this.reset.disabled = sizes.isSame(next, this.usual);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), REST);
  }

  async run() {
    const query = api.query(sizes.planQuery(this.sizes));
    if (query === this.sent) return this.draw();
    this.sent = query;
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    const width = api.query({ d_model: this.sizes.d_model, length: this.sizes.length });
    try {
      const answers = await Promise.all([
        api.get(`/api/plan?${query}`, signal),
        api.get(`/api/plan/heads?${width}`, signal),
      ]);
      const [plan, choices] = /** @type {[PlanAnswer, HeadChoiceAnswer[]]} */ (answers);
      this.drawn = { plan, choices };
      this.draw();
    } catch (error) {
      if (signal.aborted) return;
      this.sent = "";
      this.page.fail(error);
    }
  }

  draw() {
    if (!this.drawn || !this.known || this.el?.hidden) return;
    const loaded = this.loaded?.plan ?? null;
    const isLoaded = Boolean(loaded) && sizes.isSame(this.sizes, this.usual);
    const plan = isLoaded && loaded ? loaded : { ...this.drawn.plan, name: "your sizes" };
    const other = isLoaded ? null : loaded;
    this.say(plan, other);
    const [across, up] = this.axes();
    for (const [side, axis] of Object.entries({ across, up })) {
      const select = this.el?.querySelector(`[data-axis=${side}]`);
      if (select instanceof HTMLSelectElement) select.value = axis;
    }
    this.chart?.show(plan, other, this.known, across, up);
    const note = other ? [make("p", { class: "pl-note" }, NO_BIASES)] : [];
    this.costs?.replaceChildren(costTable(plan, other, this.sizes.batch), ...note);
    this.choices?.replaceChildren(choiceTable(this.drawn.choices, this.sizes.heads));
    if (this.from) {
      const same = this.known.find((each) => sizes.isSame(sizes.sizesOf(each), this.sizes));
      this.from.value = isLoaded ? "loaded" : (same?.name ?? "");
    }
    document.body.dataset.planned = String(plan.parameters_attention);
  }

  /** @param {PlanAnswer} plan @param {PlanAnswer | null} loaded null if it is the loaded model */
  say(plan, loaded) {
    const why = this.loaded?.why ?? "";
    if (this.kicker) this.kicker.textContent = kicker(this.about.title, loaded, why);
    if (this.headline) this.headline.textContent = headline(plan, loaded, Boolean(why));
    if (this.sub) this.sub.textContent = summary(plan, loaded, this.sizes);
  }

  light() {
    this.draw();
  }
}
