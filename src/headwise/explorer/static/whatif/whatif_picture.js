// @ts-check
/** What the stage shows in What if: one head's links from one word. */

/** @import {StageWord, TextAnswer} from "../types.js" */
/** @import {TextData} from "../stage/data.js" */
/** @import {Host} from "../stage/host.js" */
/** @import {Picture} from "../stage/picture.js" */

import { roleColour, rolesOf } from "../stage/frame.js";

/** Switches of the weights in the address. @param {Host} host */
export const switches = (host) => ({
  words: host.get("words") !== "0",
  first: host.get("first") !== "0",
  values: host.get("values") === "1",
});

/**
 * Index of the word that the arcs come from: the chosen one, or the last, which the next word
 * follows; for other models that of the text's first finding.
 * @param {string} chosen @param {TextAnswer} text @param {StageWord[]} words
 * @param {boolean} isCausal
 */
export function chosenWord(chosen, text, words, isCausal) {
  if (/^\d+$/.test(chosen) && Number(chosen) < words.length) return Number(chosen);
  if (isCausal) return words.length - 1;
  const { source } = text.start;
  return source !== null && source < words.length ? source : 0;
}

/**
 * @param {object} what
 * @param {Host} what.host @param {TextData} what.data
 * @param {string} what.head @param {boolean} what.isOff @param {number | null} what.word
 * @param {number | null} what.locked
 * @param {{text: string, before: string | null} | null} what.next
 * @returns {Picture}
 */
export function stagePicture({ host, data, head, isOff, word, locked, next }) {
  const { about } = host;
  const role = rolesOf(about)?.[head]?.[0] ?? null;
  return {
    words: data.rows(head),
    columns: data.isCross(head) ? data.columns(head) : null,
    heads: [
      {
        name: head,
        role,
        letter: (role && about.roles[role]?.letter) || "\u00b7",
        colour: roleColour(host, role),
        mark: "",
        row: (at) => data.line(head, at, false),
        isOff,
      },
    ],
    word,
    locked,
    target: null,
    restsOnFirst: data.text.rests_on_first && !data.isCross(head),
    hidesSpecial: host.get("special") === "0",
    isLookedAt: false,
    theme: host.theme(),
    pair: null,
    next,
    isValued: data.switches.values,
  };
}
