// @ts-check
/** The page as a host of the view: state from the address, data from the server. */

/** @import {HeadAnswer, JobAnswer, ModelAnswer, PairAnswer, TextAnswer} from "./types.js" */
/** @import {Host, LongText, Reading, WeightOptions} from "./stage/host.js" */

import * as api from "./api.js";
import { stackOf } from "./stage/host.js";
import { shares, Weights } from "./stage/weights.js";
import * as state from "./state.js";

/** Parts of the state that a saved page opens with. */
const SAVED_KEYS = ["head", "role", "word", "by", "special", "side", "grid"];

/** @param {WeightOptions} options */
const asQuery = ({ stack, words, first, values }) => ({
  stack,
  is_by_word: Number(words),
  drops_sink: Number(!first),
  is_valued: Number(values),
});

export class ServerHost {
  /** @param {ModelAnswer} about @param {(text: string) => Promise<TextAnswer>} read */
  constructor(about, read) {
    this.about = about;
    this.version = about.version;
    this.read = read;
    /** @type {string | null} */
    this.missing = null;
    this.hasKeys = true;
    /** @type {TextAnswer | null} */
    this.current = null;
    /** @type {Reading} */
    this.state = { text: "", error: "" };
    /** @type {Set<(changed: Set<string>) => void>} */
    this.listeners = new Set();
    this.long = this.longText();
    state.listen((changed) => this.emit(changed));
  }

  /** Tell every listener. @param {Set<string>} changed */
  emit(changed) {
    for (const listener of this.listeners) listener(changed);
  }

  /** @param {(changed: Set<string>) => void} listener */
  on(listener) {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  /** @param {string} key */
  get(key) {
    return state.get(key);
  }

  /** @param {Record<string, string>} values @param {"push" | "replace"} [how] */
  set(values, how = "push") {
    state.set(values, how);
  }

  text() {
    return this.current;
  }

  reading() {
    return this.state;
  }

  /** @returns {"light" | "dark"} */
  theme() {
    return document.documentElement.dataset.theme === "dark" ? "dark" : "light";
  }

  /** @param {unknown} error */
  sentence(error) {
    return api.sentence(/** @type {Error} */ (error));
  }

  /** Mark the page as drawn, for tests. @param {string} name @param {string[]} heads */
  drawn(name, heads) {
    document.body.dataset.drawn = name;
    document.body.dataset.head = heads.join(",");
  }

  /**
   * Ask about a text; if the server no longer has it in memory, send it again first, once.
   * @template T @param {TextAnswer} text @param {() => Promise<T>} ask
   */
  async retry(text, ask) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof api.Refused) || error.status !== 410) throw error;
      await api.post("/api/readings", { text: text.text });
      return ask();
    }
  }

  /** @param {TextAnswer} text @param {WeightOptions} options */
  weights(text, options) {
    return this.retry(text, async () => {
      const path = `/api/readings/${text.name}/weights?${api.query(asQuery(options))}`;
      const { shape, buffer } = await api.bytes(path);
      const names = this.about.layers
        .filter(({ name }) => stackOf(name) === options.stack)
        .flatMap(({ name, heads }) =>
          Array.from({ length: heads }, (_, head) => `${name}H${head}`),
        );
      return Weights.fromBytes(names, shape[1], shape[2], buffer);
    });
  }

  /** @param {string} text @param {string} other */
  async pair(text, other) {
    return /** @type {PairAnswer} */ (await api.post("/api/pair", { text, other }));
  }

  /** @param {TextAnswer} text @param {string} head */
  headFacts(text, head) {
    const path = `/api/readings/${text.name}/heads/${head}`;
    return this.retry(text, async () => /** @type {HeadAnswer} */ (await api.get(path)));
  }

  /** @returns {LongText} */
  longText() {
    const base = (/** @type {TextAnswer} */ text) => `/api/readings/${text.name}`;
    return {
      row: (text, head, at, by, options) =>
        this.retry(text, async () => {
          const query = api.query({ ...asQuery(options), at, by: Number(by) });
          return shares((await api.bytes(`${base(text)}/heads/${head}/row?${query}`)).buffer);
        }),
      cells: (text, head, part, options) =>
        this.retry(text, async () => {
          const range = part && { rows: part.rows.join(":"), keys: part.keys.join(":") };
          const query = api.query({ ...asQuery(options), ...range });
          const { shape, buffer } = await api.bytes(`${base(text)}/heads/${head}/map?${query}`);
          return { shape, values: shares(buffer) };
        }),
      thumbs: (text, layer, size, options) =>
        this.retry(text, async () => {
          const query = api.query({ ...asQuery(options), layer, size });
          const { shape, buffer } = await api.bytes(`${base(text)}/thumbs?${query}`);
          return { shape, values: new Uint8Array(buffer) };
        }),
      bars: (text, at, by, size, options) =>
        this.retry(text, async () => {
          const query = api.query({ ...asQuery(options), at, by: Number(by), size });
          const { shape, buffer } = await api.bytes(`${base(text)}/bars?${query}`);
          return { shape, values: new Uint8Array(buffer) };
        }),
    };
  }

  /** @param {string} name @param {"start" | "stop" | "state"} action */
  async job(name, action) {
    const path = `/api/jobs/${name}`;
    const ask = {
      start: () => api.post(path, {}),
      stop: () => api.stop(path),
      state: () => api.get(path),
    };
    return /** @type {JobAnswer} */ (await ask[action]());
  }

  /** Ask for the model and the text again: a scan has found roles and findings. */
  async refresh() {
    this.about = /** @type {ModelAnswer} */ (await api.get("/api/model"));
    if (this.current) {
      const answer = await api.post("/api/readings", { text: this.current.text });
      this.current = /** @type {TextAnswer} */ (answer);
    }
    this.emit(new Set(["about", "text"]));
  }

  /** @param {Blob} blob @param {string} name */
  save(blob, name) {
    api.save(blob, name);
  }

  /** Save the stage as one HTML file, which opens with the same head and word. */
  async savePage() {
    if (!this.current) return;
    // A saved page has whole words, where a piece would be another word.
    const keys = SAVED_KEYS.filter((key) => key !== "word" || state.get("words") === "1");
    const body = {
      text: this.current.text,
      swap: state.get("swap") || null,
      state: Object.fromEntries(keys.map((key) => [key, state.get(key)])),
    };
    const answer = await api.posted("/api/page", body);
    const named = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "");
    api.save(await answer.blob(), named?.[1] ?? "headwise.html");
  }
}

/** The host as its type. @param {ServerHost} host @returns {Host} */
export const asHost = (host) => host;
