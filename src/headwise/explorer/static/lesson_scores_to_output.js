// @ts-check
/** Figures of the last four steps: from scores to weights, to a mixture, to the output, to what is missed. */

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

/** The logits that the softmax sees; null for a token that is blocked. @param {any} f @param {number[]} scores @returns {(number | null)[]} */
export const logitsOf = (f, scores) =>
  scores.map((score, at) => {
    if (f.added[at] === null) return null;
    const scaled = score * f.scale;
    return (f.softcap === null ? scaled : f.softcap * Math.tanh(scaled / f.softcap)) + f.added[at];
  });

/** The weights of a row of logits; a sink takes part in the sum alone. @param {(number | null)[]} logits @param {number | null} sink @returns {number[]} */
export function softmax(logits, sink) {
  const all = [...logits, sink].filter((one) => one !== null).map(Number),
    top = Math.max(...all);
  const whole = all.reduce((sum, one) => sum + Math.exp(one - top), 0);
  return logits.map((one) => (one === null ? 0 : Math.exp(one - top) / whole));
}

/** A row of scores to drag, and its softmax. */
class Row {
  /** @param {any} f */
  constructor(f) {
    this.f = f;
    this.tokens = f.place.tokens;
    this.scores = [...f.scores];
    const seen = f.scores.filter(
      (/** @type {number} */ _, /** @type {number} */ at) => f.added[at] !== null,
    );
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
    this.lines = this.tokens.map((/** @type {string} */ token, /** @type {number} */ at) =>
      this.line(token, at),
    );
    this.el = make(
      "div",
      {},
      this.lead,
      make(
        "div",
        {
          class: "lesson-scores",
          role: "group",
          "aria-label": `Scores and weights of ${named(this.tokens, f.place.position)} in ${f.place.name}`,
        },
        make(
          "div",
          { class: "lesson-score titles" },
          ...["token", "score: drag it", "", "weight", "now", "before"].map((one) =>
            make("span", {}, one),
          ),
        ),
        ...this.lines.map((/** @type {any} */ one) => one.el),
      ),
      this.sum,
      make("div", { class: "controls" }, this.reset),
      this.steps,
      make(
        "p",
        { class: "legend" },
        `Keys: an arrow moves a score by ${number(f.step / TENTHS)}, Page Up and Page Down by ${number(f.step)}, which is 1 after scaling.`,
      ),
    );
    this.draw();
  }

  /** @param {string} token @param {number} at */
  line(token, at) {
    const before = make("span", { class: "number was" }, share(this.f.weights[at]));
    if (this.f.added[at] === null) {
      return {
        el: make(
          "div",
          { class: "lesson-score blocked" },
          label(token),
          make("span", { class: "lesson-blocked" }, "cannot be seen"),
          make("span"),
          bar(0),
          make("span", { class: "number" }, "0.00"),
          before,
        ),
      };
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
          this.drag(at, event);
        },
        onpointermove: (/** @type {PointerEvent} */ event) => {
          if (slider.hasPointerCapture(event.pointerId)) this.drag(at, event);
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
    return {
      slider,
      fill,
      thumb,
      score,
      weight,
      drawn,
      el: make(
        "div",
        { class: "lesson-score" },
        label(token),
        slider,
        score,
        drawn,
        weight,
        before,
      ),
    };
  }

  /** @param {number} score */
  percent(score) {
    return `${((100 * (score - this.low)) / (this.high - this.low)).toFixed(2)}%`;
  }

  /** To the tenth of a step that is nearest. @param {number} at @param {PointerEvent} event */
  drag(at, event) {
    const box = this.lines[at].slider.getBoundingClientRect(),
      first = this.f.scores[at],
      grain = this.f.step / TENTHS;
    const wanted = this.low + ((this.high - this.low) * (event.clientX - box.left)) / box.width;
    this.put(at, first + Math.round((wanted - first) / grain) * grain);
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
    this.lines.forEach((/** @type {any} */ line, /** @type {number} */ at) => {
      if (!line.slider) return;
      const score = this.scores[at],
        left = this.percent(Math.min(0, score)),
        right = this.percent(Math.max(0, score));
      styled(line.fill, { left, width: `calc(${right} - ${left})` });
      styled(line.thumb, { left: this.percent(score) });
      line.el.classList.toggle("moved", Math.abs(score - f.scores[at]) > 1e-9);
      line.score.textContent = signed(score);
      line.weight.textContent = share(weights[at]);
      stretch(line.drawn, weights[at]);
      line.slider.setAttribute("aria-valuenow", score.toFixed(2));
      line.slider.setAttribute(
        "aria-valuetext",
        `score ${signed(score)}, weight ${weights[at].toFixed(3)}`,
      );
    });
    this.reset.disabled = this.scores.every((score, at) => score === f.scores[at]);
    this.tell(logits, weights);
  }

  /** @param {(number | null)[]} logits @param {number[]} weights */
  tell(logits, weights) {
    const { f, tokens, touched } = this,
      sum = weights.reduce((one, other) => one + other, 0),
      leader = weights.indexOf(Math.max(...weights));
    if (leader !== this.leader) this.lead.textContent = `${named(tokens, leader)} leads the row.`;
    this.leader = leader;
    this.sum.textContent =
      f.sink === null
        ? `All weights together: ${sum.toFixed(3)}`
        : `All weights together: ${sum.toFixed(3)}, and ${(1 - sum).toFixed(3)} for the sink, which is no token: 1.000`;
    const scaled = this.scores[touched] * f.scale,
      logit = Number(logits[touched]);
    const capped = f.softcap === null ? "" : `, capped to ${number(logit - f.added[touched])}`,
      added = f.added[touched] ? `, with what is added ${number(logit)}` : "";
    const power = Math.exp(logit),
      whole = power / weights[touched];
    const shares =
      Number.isFinite(whole) && power > 0
        ? ` e to that power is ${number(power)}, out of ${number(whole)} for the whole row: ${weights[touched].toFixed(3)}.`
        : "";
    this.steps.textContent = `${named(tokens, touched)}: ${signed(this.scores[touched])} \u00d7 ${number(f.scale)} = ${number(scaled)}${capped}${added}.${shares}`;
  }
}

/** @param {any} f */
export const scores = (f) => new Row(f).el;

/** What each token brings to the mixed vector. @param {any} f */
export function mixing(f) {
  const { tokens, name } = f.place,
    shown = f.mixed.length,
    most = Math.max(...f.lengths) || 1;
  const top = Math.max(...f.mixed.map(Math.abs), ...f.parts.flat().map(Math.abs)) || 1;
  const detail = make("div", {
    class: "scroll lesson-detail",
    tabindex: 0,
    role: "group",
    "aria-label": "Value, part and sum",
  });
  const rows = tokens.map((/** @type {string} */ token, /** @type {number} */ at) =>
    make(
      "button",
      {
        type: "button",
        class: "lesson-part",
        "data-part": at,
        onclick: () => choose(at),
        onfocus: () => choose(at),
        onpointerenter: () => choose(at),
        "aria-label": `${named(tokens, at)}: weight ${share(f.weights[at])}, length of its part ${number(f.lengths[at])}`,
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
    rows.forEach((/** @type {any} */ row, /** @type {number} */ other) =>
      row.setAttribute("aria-pressed", String(other === at)),
    );
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
        make(
          "caption",
          {},
          `What ${named(tokens, at)} brings to the first ${shown} of ${counted(f.d_value, "number")}`,
        ),
        make("tr", {}, ...titles.map((one) => make("th", { scope: "col" }, one))),
        ...f.mixed.map((/** @type {number} */ whole, /** @type {number} */ one) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, String(one + 1)),
            cell(f.values[at][one]),
            cell(f.parts[at][one], true),
            cell(whole - f.parts[at][one]),
            cell(whole, true),
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
        ...["token", "weight", "", "length of its part", ""].map((one) => make("span", {}, one)),
      ),
      ...rows,
    ),
    make(
      "p",
      { class: "legend" },
      `Checked: the parts of all tokens add up to the mixed vector of ${name}, with a difference of at most ${number(f.difference)}.`,
    ),
  );
}

/** Who fills which numbers, before and after Wo. @param {any} f */
export function output(f) {
  let after = false,
    chosen = f.place.head;
  const width = f.heads.at(-1).columns[1],
    said = make("p", { class: "lesson-said", "aria-live": "polite" }),
    table = make("div", {
      class: "scroll",
      tabindex: 0,
      role: "group",
      "aria-label": "First numbers",
    });
  const longest = (/** @type {string} */ key) =>
    Math.max(...f.heads.map((/** @type {any} */ one) => one[key])) || 1;
  const tops = {
    before: longest("concat_length"),
    after: longest("length"),
    share: longest("share"),
  };
  const fills = f.heads.map(() => make("span"));
  const rows = f.heads.map((/** @type {any} */ one, /** @type {number} */ at) =>
    make(
      "button",
      {
        type: "button",
        class: "lesson-owner",
        "data-head": one.name,
        onclick: () => {
          chosen = at;
          draw();
        },
        "aria-label": `${one.name}: ${(100 * one.share).toFixed(1)}% of what all heads add`,
      },
      make("span", {}, one.name),
      make("span", { class: "lesson-columns", "aria-hidden": "true" }, fills[at]),
      bar(one.share / tops.share, "other"),
      make("span", { class: "number" }, `${(100 * one.share).toFixed(1)}%`),
    ),
  );
  const line = (/** @type {string} */ words, /** @type {number[]} */ values) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, words),
      ...values.map((value) => make("td", {}, signed(value, 3))),
    );
  const draw = () => {
    f.heads.forEach((/** @type {any} */ one, /** @type {number} */ at) => {
      const long = after ? one.length / tops.after : one.concat_length / tops.before,
        part = after ? one.touched / f.d_model : f.d_value / width;
      styled(fills[at], {
        left: after ? "0" : `${(100 * one.columns[0]) / width}%`,
        width: `${100 * part}%`,
        height: `${Math.max(8, 100 * long).toFixed(1)}%`,
      });
      rows[at].setAttribute("aria-pressed", String(at === chosen));
    });
    const one = f.heads[chosen];
    said.textContent = after
      ? `After Wo, ${one.name} has a hand in ${one.touched.toLocaleString("en")} of the ${f.d_model.toLocaleString("en")} numbers. Segregation: ${f.segregation_output.toFixed(2)}.`
      : `Before Wo, ${one.name} fills numbers ${one.columns[0].toLocaleString("en")} to ${(one.columns[1] - 1).toLocaleString("en")} of ${width.toLocaleString("en")}, and no other head does. Segregation: ${f.segregation_concat.toFixed(2)}.`;
    const lines = after
      ? [
          line(`${one.name} adds`, one.contribution),
          ...(f.bias ? [line("bias", f.bias)] : []),
          line("output", f.output),
        ]
      : [line(`mixed by ${one.name}`, one.concat)];
    table.replaceChildren(
      make(
        "table",
        { class: "matrix lesson-few" },
        make(
          "caption",
          {},
          after
            ? `First numbers of the output, ${f.d_model.toLocaleString("en")} in all`
            : `First numbers of its ${f.d_value} in the concat`,
        ),
        ...lines,
      ),
    );
  };
  draw();
  return make(
    "div",
    {},
    toggles("Side of Wo", ["Before Wo", "After Wo"], 0, (at) => {
      after = at === 1;
      draw();
    }),
    said,
    make(
      "div",
      { class: "lesson-owners", role: "group", "aria-label": "Heads and the numbers they fill" },
      make(
        "div",
        { class: "lesson-owner titles" },
        ...["head", "numbers it fills", "share of the output", ""].map((one) =>
          make("span", {}, one),
        ),
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
      `Checked: the heads${f.bias ? " and the bias" : ""} ${f.adds_up ? "add up to" : "miss"} the output; the largest difference is ${number(f.difference)}.`,
    ),
  );
}

/** Heads silenced one at a time. @param {any} f */
export function spare(f) {
  let silent = -1;
  /** Heads whose effect is known: the question asks for it. @type {Set<any>} */
  const tried = new Set();
  const kind = `lesson-owner spare${f.has_roles ? " with-roles" : ""}`,
    all = f.heads.length;
  const most = Math.max(...f.heads.map((/** @type {any} */ one) => one.effect)) || 1,
    answer = make("div", { class: "lesson-answer", "aria-live": "polite" });
  const row = (/** @type {any} */ one, /** @type {number} */ at) => {
    const isKnown = tried.has(one),
      place = tried.size === all ? `, ${at ? `${ordinal(at + 1)} ` : ""}most missed of ${all}` : "";
    return make(
      "button",
      {
        type: "button",
        class: kind,
        "data-head": one.name,
        "aria-pressed": String(f.heads.indexOf(one) === silent),
        onclick: () => press(one),
        "aria-label": `Silence ${one.name}${place}${isKnown ? `: effect ${number(one.effect)}` : ""}`,
      },
      make("span", {}, `${tried.size === all ? `${one.rank}. ` : ""}${one.name}`),
      bar(isKnown ? one.effect / most : 0),
      make("span", { class: "number" }, isKnown ? number(one.effect) : "?"),
      ...(f.has_roles
        ? [make("span", { class: "lesson-roles" }, one.roles.join(", ") || "no clear role")]
        : []),
    );
  };
  const titles = make(
    "div",
    { class: `${kind} titles` },
    ...["head", "how far the answer moves", "", ...(f.has_roles ? ["roles"] : [])].map((one) =>
      make("span", {}, one),
    ),
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
        f.heads.forEach((/** @type {any} */ one) => tried.add(one));
        draw();
        focus(f.heads[0]);
      },
    },
    "Show and rank all",
  );
  /** @param {any} one */
  function press(one) {
    const at = f.heads.indexOf(one);
    silent = silent === at ? -1 : at;
    tried.add(one);
    draw();
    focus(one);
  }
  /** The button that had it is gone. @param {any} one */
  function focus(one) {
    /** @type {HTMLElement | null} */ (list.querySelector(`[data-head="${one.name}"]`))?.focus();
  }
  function draw() {
    const ordered =
      tried.size === all ? f.heads : [...f.heads].sort((one, other) => one.head - other.head);
    list.replaceChildren(titles, ...ordered.map(row));
    show.hidden = tried.size === all;
    answer.replaceChildren(
      make(
        "p",
        { class: "lesson-said" },
        silent < 0 ? "No head is silent." : `${f.heads[silent].name} is silent.`,
      ),
      ...(f.next.length ? [continued(f, silent)] : [measured(f, silent)]),
    );
  }
  draw();
  const words = Object.entries(f.role_words).filter(([, said]) => said);
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
            ...words.flatMap(([role, said]) => [make("dt", {}, role), make("dd", {}, said)]),
          ),
        ]
      : []),
  );
}

/** What a causal model would go on with. @param {any} f @param {number} silent */
function continued(f, silent) {
  const after = silent < 0 ? null : f.heads[silent].next,
    top =
      Math.max(...f.next.map((/** @type {any} */ one) => one.probability), ...(after ?? [0])) || 1;
  return make(
    "table",
    { class: "lesson-next" },
    make("caption", {}, "What the model would go on with"),
    make(
      "tr",
      {},
      ...[
        "token",
        "untouched",
        silent < 0 ? "one head silent" : `without ${f.heads[silent].name}`,
      ].map((one) => make("th", { scope: "col" }, one)),
    ),
    ...f.next.map((/** @type {any} */ one, /** @type {number} */ at) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, label(one.token)),
        make("td", {}, bar(one.probability / top), one.probability.toFixed(3)),
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

/** What each unit is called, and says when nothing changes. */
const UNITS = /** @type {Record<string, [string, string]>} */ ({
  cosine: ["Cosine to the untouched embedding", "1.0000"],
  nats: ["How far its predictions move, in nats", "0"],
  loss: ["Loss", "unchanged"],
});

/** The answer's distance from the untouched one. @param {any} f @param {number} silent */
function measured(f, silent) {
  const [words, usual] = UNITS[f.unit],
    value = f.heads[silent]?.value;
  return make(
    "p",
    {},
    `${words}: `,
    make(
      "strong",
      { class: "lesson-value" },
      silent < 0 ? usual : f.unit === "cosine" ? value.toFixed(4) : number(value),
    ),
  );
}
