// @ts-check
/** Elements of the What if panel. */

import { make } from "../stage/dom.js";

/** @param {string} text @param {string} title */
function button(text, title = "") {
  return make("button", { type: "button", class: "hv-button", title: title || null }, text);
}

/** @param {HTMLElement} el */
export function build(el) {
  const parts = {
    count: make("b", {}),
    names: make("span", {}),
    headline: make("h2", { class: "panel-headline", id: "whatif-title" }),
    sub: make("p", { class: "panel-sub" }),
    live: make("p", { class: "hv-hidden", "aria-live": "polite" }),
    change: button("Change sentence"),
    example: button("Try an example", "Read a sentence whose next word is a name"),
    search: button("Find heads", "Search for a few heads that change the prediction"),
    reset: button("Switch all on"),
    generate: button("Generate", "Let the model write to the end of the sentence"),
    keep: button("Keep these cuts", "Save the heads that are off as plan.json"),
    editor: make("form", { class: "wi-editor", hidden: true }),
    field: make("textarea", { "aria-label": "Sentence", rows: 2, spellcheck: "false" }),
    cancel: button("Cancel"),
    again: make("p", {}),
    drawn: make("p", { class: "wi-drawn" }),
    stage: make("div", { class: "wi-stage", "aria-labelledby": "whatif-title" }),
    left: make("p", {}),
    right: make("p", {}),
    generated: make("section", { class: "wi-generation", "aria-label": "Generated text" }),
    gridTitle: make("h3", { class: "panel-title" }),
    grid: make("div", { class: "wi-grid" }),
    legend: make("div", {}),
    factor: make("div", { class: "wi-factor" }),
    saved: make("p", { class: "wi-saved", id: "whatif-saved", "aria-live": "polite" }),
    bars: make("div", {}),
    sentences: make("div", { class: "wi-others" }),
  };
  parts.keep.setAttribute("aria-describedby", "whatif-saved");
  const read = make("button", { type: "submit", class: "hv-button hv-main" }, "Read");
  parts.editor.append(parts.field, make("div", {}, read, parts.cancel));
  const tools = make(
    "div",
    { class: "wi-tools", role: "group", "aria-label": "Tools" },
    parts.change,
    parts.example,
    parts.search,
    parts.reset,
    parts.generate,
    parts.keep,
  );
  const kicker = make("p", { class: "panel-kicker" }, parts.count, " ", parts.names);
  el.classList.add("wi", "hv-view");
  el.setAttribute("aria-labelledby", "whatif-title");
  const bar = make("div", { class: "wi-again", "aria-hidden": "true", hidden: true }, parts.again);
  new IntersectionObserver(([{ isIntersecting, boundingClientRect }]) => {
    bar.hidden = isIntersecting || boundingClientRect.bottom > 0 || el.hidden;
  }).observe(parts.headline);
  el.replaceChildren(
    bar,
    make("div", { class: "wi-top" }, kicker, tools, parts.headline, parts.sub, parts.live),
    parts.editor,
    parts.drawn,
    parts.stage,
    make("div", { class: "wi-notes" }, parts.left, parts.right),
    parts.generated,
    make(
      "div",
      { class: "panel-columns wi-columns" },
      make("div", {}, parts.gridTitle, parts.grid, parts.legend, parts.factor, parts.saved),
      make("div", {}, parts.bars, parts.sentences),
    ),
  );
  return parts;
}

/** @typedef {ReturnType<typeof build>} Parts */
