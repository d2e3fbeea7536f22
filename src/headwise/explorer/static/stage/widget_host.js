// @ts-check
/** A notebook widget as a host: data from its traits, everything else by messages to Python. */

/** @import {HeadAnswer, ModelAnswer, PairAnswer, TextAnswer} from "../types.js" */
/** @import {Cells, Host, LongText, WeightOptions} from "./host.js" */

import { State } from "./hash_state.js";
import { storedWeights } from "./stored_weights.js";
import { STEPS } from "./weights.js";

/**
 * anywidget's model, as far as it is used here.
 * @typedef {object} WidgetModel
 * @property {(name: string) => any} get @property {(name: string, value: unknown) => void} set
 * @property {() => void} save_changes
 * @property {(event: string, listener: (...values: any[]) => void) => void} on
 * @property {(event: string, listener: (...values: any[]) => void) => void} off
 * @property {(content: unknown) => void} send
 */

/** @typedef {DataView | ArrayBuffer | ArrayBufferView} Bytes */

/** Bytes as a buffer of their own. @param {Bytes} bytes @returns {ArrayBuffer} */
export function asBuffer(bytes) {
  if (bytes instanceof ArrayBuffer) return bytes;
  const { buffer, byteOffset, byteLength } = bytes;
  return /** @type {ArrayBuffer} */ (buffer.slice(byteOffset, byteOffset + byteLength));
}

/** Shares from two-byte numbers. @param {ArrayBuffer} buffer */
function shares(buffer) {
  const view = new DataView(buffer);
  const count = buffer.byteLength / 2;
  return Float32Array.from({ length: count }, (_, at) => view.getUint16(2 * at, true) / STEPS);
}

/** Requests to Python, each with a number that its answer repeats. */
export class Requests {
  /** @param {WidgetModel} model */
  constructor(model) {
    this.model = model;
    this.count = 0;
    /** @type {Map<number, {resolve: (answer: any) => void, reject: (error: Error) => void}>} */
    this.waiting = new Map();
    this.receive = (/** @type {any} */ content, /** @type {Bytes[]} */ buffers) =>
      this.answer(content, buffers ?? []);
    model.on("msg:custom", this.receive);
  }

  destroy() {
    this.model.off("msg:custom", this.receive);
  }

  /** @param {any} content @param {Bytes[]} buffers */
  answer({ number, value, error }, buffers) {
    const { resolve, reject } = this.waiting.get(number) ?? {};
    this.waiting.delete(number);
    if (error) reject?.(new Error(error));
    else resolve?.({ value, buffers: buffers.map(asBuffer) });
  }

  /**
   * @param {string} kind @param {Record<string, unknown>} values
   * @returns {Promise<{value: any, buffers: ArrayBuffer[]}>}
   */
  ask(kind, values) {
    const number = ++this.count;
    return new Promise((resolve, reject) => {
      this.waiting.set(number, { resolve, reject });
      this.model.send({ kind, number, ...values });
    });
  }
}

/** Requests of long texts. @param {Requests} requests @returns {LongText} */
function longText(requests) {
  const ask = async (
    /** @type {string} */ kind,
    /** @type {TextAnswer} */ text,
    /** @type {Record<string, unknown>} */ values,
  ) => {
    const { value, buffers } = await requests.ask(kind, { text: text.text, ...values });
    return { value, buffer: buffers[0] };
  };
  return {
    row: async (text, head, at, by, options) =>
      shares((await ask("row", text, { ...options, head, at, by })).buffer),
    cells: async (text, head, part, options) => {
      const { value, buffer } = await ask("cells", text, { ...options, head, part });
      return /** @type {Cells} */ ({ ...value, values: shares(buffer) });
    },
    thumbs: async (text, layer, options) => {
      const { value, buffer } = await ask("thumbs", text, { ...options, layer });
      return { shape: value, values: new Uint8Array(buffer) };
    },
    bars: async (text, at, by, options) => {
      const { value, buffer } = await ask("bars", text, { ...options, at, by });
      return { shape: value, values: new Uint8Array(buffer) };
    },
  };
}

/** The state of a widget: the chosen head is a trait, which Python can read and set. */
export class WidgetState extends State {
  /** @param {WidgetModel} model */
  constructor(model) {
    super({ ...model.get("state"), head: model.get("head") });
    this.model = model;
    this.follow = () => {
      const head = model.get("head");
      if (head !== this.get("head")) this.change({ ...this.now, head, role: "" }, null);
    };
    model.on("change:head", this.follow);
  }

  destroy() {
    this.model.off("change:head", this.follow);
  }

  /** @override @param {import("./hash_state.js").How} _how */
  write(_how) {
    const head = this.get("head");
    if (!head || head === this.model.get("head")) return;
    this.model.set("head", head);
    this.model.save_changes();
  }
}

/**
 * @param {WidgetModel} model @param {WidgetState} state @param {Requests} requests
 * @param {() => "light" | "dark"} theme @param {(blob: Blob, name: string) => void} save
 * @returns {Host}
 */
export function widgetHost(model, state, requests, theme, save) {
  const about = /** @type {ModelAnswer} */ (model.get("about"));
  const first = /** @type {TextAnswer} */ (model.get("text"));
  const usual = keyOf({ stack: "", ...switchesOf(state.start) });
  let text = first;
  return {
    about,
    version: about.version,
    get: (key) => state.get(key),
    set: (values, how) => state.set(values, how),
    on: (listener) => state.on(listener),
    text: () => text,
    reading: () => ({ text: "", error: "" }),
    theme,
    weights: async (answer, options) => {
      const stored = answer.name === first.name && model.get("weights")[options.stack];
      if (stored && keyOf(options) === usual)
        return storedWeights(about, options.stack, stored.shape, asBuffer(stored.values));
      const { value, buffers } = await requests.ask("weights", { ...options, text: answer.text });
      return storedWeights(about, options.stack, value, buffers[0]);
    },
    read: async (words) => {
      text = /** @type {TextAnswer} */ ((await requests.ask("read", { text: words })).value);
      state.set({ head: text.start.head ?? state.get("head"), word: "", swap: "", role: "" });
      state.emit(new Set(["text"]));
      return text;
    },
    pair: async (text, other) =>
      /** @type {PairAnswer} */ ((await requests.ask("pair", { text, other })).value),
    headFacts: async (answer, head) =>
      /** @type {HeadAnswer} */ ((await requests.ask("facts", { text: answer.text, head })).value),
    long: longText(requests),
    job: null,
    refresh: null,
    save,
    savePage: null,
    missing: null,
    hasKeys: false,
    narrow: 35,
    sentence: (error) => (error instanceof Error ? error.message : String(error)),
    drawn: null,
  };
}

/** The switches that decide which weights are shown. @param {Record<string, string>} start */
const switchesOf = ({ words, first, values }) => ({
  words: words !== "0",
  first: first !== "0",
  values: values === "1",
});

/** @param {Omit<WeightOptions, "stack">} options */
const keyOf = ({ words, first, values }) => JSON.stringify([words, first, values]);
