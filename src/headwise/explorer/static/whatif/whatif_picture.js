// @ts-check
/** What the stage shows in What if: one head's links from one word, and the notes below. */

/** @import {StageWord, TextAnswer} from "../types.js" */
/** @import {TextData} from "../stage/data.js" */
/** @import {Host} from "../stage/host.js" */
/** @import {Part, Word} from "../stage/sentences.js" */
/** @import {Picture} from "../stage/stage.js" */

import { roleColour, rolesOf } from "../stage/frame.js";
import { chooseLinks, DRAWN, restingPlaces } from "../stage/links.js";
import { restNote } from "../stage/sentences.js";

/** Words of a long text on the stage: its end, which the next word follows. */
const SHOWN = 40;
const ORDINALS = ["first", "second", "third", "fourth", "fifth"];

/** Switches of the weights in the address. @param {Host} host */
export const switches = (host) => ({
  words: host.get("words") !== "0",
  first: host.get("first") !== "0",
  values: host.get("values") === "1",
});

/** Number of words of a long text that are not on the stage. @param {number} count */
export const hidden = (count) => (count > 1.5 * SHOWN ? count - SHOWN : 0);

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
  const rows = data.rows(head),
    columns = data.columns(head);
  const start = hidden(rows.length);
  const first = data.isCross(head) ? hidden(columns.length) : start;
  const role = rolesOf(about)?.[head]?.[0] ?? null;
  const place = (/** @type {number | null} */ at) =>
    at === null || at < start ? null : at - start;
  return {
    words: rows.slice(start),
    columns: data.isCross(head) ? columns.slice(first) : null,
    heads: [
      {
        name: head,
        role,
        letter: (role && about.roles[role]?.letter) || "\u00b7",
        colour: roleColour(host, role),
        mark: "",
        row: (at) => data.line(head, at + start, false)?.subarray(first) ?? null,
        isOff,
      },
    ],
    word: place(word),
    locked: place(locked),
    target: null,
    restsOnFirst: data.text.rests_on_first && first === 0,
    hidesSpecial: host.get("special") === "0",
    isLookedAt: false,
    theme: host.theme(),
    pair: null,
    next,
  };
}

/**
 * A word as a sentence names it: "the last to" where the text has it more than once.
 * @param {StageWord[]} words @param {number} at
 * @returns {Part[]}
 */
export function namedWord(words, at) {
  const places = words.flatMap(({ text }, place) => (text === words[at].text ? [place] : []));
  /** @type {Word} */
  const word = { word: words[at].text, colour: "" };
  if (places.length === 1) return [word];
  if (at === places.at(-1)) return ["the last ", word];
  const which = ORDINALS[places.indexOf(at)];
  return which ? [`the ${which} `, word] : [word];
}

/**
 * Notes below the row: where the head looks, and what is not drawn.
 * @param {Picture} picture @param {number} before number of words that are not on the stage
 * @param {boolean} isGenerated
 * @returns {{left: Part[], right: string}}
 */
export function notes(picture, before, isGenerated) {
  const [head] = picture.heads;
  const { word, words } = picture;
  const row = word === null ? null : head.row(word);
  if (word === null || !row) return { left: [], right: "" };
  const from = namedWord(words, word);
  const was = ["Dashed and hollow: where ", head.name, " looked, from "];
  /** @type {Part[]} */
  const left = head.isOff
    ? [...was, ...from, ", before it was switched off."]
    : [`Where ${head.name} looks from `, ...from, "."];
  if (isGenerated) left.push(" Generated words are underlined; all heads are on in this picture.");
  if (before) left.push(` The first ${before.toLocaleString("en")} words are not shown.`);
  const columns = picture.columns ?? words;
  const rests = restingPlaces(columns, picture.restsOnFirst && !picture.columns);
  const options = { rests, isCausal: picture.restsOnFirst || before > 0 };
  const at = picture.columns ? null : word;
  const { restCount: count, restShare: share, isLimit } = chooseLinks(row, columns, at, options);
  const said = { hasFaint: false, undrawn: [], count, share, isLimit, threshold: DRAWN / 100 };
  return { left, right: restNote(said) };
}
