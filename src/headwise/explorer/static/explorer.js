// @ts-check
/** The page: reads a text, shows the chosen panel and keeps the address up to date. */

/** @import {ModelAnswer, TextAnswer} from "./types.js" */
/** @import {Page, Panel} from "./page.js" */

import * as api from "./api.js";
import { modelNames, refusal, summary } from "./page_sentences.js";
import { byId } from "./page.js";
import { watchReading } from "./progress.js";
import { asHost, ServerHost } from "./server_host.js";
import { mount } from "./stage/view.js";
import * as state from "./state.js";

/** @typedef {Record<string, new (about: ModelAnswer, page: Page) => Panel>} PanelModule */

/** Modules of the other panels, loaded when they are first shown. */
const MODULES =
  /** @type {Record<string, {load: () => Promise<unknown>, name: string, style: string}>} */ ({
    whatif: {
      load: () => import("./whatif/whatif_panel.js"),
      name: "WhatIfPanel",
      style: "whatif/whatif.css",
    },
    lesson: {
      load: () => import("./lesson/lesson_panel.js"),
      name: "LessonPanel",
      style: "lesson/lesson.css",
    },
    plan: { load: () => import("./plan.js"), name: "PlanPanel", style: "plan/plan.css" },
  });
const PANELS = ["heads", ...Object.keys(MODULES)];
/** Milliseconds before the page says that it waits. */
const PATIENCE = 300;
/** Words of the address's text that are set while the model loads. */
const FIRST_WORDS = 60;
/** Letters that fit on one line of the stage. */
const ONE_LINE = 70;

const panels = /** @type {Record<string, Promise<Panel>>} */ ({});
let reading = new AbortController();
/** @type {ServerHost} */
let host;
/** @type {Page} */
let page;

/** @param {string} text @param {boolean} [isBad] */
function say(text, isBad = false) {
  const status = byId("status", HTMLElement);
  status.textContent = text;
  status.className = isBad ? "bad" : "";
}

/** Show an error in the status line. @param {unknown} error */
async function fail(error) {
  say(api.sentence(/** @type {Error} */ (error)), true);
}

/**
 * Read a text and put it on the stage; until then, and if that fails, the last text stays.
 * @param {string} text @param {boolean} [isKept] whether the address has the text already
 * @returns {Promise<TextAnswer>}
 */
async function read(text, isKept = false) {
  reading.abort();
  const mine = (reading = new AbortController());
  host.state = { text, error: "" };
  host.emit(new Set(["reading"]));
  const done = watchReading(say);
  const start = performance.now();
  try {
    const answer = await api.post("/api/readings", { text }, mine.signal);
    take(/** @type {TextAnswer} */ (answer), text, isKept);
    const seconds = (performance.now() - start) / 1000;
    const { words, isWorthSeeing } = summary(page.reading, seconds, state.isLong());
    say(words);
    byId("status", HTMLElement).classList.toggle("quiet", !isWorthSeeing);
    return /** @type {TextAnswer} */ (answer);
  } catch (error) {
    if (mine.signal.aborted) throw error;
    const why = refusal(text, /** @type {Error} */ (error));
    host.state = { text: "", error: why };
    say("");
    host.emit(new Set(["reading"]));
    throw new Error(why);
  } finally {
    done();
  }
}

/** @param {TextAnswer} answer @param {string} text @param {boolean} isKept */
function take(answer, text, isKept) {
  const isOther = page.reading !== null && page.reading.name !== answer.name;
  host.state = { text: "", error: "" };
  host.current = page.reading = answer;
  page.text = text;
  if (!isKept) {
    const fresh = /** @type {Record<string, string>} */ (
      isOther ? { word: "", swap: "", role: "", of: "", found: "", line: "" } : {}
    );
    state.set({ text: text === page.sample ? "" : text, ...fresh }, isOther ? "push" : "replace");
  }
  host.emit(new Set(["text", "reading"]));
  for (const panel of Object.values(panels)) panel.then((each) => each.read?.(answer, text), fail);
  show(new Set(["panel"]));
}

/** The panel that the address names. */
function panelName() {
  const name = state.get("panel").replace("-", ""); // also accepts what-if
  return PANELS.includes(name) ? name : "heads";
}

/** @param {Set<string>} changed */
function show(changed) {
  const chosen = panelName();
  for (const name of PANELS) byId(name, HTMLElement).hidden = name !== chosen;
  for (const link of document.querySelectorAll("nav a")) {
    if (/** @type {HTMLElement} */ (link).dataset.panel === chosen)
      link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (chosen !== "heads")
    open(chosen).then((panel) => panelName() === chosen && panel.show(changed), fail);
}

/** Load a panel once. @param {string} name @returns {Promise<Panel>} */
function open(name) {
  panels[name] ??= (async () => {
    const { load, name: kind, style } = MODULES[name];
    if (style) await addStyle(style);
    const Kind = /** @type {PanelModule} */ (await load())[kind];
    const panel = new Kind(host.about, page);
    if (page.reading) panel.read?.(page.reading, page.text);
    return panel;
  })();
  return panels[name];
}

/** @param {string} style */
function addStyle(style) {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = `/static/${style}`;
  const loaded = new Promise((done) => {
    link.onload = link.onerror = () => done(undefined);
  });
  document.head.append(link);
  return loaded;
}

/** @param {string} theme */
function light(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme", HTMLElement).textContent = theme === "dark" ? "Light" : "Dark";
  host?.emit(new Set(["theme"]));
  for (const panel of Object.values(panels)) panel.then((each) => each.light?.(), fail);
}

function listenToHeader() {
  byId("theme", HTMLElement).addEventListener("click", () => {
    const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    light(theme);
    try {
      localStorage.setItem("headwise-theme", theme);
    } catch {
      /* the browser stores nothing */
    }
  });
  const menu = byId("menu", HTMLElement),
    header = /** @type {HTMLElement} */ (menu.closest("header"));
  const open = (/** @type {boolean} */ isOpen) => {
    header.classList.toggle("open", isOpen);
    menu.setAttribute("aria-expanded", String(isOpen));
  };
  menu.addEventListener("click", () => open(!header.classList.contains("open")));
  header.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && header.classList.contains("open")) {
      open(false);
      menu.focus();
    }
  });
  for (const link of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("nav a"))) {
    link.addEventListener("click", state.follow({ panel: link.dataset.panel ?? "" }));
    link.addEventListener("click", () => open(false));
  }
}

/** Set the words of the address's text while the model loads. */
function setFirstWords() {
  const words = state.get("text").split(/\s+/).filter(Boolean).slice(0, FIRST_WORDS);
  if (!words.length) return;
  const spans = words.flatMap((word) => {
    const span = document.createElement("span");
    span.textContent = word;
    return [span, " "];
  });
  const box = byId("first-words", HTMLElement);
  box.replaceChildren(...spans);
  box.classList.toggle("long", words.join(" ").length > ONE_LINE);
}

/** @param {ModelAnswer} about */
function showModel(about) {
  document.title = `${about.name} \u2013 headwise explorer`;
  const names = modelNames(about).map((text, at) => {
    const span = document.createElement("span");
    span.className = ["long", "middle", "short"][at];
    span.textContent = text;
    return span;
  });
  byId("model", HTMLElement).replaceChildren(...names);
}

async function start() {
  light(document.documentElement.dataset.theme ?? "light");
  listenToHeader();
  setFirstWords();
  const waiting = setTimeout(() => say("Loading the model"), PATIENCE);
  try {
    const about = /** @type {ModelAnswer} */ (await api.get("/api/model"));
    clearTimeout(waiting);
    showModel(about);
    host = new ServerHost(about, read);
    page = {
      ...{ host: asHost(host), say, fail, read, reading: null, text: "", sample: about.text },
      theme: () => host.theme(),
      get isScanned() {
        return Boolean(host.about.scan);
      },
    };
    state.listen((changed) => {
      const text = state.get("text") || about.text;
      if (changed.has("text") && text !== page.text) read(text, true).catch(() => {});
      show(changed);
    });
    show(new Set(["panel"]));
    mount(asHost(host), byId("heads", HTMLElement));
    await readFirst(state.get("text") || about.text);
  } catch (error) {
    clearTimeout(waiting);
    await fail(error);
  }
}

/** Read the address's text; if it cannot be read, the sample, and say why. @param {string} text */
async function readFirst(text) {
  try {
    await read(text, true);
  } catch (error) {
    if (text === page.sample) throw error;
    await read(page.sample);
    host.state = { text: "", error: /** @type {Error} */ (error).message };
    host.emit(new Set(["reading"]));
  }
}

start();
