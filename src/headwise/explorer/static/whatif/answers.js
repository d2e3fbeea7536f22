// @ts-check
/** Requests of What if: the change, its random control, generated text, and a search for heads. */

/** @import {FoundHeadsAnswer, GenerateAnswer, ProgressAnswer} from "../types.js" */
/** @import {RandomAnswer, WhatIfAnswer} from "../types.js" */

import * as api from "../api.js";
import { TOKENS } from "./generated.js";

/** Milliseconds without a change before the model is asked, and before random heads are drawn. */
const REST = 40,
  REST_RANDOM = 150;
/** Random draws. */
const DRAWS = 10;

/** @typedef {Record<string, number>} Gates */
/** @typedef {"generate" | "search"} Work */

export class Answers {
  /**
   * @param {() => boolean} isReady whether the model has nothing more urgent to compute
   * @param {() => void} changed @param {(error: unknown) => void} failed
   */
  constructor(isReady, changed, failed) {
    this.isReady = isReady;
    this.changed = changed;
    this.failed = failed;
    /** @type {WhatIfAnswer | null} */
    this.answer = null;
    /** @type {RandomAnswer | null} */
    this.random = null;
    /** @type {GenerateAnswer | null} */
    this.generated = null;
    /** The request whose answer is shown or awaited. */
    this.sent = "";
    /** The request that `answer` answers. */
    this.answered = "";
    this.asking = new AbortController();
    /** The random draws that wait or are under way. */
    this.drawing = new AbortController();
    /** Longer work under way, and its progress. @type {Work | ""} */
    this.work = "";
    this.stage = "";
    this.working = new AbortController();
  }

  /** @param {string[]} texts @param {Gates} gates */
  ask(texts, gates) {
    const request = JSON.stringify({ texts, gates });
    if (request === this.sent) return;
    this.sent = request;
    this.asking.abort();
    this.drawing.abort();
    this.asking = new AbortController();
    this.generated = null;
    if (this.work === "generate") this.stop();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(request, this.asking.signal), REST);
  }

  /** Ask again when next asked. */
  forget() {
    this.drawing.abort();
    this.sent = this.answered = "";
    this.answer = this.random = this.generated = null;
  }

  /** Whether the answer to the last request is here. */
  get isCurrent() {
    return this.answer !== null && this.answered === this.sent;
  }

  /** @param {string} request @param {AbortSignal} signal */
  async run(request, signal) {
    const body = JSON.parse(request);
    try {
      const answer = await api.post("/api/whatif", body, signal);
      if (signal.aborted) return;
      this.answer = /** @type {WhatIfAnswer} */ (answer);
      this.answered = request;
      this.random = null;
      this.changed();
      this.drawRandom();
    } catch (error) {
      if (signal.aborted) return;
      if (!this.isCurrent) this.forget(); // the last answer may be for other texts
      this.failed(error);
      this.changed();
    }
  }

  /**
   * Ask for random heads as soon as the model has nothing else to do. Draws under way stop: on a
   * long text they take seconds, in which the model answers nothing else.
   */
  async drawRandom() {
    this.drawing.abort();
    const { signal } = (this.drawing = new AbortController());
    const isAwaited = () => !signal.aborted && this.isCurrent && !this.random;
    const body = JSON.parse(this.answered || "{}");
    if (!isAwaited() || !Object.keys(body.gates).length) return;
    do await new Promise((done) => setTimeout(done, REST_RANDOM));
    while (isAwaited() && (this.work || !this.isReady()));
    if (!isAwaited()) return;
    try {
      const random = await api.post("/api/whatif/random", { ...body, draws: DRAWS }, signal);
      if (!isAwaited()) return;
      this.random = /** @type {RandomAnswer} */ (random);
      this.changed();
    } catch (error) {
      if (!signal.aborted) this.failed(error);
    }
  }

  stop() {
    this.working.abort();
    this.work = this.stage = "";
  }

  /**
   * Longer work, with progress until its answer is here or it is stopped.
   * @param {Work} work @param {string} path @param {unknown} body
   * @returns {Promise<unknown>} null if it was stopped or failed
   */
  async start(work, path, body) {
    this.stop();
    this.drawRandom();
    const { signal } = (this.working = new AbortController());
    this.work = work;
    const timer = setInterval(() => this.watch(signal), 300);
    this.changed();
    try {
      return await api.post(path, body, signal);
    } catch (error) {
      if (!signal.aborted) this.failed(error);
      return null;
    } finally {
      clearInterval(timer);
      if (this.working.signal === signal) this.work = this.stage = "";
      this.changed();
    }
  }

  /** @param {AbortSignal} signal */
  async watch(signal) {
    const answer = await api.get("/api/progress", signal).catch(() => null);
    const { stage, done, total } = /** @type {ProgressAnswer} */ (answer ?? {});
    if (signal.aborted || !total) return;
    this.stage = `${stage || "Working"}: ${done} of ${total}`;
    this.changed();
  }

  /** @param {string} text @param {Gates} gates */
  async generate(text, gates) {
    const { sent } = this;
    const answer = await this.start("generate", "/api/generate", { text, gates, tokens: TOKENS });
    if (!answer || sent !== this.sent) return;
    this.generated = /** @type {GenerateAnswer} */ (answer);
    this.changed();
  }

  /** @param {string} text @returns {Promise<string[] | null>} */
  async search(text) {
    const answer = await this.start("search", "/api/whatif/search", { text });
    return answer ? /** @type {FoundHeadsAnswer} */ (answer).heads : null;
  }
}
