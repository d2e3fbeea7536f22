// @ts-check
/** Draws the What if panel: headline, stage, grid, bars and the sentences around them. */

/** @import {Picture} from "../stage/picture.js" */
/** @import {WhatIfPanel} from "./whatif_panel.js" */

import { make } from "../stage/dom.js";
import { restColour, roleColour, rolesOf } from "../stage/frame.js";
import { chip } from "../stage/legend.js";
import { leftNote, rightNote } from "../stage/picture_notes.js";
import { fill, listed, NO_ROLE, NOT_MEASURED, plain } from "../stage/sentences.js";
import { shades } from "../stage/shades.js";
import { predictionRows, similarityRows } from "./bars.js";
import * as gates from "./gates.js";
import { firstGenerated } from "./generated.js";
import { describeCut } from "./keeping.js";
import { chosenWord, stagePicture } from "./whatif_picture.js";
import { blankName, isLineBreak, predictionHead, similarityHead } from "./whatif_sentences.js";

const TITLES = {
  next: "Next word",
  masked: "Masked word",
  end: "Last word",
  class: "Class",
};
const GENERATED = "Underlined: generated words. The arcs show the model with all heads on";
const FOUND = " A search chose these heads on this sentence: try another.";
/** Milliseconds before a screen reader hears a new headline. */
const SPOKEN = 400;

/** Draw everything that the panel shows. @param {WhatIfPanel} panel */
export function draw(panel) {
  const text = panel.host.text();
  if (panel.el.hidden || !text || !panel.data) return;
  if (panel.host.get("line")) panel.loadLine();
  const factors = panel.factors();
  const { answers, parts } = panel;
  drawHead(panel, factors);
  drawStage(panel);
  drawGrid(panel, factors);
  panel.generated.show(answers.generated, changedName(factors), panel.host.get("line"));
  if (panel.about.kind === "similarity") panel.sentences.show(panel.texts(text.text));
  const head = panel.head();
  const roles = rolesOf(panel.about);
  const role = roles ? plain(listed(roles[head] ?? [])) || NO_ROLE : NOT_MEASURED;
  panel.factor.show(head, role, factors.get(head) ?? 1);
  const off = gates.offHeads(factors).length;
  const { cannotCut, sentence } = describeCut(answers.answer, off, factors.size - off);
  parts.keep.disabled = !off || cannotCut || !answers.isCurrent;
  parts.saved.textContent = panel.kept || sentence;
}

/** @param {WhatIfPanel} panel @param {gates.Factors} factors */
function drawHead(panel, factors) {
  const { parts, answers, all } = panel;
  const { answer, random, work, stage } = answers;
  parts.count.textContent = gates.countChanged(factors, all);
  const how = panel.host.get("found") ? "found by a search on this sentence" : "chosen by hand";
  parts.names.textContent = factors.size ? `${gates.nameChanged(factors)} \u00b7 ${how}` : "";
  parts.reset.disabled = !factors.size;
  parts.example.hidden =
    answer?.prediction?.what !== "next" || panel.page.text !== panel.page.sample;
  parts.search.textContent =
    work === "search" ? `Stop \u00b7 ${stage || "Searching"}` : "Find heads";
  parts.generate.textContent = work === "generate" ? "Stop" : "Generate";
  parts.generate.hidden = answer?.prediction?.what !== "next";
  panel.el.toggleAttribute("data-busy", !answers.isCurrent);
  if (!answer || !answers.isCurrent) return;
  const { prediction, similarity, remarks } = answer;
  const shown = prediction
    ? predictionHead(prediction, random, factors.size, all)
    : similarity && similarityHead(similarity, random, factors.size, all);
  if (!shown) return;
  fill(parts.headline, shown.headline);
  fill(parts.again, shown.headline);
  const waits = factors.size && !random;
  const isFound = factors.size && panel.host.get("found");
  fill(parts.sub, [
    ...shown.sub,
    waits ? " Random heads are being switched for comparison \u2026" : "",
    isFound && !waits ? FOUND : "",
  ]);
  speak(panel, `${plain(shown.headline)}. ${plain(shown.sub)}`);
  const rows = prediction
    ? predictionRows(prediction, random)
    : similarity && similarityRows(similarity, random);
  const title = prediction ? TITLES[prediction.what] : "Cosine of two sentences";
  const masked = prediction?.what === "masked" ? [`${prediction.title}.`] : [];
  panel.bars.show(title, changedName(factors), rows ?? [], !prediction, [...masked, ...remarks]);
  document.body.dataset.outcome = String(answer.heads_off);
  document.body.dataset.random = random ? String(random.heads.length) : "";
}

/** @param {WhatIfPanel} panel @param {string} sentence */
function speak(panel, sentence) {
  clearTimeout(panel.speaking);
  panel.speaking = window.setTimeout(() => {
    if (panel.parts.live.textContent !== sentence) panel.parts.live.textContent = sentence;
  }, SPOKEN);
}

/** Draw the sentence with the arcs of one head. @param {WhatIfPanel} panel */
export function drawStage(panel) {
  const data = panel.shownData();
  if (!data || panel.el.hidden) return;
  const { host, parts, answers } = panel;
  const head = panel.head();
  const rows = data.rows(head);
  const isLine = data === panel.lineData;
  const { prediction } = (answers.isCurrent && answers.answer) || { prediction: null };
  const isCausal = data.text.rests_on_first;
  const side = host.get("line") === "after" ? "after" : "before";
  const line = isLine ? (answers.generated?.[side] ?? null) : null;
  const chosen = chosenWord(host.get("word"), data.text, rows, isCausal);
  const marked = line ? firstGenerated(rows, line) : null;
  const first = marked !== null && !host.get("word") ? Math.min(marked, rows.length - 1) : chosen;
  const word = panel.hovered.word ?? first;
  data.loadLine(head, word, false);
  const picture = stagePicture({
    host,
    data,
    head,
    isOff: panel.factors().get(head) === 0,
    word,
    locked: host.get("word") === "" ? null : first,
    next: line || prediction?.what !== "next" ? null : nextWord(prediction),
  });
  nameHead(panel, picture);
  panel.stage.show(picture);
  markGenerated(panel, marked);
  const shape = panel.stage.layout?.shape ?? "line";
  fill(parts.left, inInk(leftNote(picture, shape)));
  parts.right.textContent = [rightNote(picture, shape), isLine ? GENERATED : ""]
    .filter(Boolean)
    .join("\u2002\u00b7\u2002");
}

/**
 * Name the drawn head above its arcs: "L13H8 where *to* looks".
 * @param {WhatIfPanel} panel @param {Picture} picture
 */
function nameHead({ parts, about }, { heads, words, word, theme }) {
  const [{ name, role, isOff }] = heads;
  const source = word === null ? null : words[word];
  parts.drawn.replaceChildren(
    chip(role ? about.roles[role] : null, theme),
    make("b", {}, name),
    make(
      "span",
      {},
      ...(source
        ? ["where ", make("i", { class: "hw-word", dir: "auto" }, source.text)]
        : ["where it"]),
      isOff ? " looked" : " looks",
    ),
  );
}

/** Words of a note in the colour of the note. @param {(string | {word: string})[]} parts */
const inInk = (parts) =>
  parts.map((part) => (typeof part === "string" ? part : { word: part.word, colour: "" }));

/** Underline the generated words. @param {WhatIfPanel} panel @param {number | null} first */
function markGenerated(panel, first) {
  panel.parts.stage.querySelectorAll("[data-word]").forEach((word) => {
    const at = Number(/** @type {HTMLElement | SVGElement} */ (word).dataset.word);
    word.classList.toggle("wi-new", first !== null && at >= first);
  });
}

/** @param {WhatIfPanel} panel @param {gates.Factors} factors */
function drawGrid(panel, factors) {
  const { about, host, data, parts } = panel;
  if (!data) return;
  const theme = host.theme();
  const roles = rolesOf(about);
  const only = host.get("only") || null;
  fill(parts.gridTitle, [`All ${panel.all.toLocaleString("en")} heads`]);
  const hint = document.createElement("span");
  hint.textContent = " click one, a layer\u2019s number, or drag over several";
  parts.gridTitle.append(hint);
  panel.grid.show({
    facts: about.roles,
    roles,
    chosen: [panel.head()],
    only,
    theme,
    colours: {
      own: (role) => roleColour(host, role),
      rest: restColour(host),
      shades: (colour) => shades(theme, colour),
    },
    key: `${data.text.name} ${JSON.stringify(data.switches)} ${data.version}`,
    maps: (name) => data.smallMap(name),
    bars: null,
    values: null,
    off: new Set(gates.offHeads(factors)),
    factors: new Map([...factors].filter(([, factor]) => factor !== 0)),
  });
  panel.legend.show(about.roles, roles, theme, only);
}

/** "3 off", "2 off, 1 scaled". @param {gates.Factors} factors */
function changedName(factors) {
  const off = gates.offHeads(factors).length,
    scaled = factors.size - off;
  return [...(off ? [`${off} off`] : []), ...(scaled ? [`${scaled} scaled`] : [])].join(", ");
}

/** A word in the box. @param {string} name */
const boxed = (name) => {
  if (isLineBreak(name)) return "\u21b5";
  return blankName(name) ? "\u2423" : name;
};

/**
 * The box at the end of the sentence.
 * @param {{names: string[], before: number[], after: number[]}} prediction
 */
function nextWord({ names, before, after }) {
  const likeliest = (/** @type {number[]} */ shares) =>
    boxed(names[shares.indexOf(Math.max(...shares))]);
  const [old, text] = [likeliest(before), likeliest(after)];
  return { text, before: old === text ? null : old };
}
