// @ts-check
/** The notebook widget: the view on data from Python; the chosen head and word go back to it. */

/** @import {HeadAnswer, ModelAnswer, PairAnswer, TextAnswer} from "../types.js" */
/** @import {Host, LongText, WeightOptions} from "./host.js" */
/** @import {Answer} from "./notebook_questions.js" */

import { make } from "./dom.js";
import { State } from "./hash_state.js";
import { copyBytes, Questions } from "./notebook_questions.js";
import { themeAround, watchTheme } from "./notebook_theme.js";
import { saveFile } from "./save_file.js";
import { storedWeights } from "./stored_weights.js";
import { mount } from "./view.js";
import { shares } from "./weights.js";

/**
 * Values shared with Python, as anywidget passes them.
 * @typedef {object} Model
 * @property {(name: string) => unknown} get
 * @property {(name: string, value: unknown) => void} set
 * @property {(event: string, listener: () => void) => void} on
 * @property {(event: string, listener: () => void) => void} off
 * @property {() => void} save_changes
 */
/** Weights of a stack: heads, rows, columns, and two bytes for each.
 * @typedef {{shape: number[], bytes: Answer["bytes"]}} StackWeights */

const OTHER_TEXT = "Call headwise.view with another text.";
/** Width in rem below which the stage is vertical: 560 px. */
const NARROW = 35;

/** @param {TextAnswer} text @param {WeightOptions} options */
const asFacts = (text, { stack, words, first, values }) => ({
  text: text.name,
  stack,
  is_by_word: words,
  drops_sink: !first,
  is_valued: values,
});

/** State in memory whose head and word are also Python's. */
class SharedState extends State {
  /** @param {Model} model */
  constructor(model) {
    super(SharedState.read(model));
    this.model = model;
    this.follow = () => this.change({ ...this.now, ...SharedState.read(model) }, null);
    for (const name of ["head", "word"]) model.on(`change:${name}`, this.follow);
  }

  /** @param {Model} model */
  static read(model) {
    const word = model.get("word");
    return { head: String(model.get("head")), word: word === null ? "-" : String(word) };
  }

  /** @override */
  write() {
    const word = this.get("word");
    this.model.set("head", this.get("head"));
    this.model.set("word", /^\d+$/.test(word) ? Number(word) : null);
    this.model.save_changes();
  }

  end() {
    for (const name of ["head", "word"]) this.model.off(`change:${name}`, this.follow);
  }
}

/**
 * @param {Model} model @param {SharedState} state @param {HTMLElement} el
 * @returns {Host}
 */
export function notebookHost(model, state, el) {
  const about = /** @type {ModelAnswer} */ (model.get("about"));
  const text = /** @type {TextAnswer} */ (model.get("text"));
  const questions = new Questions(model);
  return {
    about,
    version: about.version,
    get: (key) => state.get(key),
    set: (values, how) => state.set(values, how),
    on: (listener) => state.on(listener),
    text: () => text,
    reading: () => ({ text: "", error: "" }),
    theme: () => themeAround(el),
    weights,
    read: null,
    pair: async (_, other) =>
      /** @type {PairAnswer} */ ((await questions.ask("pair", { text: text.name, other })).value),
    headFacts: async ({ name }, head) =>
      /** @type {HeadAnswer} */ ((await questions.ask("facts", { text: name, head })).value),
    long: longText(questions),
    job: null,
    refresh: null,
    save: saveFile,
    savePage: async () => {
      const { value } = await questions.ask("page", { swap: state.get("swap") || null });
      const { name, page } = /** @type {{name: string, page: string}} */ (value);
      saveFile(new Blob([page], { type: "text/html" }), name);
    },
    missing: null,
    cannot: { edit: OTHER_TEXT },
    hasKeys: false,
    narrow: NARROW,
    sentence: (error) => (error instanceof Error ? error.message : String(error)),
    drawn: (name, heads) => Object.assign(el.dataset, { drawn: name, head: heads.join(",") }),
  };

  /** @param {TextAnswer} answer @param {WeightOptions} options */
  async function weights(answer, options) {
    const { stack, words, first, values } = options;
    const stored = /** @type {Record<string, StackWeights>} */ (model.get("weights"))[stack];
    const isUsual = first && !values && words === Boolean(text.stacks[stack].words);
    const isHere = answer.name === text.name && isUsual && stored;
    const found = isHere ? stored : await questions.ask("weights", asFacts(answer, options));
    return storedWeights(about, stack, found.shape ?? [], copyBytes(found.bytes));
  }
}

/** @param {Questions} questions @returns {LongText} */
function longText(questions) {
  return {
    row: async (text, head, at, by, options) => {
      const answer = await questions.ask("row", { ...asFacts(text, options), head, at, by });
      return shares(copyBytes(answer.bytes));
    },
    cells: async (text, head, part, options) => {
      const answer = await questions.ask("cells", { ...asFacts(text, options), head, part });
      return { shape: answer.shape ?? [], values: shares(copyBytes(answer.bytes)) };
    },
    thumbs: async (text, layer, size, options) =>
      small(await questions.ask("thumbs", { ...asFacts(text, options), layer, size })),
    bars: async (text, at, by, size, options) =>
      small(await questions.ask("bars", { ...asFacts(text, options), at, by, size })),
  };
}

/** @param {Answer} answer */
const small = ({ shape, bytes }) => ({
  shape: shape ?? [],
  values: new Uint8Array(copyBytes(bytes)),
});

/**
 * Draw the widget; returns a function that removes it.
 * @param {{model: Model, el: HTMLElement}} at
 */
export function render({ model, el }) {
  const box = make("div", { class: "hw-notebook" });
  box.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take E, S and the arrows
  el.append(box);
  const state = new SharedState(model);
  const light = () => {
    box.dataset.theme = themeAround(box);
  };
  light();
  const unmount = mount(notebookHost(model, state, box), box);
  const stop = watchTheme(() => {
    light();
    state.emit(new Set(["theme"]));
  });
  return () => {
    stop();
    state.end();
    unmount();
    box.remove();
  };
}
