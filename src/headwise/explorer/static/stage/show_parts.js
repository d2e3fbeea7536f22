// @ts-check
/** Shows a frame in all parts of the view. */

/** @import {Parts} from "./parts.js" */
/** @import {Frame} from "./view_pictures.js" */

import { carriersNote } from "./carriers.js";
import { withRoom } from "./editing.js";
import { isTaken } from "./finding_choice.js";
import { allHeads, inkOf, roleColour, rolesOf, shownRole } from "./frame.js";
import { rankHeads } from "./pair.js";
import { leftNote, rightNote } from "./picture_notes.js";
import { fill } from "./sentences.js";
import { headlinePicture } from "./view_headline.js";
import * as pictures from "./view_pictures.js";

/** @param {Parts} parts @param {Frame} frame */
export function showParts(parts, frame) {
  const { view } = parts;
  const { host } = view;
  const reading = host.reading();
  const isPair = frame.pair?.side === "both";
  parts.root.dataset.theme = host.theme();
  parts.root.classList.toggle("hv-waiting", Boolean(reading.text));
  parts.root.classList.toggle("hv-paired", isPair);
  const plain = pictures.stagePicture(frame);
  const isOther = reading.text && reading.text !== frame.data.text.text;
  const picture = isOther
    ? pictures.unreadPicture(plain, reading.text)
    : { ...plain, words: withRoom(plain.words, view.editing.at) };
  const isShown = view.editing.isOn || reading.error === view.editing.readError;
  const error = view.error || (isShown ? "" : reading.error);
  if (!view.editing.isOn) parts.stage.show(picture);
  const shape = parts.stage.layout?.shape ?? "line";
  parts.headline.show(
    headlinePicture({ ...frame, isWrapped: shape === "wrapped" }, error, remark(parts, frame)),
  );
  parts.tools.show(toolsPicture(parts, frame));
  showNotes(parts, frame);
  parts.mapBar.show(frame);
  parts.map.show(pictures.mapPicture(frame));
  parts.gridBar.show(frame);
  const { measures, names } = parts.gridBar.columns(frame);
  parts.grid.isLarge = parts.size === "wide" && (isPair || parts.isBroad);
  parts.grid.show(pictures.gridPicture(frame, measures, names));
  parts.legend.show(host.about.roles, rolesOf(host.about), host.theme(), host.get("only") || null);
  parts.legend.el.hidden = host.get("grid") in measures;
  showFindings(parts, frame);
  showRanking(parts, frame, isPair);
  parts.carriersNote.hidden = !isPair;
  parts.carriersNote.textContent =
    isPair && frame.pair ? carriersNote(frame.pair.carries, frame.pair.whyNoCarries) : "";
  const key = `${frame.data.text.name} ${view.tab} ${Boolean(host.about.scan)}`;
  parts.facts?.show(key, view.tab, host.about, host.theme());
}

/** The lines under the row of shares, for the words in sight. @param {Parts} parts
 * @param {Frame} frame */
export function showNotes({ stage, noteLeft, noteRight, view }, frame) {
  const picture = pictures.stagePicture(frame);
  const shape = stage.layout?.shape ?? "line";
  fill(noteLeft, leftNote(picture, shape));
  noteRight.textContent = rightNote(picture, shape, view.window);
}

/** Grey words beside the head's name. @param {Parts} parts @param {Frame} frame */
function remark({ view }, { heads, chosen, pair }) {
  if (view.remark) return view.remark;
  if (pair) return "one word swapped";
  const isChosen = heads.length > 1 && heads.length === chosen.length;
  if (!isChosen) return "";
  const how = matchMedia("(pointer: coarse)").matches ? "long-press" : "shift-click";
  return `${how} a small map to add or remove one`;
}

/** @param {Parts} parts @param {Frame} frame */
function showFindings({ findings, view }, { host, data }) {
  findings.show({
    about: host.about,
    text: view.data?.text ?? data.text,
    theme: host.theme(),
    isChosen: (finding) => isTaken(view, finding),
    canScan: Boolean(host.job),
    scanning: view.jobs.running.scan ?? "",
  });
}

/** @param {Parts} parts @param {Frame} frame @param {boolean} isPair */
function showRanking(parts, frame, isPair) {
  const { host, data, heads, word, pair } = frame;
  const partner = pair?.partner(word) ?? null;
  const isShown = isPair && word !== null && partner !== null;
  parts.rankBox.hidden = !isShown;
  if (!isShown || !pair) return;
  const all = allHeads(host.about);
  const roles = rolesOf(host.about);
  const leadOf = (/** @type {string} */ head) => roles?.[head]?.[0] ?? null;
  parts.ranking.show({
    ranked: rankHeads(all, data, pair.data, pair.aligned, word, partner),
    source: {
      word: data.rows(heads[0])[word].text,
      colour: inkOf(host, shownRole(host, heads[0])),
    },
    count: all.length,
    isCausal: data.text.rests_on_first,
    chosen: frame.chosen,
    facts: host.about.roles,
    role: leadOf,
    colour: (head) => roleColour(host, leadOf(head)),
    theme: host.theme(),
  });
}

/** @param {Parts} parts @param {Frame} frame */
function toolsPicture({ view }, { host, data, pair, heads }) {
  /** @type {Record<string, string>} */
  const disabled = { ...host.cannot };
  if (data.text.why_no_words) disabled.words = data.text.why_no_words;
  if (!data.columns(heads[0]).some(({ kind }) => kind === "special"))
    disabled.special = "This text has no special tokens.";
  return {
    get: (/** @type {string} */ key) => host.get(key),
    disabled,
    pair: pair && { words: pair.words, side: pair.side },
    isEditing: view.editing.isOn,
  };
}
