// @ts-check
/** The page: reads a text, shows the chosen panel and keeps the address up to date. */

/** @import {ModelAnswer, ProgressAnswer, TextAnswer} from "./types.js" */
/** @import {Page} from "./page.js" */

import * as api from "./api.js";
import { HeadsPanel } from "./heads.js";
import { LessonPanel } from "./lesson.js";
import { byId } from "./page.js";
import { PlanPanel } from "./plan.js";
import * as state from "./state.js";
import { WhatIfPanel } from "./whatif.js";

/**
 * @typedef {object} Panel
 * @property {(changed: Set<string>) => void} show
 * @property {(answer: TextAnswer, text: string) => void} [read] a new text was read
 * @property {() => void} [light] the theme has changed
 */

const PANELS = ["heads", "whatif", "lesson", "plan"];
const panels = /** @type {Record<string, Panel>} */ ({});

/** @type {Page} */
const page = {
  say(text, isBad = false) {
    const status = byId("status", HTMLElement);
    status.textContent = text;
    status.className = isBad ? "bad" : "";
  },
  /** Show an error; read a dropped text again, but only once until the user acts. */
  async fail(error) {
    const isDropped = error instanceof api.Refused && error.status === 410;
    if (!isDropped || !page.reading || isReadAgain)
      return page.say(api.sentence(/** @type {Error} */ (error)), true);
    isReadAgain = true;
    await read(page.text, "", "This text is no longer in memory and is being read again.");
  },
  reading: null,
  text: "",
  sample: "",
  isScanned: false,
};

let isReadAgain = false;
for (const name of ["pointerdown", "keydown", "hashchange"])
  addEventListener(
    name,
    () => {
      isReadAgain = false;
    },
    true,
  );

/** Show the progress of reading until the returned function is called. */
function watchProgress() {
  const bar = byId("progress", HTMLProgressElement);
  let isOver = false;
  const timer = setInterval(async () => {
    const answer = /** @type {ProgressAnswer | null} */ (
      await api.get("/api/progress").catch(() => null)
    );
    if (isOver) return;
    bar.hidden = false;
    if (answer?.total) bar.value = answer.done / answer.total;
  }, 300);
  return () => {
    isOver = true;
    clearInterval(timer);
    bar.hidden = true;
    bar.removeAttribute("value");
    bar.value = 0;
  };
}

let reading = new AbortController();

/** Put the text that is shown into the address, unless it is the sample text. */
const address = () => state.set({ text: page.text === page.sample ? "" : page.text });

/**
 * Read a text; it becomes the page's text only once it has been read.
 * @param {string} text @param {string} [why] why the user's own text could not be read
 * @param {string} [begun] message shown during reading
 */
async function read(text, why = "", begun = "Reading \u2026") {
  reading.abort();
  const mine = (reading = new AbortController());
  page.say(begun);
  const done = watchProgress(),
    start = performance.now();
  try {
    if (!text.trim()) throw new Error("The text is empty: write a few words.");
    const answer = /** @type {TextAnswer} */ (
      await api.post("/api/readings", { text }, mine.signal)
    );
    page.reading = answer;
    page.text = text;
    page.say(why + summary(answer, performance.now() - start), Boolean(why));
    for (const panel of Object.values(panels)) panel.read?.(answer, text);
    address();
    show(new Set(["panel"]));
  } catch (error) {
    if (!mine.signal.aborted) await unread(text, refusal(text, /** @type {Error} */ (error)));
  } finally {
    done();
  }
}

/**
 * How many tokens were read, and what was left out.
 * @param {TextAnswer} answer @param {number} milliseconds
 */
function summary(answer, milliseconds) {
  const count = answer.tokens.length,
    tokens = count.toLocaleString("en"),
    seconds = (milliseconds / 1000).toFixed(1);
  let text = `${tokens} tokens read${seconds === "0.0" ? "" : ` in ${seconds} s`}.`;
  if (answer.measured < count)
    text +=
      ` Figures of heads are means over ${answer.measured} of them, drawn at random; ` +
      "maps are exact.";
  if (answer.left_out) {
    const who = answer.is_models_limit ? "The model takes" : "This page reads";
    const last =
      answer.left_out === 1 ? "token was" : `${answer.left_out.toLocaleString("en")} tokens were`;
    text += ` ${who} at most ${tokens} tokens: the last ${last} left out.`;
  }
  return text;
}

/** Why a text was not read, for the user. @param {string} text @param {Error} error */
function refusal(text, error) {
  if (!error.message.includes("too little text")) return api.sentence(error);
  return /\s/.test(text.trim())
    ? "This is too little text: write at least two words."
    : "One word is too little: write at least two.";
}

/**
 * Handle a text that could not be read: keep the text before it, or read the sample.
 * @param {string} text @param {string} why
 */
async function unread(text, why) {
  if (!page.reading && text !== page.sample) return read(page.sample, `${why} Below is a sample: `);
  page.say(page.reading ? `${why} Below is still the text read before.` : why, true);
  if (page.reading) address();
}

/** @param {Set<string>} changed */
function show(changed) {
  const name = state.get("panel").replace("-", ""), // also accepts what-if
    chosen = PANELS.includes(name) ? name : "heads";
  for (const name of PANELS) byId(name, HTMLElement).hidden = name !== chosen;
  for (const link of document.querySelectorAll("nav a")) {
    if (/** @type {HTMLElement} */ (link).dataset.panel === chosen)
      link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  panels[chosen]?.show(changed);
}

/** @param {string} theme */
function light(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme", HTMLElement).textContent = theme === "dark" ? "Light" : "Dark";
  for (const panel of Object.values(panels)) panel.light?.();
}

/** The browser's storage for this page, or null if it is blocked. */
function storage() {
  try {
    return localStorage;
  } catch {
    return null;
  }
}

async function start() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  light(storage()?.getItem("headwise-theme") ?? (dark.matches ? "dark" : "light"));
  byId("theme", HTMLElement).addEventListener("click", () => {
    const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    storage()?.setItem("headwise-theme", theme);
    light(theme);
  });
  try {
    const about = /** @type {ModelAnswer} */ (await api.get("/api/model"));
    byId("model", HTMLElement).textContent = about.name;
    document.title = `${about.name} \u2013 headwise explorer`;
    panels.heads = new HeadsPanel(about, page);
    panels.whatif = new WhatIfPanel(about, page);
    panels.lesson = new LessonPanel(page);
    panels.plan = new PlanPanel(about);
    page.sample = about.text;
    const field = byId("text", HTMLTextAreaElement),
      form = byId("reader", HTMLFormElement);
    field.value = state.get("text") || about.text;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      read(field.value);
    });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    for (const link of /** @type {NodeListOf<HTMLElement>} */ (
      document.querySelectorAll("nav a")
    )) {
      link.addEventListener("click", state.follow({ panel: link.dataset.panel ?? "" }));
    }
    state.listen((changed) => {
      const text = state.get("text") || about.text;
      if (changed.has("text") && text !== page.text) {
        field.value = text;
        read(text);
      }
      show(changed);
    });
    show(new Set(["panel"]));
    await read(field.value);
  } catch (error) {
    await page.fail(error);
  }
}

start();
