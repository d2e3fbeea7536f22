// @ts-check
/** The planner: costs of the attention that sliders choose, next to those of known models. */

/** @import {HeadChoiceAnswer, ModelAnswer, PlanAnswer} from "./types.js" */
/** @typedef {keyof typeof AXES} Axis */
/** A known model, or the planned one. @typedef {PlanAnswer & {isOwn?: boolean}} Point */
/** @typedef {{name: string, words: string, values: number[], usual: number}} Slider */

import * as api from "./api.js";
import { make } from "./head_view.js";

const SLIDERS = [
  {
    name: "d_model",
    words: "Width (d_model)",
    values: [
      128, 256, 384, 512, 576, 768, 1024, 1280, 1600, 2048, 2560, 3072, 4096, 5120, 6144, 8192,
      12288,
    ],
    usual: 768,
  },
  {
    name: "heads",
    words: "Heads",
    values: [1, 2, 3, 4, 6, 8, 9, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128],
    usual: 12,
  },
  {
    name: "kv_heads",
    words: "KV heads",
    values: [1, 2, 3, 4, 6, 8, 9, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128],
    usual: 12,
  },
  {
    name: "layers",
    words: "Layers",
    values: [1, 2, 4, 6, 8, 12, 16, 24, 30, 32, 36, 40, 48, 64, 80, 96, 126],
    usual: 12,
  },
  {
    name: "length",
    words: "Context in tokens",
    values: [128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 1048576],
    usual: 1024,
  },
  {
    name: "batch",
    words: "Sequences at a time",
    values: [1, 2, 4, 8, 16, 32, 64, 128, 256],
    usual: 1,
  },
];
const AXES = {
  parameters_attention: "Parameters of attention",
  cache_bytes: "Bytes of the KV cache",
  multiply_adds_per_token: "Multiply-adds a token",
  d_model: "Width",
  num_heads: "Heads",
  d_key: "Size of a head",
};
/** @type {[number, string][]} */
const UNITS = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** @param {number} value */
function short(value) {
  for (const [size, unit] of UNITS)
    if (value >= size) return `${(value / size).toPrecision(3)}${unit}`;
  return String(Math.round(value));
}

/** Bytes as `headwise plan` writes them: 36 MiB. @param {number} bytes */
function size(bytes) {
  for (const [power, unit] of /** @type {[number, string][]} */ ([
    [40, "TiB"],
    [30, "GiB"],
    [20, "MiB"],
    [10, "KiB"],
  ]))
    if (bytes >= 2 ** power)
      return `${Number((bytes / 2 ** power).toPrecision(3)).toLocaleString("en")} ${unit}`;
  return bytes ? `${bytes} B` : "-";
}

/**
 * Position of each point's name: right, left, above or below the point, wherever it covers no point
 * and no other name; null if it would always cover one. Each point also has its name as its title.
 * @param {number[][]} places @param {string[]} names @param {number} unit relative text size
 */
function beside(places, names, unit) {
  const taken = places.map(([across, up]) => [across - 4, up - 4, across + 4, up + 4]);
  return places.map(([across, up], at) => {
    const width = 6.5 * unit * names[at].length;
    for (const [anchor, dx, dy] of /** @type {[string, number, number][]} */ ([
      ["start", 9, 3 * unit],
      ["end", -9, 3 * unit],
      ["middle", 0, -8],
      ["middle", 0, 4 + 11 * unit],
    ])) {
      const start = across + dx - ({ start: 0, middle: width / 2, end: width }[anchor] ?? 0);
      const box = [start, up + dy - 9 * unit, start + width, up + dy + 2 * unit];
      const covers = taken.some(
        ([left, top, right, bottom]) =>
          box[0] < right && box[2] > left && box[1] < bottom && box[3] > top,
      );
      if (covers || box[0] < 60 || box[2] > 656) continue;
      taken.push(box);
      return { x: across + dx, y: up + dy, "text-anchor": anchor };
    }
    return null;
  });
}

export class PlanPanel {
  /** @param {ModelAnswer} about */
  constructor(about) {
    this.known = /** @type {Point[] | null} */ (null);
    /** The costs at the sliders' values. @type {PlanAnswer | null} */
    this.planned = null;
    /** @type {Record<string, number>} */
    this.values = Object.fromEntries(SLIDERS.map(({ name, usual }) => [name, usual]));
    /** Number of KV heads asked for; fewer are used if it does not divide the number of heads. */
    this.asked = this.values.kv_heads;
    /** @type {Record<string, {input: HTMLInputElement, output: HTMLElement, values: number[]}>} */
    this.sliders = {};
    this.across = /** @type {Axis} */ ("parameters_attention");
    this.up = /** @type {Axis} */ ("cache_bytes");
    this.result = make("div", { "aria-live": "polite" });
    this.plot = make("div");
    this.choices = make("div", { class: "scroll" });
    addEventListener("resize", () => this.draw());
    const first = about.layers[0] ?? { heads: 0, kv_heads: 0 };
    const model =
      `The loaded model ${about.name} has ${about.layers.length} layers of ${first.heads} heads ` +
      `over ${first.kv_heads} KV heads.`;
    const axis = (/** @type {"across" | "up"} */ side, /** @type {string} */ words) => {
      const options = Object.entries(AXES).map(
        ([name, title]) => new Option(title, name, false, name === this[side]),
      );
      const onchange = () => {
        this[side] = /** @type {Axis} */ (select.value);
        this.draw();
      };
      const select = make("select", { onchange }, ...options);
      return make("label", {}, `${words} `, select);
    };
    document
      .getElementById("planner")
      ?.append(
        make(
          "div",
          { class: "columns" },
          make(
            "div",
            {},
            make("div", { class: "sliders" }, ...SLIDERS.flatMap((slider) => this.slider(slider))),
            make("p", { class: "hint" }, model),
            this.result,
            make("h3", {}, "How to share the width out"),
            this.choices,
          ),
          make(
            "div",
            {},
            make("div", { class: "controls" }, axis("across", "Across"), axis("up", "Up")),
            this.plot,
          ),
        ),
      );
  }

  /** @param {Slider} slider */
  slider({ name, words, values, usual }) {
    const id = `plan-${name}`;
    const output = make("output", {}, usual.toLocaleString("en"));
    const input = make("input", {
      type: "range",
      min: 0,
      max: values.length - 1,
      step: 1,
      value: values.indexOf(usual),
      id,
      "aria-valuetext": usual.toLocaleString("en"),
      oninput: () => {
        const isEach = this.values.kv_heads === this.values.heads; // each head has its own KV head
        this.put(name, values[Number(input.value)]);
        const { heads } = this.values;
        if (name === "kv_heads") this.asked = this.values.kv_heads;
        if (name === "heads" && isEach) this.asked = heads;
        if (name === "heads") {
          const divisors = values.filter((kv) => heads % kv === 0 && kv <= this.asked);
          this.put("kv_heads", divisors.at(-1) ?? 1);
        }
        this.later();
      },
    });
    this.sliders[name] = { input, output, values };
    return [make("label", { for: id }, words), input, output];
  }

  /** Move a slider. @param {string} name @param {number} value */
  put(name, value) {
    const { input, output, values } = this.sliders[name];
    this.values[name] = value;
    input.value = String(values.indexOf(value));
    output.textContent = value.toLocaleString("en");
    input.setAttribute("aria-valuetext", value.toLocaleString("en"));
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), 50);
  }

  show() {
    if (this.known) this.draw();
    else this.run();
  }

  async run() {
    this.asking?.abort();
    const mine = (this.asking = new AbortController());
    const values = { ...this.values };
    if (values.d_model % values.heads)
      values.d_key = Math.max(1, Math.round(values.d_model / values.heads));
    try {
      this.known ??= /** @type {Point[]} */ (await api.get("/api/plan/known"));
      const width = api.query({ d_model: values.d_model, length: values.length });
      const answers = await Promise.all([
        api.get(`/api/plan?${api.query(values)}`, mine.signal),
        api.get(`/api/plan/heads?${width}`, mine.signal),
      ]);
      const [plan, choices] = /** @type {[PlanAnswer, HeadChoiceAnswer[]]} */ (answers);
      this.planned = plan;
      this.tell(plan, choices);
      this.draw();
      document.body.dataset.planned = String(plan.parameters_attention);
    } catch (error) {
      if (mine.signal.aborted) return;
      this.result.replaceChildren(
        make("p", { class: "bad" }, api.sentence(/** @type {Error} */ (error))),
      );
    }
  }

  /** @param {PlanAnswer} plan @param {HeadChoiceAnswer[]} choices */
  tell(plan, choices) {
    const row = (/** @type {string} */ words, /** @type {string} */ value) =>
      make("tr", {}, make("th", { scope: "row" }, words), make("td", { class: "number" }, value));
    const isEven = plan.d_model % plan.num_heads === 0;
    const uneven =
      `${plan.num_heads} heads do not share a width of ${plan.d_model.toLocaleString("en")} ` +
      `evenly: each is taken as ${plan.d_key} wide.`;
    this.result.replaceChildren(
      ...(isEven ? [] : [make("p", { class: "hint" }, uneven)]),
      make(
        "table",
        {},
        make(
          "caption",
          {},
          `${plan.num_heads} heads of ${plan.d_key}, ${plan.num_kv_heads} KV heads, bfloat16`,
        ),
        row("Parameters of one layer", plan.parameters_layer.toLocaleString("en")),
        row("Parameters of all layers", plan.parameters_attention.toLocaleString("en")),
        row("Multiply-adds a token", short(plan.multiply_adds_per_token)),
        row("KV cache", size(plan.cache_bytes)),
        row("All weights of one layer, materialised", size(plan.weight_matrix_bytes)),
        row(
          "Operations a byte read in decoding",
          plan.decode_intensity == null ? "" : plan.decode_intensity.toFixed(2),
        ),
      ),
    );
    const shown = choices.filter(({ heads }) => heads <= 256);
    this.choices.replaceChildren(
      make(
        "table",
        {},
        make(
          "caption",
          {},
          "Every number of heads that divides the width takes the same parameters and " +
            "multiply-adds. What differs is the size of each head, and the memory of " +
            "materialised weights, which grows with the heads.",
        ),
        make(
          "tr",
          {},
          ...["heads", "size of each", "remarks"].map((title) =>
            make("th", { scope: "col" }, title),
          ),
        ),
        ...shown.map(({ heads, d_key, remarks }) =>
          make(
            "tr",
            {},
            make("th", { scope: "row", class: "number" }, String(heads)),
            make("td", { class: "number" }, String(d_key)),
            make("td", {}, remarks.join(", ")),
          ),
        ),
      ),
    );
  }

  draw() {
    if (!this.known || !this.planned) return;
    const { across, up, planned } = this;
    const own = /** @type {Point} */ ({ ...planned, name: "yours", isOwn: true });
    const points = [own, ...this.known].filter((point) => point[across] > 0 && point[up] > 0);
    const unit = (this.plot.clientWidth || 660) < 480 ? 1.65 : 1,
      over = 14 * (unit - 1); // small drawings have larger text
    const log = Math.log10,
      range = (/** @type {Axis} */ axis) => {
        const values = points.map((point) => log(point[axis]));
        return [Math.floor(Math.min(...values)), Math.ceil(Math.max(...values) + 1e-9)];
      };
    const [left, right] = range(across),
      [low, high] = range(up);
    const x = (/** @type {number} */ value) =>
      60 + (520 * (log(value) - left)) / (right - left || 1);
    const y = (/** @type {number} */ value) => 360 - (340 * (log(value) - low)) / (high - low || 1);
    const ticks = [];
    for (let at = left; at <= right; at++)
      ticks.push(
        make("line", { x1: x(10 ** at), x2: x(10 ** at), y1: 20, y2: 360 }),
        make(
          "text",
          { x: x(10 ** at), y: 361 + 13 * unit, "text-anchor": "middle" },
          short(10 ** at),
        ),
      );
    for (let at = low; at <= high; at++)
      ticks.push(
        make("line", { x1: 60, x2: 580, y1: y(10 ** at), y2: y(10 ** at) }),
        make("text", { x: 54, y: y(10 ** at) + 3, "text-anchor": "end" }, short(10 ** at)),
      );
    const places = points.map((point) => [x(point[across]), y(point[up])]);
    const dots = points.map((point, at) =>
      make(
        "circle",
        {
          class: point.isOwn ? "other" : "bar-rect",
          cx: places[at][0],
          cy: places[at][1],
          r: point.isOwn ? 7 : 4,
        },
        make("title", {}, `${point.name}: ${short(point[across])}, ${short(point[up])}`),
      ),
    );
    const labels = beside(
      places,
      points.map((point) => point.name),
      unit,
    ).flatMap((place, at) => (place ? [make("text", place, points[at].name)] : []));
    const label =
      `Known models: ${AXES[up]} against ${AXES[across]}; yours has ${short(planned[across])} ` +
      `and ${short(planned[up])}`;
    this.plot.replaceChildren(
      make(
        "svg",
        {
          class: unit > 1 ? "bars large" : "bars",
          viewBox: `0 ${-over} 660 ${363 + 29 * unit + over}`,
          role: "img",
          "aria-label": label,
        },
        ...ticks,
        ...dots,
        ...labels,
        make("text", { x: 320, y: 361 + 29 * unit, "text-anchor": "middle" }, AXES[across]),
        make("text", { x: 4, y: 12 - over }, AXES[up]),
      ),
      make(
        "p",
        { class: "hint" },
        "Both axes are logarithmic. Each known model is at its own context, at most 8,192 tokens.",
      ),
    );
  }
}
