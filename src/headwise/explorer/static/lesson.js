// @ts-check
/** The lesson: a warm-up and seven steps on the learner's own sentence. */

/** @import {AnswerVerdict, ProjectionsFigure, StepAnswer} from "./types.js" */
/** @import {Panel} from "./lesson_parts.js" */
/** @import {Page} from "./page.js" */

import * as api from "./api.js";
import { make } from "./head_view.js";
import * as first from "./lesson_many_heads.js";
import * as last from "./lesson_scores_to_output.js";
import { named } from "./lesson_parts.js";
import * as state from "./state.js";

/** @type {Record<string, (figures: never, panel: Panel) => HTMLElement>} */
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

/**
 * Answered steps, and whether the answers were right; empty if the browser stores nothing.
 * @returns {Record<string, boolean>}
 */
function storedAnswers() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT) ?? "{}") ?? {};
  } catch {
    return {};
  }
}

/** @param {unknown} left @param {unknown} right */
const isSame = (left, right) => JSON.stringify(left) === JSON.stringify(right);

/** The question in a step of a lesson. @param {StepAnswer[] | null} steps @param {string} name */
const questionOf = (steps, name) => steps?.find((step) => step.name === name)?.question;

export class LessonPanel {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.text = "";
    /** Key of the lesson that is shown or awaited. */
    this.requested = "";
    /** Layer, head and token that the learner chose. @type {Record<string, number>} */
    this.place = {};
    /** @type {StepAnswer[] | null} */
    this.steps = null;
    /** Answers by step. @type {Record<string, AnswerVerdict & {text: string}>} */
    this.answers = {};
    this.done = storedAnswers();
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
    if (!this.steps) this.requested = "";
    if (text !== this.text) this.place = {};
    this.text = text;
  }

  /** @param {Set<string>} changed */
  show(changed) {
    if (!this.text) return;
    if (this.wanted() !== this.requested) this.ask();
    else if (this.steps && (changed.has("step") || !this.drawn))
      this.draw(changed.has("step") && Boolean(this.drawn));
  }

  /** Key of the lesson to show; once a scan has found roles, the last step names them. */
  wanted() {
    return JSON.stringify([this.text, this.place, this.page.isScanned]);
  }

  /** Fetch the lesson. @param {string} [focus] selector of the element to focus afterwards */
  async ask(focus) {
    this.asking?.abort();
    const mine = (this.asking = new AbortController());
    const isOther = this.text !== this.sent?.text; // if not, keep the step until the answer arrives
    this.requested = this.wanted();
    this.sent = { text: this.text, ...this.place };
    delete document.body.dataset.lesson;
    this.step.setAttribute("aria-busy", "true");
    if (!this.steps || isOther)
      this.tell(
        make("p", { class: "hint" }, "The model is reading your sentence for the lesson \u2026"),
      );
    try {
      const steps = await api.post("/api/lesson", this.sent, mine.signal);
      this.renew(/** @type {StepAnswer[]} */ (steps));
      if (focus) /** @type {HTMLElement | null} */ (this.step.querySelector(focus))?.focus();
    } catch (error) {
      if (!mine.signal.aborted) this.refuse(/** @type {api.Refused} */ (error));
    }
  }

  /**
   * Replace the lesson: unchanged questions keep their answers, and an unchanged step is not drawn
   * again.
   * @param {StepAnswer[]} steps
   */
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

  /** Elements in the step that can have the focus. @returns {HTMLElement[]} */
  fields() {
    return [
      .../** @type {NodeListOf<HTMLElement>} */ (
        this.step.querySelectorAll("button, input, [tabindex]")
      ),
    ];
  }

  /** Content of the answer's field, even if it was not submitted. @returns {string} */
  typed() {
    const form = this.step.querySelector("form");
    return form ? String(new FormData(form).get("answer") ?? "") : "";
  }

  /** @param {string} answer */
  put(answer) {
    for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (
      this.step.querySelectorAll("input[name=answer]")
    )) {
      if (input.type === "radio") input.checked = input.value === answer;
      else input.value = answer;
    }
  }

  /** @param {...Node} what */
  tell(...what) {
    this.steps = null;
    this.drawn = "";
    this.list.replaceChildren();
    this.step.replaceChildren(...what);
  }

  /** Show why the server could not make the lesson. @param {api.Refused} error */
  refuse(error) {
    const again = make("button", { type: "button", onclick: () => this.ask() }, "Ask again");
    this.tell(
      make("p", { class: "bad", role: "alert" }, `There is no lesson: ${error.message}`),
      ...(error.status === 422 ? [] : [again]),
    );
    this.step.removeAttribute("aria-busy");
  }

  /** Follow another token in the same head. @param {number} position */
  choose(position) {
    const figure = /** @type {ProjectionsFigure | undefined} */ (this.steps?.[1].figures);
    if (!figure) return;
    const { layer, head, tokens } = figure.place;
    this.place = { layer, head, position };
    this.page.say(`The lesson now follows ${named(tokens, position)}.`);
    this.ask(`[data-token="${position}"]`);
  }

  /** Index of the step in the address; 0, the warm-up, if there is no such step. */
  at() {
    return Math.max(
      0,
      (this.steps ?? []).findIndex((step) => step.name === state.get("step")),
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
    const number = at ? `Step ${at} of ${steps.length - 1}` : "Warm-up";
    this.step.replaceChildren(
      make(
        "div",
        { class: "lesson-body" },
        make(
          "div",
          { class: "lesson-head" },
          make("p", { class: "legend" }, `${number}, ${inMinutes(step.minutes)}${where}`),
          title,
        ),
        make(
          "div",
          { class: "lesson-words" },
          ...step.paragraphs.map((paragraph) => make("p", {}, paragraph)),
        ),
        make(
          "div",
          { class: "lesson-figure" },
          make("h4", {}, "Try it"),
          make("p", { class: "lesson-exercise" }, step.exercise),
          FIGURES[step.name](/** @type {never} */ (step.figures), this),
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

  /** Draw the list of steps, with marks for answered ones. */
  mark() {
    const steps = this.steps ?? /** @type {StepAnswer[]} */ ([]),
      at = this.at(),
      right = steps.filter((step) => this.done[step.name]).length;
    const items = steps.map(({ name, title, minutes }, number) => {
      const link = {
        href: `#panel=lesson&step=${name}`,
        "data-step": name,
        "aria-current": number === at ? "step" : null,
        onclick: state.follow({ panel: "lesson", step: name }),
      };
      const mark = this.done[name] ? "\u2713" : String(number || "\u2013");
      const tried = this.done[name] ? ", answered" : ", tried";
      const time = ` ${inMinutes(minutes)}${name in this.done ? tried : ""}`;
      return make(
        "li",
        {},
        make(
          "a",
          link,
          make("span", { class: "lesson-mark", "aria-hidden": "true" }, mark),
          make("span", {}, title, make("small", {}, time)),
        ),
      );
    });
    const open =
      /** @type {HTMLDetailsElement | null} */ (this.list.firstElementChild)?.open ??
      matchMedia(WIDE).matches;
    const total = steps.reduce((sum, step) => sum + step.minutes, 0);
    const praise = right === steps.length ? " Well done: that is all of them." : "";
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
        `${right} of ${steps.length} questions answered.${praise}`,
      ),
    );
  }

  /** @param {StepAnswer} step */
  question(step) {
    const { question } = step,
      verdict = make("div", { class: "lesson-verdict", "aria-live": "polite" });
    const known = this.answers[step.name];
    const field =
      question.kind === "choice"
        ? make(
            "fieldset",
            {},
            make("legend", {}, question.text),
            ...question.options.map((option, at) =>
              make(
                "label",
                {},
                make("input", {
                  type: "radio",
                  name: "answer",
                  value: at,
                  checked: known?.text === String(at),
                }),
                make("span", {}, option),
              ),
            ),
          )
        : make(
            "div",
            {},
            make("label", { for: "lesson-number" }, question.text),
            make("input", {
              id: "lesson-number",
              type: "text",
              name: "answer",
              inputmode: "decimal",
              autocomplete: "off",
              maxlength: 60,
              value: known?.text ?? "",
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

  /** @param {StepAnswer} step @param {string} answer @param {HTMLElement} verdict */
  async check(step, answer, verdict) {
    const say = (/** @type {string} */ text) =>
      verdict.replaceChildren(make("p", { class: "bad" }, text));
    const isChoice = step.question.kind === "choice";
    if (!answer.trim())
      return say(isChoice ? "Choose one of the answers first." : "Write a number first.");
    try {
      const body = { ...this.sent, step: step.name, answer };
      const judgement = /** @type {AnswerVerdict} */ (await api.post("/api/lesson/check", body));
      // The question may have changed meanwhile.
      if (!isSame(questionOf(this.steps, step.name), step.question)) return;
      this.answers[step.name] = { text: answer, ...judgement };
      const drawn = /** @type {HTMLElement | null} */ (this.step.querySelector(".lesson-verdict"));
      const isGone = !verdict.isConnected && this.drawn === step.name;
      this.judge((isGone && drawn) || verdict, judgement);
      this.done[step.name] = judgement.is_right || Boolean(this.done[step.name]);
      try {
        sessionStorage.setItem(KEPT, JSON.stringify(this.done));
      } catch {
        /* then only this page shows the marks */
      }
      this.mark();
    } catch (error) {
      say(api.sentence(/** @type {Error} */ (error)));
    }
  }

  /** @param {HTMLElement} verdict @param {AnswerVerdict} judgement */
  judge(verdict, { is_right, sentence, why }) {
    verdict.replaceChildren(
      make(
        "p",
        { class: is_right ? "good" : "bad" },
        make("strong", {}, `${is_right ? "\u2713" : "\u2717"} ${sentence}`),
      ),
      make("p", {}, why),
    );
  }
}
