// @ts-check
/** A saved page: the view on data that the file itself contains, without a model or a network. */

/** @import {PairAnswer, SavedPage, TextAnswer} from "../types.js" */
/** @import {Host} from "./host.js" */
/** @import {Weights} from "./weights.js" */

import { make } from "./dom.js";
import { HashState } from "./hash_state.js";
import { saveFile } from "./save_file.js";
import { fromBase64, storedWeights } from "./stored_weights.js";
import { mount } from "./view.js";

const NEEDS = "Needs the model, which a saved page does not have.";
/** Width in rem below which the stage is vertical inside another page, where it has less room. */
const INSIDE = 35;
/** Switches that would need other weights. */
const FIXED = ["words", "first", "values"];
const NO_PAIR = "This file has no other sentence to compare with.";

/**
 * The host of a saved page.
 * @param {SavedPage} saved @param {HashState} state @param {() => "light" | "dark"} theme
 * @returns {Host}
 */
export function savedHost(saved, state, theme) {
  const { about, text } = saved;
  /** @type {Record<string, Promise<Weights>>} */
  const weights = {};
  return {
    about,
    version: saved.version,
    get: (key) => (FIXED.includes(key) ? state.valueIn({}, key) : state.get(key)),
    set: (values, how) => state.set(values, how),
    on: (listener) => state.on(listener),
    text: () => text,
    reading: () => ({ text: "", error: "" }),
    theme,
    weights: (answer, { stack }) => (weights[`${answer.name} ${stack}`] ??= decode(answer, stack)),
    read: null,
    pair: saved.pair && ((_, other) => findPair(saved, other)),
    headFacts: null,
    long: null,
    job: null,
    refresh: null,
    save: saveFile,
    savePage: null,
    missing: saved.missing,
    cannot: Object.fromEntries(["edit", "swap", ...FIXED].map((key) => [key, NEEDS])),
    hasKeys: true,
    narrow: window.parent === window ? undefined : INSIDE,
    sentence: (error) => (error instanceof Error ? error.message : String(error)),
    drawn: (name, heads) => Object.assign(document.body.dataset, { drawn: name, head: heads }),
  };

  /** @param {TextAnswer} answer @param {string} stack */
  async function decode(answer, stack) {
    const { shape, values } = saved.weights[answer.name][stack];
    return storedWeights(about, stack, shape, fromBase64(values));
  }
}

/** @param {SavedPage} saved @param {string} other @returns {Promise<PairAnswer>} */
async function findPair({ text, pair }, other) {
  if (pair?.second.text !== other) throw new Error(NO_PAIR);
  return { first: text, ...pair };
}

/** Show the page's own data; called once, at the end of the page. */
export function openPage() {
  const data = document.getElementById("saved")?.textContent ?? "";
  const saved = /** @type {SavedPage} */ (JSON.parse(data));
  const state = new HashState(saved.state);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  /** @type {() => "light" | "dark"} */
  const theme = () => {
    const chosen = state.get("theme");
    return chosen === "dark" || (chosen !== "light" && dark.matches) ? "dark" : "light";
  };
  const other = () => (theme() === "dark" ? "light" : "dark");
  const button = make("button", { type: "button" });
  const light = () => {
    document.documentElement.dataset.theme = theme();
    button.textContent = other() === "dark" ? "Dark" : "Light";
  };
  button.addEventListener("click", () => state.set({ theme: other() }, "replace"));
  dark.addEventListener("change", () => {
    light();
    state.emit(new Set(["theme"]));
  });
  const title = make("h1", {}, make("b", {}, "headwise"), " ", make("span", {}, saved.about.title));
  const main = make("main", {});
  document.body.append(make("header", {}, title, button), main);
  light();
  state.on((changed) => {
    if (changed.has("theme")) light();
  });
  mount(savedHost(saved, state, theme), main);
}
