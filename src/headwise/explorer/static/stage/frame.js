// @ts-check
/** The view's state as a frame: heads, word and role that are shown, and the strongest links. */

/** @import {ModelAnswer, TextAnswer} from "../types.js" */
/** @import {TextData} from "./data.js" */
/** @import {Host} from "./host.js" */
/** @import {Top, Word} from "./sentences.js" */

import { GROUNDS, ROLES } from "./colours.js";
import { axisOf, layerOf, numberOf, stackOf } from "./host.js";
import { isRestingRole } from "./links.js";
import { rounded } from "./numbers.js";
import { wordName } from "./word_names.js";

/** Largest number of heads on the stage. */
export const MOST_HEADS = 4;

/**
 * What the pointer is on: it shows for as long as it stays there, and never changes the address.
 * @typedef {object} Hover
 * @property {number | null} word @property {number | null} target  a cell of the map
 * @property {string | null} head  a small map
 */

/** Whether the model has a head. @param {ModelAnswer} about @param {string} name */
export function hasHead(about, name) {
  const layer = about.layers.find((each) => each.name === layerOf(name));
  return Boolean(layer) && numberOf(name) < (layer?.heads ?? 0);
}

/** Every head's name, layer by layer. @param {ModelAnswer} about */
export const allHeads = (about) =>
  about.layers.flatMap(({ name, heads }) =>
    Array.from({ length: heads }, (_, head) => `${name}H${head}`),
  );

/** Heads on the stage: the address's, or else the text's own. @param {Host} host */
export function chosenHeads(host) {
  const { about } = host;
  const asked = host.get("head").split(",").filter(Boolean);
  const known = [...new Set(asked)].filter((name) => hasHead(about, name)).slice(0, MOST_HEADS);
  if (known.length) return known;
  const start = host.text()?.start.head;
  return [start && hasHead(about, start) ? start : allHeads(about)[0]];
}

/**
 * Roles of every head, lead first; null if roles were not measured.
 * @param {ModelAnswer} about @returns {Record<string, string[]> | null}
 */
export function rolesOf(about) {
  const { scan } = about;
  return scan && Object.fromEntries(scan.names.map((name, at) => [name, scan.roles[at]]));
}

/** A few words on a role of a head, such as "one word back". @param {ModelAnswer} about
 * @param {string} head @param {string} role */
export function detailOf(about, head, role) {
  const at = about.scan?.names.indexOf(head) ?? -1;
  return about.scan?.details[at]?.[role] ?? "";
}

/** The role whose colour a head has on the stage. @param {Host} host @param {string} head */
export function shownRole(host, head) {
  const roles = rolesOf(host.about)?.[head] ?? [];
  const asked = host.get("role");
  const isAsked = roles.includes(asked) && chosenHeads(host).length === 1;
  return isAsked ? asked : (roles[0] ?? null);
}

/** @param {Host} host @param {string | null} role */
export const roleColour = (host, role) =>
  (role && host.about.roles[role]?.[host.theme()]) || ROLES[host.theme()].none;

/** Colour of words of the text in a sentence: grey is for shapes. @param {Host} host
 * @param {string | null} role */
export const inkOf = (host, role) => (role ? roleColour(host, role) : "");

/** Colour of resting places. @param {Host} host */
export const restColour = (host) => GROUNDS[host.theme()].rest;

/**
 * "In other texts this head tends to look back to a mention of the same thing: 63% found, 50% by
 * chance."
 * @param {ModelAnswer} about @param {string} head @param {string | null} role
 */
export function tendencyOf({ roles, scan }, head, role) {
  const facts = role ? roles[role] : undefined;
  if (!facts || !role) return "";
  const figure = scan?.figures[scan.names.indexOf(head)]?.[role];
  return `In other texts this head ${facts.tendency}${figure ? `: ${figure}` : ""}.`;
}

/**
 * Index of a word among the pieces, or of a piece among the words, by the letters before it.
 * @param {TextAnswer} text @param {string} stack @param {number} at @param {boolean} toWords
 */
export function translate(text, stack, at, toWords) {
  const from = axisOf(text, stack, !toWords).axis.rows,
    to = axisOf(text, stack, toWords).axis.rows;
  const letters = from.slice(0, at).reduce((sum, word) => sum + word.text.trim().length, 0);
  let sum = 0;
  for (let index = 0; index < to.length; index++) {
    sum += to[index].text.trim().length;
    if (sum > letters) return index;
  }
  return Math.min(at, to.length - 1);
}

/**
 * The locked word: the address's, the text's own, or null.
 * @param {Host} host @param {TextData} data @param {string} head
 */
export function lockedWord(host, data, head) {
  const asked = host.get("word");
  if (asked === "-") return null;
  const count = host.get("by") === "1" ? data.columns(head).length : data.rows(head).length;
  if (asked !== "") {
    const at = Number(asked);
    return Number.isInteger(at) && at >= 0 && at < count ? at : null;
  }
  const { start } = data.text;
  const stack = stackOf(head);
  if (start.source === null || (start.head && stackOf(start.head) !== stack)) return null;
  const isByWord = axisOf(data.text, stack, data.switches.words).isByWord;
  const isInWords = axisOf(data.text, stack, true).isByWord;
  const at =
    isInWords && !isByWord ? translate(data.text, stack, start.source, false) : start.source;
  return at < count ? at : null;
}

/**
 * The strongest links of a word in one head, for the headline; null until its row has come.
 * @param {TextData} data @param {string} head @param {string | null} role @param {number} at
 * @param {object} how
 * @param {boolean} how.isLookedAt @param {boolean} how.hidesSpecial @param {string} how.colour
 * @param {string} how.rest
 * @returns {Top | null}
 */
export function topLinks(data, head, role, at, { isLookedAt, hidesSpecial, colour, rest }) {
  const shares = data.line(head, at, isLookedAt);
  const [rows, columns] = [data.rows(head), data.columns(head)];
  const [own, others] = isLookedAt ? [columns, rows] : [rows, columns];
  if (!shares || !own[at]) return null;
  const resting = isLookedAt ? others.map(({ kind }) => kind === "special") : data.resting(head);
  const isHidden = (/** @type {number} */ to) => hidesSpecial && others[to].kind === "special";
  const word = (/** @type {number} */ to) => ({
    word: wordName(others, to),
    colour: resting[to] && !isRestingRole(role) ? rest : colour,
  });
  let best = -1,
    next = -1;
  shares.forEach((share, to) => {
    if (isHidden(to) || (isLookedAt && resting[to])) return;
    if (best < 0 || share > shares[best]) best = to;
    if (!resting[to] && (next < 0 || share > shares[next])) next = to;
  });
  const isNone = best < 0 || shares[best] <= 0;
  const isSelf = best === at && !data.isCross(head);
  return {
    source: { word: wordName(own, at), colour },
    target: isNone ? null : word(best),
    at: isNone ? null : best,
    share: isNone ? 0 : shares[best],
    isSelf,
    isResting: !isNone && !isLookedAt && resting[best] && !isSelf,
    next: next >= 0 && rounded(shares[next]) ? { word: word(next), share: shares[next] } : null,
    by: isLookedAt ? null : mostLookedBy(data, head, at, colour),
  };
}

/**
 * The other word that looks at a word most.
 * @param {TextData} data @param {string} head @param {number} at @param {string} colour
 * @returns {{word: Word, share: number} | null}
 */
function mostLookedBy(data, head, at, colour) {
  if (data.isCross(head)) return null;
  const shares = data.line(head, at, true);
  const rows = data.rows(head);
  if (!shares) return null;
  let best = -1;
  shares.forEach((share, from) => {
    if (from === at || rows[from].kind === "special") return;
    if (best < 0 || share > shares[best]) best = from;
  });
  if (best < 0 || !rounded(shares[best])) return null;
  return { word: { word: wordName(rows, best), colour }, share: shares[best] };
}
