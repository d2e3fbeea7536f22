// @ts-check
/** A click on a finding: it chooses head, word and role, or opens the pair. */

/** @import {Finding} from "../types.js" */
/** @import {TextData} from "./data.js" */
/** @import {View} from "./view.js" */

import { chosenHeads, lockedWord, translate } from "./frame.js";
import { axisOf, stackOf } from "./host.js";

/** @param {View} view @param {Finding} finding */
export function takeFinding(view, finding) {
  const { host, data } = view;
  if (!data) return;
  const word = finding.source === null ? view.keepWord() : { word: placeOf(view, data, finding) };
  if (finding.kind === "swap" && finding.text) {
    const head = /** @type {Record<string, string>} */ (finding.head ? { head: finding.head } : {});
    host.set({ ...head, ...word, swap: finding.text, side: "both", role: "" }, "push");
  } else if (finding.head)
    host.set({ head: finding.head, role: finding.role ?? "", ...word }, "push");
}

/**
 * The finding's word in today's pieces or words.
 * @param {View} view @param {TextData} data @param {Finding} finding
 */
function placeOf({ host }, { text, switches }, { head, source }) {
  const stack = stackOf(head ?? chosenHeads(host)[0]);
  const isByWord = axisOf(text, stack, switches.words).isByWord;
  const isInWords = axisOf(text, stack, true).isByWord;
  const at = source ?? 0;
  return String(isInWords && !isByWord ? translate(text, stack, at, false) : at);
}

/** Whether a finding is what the view shows. @param {View} view @param {Finding} finding */
export function isTaken(view, finding) {
  const { host, data } = view;
  if (!data || !finding.head || host.get("swap") || finding.kind === "swap") return false;
  const heads = chosenHeads(host);
  if (heads.length > 1 || heads[0] !== finding.head) return false;
  const locked = lockedWord(host, data, heads[0]);
  return finding.source === null || String(locked) === placeOf(view, data, finding);
}
