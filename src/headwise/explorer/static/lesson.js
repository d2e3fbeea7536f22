// @ts-check
/** The lesson: a warm-up and seven steps on the learner's own sentence, each with a figure and a question. */

/** @import {ModelAnswer, ProjectionsFigure, StepAnswer, AnswerVerdict} from "./types.js" */

import * as api from "./api.js";
import { make } from "./head_view.js";
import * as first from "./lesson_many_heads.js";
import * as last from "./lesson_scores_to_output.js";
import { named } from "./lesson_parts.js";
import * as state from "./state.js";

/** @type {Record<string, (figures: any, panel: any) => HTMLElement>} */
const FIGURES = {
  "warm-up": first.warmUp,
  "why-many": first.whyMany,
  projections: first.projections,
  heads: first.heads,
  scores: last.scores,
  mixing: last.mixing,
  output: last.output,
  spare: last.spare,
};
const KEPT = "headwise-lesson";
const WIDE = "(min-width: 861px)";

/** @param {number} minutes */
const inMinutes = (minutes) => `${Math.floor(minutes) || ""}${minutes % 1 ? "\u00bd" : ""} min`;

/** Steps that were answered, and whether rightly; a browser may refuse to keep them. @returns {Record<string, boolean>} */
function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? "{}") ?? {};
  } catch {
    return {};
  }
}

/** @param {unknown} one @param {unknown} other */
const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** What a lesson asks in a step. @param {StepAnswer[] | null} steps @param {string} name */
const questionOf = (steps, name) => steps?.find((one) => one.name === name)?.question;

export class LessonPanel {
  /** @param {ModelAnswer} about @param {{say: (text: string) => void, panels?: Record<string, any>}} page */
  constructor(about, page) {
    this.page = page;
    this.text = "";
    this.asked = "";
    /** What the learner chose of layer, head and token. @type {Record<string, number>} */
    this.place = {};
    /** @type {StepAnswer[] | null} */
    this.steps = null;
    /** Answers to this lesson's questions. @type {Record<string, any>} */
    this.answers = {};
    this.done = kept();
    this.list = make("div", {
      class: "lesson-steps",
      role: "navigation",
      "aria-label": "Steps of the lesson",
    });
    this.step = make(
      "article",
      { class: "lesson-step", "aria-busy": "true" },
      make("p", { class: "hint" }, "The lesson begins once your text has been read."),
    );
    document
      .getElementById("steps")
      ?.append(make("div", { class: "lesson" }, this.list, this.step));
  }

  /** A new text was read. @param {unknown} _ @param {string} text */
  read(_, text) {
    if (!this.steps) this.asked = "";
    if (text !== this.text) this.place = {};
    this.text = text;
  }

  /** @param {Set<string>} changed */
  show(changed) {
    if (!this.text) return;
    if (this.wanted() !== this.asked) this.ask();
    else if (this.steps && (changed.has("step") || !this.drawn))
      this.draw(changed.has("step") && Boolean(this.drawn));
  }

  /** What the lesson is about: with roles found, its last step tells of them. */
  wanted() {
    return JSON.stringify([this.text, this.place, Boolean(this.page.panels?.heads?.found.scan)]);
  }

  /** The lesson on this text and place. @param {string} [focus] what has the focus when it is drawn */
  async ask(focus) {
    this.asking?.abort();
    const mine = (this.asking = new AbortController());
    const isOther = this.text !== this.sent?.text; // else the step stays until the answer comes
    this.asked = this.wanted();
    this.sent = { text: this.text, ...this.place };
    delete document.body.dataset.lesson;
    this.step.setAttribute("aria-busy", "true");
    if (!this.steps || isOther)
      this.tell(
        make("p", { class: "hint" }, "The model is reading your sentence for the lesson \u2026"),
      );
    try {
      this.renew(await api.post("/api/lesson", this.sent, mine.signal));
      if (focus) this.step.querySelector(focus)?.focus();
    } catch (error) {
      if (!mine.signal.aborted) this.refuse(/** @type {api.Refused} */ (error));
    }
  }

  /** The same lesson again, or another: whatever is still asked keeps its answer, and what is unchanged is not drawn anew. @param {StepAnswer[]} steps */
  renew(steps) {
    const before = this.steps,
      at = this.at(),
      was = before?.[at],
      high = scrollY,
      typed = this.typed();
    const index = this.fields().indexOf(/** @type {HTMLElement} */ (document.activeElement));
    this.steps = steps;
    this.answers = Object.fromEntries(
      Object.entries(this.answers).filter(([name]) =>
        isSame(questionOf(before, name), questionOf(steps, name)),
      ),
    );
    if (was && this.drawn === was.name && isSame(was, steps[at])) {
      this.step.removeAttribute("aria-busy");
      document.body.dataset.lesson = was.name;
      return;
    }
    this.draw();
    if (!was || !isSame(was.question, steps[at].question)) return;
    this.put(typed);
    this.fields()[index]?.focus({ preventScroll: true });
    scrollTo({ top: high });
  }

  /** What can have the focus in the step. @returns {HTMLElement[]} */
  fields() {
    return [
      .../** @type {NodeListOf<HTMLElement>} */ (
        this.step.querySelectorAll("button, input, [tabindex]")
      ),
    ];
  }

  /** What is in the answer's field, checked or not. @returns {string} */
  typed() {
    const form = this.step.querySelector("form");
    return form ? String(new FormData(form).get("answer") ?? "") : "";
  }

  /** @param {string} given */
  put(given) {
    for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (
      this.step.querySelectorAll("input[name=answer]")
    )) {
      if (input.type === "radio") input.checked = input.value === given;
      else input.value = given;
    }
  }

  /** @param {...Node} what */
  tell(...what) {
    this.steps = null;
    this.drawn = "";
    this.list.replaceChildren();
    this.step.replaceChildren(...what);
  }

  /** What the server said against a lesson. @param {api.Refused} error */
  refuse(error) {
    const again = make("button", { type: "button", onclick: () => this.ask() }, "Ask again");
    this.tell(
      make("p", { class: "bad", role: "alert" }, `There is no lesson: ${error.message}`),
      ...(error.status === 422 ? [] : [again]),
    );
    this.step.removeAttribute("aria-busy");
  }

  /** Follow another token, in the same head. @param {number} position */
  choose(position) {
    const figure = /** @type {ProjectionsFigure | undefined} */ (this.steps?.[1].figures);
    if (!figure) return;
    const { layer, head, tokens } = figure.place;
    this.place = { layer, head, position };
    this.page.say(`The lesson now follows ${named(tokens, position)}.`);
    this.ask(`[data-token="${position}"]`);
  }

  /** Index of the step in the address; the warm-up, if there is no such step. */
  at() {
    return Math.max(
      0,
      (this.steps ?? []).findIndex((one) => one.name === state.get("step")),
    );
  }

  /** @param {boolean} [isMoved] */
  draw(isMoved = false) {
    const steps = this.steps ?? /** @type {StepAnswer[]} */ ([]),
      at = this.at(),
      step = steps[at],
      place = "place" in step.figures ? step.figures.place : null;
    const title = make("h3", { tabindex: -1, id: "lesson-step" }, step.title);
    const where = place
      ? `, on head ${place.name} and the token ${named(place.tokens, place.position)}`
      : "";
    this.step.replaceChildren(
      make(
        "div",
        { class: "lesson-body" },
        make(
          "div",
          { class: "lesson-head" },
          make(
            "p",
            { class: "legend" },
            `${at ? `Step ${at} of ${steps.length - 1}` : "Warm-up"}, ${inMinutes(step.minutes)}${where}`,
          ),
          title,
        ),
        make(
          "div",
          { class: "lesson-words" },
          ...step.paragraphs.map((/** @type {string} */ one) => make("p", {}, one)),
        ),
        make(
          "div",
          { class: "lesson-figure" },
          make("h4", {}, "Try it"),
          make("p", { class: "lesson-exercise" }, step.exercise),
          FIGURES[step.name](step.figures, this),
        ),
        this.question(step),
      ),
      this.buttons(at),
    );
    this.step.removeAttribute("aria-busy");
    this.step.setAttribute("aria-labelledby", "lesson-step");
    this.drawn = step.name;
    this.mark();
    if (isMoved) {
      title.focus({ preventScroll: true });
      this.step.scrollIntoView({ block: "start" });
    }
    document.body.dataset.lesson = step.name;
  }

  /** @param {number} at */
  buttons(at) {
    const steps = this.steps ?? /** @type {StepAnswer[]} */ ([]),
      go = (/** @type {number} */ to) => () => state.go({ step: steps[to].name });
    return make(
      "div",
      { class: "controls lesson-moves" },
      make("button", { type: "button", disabled: at === 0, onclick: go(at - 1) }, "Previous"),
      make(
        "button",
        {
          type: "button",
          class: "lesson-next-step",
          disabled: at === steps.length - 1,
          onclick: go(at + 1),
        },
        "Next",
      ),
      make(
        "span",
        { class: "legend" },
        at < steps.length - 1
          ? `Next: ${steps[at + 1].title}`
          : "This was the last step. Write another sentence above and see what changes.",
      ),
    );
  }

  /** The list of steps, with what was answered. */
  mark() {
    const steps = this.steps ?? /** @type {StepAnswer[]} */ ([]),
      at = this.at(),
      right = steps.filter((one) => this.done[one.name]).length;
    const items = steps.map((one, other) =>
      make(
        "li",
        {},
        make(
          "a",
          {
            href: `#panel=lesson&step=${one.name}`,
            "data-step": one.name,
            "aria-current": other === at ? "step" : null,
            onclick: state.follow({ panel: "lesson", step: one.name }),
          },
          make(
            "span",
            { class: "lesson-mark", "aria-hidden": "true" },
            this.done[one.name] ? "\u2713" : other ? String(other) : "\u2013",
          ),
          make(
            "span",
            {},
            one.title,
            make(
              "small",
              {},
              ` ${inMinutes(one.minutes)}${one.name in this.done ? `, ${this.done[one.name] ? "answered" : "tried"}` : ""}`,
            ),
          ),
        ),
      ),
    );
    const open =
      /** @type {HTMLDetailsElement | null} */ (this.list.firstElementChild)?.open ??
      matchMedia(WIDE).matches;
    const total = steps.reduce((sum, one) => sum + one.minutes, 0);
    this.list.replaceChildren(
      make(
        "details",
        { open },
        make("summary", {}, `A warm-up and ${steps.length - 1} steps, ${inMinutes(total)}`),
        make("ol", {}, ...items),
      ),
      make(
        "p",
        { class: "legend", id: "lesson-progress" },
        `${right} of ${steps.length} questions answered.${right === steps.length ? " Well done: that is all of them." : ""}`,
      ),
    );
  }

  /** @param {StepAnswer} step */
  question(step) {
    const asked = step.question,
      verdict = make("div", { class: "lesson-verdict", "aria-live": "polite" });
    const known = this.answers[step.name];
    const field =
      asked.kind === "choice"
        ? make(
            "fieldset",
            {},
            make("legend", {}, asked.text),
            ...asked.options.map((/** @type {string} */ option, /** @type {number} */ at) =>
              make(
                "label",
                {},
                make("input", {
                  type: "radio",
                  name: "answer",
                  value: at,
                  checked: known?.given === String(at),
                }),
                make("span", {}, option),
              ),
            ),
          )
        : make(
            "div",
            {},
            make("label", { for: "lesson-number" }, asked.text),
            make("input", {
              id: "lesson-number",
              type: "text",
              name: "answer",
              inputmode: "decimal",
              autocomplete: "off",
              maxlength: 60,
              value: known?.given ?? "",
            }),
          );
    if (known) this.judge(verdict, known);
    const form = make(
      "form",
      {
        class: "lesson-question",
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          this.check(step, String(new FormData(form).get("answer") ?? ""), verdict);
        },
      },
      make("h4", {}, "Question"),
      field,
      make("button", { type: "submit" }, "Check"),
      verdict,
    );
    return form;
  }

  /** @param {StepAnswer} step @param {string} given @param {HTMLElement} verdict */
  async check(step, given, verdict) {
    const say = (/** @type {string} */ text) =>
      verdict.replaceChildren(make("p", { class: "bad" }, text));
    if (!given.trim())
      return say(
        step.question.kind === "choice"
          ? "Choose one of the answers first."
          : "Write a number first.",
      );
    try {
      const found = await api.post("/api/lesson/check", {
        ...this.sent,
        step: step.name,
        answer: given,
      });
      if (!isSame(questionOf(this.steps, step.name), step.question)) return; // something else is asked by now
      this.answers[step.name] = { given, ...found };
      this.judge(
        verdict.isConnected || this.drawn !== step.name
          ? verdict
          : this.step.querySelector(".lesson-verdict"),
        found,
      );
      this.done[step.name] = found.is_right || Boolean(this.done[step.name]);
      try {
        sessionStorage.setItem(KEPT, JSON.stringify(this.done));
      } catch {
        /* it is only marked on this page, then */
      }
      this.mark();
    } catch (error) {
      say(api.sentence(/** @type {Error} */ (error)));
    }
  }

  /** @param {HTMLElement} verdict @param {AnswerVerdict} found */
  judge(verdict, found) {
    verdict.replaceChildren(
      make(
        "p",
        { class: found.is_right ? "good" : "bad" },
        make("strong", {}, `${found.is_right ? "\u2713" : "\u2717"} ${found.sentence}`),
      ),
      make("p", {}, found.why),
    );
  }
}
