// @ts-check
/** The lesson: seven steps around one sentence, and an exercise by hand. */

/** @import {AnswerVerdict, LessonAnswer, ModelAnswer} from "../types.js" */
/** @import {Place, StepAnswer} from "../types.js" */
/** @import {Page} from "../page.js" */
/** @import {Figure} from "./parts.js" */
/** @import {Tried} from "./question.js" */

import * as api from "../api.js";
import { make } from "../stage/dom.js";
import { isWaiting, makeFigure } from "./figures.js";
import { look, vars } from "./parts.js";
import { Outline, storeDone, storedDone } from "./outline.js";
import { Question } from "./question.js";
import { holdPlace } from "./place.js";
import { lightUp, nodes, paragraph, plain } from "./runs.js";
import { SentenceForm } from "./sentence_form.js";

const STYLE = "/static/lesson/lesson.css";
/** Milliseconds before a step that takes time says so. */
const SLOW = 400;
const MORE = "The picture goes on here once you have answered.";
const READS = "The model reads the sentence for the lesson \u2026";

export class LessonPanel {
  /** @param {ModelAnswer} about @param {Page} page */
  constructor(about, page) {
    this.about = about;
    this.page = page;
    this.text = "";
    /** Key of the step that is shown or awaited. */
    this.requested = "";
    /** @type {LessonAnswer | null} */
    this.answer = null;
    /** Where the figure goes on after the answer. @type {HTMLElement | ""} */
    this.more = "";
    /** Questions that were tried, by their key. @type {Record<string, Tried>} */
    this.tried = {};
    this.done = storedDone();
    /** @type {Figure | null} */
    this.figure = null;
    this.lesson = {
      about,
      theme: () => page.theme(),
      follow: (/** @type {number} */ position) => this.follow(position),
    };
    /** Light up what a name in the text stands for. @param {string} target */
    this.point = (target) => {
      lightUp(this.drawn, target);
      this.figure?.aim?.(target);
    };
    this.outline = new Outline((name) => page.host.set({ step: name }, "push"));
    this.form = new SentenceForm((text) => page.read(text));
    this.bar = make("div", { class: "lesson-bar" }, this.outline.el, this.form.el);
    this.prose = make("div", { class: "lesson-text" });
    this.drawn = make("div", { class: "lesson-figure" });
    this.rest = make("div", { class: "lesson-rest" });
    const parts = [this.bar, this.prose, this.drawn, this.rest];
    this.step = make("article", { class: "lesson", "aria-busy": "true" }, ...parts);
    this.announce("The lesson begins once the sentence has been read.");
    document.getElementById("lesson")?.append(this.step);
    if (!document.querySelector('link[href$="lesson/lesson.css"]'))
      document.head.append(make("link", { rel: "stylesheet", href: STYLE }));
  }

  /** A new text was read. @param {unknown} _ @param {string} text */
  read(_, text) {
    if (text !== this.text && this.text) this.page.host.set({ follow: "" }, "replace");
    this.text = text;
    if (!this.answer) this.requested = "";
  }

  /** @param {Set<string>} changed */
  show(changed) {
    if (!this.text) return;
    const isMoved = changed.has("step") && Boolean(this.answer);
    if (this.key() !== this.requested) this.ask(isMoved);
    else if (changed.has("panel")) this.figure?.shown?.();
  }

  /** The theme has changed. */
  light() {
    this.figure?.light?.();
  }

  /** The step that is asked for, with the sentence and the word that it follows. */
  body() {
    const [{ host }, { pair }, text] = [this.page, this.about, this.text];
    const [, layer, head, position] = /^L(\d+)H(\d+)-(\d+)$/.exec(host.get("follow")) ?? [];
    const known = pair?.text === text ? pair.other : null;
    return {
      text,
      other: host.get("swap") || known,
      step: host.get("step"),
      ...(layer ? { layer: Number(layer), head: Number(head), position: Number(position) } : {}),
    };
  }

  /** Key of the step; once a scan has found roles, the lesson uses them. */
  key() {
    return JSON.stringify([this.body(), this.page.isScanned]);
  }

  /** Fetch the step. @param {boolean} [isMoved] the learner went to another step */
  async ask(isMoved = false) {
    this.asking?.abort();
    const mine = (this.asking = new AbortController());
    this.requested = this.key();
    const body = this.body();
    const isOther = body.text !== this.sent?.text;
    this.sent = body;
    delete document.body.dataset.lesson;
    this.step.setAttribute("aria-busy", "true");
    const slow = setTimeout(() => {
      if (isOther || isMoved) this.announce(READS, body.step);
    }, SLOW);
    try {
      const outline = await api.post("/api/lesson", { ...body, is_outline: true }, mine.signal);
      this.answer = /** @type {LessonAnswer} */ (outline);
      clearTimeout(slow);
      this.draw(isMoved);
      if (isWaiting(this.answer?.step)) await this.measure(mine.signal);
    } catch (error) {
      clearTimeout(slow);
      if (!mine.signal.aborted) this.refuse(/** @type {api.Refused} */ (error));
    }
  }

  /** @param {string} text @param {string} [of] name of the step that is awaited */
  announce(text, of = "") {
    this.figure?.destroy?.();
    this.figure = null;
    this.drawn.replaceChildren();
    this.rest.replaceChildren();
    const step = this.outline.steps.find(({ name }) => name === of);
    const wait = make("p", { class: "lesson-wait", role: "status" }, text);
    this.prose.replaceChildren(...(step ? [make("h2", {}, step.title), wait] : [wait]));
  }

  /** Fetch the figure of a step whose text is shown already. @param {AbortSignal} signal */
  async measure(signal) {
    const answer = await api.post("/api/lesson", this.sent ?? {}, signal);
    this.answer = /** @type {LessonAnswer} */ (answer);
    this.drawFigure();
    const { step } = this.answer;
    const tried = this.tried[this.questionKey(step)];
    if (tried?.verdict.is_over) this.reveal(false);
    document.body.dataset.lesson = step.name;
  }

  /** Show why the server could not make the step. @param {api.Refused} error */
  refuse(error) {
    const { host } = this.page;
    for (const key of ["step", "follow"]) {
      const isUnknown = /^(step|layer|head|position) is/.test(error.message) && host.get(key);
      if (isUnknown && error.message.startsWith("step") === (key === "step"))
        return host.set({ [key]: "" }, "replace"); // from another sentence or an old link
    }
    this.announce("");
    const again = make("button", { type: "button" }, "Ask again");
    again.addEventListener("click", () => this.ask());
    this.prose.replaceChildren(
      make("p", { class: "is-wrong", role: "alert" }, `There is no lesson: ${error.message}.`),
      ...(error.status === 422 ? [] : [again]),
    );
    this.step.removeAttribute("aria-busy");
  }

  /** Follow another piece of the text, in the same head. @param {number} position */
  follow(position) {
    const place = this.place();
    if (!place || position === place.position) return;
    const follow = `L${place.layer}H${place.head}-${position}`;
    this.page.host.set({ follow }, "push");
    this.show(new Set());
  }

  /** @returns {Place | null} */
  place() {
    const figures = this.answer?.step.figures;
    return figures && "place" in figures ? figures.place : null;
  }

  /** @param {boolean} isMoved */
  draw(isMoved) {
    const { step, steps, heading } = /** @type {LessonAnswer} */ (this.answer);
    const at = steps.findIndex(({ name }) => name === step.name);
    const place = this.place();
    const light = this.point;
    const title = make("h2", { tabindex: -1, id: "lesson-title" }, step.title);
    this.after = make("div", { class: "lesson-after" });
    this.question = new Question(step.question, null, {
      check: (answer) => this.check(step, answer),
      light,
    });
    this.outline.draw(steps, at, this.done);
    const count = at < 7 ? `${at + 1} of 7` : "exercise";
    this.prose.replaceChildren(
      make("p", { class: "lesson-where" }, ...nodes(heading), ` \u00b7 ${count}`),
      title,
      ...step.paragraphs.map((runs) => paragraph(runs, light)),
    );
    this.rest.replaceChildren(this.question.el, this.after, this.outline.moves(steps, at));
    this.drawFigure();
    vars(this.step, {
      tone: place ? look(place, this.lesson).tone : "var(--text)",
      ink: place?.roles?.length ? look(place, this.lesson).tone : "var(--text)",
    });
    this.form.fill(this.sent?.text ?? "");
    this.step.removeAttribute("aria-busy");
    this.step.setAttribute("aria-labelledby", "lesson-title");
    const tried = this.tried[this.questionKey(step)];
    if (tried) this.judge(step, tried, false);
    if (isMoved) {
      title.focus({ preventScroll: true });
      scrollTo({ top: 0 });
    }
    if (!isWaiting(this.answer?.step)) document.body.dataset.lesson = step.name;
  }

  drawFigure() {
    const { step } = /** @type {LessonAnswer} */ (this.answer);
    const note = this.place()?.note ?? "";
    this.figure?.destroy?.();
    this.figure = makeFigure(step, this.lesson);
    const notes = note ? [make("p", { class: "lesson-note" }, note)] : [];
    this.more = step.name === "by-hand" ? "" : make("p", { class: "lesson-more" }, MORE);
    this.drawn.replaceChildren(...notes, this.figure.el, this.more);
    this.figure.shown?.();
  }

  /** Show the rest of the figure, in the place that was kept for it. @param {boolean} moves */
  reveal(moves) {
    if (isWaiting(this.answer?.step)) return;
    if (this.more) this.more.remove();
    this.figure?.reveal(moves);
  }

  /** @param {StepAnswer} step */
  questionKey(step) {
    return JSON.stringify([step.name, plain(step.question.text), step.question.options]);
  }

  /** @param {StepAnswer} step @param {string | null} answer */
  async check(step, answer) {
    const key = this.questionKey(step);
    const answers = [...(this.tried[key]?.answers ?? []), answer];
    try {
      const body = { ...this.sent, step: step.name, answer, attempt: answers.length };
      const verdict = /** @type {AnswerVerdict} */ (await api.post("/api/lesson/check", body));
      this.tried[key] = { answers, verdict };
      if (verdict.is_over) this.done[step.name] = verdict.is_right || Boolean(this.done[step.name]);
      storeDone(this.done);
      if (this.answer && this.questionKey(this.answer.step) === key) {
        const { question } = this;
        const hold = question ? holdPlace(question.el, question.verdict) : () => {};
        this.judge(this.answer.step, this.tried[key], true);
        hold();
      }
    } catch (error) {
      this.question?.say(api.sentence(/** @type {Error} */ (error)));
    }
  }

  /**
   * Show a verdict, and what follows the solution.
   * @param {StepAnswer} step
   * @param {Tried} tried
   * @param {boolean} moves
   */
  judge(step, tried, moves) {
    this.question?.show(tried);
    const { steps } = /** @type {LessonAnswer} */ (this.answer);
    this.outline.draw(
      steps,
      steps.findIndex(({ name }) => name === step.name),
      this.done,
    );
    if (!tried.verdict.is_over) return;
    const light = this.point;
    const exercise = make("p", { class: "lesson-exercise" }, make("strong", {}, "Try it. "));
    exercise.append(...nodes(step.exercise, light));
    this.after?.replaceChildren(
      ...tried.verdict.after.map((runs) => paragraph(runs, light)),
      exercise,
      ...(step.name === "output" ? [this.outline.aside("by-hand")] : []),
    );
    this.reveal(moves);
    document.body.dataset.answered = step.name;
  }
}
