// @ts-check
/** The page: reads a text, shows the panel that is chosen, keeps the address in step. */

/** @import {TextAnswer} from "./types.js" */

import * as api from "./api.js";
import { HeadsPanel } from "./heads.js";
import { LessonPanel } from "./lesson.js";
import { PlanPanel } from "./plan.js";
import * as state from "./state.js";
import { WhatIfPanel } from "./whatif.js";

const $ = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
const PANELS = ["heads", "whatif", "lesson", "plan"];

const page = {
  /** @param {string} text @param {boolean} [isBad] */
  say(text, isBad = false) {
    $("status").textContent = text;
    $("status").className = isBad ? "bad" : "";
  },
  /** Say what is wrong; a text that is no longer kept is read again, once for whatever users do. @param {any} error */
  async fail(error) {
    if (error.status !== 410 || !page.reading || isReadAgain)
      return page.say(api.sentence(error), true);
    isReadAgain = true;
    await read(page.text, "", "This text is no longer in memory and is being read again.");
  },
  /** @type {TextAnswer | null} */ reading: null,
  text: "",
  sample: "",
  /** @type {Record<string, any>} */ panels: {},
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

/** How far the reading is, while it takes long. An answer that comes after its end is not shown. */
function watchProgress() {
  const bar = $("progress");
  let isOver = false;
  const timer = setInterval(async () => {
    const { done, total } = await api.get("/api/progress").catch(() => ({ done: 0, total: 0 }));
    if (isOver) return;
    bar.hidden = false;
    if (total) bar.value = done / total;
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

/** The address names the text that is shown, and no other; the sample text goes without saying. */
const address = () => state.set({ text: page.text === page.sample ? "" : page.text });

/**
 * Read a text; once that has succeeded it is the page's text, and not before.
 * @param {string} text @param {string} [why] what was wrong with the text that was to be read
 * @param {string} [begun] what is said meanwhile
 */
async function read(text, why = "", begun = "Reading \u2026") {
  reading.abort();
  const mine = (reading = new AbortController());
  page.say(begun);
  const done = watchProgress(),
    start = performance.now();
  try {
    if (!text.trim()) throw new Error("The text is empty: write a few words.");
    const found = (page.reading = await api.post("/api/readings", { text }, mine.signal));
    page.text = text;
    const tokens = found.tokens.length.toLocaleString("en");
    const last =
      found.left_out === 1 ? "token was" : `${found.left_out.toLocaleString("en")} tokens were`;
    const left = found.left_out
      ? ` ${found.is_models_limit ? "The model takes" : "This page reads"} at most ${tokens} tokens: the last ${last} left out.`
      : "";
    const some =
      found.measured < found.tokens.length
        ? ` Figures of heads are means over ${found.measured} of them, drawn at random; maps are exact.`
        : "";
    const took = ((performance.now() - start) / 1000).toFixed(1),
      long = took === "0.0" ? "" : ` in ${took} s`;
    page.say(`${why}${tokens} tokens read${long}.${some}${left}`, Boolean(why));
    for (const panel of Object.values(page.panels)) panel.read?.(found, text);
    address();
    show(new Set(["panel"]));
  } catch (error) {
    if (!mine.signal.aborted) await unread(text, refusal(text, /** @type {Error} */ (error)));
  } finally {
    done();
  }
}

/** Why a text was not read, in words of this page. @param {string} text @param {Error} error */
function refusal(text, error) {
  if (!error.message.includes("too little text")) return api.sentence(error);
  return /\s/.test(text.trim())
    ? "This is too little text: write at least two words."
    : "One word is too little: write at least two.";
}

/** A text could not be read: what was read before stays, or the sample is shown. @param {string} text @param {string} why */
async function unread(text, why) {
  if (!page.reading && text !== page.sample) return read(page.sample, `${why} Below is a sample: `);
  page.say(page.reading ? `${why} Below is still the text read before.` : why, true);
  if (page.reading) address();
}

/** @param {Set<string>} changed */
function show(changed) {
  const asked = state.get("panel").replace("-", ""),
    chosen = PANELS.includes(asked) ? asked : "heads"; // what-if, too
  for (const name of PANELS) $(name).hidden = name !== chosen;
  for (const link of document.querySelectorAll("nav a")) {
    if (/** @type {HTMLElement} */ (link).dataset.panel === chosen)
      link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  page.panels[chosen]?.show(changed);
}

/** @param {string} theme */
function light(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = theme === "dark" ? "Light" : "Dark";
  for (const panel of Object.values(page.panels)) panel.light?.();
}

/** What the browser keeps for this page, or null where it is told to keep nothing. */
function kept() {
  try {
    return localStorage;
  } catch {
    return null;
  }
}

async function start() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  light(kept()?.getItem("headwise-theme") ?? (dark.matches ? "dark" : "light"));
  $("theme").addEventListener("click", () => {
    const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    kept()?.setItem("headwise-theme", theme);
    light(theme);
  });
  try {
    const about = await api.get("/api/model");
    $("model").textContent = about.name;
    document.title = `${about.name} \u2013 headwise explorer`;
    page.panels = {
      heads: new HeadsPanel(about, page),
      whatif: new WhatIfPanel(about, page),
      lesson: new LessonPanel(about, page),
      plan: new PlanPanel(about, page),
    };
    page.sample = about.text;
    $("text").value = state.get("text") || about.text;
    $("reader").addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      read($("text").value);
    });
    $("text").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        $("reader").requestSubmit();
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
        $("text").value = text;
        read(text);
      }
      show(changed);
    });
    show(new Set(["panel"]));
    await read($("text").value);
  } catch (error) {
    await page.fail(error);
  }
}

start();
