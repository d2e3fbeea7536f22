// @ts-check
/** Figures for the last four steps: scores, mixing, output, and the effect of each head. */

/** @import {MixingFigure, OutputFigure, ScoresFigure} from "./types.js" */
/** @import {SpareFigure, SpareHeadFigure} from "./types.js" */

import { make } from "./head_view.js";
import {
  bar,
  counted,
  label,
  named,
  number,
  ordinal,
  share,
  signed,
  stretch,
  styled,
  toggles,
  twoSided,
} from "./lesson_parts.js";

const TENTHS = 10;

/**
 * The logits that the softmax receives; null for a blocked token.
 * @param {ScoresFigure} f @param {number[]} scores
 */
export const logitsOf = (f, scores) =>
  scores.map((score, at) => {
    const added = f.added[at];
    if (added === null) return null;
    const scaled = score * f.scale;
    return (f.softcap === null ? scaled : f.softcap * Math.tanh(scaled / f.softcap)) + added;
  });

/**
 * The weights of a row of logits; a sink adds to the sum but gets no weight.
 * @param {(number | null)[]} logits @param {number | null} sink
 */
export function softmax(logits, sink) {
  const all = [...logits, sink].filter((logit) => logit !== null),
    top = Math.max(...all);
  const total = all.reduce((sum, logit) => sum + Math.exp(logit - top), 0);
  return logits.map((logit) => (logit === null ? 0 : Math.exp(logit - top) / total));
}

/** @param {string[]} texts */
const spans = (texts) => texts.map((text) => make("span", {}, text));

/** A row of scores to drag, and its softmax. */
class Row {
  /** @param {ScoresFigure} f */
  constructor(f) {
    this.f = f;
    this.tokens = f.place.tokens;
    this.scores = [...f.scores];
    const seen = f.scores.filter((_, at) => f.added[at] !== null);
    this.low = Math.min(0, Math.min(...seen) - 1.5 * f.step);
    this.high = Math.max(0, Math.max(...seen) + 2 * f.step);
    this.touched = f.dragged;
    this.leader = -1;
    this.lead = make("p", { class: "lesson-said", "aria-live": "polite" });
    this.sum = make("p", { class: "lesson-sum" });
    this.steps = make("p", { class: "legend" });
    this.reset = make(
      "button",
      {
        type: "button",
        disabled: true,
        onclick: () => {
          this.scores = [...f.scores];
          this.draw();
        },
      },
      "Reset the scores",
    );
    this.lines = this.tokens.map((token, at) => this.line(token, at));
    const where = `${named(this.tokens, f.place.position)} in ${f.place.name}`;
    const label = `Scores and weights of ${where}`;
    const titles = ["token", "score: drag it", "", "weight", "now", "before"];
    this.el = make(
      "div",
      {},
      this.lead,
      make(
        "div",
        { class: "lesson-scores", role: "group", "aria-label": label },
        make("div", { class: "lesson-score titles" }, ...spans(titles)),
        ...this.lines.map(({ el }) => el),
      ),
      this.sum,
      make("div", { class: "controls" }, this.reset),
      this.steps,
      make(
        "p",
        { class: "legend" },
        `Keys: an arrow moves a score by ${number(f.step / TENTHS)}, Page Up and Page Down by ` +
          `${number(f.step)}, which is 1 after scaling.`,
      ),
    );
    this.draw();
  }

  /** @param {string} token @param {number} at */
  line(token, at) {
    const before = make("span", { class: "number was" }, share(this.f.weights[at]));
    if (this.f.added[at] === null) {
      const el = make(
        "div",
        { class: "lesson-score blocked" },
        label(token),
        make("span", { class: "lesson-blocked" }, "cannot be seen"),
        make("span"),
        bar(0),
        make("span", { class: "number" }, "0.00"),
        before,
      );
      return { el, draw() {} };
    }
    const fill = make("span", { class: "fill" }),
      thumb = make("span", { class: "thumb" });
    const zero = styled(make("span", { class: "zero" }), { left: this.percent(0) });
    const slider = make(
      "div",
      {
        class: "lesson-track",
        role: "slider",
        tabindex: 0,
        "data-score": at,
        "aria-label": `Score of ${named(this.tokens, at)}`,
        "aria-valuemin": this.low.toFixed(2),
        "aria-valuemax": this.high.toFixed(2),
        onpointerdown: (/** @type {PointerEvent} */ event) => {
          slider.setPointerCapture(event.pointerId);
          slider.focus();
          this.drag(at, event, slider);
        },
        onpointermove: (/** @type {PointerEvent} */ event) => {
          if (slider.hasPointerCapture(event.pointerId)) this.drag(at, event, slider);
        },
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(at, event),
      },
      zero,
      fill,
      thumb,
    );
    const [score, weight, drawn] = [
      make("span", { class: "number" }),
      make("span", { class: "number now", "data-weight": at }),
      bar(0),
    ];
    const old = styled(make("span", { class: "old" }), {
      left: `${(100 * this.f.weights[at]).toFixed(2)}%`,
    });
    drawn.append(old);
    const parts = [label(token), slider, score, drawn, weight, before];
    const el = make("div", { class: "lesson-score" }, ...parts);
    /** Show the current score and its weight. @param {number} value @param {number} part */
    const draw = (value, part) => {
      const [left, right] = [Math.min(0, value), Math.max(0, value)].map((end) =>
        this.percent(end),
      );
      styled(fill, { left, width: `calc(${right} - ${left})` });
      styled(thumb, { left: this.percent(value) });
      el.classList.toggle("moved", Math.abs(value - this.f.scores[at]) > 1e-9);
      score.textContent = signed(value);
      weight.textContent = share(part);
      stretch(drawn, part);
      slider.setAttribute("aria-valuenow", value.toFixed(2));
      slider.setAttribute("aria-valuetext", `score ${signed(value)}, weight ${part.toFixed(3)}`);
    };
    return { el, draw };
  }

  /** @param {number} score */
  percent(score) {
    return `${((100 * (score - this.low)) / (this.high - this.low)).toFixed(2)}%`;
  }

  /**
   * Drag a score to the nearest tenth of a step.
   * @param {number} at @param {PointerEvent} event @param {HTMLElement} slider
   */
  drag(at, event, slider) {
    const box = slider.getBoundingClientRect(),
      first = this.f.scores[at],
      grain = this.f.step / TENTHS;
    const score = this.low + ((this.high - this.low) * (event.clientX - box.left)) / box.width;
    this.put(at, first + Math.round((score - first) / grain) * grain);
  }

  /** @param {number} at @param {KeyboardEvent} event */
  key(at, event) {
    const now = this.scores[at],
      { step } = this.f,
      little = step / TENTHS;
    const to = {
      ArrowRight: now + little,
      ArrowUp: now + little,
      ArrowLeft: now - little,
      ArrowDown: now - little,
      PageUp: now + step,
      PageDown: now - step,
      Home: this.low,
      End: this.high,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.put(at, to);
  }

  /** @param {number} at @param {number} score */
  put(at, score) {
    this.scores[at] = Math.max(this.low, Math.min(this.high, score));
    this.touched = at;
    this.draw();
  }

  draw() {
    const { f } = this,
      logits = logitsOf(f, this.scores),
      weights = softmax(logits, f.sink);
    this.lines.forEach((line, at) => line.draw(this.scores[at], weights[at]));
    this.reset.disabled = this.scores.every((score, at) => score === f.scores[at]);
    this.tell(logits, weights);
  }

  /** @param {(number | null)[]} logits @param {number[]} weights */
  tell(logits, weights) {
    const { f, tokens, touched } = this,
      sum = weights.reduce((total, weight) => total + weight, 0),
      leader = weights.indexOf(Math.max(...weights));
    if (leader !== this.leader) this.lead.textContent = `${named(tokens, leader)} leads the row.`;
    this.leader = leader;
    const rest = `, and ${(1 - sum).toFixed(3)} for the sink, which is no token: 1.000`;
    this.sum.textContent = `All weights together: ${sum.toFixed(3)}${f.sink === null ? "" : rest}`;
    const logit = Number(logits[touched]),
      added = Number(f.added[touched]),
      power = Math.exp(logit),
      total = power / weights[touched];
    let steps = `${named(tokens, touched)}: ${signed(this.scores[touched])} \u00d7 `;
    steps += `${number(f.scale)} = ${number(this.scores[touched] * f.scale)}`;
    if (f.softcap !== null) steps += `, capped to ${number(logit - added)}`;
    steps += added ? `, with what is added ${number(logit)}.` : ".";
    if (Number.isFinite(total) && power > 0) {
      steps += ` e to that power is ${number(power)}, out of ${number(total)} for the whole row: `;
      steps += `${weights[touched].toFixed(3)}.`;
    }
    this.steps.textContent = steps;
  }
}

/** @param {ScoresFigure} f */
export const scores = (f) => new Row(f).el;

/** The part that each token adds to the mixed vector. @param {MixingFigure} f */
export function mixing(f) {
  const { tokens, name } = f.place,
    first = `the first ${f.mixed.length} of ${counted(f.d_value, "number")}`,
    most = Math.max(...f.lengths) || 1;
  const top = Math.max(...f.mixed.map(Math.abs), ...f.parts.flat().map(Math.abs)) || 1;
  const detail = make("div", {
    class: "scroll lesson-detail",
    tabindex: 0,
    role: "group",
    "aria-label": "Value, part and sum",
  });
  const rows = tokens.map((token, at) =>
    make(
      "button",
      {
        type: "button",
        class: "lesson-part",
        "data-part": at,
        onclick: () => choose(at),
        onfocus: () => choose(at),
        onpointerenter: () => choose(at),
        "aria-label":
          `${named(tokens, at)}: weight ${share(f.weights[at])}, ` +
          `length of its part ${number(f.lengths[at])}`,
      },
      label(token),
      bar(f.weights[at]),
      make("span", { class: "number" }, share(f.weights[at])),
      bar(f.lengths[at] / most, "other"),
      make("span", { class: "number" }, f.lengths[at].toFixed(2)),
    ),
  );
  const cell = (/** @type {number} */ value, /** @type {boolean} */ isDrawn = false) =>
    make("td", {}, signed(value, 3), ...(isDrawn ? [twoSided(value, top)] : []));
  const choose = (/** @type {number} */ at) => {
    rows.forEach((row, other) => row.setAttribute("aria-pressed", String(other === at)));
    const titles = [
      "number",
      "its value",
      `\u00d7 ${number(f.weights[at])} = its part`,
      "+ all others",
      "= mixed",
    ];
    detail.replaceChildren(
      make(
        "table",
        { class: "matrix lesson-sums" },
        make("caption", {}, `What ${named(tokens, at)} brings to ${first}`),
        make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title))),
        ...f.mixed.map((mixed, index) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, String(index + 1)),
            cell(f.values[at][index]),
            cell(f.parts[at][index], true),
            cell(mixed - f.parts[at][index]),
            cell(mixed, true),
          ),
        ),
      ),
    );
  };
  choose(f.weights.indexOf(Math.max(...f.weights)));
  return make(
    "div",
    {},
    detail,
    make(
      "div",
      {
        class: "lesson-parts",
        role: "group",
        "aria-label": `Tokens that ${named(tokens, f.place.position)} takes from`,
      },
      make(
        "div",
        { class: "lesson-part titles" },
        ...spans(["token", "weight", "", "length of its part", ""]),
      ),
      ...rows,
    ),
    make(
      "p",
      { class: "legend" },
      `Checked: the parts of all tokens add up to the mixed vector of ${name}, with a difference ` +
        `of at most ${number(f.difference)}.`,
    ),
  );
}

/** Which head fills which numbers, before and after Wo. @param {OutputFigure} f */
export function output(f) {
  let isAfter = false,
    chosen = f.place.head;
  const width = f.heads.length * f.d_value,
    summary = make("p", { class: "lesson-said", "aria-live": "polite" }),
    table = make("div", {
      class: "scroll",
      tabindex: 0,
      role: "group",
      "aria-label": "First numbers",
    });
  const longest = (/** @type {"concat_length" | "length" | "share"} */ key) =>
    Math.max(...f.heads.map((head) => head[key])) || 1;
  const tops = {
    before: longest("concat_length"),
    after: longest("length"),
    share: longest("share"),
  };
  const fills = f.heads.map(() => make("span"));
  const rows = f.heads.map((head, at) => {
    const percent = `${(100 * head.share).toFixed(1)}%`;
    return make(
      "button",
      {
        type: "button",
        class: "lesson-owner",
        "data-head": head.name,
        onclick: () => {
          chosen = at;
          draw();
        },
        "aria-label": `${head.name}: ${percent} of what all heads add`,
      },
      make("span", {}, head.name),
      make("span", { class: "lesson-columns", "aria-hidden": "true" }, fills[at]),
      bar(head.share / tops.share, "other"),
      make("span", { class: "number" }, percent),
    );
  });
  const line = (/** @type {string} */ words, /** @type {number[]} */ values) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, words),
      ...values.map((value) => make("td", {}, signed(value, 3))),
    );
  const whole = (/** @type {number} */ value) => value.toLocaleString("en");
  const draw = () => {
    f.heads.forEach((head, at) => {
      const long = isAfter ? head.length / tops.after : head.concat_length / tops.before,
        part = isAfter ? head.touched / f.d_model : f.d_value / width;
      styled(fills[at], {
        left: isAfter ? "0" : `${(100 * head.columns[0]) / width}%`,
        width: `${100 * part}%`,
        height: `${Math.max(8, 100 * long).toFixed(1)}%`,
      });
      rows[at].setAttribute("aria-pressed", String(at === chosen));
    });
    const { name, touched, columns, contribution, concat } = f.heads[chosen];
    summary.textContent = isAfter
      ? `After Wo, ${name} has a hand in ${whole(touched)} of the ${whole(f.d_model)} numbers. ` +
        `Segregation: ${f.segregation_output.toFixed(2)}.`
      : `Before Wo, ${name} fills numbers ${whole(columns[0])} to ${whole(columns[1] - 1)} of ` +
        `${whole(width)}, and no other head does. Segregation: ${f.segregation_concat.toFixed(2)}.`;
    const lines = isAfter
      ? [
          line(`${name} adds`, contribution),
          ...(f.bias ? [line("bias", f.bias)] : []),
          line("output", f.output),
        ]
      : [line(`mixed by ${name}`, concat)];
    const caption = isAfter
      ? `First numbers of the output, ${whole(f.d_model)} in all`
      : `First numbers of its ${f.d_value} in the concat`;
    table.replaceChildren(
      make("table", { class: "matrix lesson-few" }, make("caption", {}, caption), ...lines),
    );
  };
  draw();
  return make(
    "div",
    {},
    toggles("Side of Wo", ["Before Wo", "After Wo"], (at) => {
      isAfter = at === 1;
      draw();
    }),
    summary,
    make(
      "div",
      { class: "lesson-owners", role: "group", "aria-label": "Heads and the numbers they fill" },
      make(
        "div",
        { class: "lesson-owner titles" },
        ...spans(["head", "numbers it fills", "share of the output", ""]),
      ),
      ...rows,
    ),
    make(
      "p",
      { class: "legend" },
      "The taller a band, the longer the head's vector. Choose a head to read its numbers.",
    ),
    table,
    make(
      "p",
      { class: f.adds_up ? "good" : "bad" },
      `Checked: the heads${f.bias ? " and the bias" : ""} ${f.adds_up ? "add up to" : "miss"} ` +
        `the output; the largest difference is ${number(f.difference)}.`,
    ),
  );
}

/** Heads silenced one at a time. @param {SpareFigure} f */
export function spare(f) {
  let silent = /** @type {SpareHeadFigure | null} */ (null);
  /** Heads tried so far, whose effect is shown. @type {Set<SpareHeadFigure>} */
  const tried = new Set();
  const kind = `lesson-owner spare${f.has_roles ? " with-roles" : ""}`,
    all = f.heads.length;
  const most = Math.max(...f.heads.map(({ effect }) => effect)) || 1,
    answer = make("div", { class: "lesson-answer", "aria-live": "polite" });
  const row = (/** @type {SpareHeadFigure} */ head, /** @type {number} */ at) => {
    const isKnown = tried.has(head),
      effect = isKnown ? `: effect ${number(head.effect)}` : "",
      place = tried.size === all ? `, ${at ? `${ordinal(at + 1)} ` : ""}most missed of ${all}` : "";
    return make(
      "button",
      {
        type: "button",
        class: kind,
        "data-head": head.name,
        "aria-pressed": String(head === silent),
        onclick: () => press(head),
        "aria-label": `Silence ${head.name}${place}${effect}`,
      },
      make("span", {}, `${tried.size === all ? `${head.rank}. ` : ""}${head.name}`),
      bar(isKnown ? head.effect / most : 0),
      make("span", { class: "number" }, isKnown ? number(head.effect) : "?"),
      ...(head.roles
        ? [make("span", { class: "lesson-roles" }, head.roles.join(", ") || "no clear role")]
        : []),
    );
  };
  const titles = make(
    "div",
    { class: `${kind} titles` },
    ...spans(["head", "how far the answer moves", "", ...(f.has_roles ? ["roles"] : [])]),
  );
  const list = make("div", {
    class: "lesson-owners",
    role: "group",
    "aria-label": "Heads to silence",
  });
  const show = make(
    "button",
    {
      type: "button",
      onclick: () => {
        f.heads.forEach((head) => tried.add(head));
        draw();
        focus(f.heads[0]);
      },
    },
    "Show and rank all",
  );
  /** @param {SpareHeadFigure} head */
  function press(head) {
    silent = silent === head ? null : head;
    tried.add(head);
    draw();
    focus(head);
  }
  /** Focus a head's button, which was drawn again. @param {SpareHeadFigure} head */
  function focus({ name }) {
    /** @type {HTMLElement | null} */ (list.querySelector(`[data-head="${name}"]`))?.focus();
  }
  function draw() {
    const ordered =
      tried.size === all ? f.heads : [...f.heads].sort((left, right) => left.head - right.head);
    list.replaceChildren(titles, ...ordered.map(row));
    show.hidden = tried.size === all;
    answer.replaceChildren(
      make("p", { class: "lesson-said" }, `${silent?.name ?? "No head"} is silent.`),
      ...(f.next.length ? [continued(f, silent)] : [measured(f, silent)]),
    );
  }
  draw();
  const words = Object.entries(f.role_words).filter(([, meaning]) => meaning);
  return make(
    "div",
    {},
    answer,
    list,
    make(
      "p",
      { class: "legend" },
      `Press a head to silence it, again to let it speak. Measured: ${f.measure}. `,
      show,
    ),
    ...(words.length
      ? [
          make(
            "dl",
            { class: "lesson-words-of-roles" },
            ...words.flatMap(([role, meaning]) => [make("dt", {}, role), make("dd", {}, meaning)]),
          ),
        ]
      : []),
  );
}

/**
 * The tokens that a causal model would continue with.
 * @param {SpareFigure} f @param {SpareHeadFigure | null} silent
 */
function continued(f, silent) {
  const after = silent?.next,
    top = Math.max(...f.next.map(({ probability }) => probability), ...(after ?? [0])) || 1,
    titles = ["token", "untouched", silent ? `without ${silent.name}` : "one head silent"];
  return make(
    "table",
    { class: "lesson-next" },
    make("caption", {}, "What the model would go on with"),
    make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title))),
    ...f.next.map(({ token, probability }, at) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, label(token)),
        make("td", {}, bar(probability / top), probability.toFixed(3)),
        make(
          "td",
          {},
          bar(after ? after[at] / top : 0, "other"),
          after ? after[at].toFixed(3) : "\u2013",
        ),
      ),
    ),
  );
}

/** Name of each unit, and its value if nothing changes. */
const UNITS = {
  cosine: ["Cosine to the untouched embedding", "1.0000"],
  nats: ["How far its predictions move, in nats", "0"],
  loss: ["Loss", "unchanged"],
};

/**
 * The effect of silencing one head on the model's output.
 * @param {SpareFigure} f @param {SpareHeadFigure | null} silent
 */
function measured({ unit }, silent) {
  const [words, unchanged] = UNITS[unit];
  const format = unit === "cosine" ? (/** @type {number} */ value) => value.toFixed(4) : number;
  const value = silent ? format(silent.value) : unchanged;
  return make("p", {}, `${words}: `, make("strong", { class: "lesson-value" }, value));
}
