// @ts-check
/** Which links of a word are drawn, and how many are left out. Draws nothing. */
import { rounded } from "./numbers.js";

/** @import {StageWord} from "../types.js" */

/** Smallest share that is drawn, in whole percents: one head, and several at once. */
export const DRAWN = 5;
export const DRAWN_OVERLAID = 10;
/** Largest number of links drawn for a word and head. */
export const MOST = 8;
/** Smallest share of other words' faint links, and of links while no word is chosen. */
export const FAINT = 30;
export const UNCHOSEN = 15;
/** Largest number of links drawn while no word is chosen. */
export const MOST_UNCHOSEN = 12;

/** Roles whose story is resting: their links to resting places are drawn like any other. */
const RESTING_ROLES = ["sink", "delimiter"];

/**
 * @typedef {object} Link
 * @property {number} at the word that was chosen
 * @property {number} to the other word
 * @property {number} share
 */

/**
 * Whether resting is what the head's role is about.
 * @param {string | null} role
 * @returns {boolean}
 */
export function isRestingRole(role) {
  return role !== null && RESTING_ROLES.includes(role);
}

/**
 * Whether each word is a resting place: special tokens, and a causal model's first token.
 * @param {StageWord[]} words
 * @param {boolean} restsOnFirst
 * @returns {boolean[]}
 */
export function restingPlaces(words, restsOnFirst) {
  return words.map((word, at) => word.kind === "special" || (restsOnFirst && at === 0));
}

/**
 * Links of one word: those to draw, those to resting places, and what is left out.
 * @param {ArrayLike<number>} row shares by word
 * @param {StageWord[]} words
 * @param {number | null} at the chosen word, whose own share is not a link; null if it is not
 *   among `words`
 * @param {object} [options]
 * @param {number} [options.threshold] smallest share drawn, in whole percents
 * @param {number} [options.most]
 * @param {boolean[]} [options.rests] resting places; none by default
 * @param {boolean[]} [options.hidden] words that are not shown: their links are not counted
 * @param {boolean} [options.isCausal] whether words after `at` are out of sight
 * @returns {{drawn: Link[], resting: Link[], self: Link | null, restCount: number,
 *   restShare: number, isLimit: boolean}} `drawn` and `resting` are strongest first
 */
export function chooseLinks(row, words, at, options = {}) {
  const { threshold = DRAWN, most = MOST, rests = [], hidden = [], isCausal = false } = options;
  /** @type {Link[]} */
  const links = [];
  for (let to = 0; to < words.length; to++) {
    const isUnseen = hidden[to] || (isCausal && row[to] === 0);
    if (!isUnseen) links.push({ at: at ?? -1, to, share: row[to] });
  }
  const self = links.find((link) => link.to === at && rounded(link.share) >= threshold) ?? null;
  const strong = links
    .filter((link) => link.to !== at && rounded(link.share) >= threshold)
    .sort((one, other) => other.share - one.share || one.to - other.to);
  const kept = strong.slice(0, most);
  const counted = new Set([...kept, self]);
  const rest = links.filter((link) => !counted.has(link));
  return {
    drawn: kept.filter((link) => !rests[link.to]),
    resting: kept.filter((link) => rests[link.to]),
    self,
    restCount: rest.length,
    restShare: rest.reduce((sum, link) => sum + link.share, 0),
    isLimit: strong.length > most,
  };
}

/**
 * Every word's strongest link to another word, strongest first. Marks and special tokens are not
 * asked; resting places are not answers.
 * @param {(at: number) => ArrayLike<number> | null} row
 * @param {StageWord[]} words
 * @param {object} options
 * @param {number} options.threshold smallest share, in whole percents
 * @param {number} [options.most]
 * @param {boolean[]} [options.rests]
 * @param {number | null} [options.except] a word that is left out
 * @returns {Link[]}
 */
export function strongestLinks(row, words, { threshold, most = Infinity, rests = [], except }) {
  /** @type {Link[]} */
  const links = [];
  words.forEach((word, at) => {
    const shares = word.kind === "word" && at !== except ? row(at) : null;
    if (!shares) return;
    let best = -1;
    for (let to = 0; to < words.length; to++) {
      if (to === at || rests[to]) continue;
      if (best < 0 || shares[to] > shares[best]) best = to;
    }
    if (best >= 0 && rounded(shares[best]) >= threshold) {
      links.push({ at, to: best, share: shares[best] });
    }
  });
  return links.sort((one, other) => other.share - one.share || one.at - other.at).slice(0, most);
}
