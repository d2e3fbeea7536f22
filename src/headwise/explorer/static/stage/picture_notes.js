// @ts-check
/**
 * The notes under the row: what a cell is, and what is not drawn. And the words' own labels.
 *
 * In: a picture. Out: parts of sentences, in which words of the text stand apart.
 */
import { isUnseen, UNSEEN } from "./cells.js";
import { hasFaint, hasResting, linksOf, thresholdOf } from "./arcs.js";
import { FAINT, MOST_UNCHOSEN, strongestLinks, UNCHOSEN } from "./links.js";
import { joinAnd, percent, percentInWords, rounded } from "./numbers.js";
import { answersOf, isOverlay, restsOf, sidesOf } from "./picture.js";
import { wordName } from "./word_names.js";

/** @import {StageWord} from "../types.js" */
/** @import {Layout} from "./layout.js" */
/** @import {Link} from "./links.js" */
/** @import {Part} from "./numbers.js" */
/** @import {Picture, Side} from "./picture.js" */

/** Between two notes of one line. */
const DOT = "\u2002\u00b7\u2002";

/** @param {number} count */
const linkCount = (count) => `+ ${count} link${count === 1 ? "" : "s"}`;

/**
 * Links that are not drawn: "+ 10 links under 5%, 11% together", or "+ 13 links, 31% together" if
 * the largest number of links cut some; "" if everything is drawn.
 * @param {{restCount: number, restShare: number, isLimit: boolean}} links
 * @param {number} threshold in whole percents
 * @returns {string}
 */
export function restNote({ restCount, restShare, isLimit }, threshold) {
  if (!restCount) return "";
  const under = isLimit ? "" : ` under ${threshold}%`;
  const together = restCount === 1 ? "" : " together";
  return `${linkCount(restCount)}${under}, ${percentInWords(restShare)}${together}`;
}

/**
 * Links that are not drawn, without a sum: shares of different words do not add up.
 * @param {{restCount: number, isLimit: boolean}} links
 * @param {number} threshold
 * @returns {string}
 */
function countNote({ restCount, isLimit }, threshold) {
  if (!restCount) return "";
  return isLimit ? linkCount(restCount) : `${linkCount(restCount)} under ${threshold}%`;
}

/**
 * Shares on resting places: "13% and 10% on [CLS]".
 * @param {Link[]} links
 * @param {Picture} picture
 * @param {Side} side
 * @returns {string}
 */
function restingShares(links, picture, side) {
  const words = answersOf(picture, side);
  /** @type {Map<string, string[]>} */
  const byWord = new Map();
  for (const { to, share } of links) {
    const { text } = words[to];
    byWord.set(text, [...(byWord.get(text) ?? []), percent(share)]);
  }
  return joinAnd([...byWord].map(([word, shares]) => `${joinAnd(shares)} on ${word}`));
}

/**
 * Share that goes to words that are not shown; "" if there is none.
 * @param {Picture} picture
 * @param {Side} side
 */
function hiddenNote(picture, side) {
  const row = side.word === null ? null : side.heads[0]?.row(side.word);
  if (!picture.hidesSpecial || picture.isLookedAt || !row) return "";
  const share = side.columns.reduce(
    (sum, { kind }, at) => sum + (kind === "special" ? row[at] : 0),
    0,
  );
  return share > 0 ? `${percentInWords(share)} on special tokens, not shown` : "";
}

/**
 * Links of several heads to resting places: "On [CLS], not drawn: L3H1 10%, L2H1 13%".
 * @param {{name: string, resting: Link[]}[]} heads
 * @param {StageWord[]} words
 * @returns {string[]} one sentence for each resting place
 */
function restingHeads(heads, words) {
  const links = heads.flatMap(({ name, resting }) => resting.map((link) => ({ name, ...link })));
  const places = [...new Set(links.map(({ to }) => to))];
  return places.map((place) => {
    const own = links.filter(({ to }) => to === place);
    const shares = own.map(({ name, share }) => `${name} ${percent(share)}`);
    return `On ${words[place].text}, not drawn: ${shares.join(", ")}`;
  });
}

/**
 * The note of several heads: links under the threshold, and those to resting places.
 * @param {Picture} picture
 * @param {Side} side
 * @returns {string}
 */
function overlayNote(picture, side) {
  const known = side.heads.flatMap((head) => {
    const links = linksOf(picture, side, head);
    return links ? [{ name: head.name, ...links }] : [];
  });
  const count = known.reduce((sum, { restCount }) => sum + restCount, 0);
  const isLimit = known.some((links) => links.isLimit);
  const under = isLimit ? "" : ` under ${thresholdOf(picture)}%`;
  const rest = count ? [`${linkCount(count)}${under}`] : [];
  return [...rest, ...restingHeads(known, answersOf(picture, side))].join(DOT);
}

/**
 * Whether some arc is faint. A window shows only those between words in sight.
 * @param {Picture} picture
 * @param {Side} side
 * @param {[number, number] | null} window
 */
function isAnyFaint(picture, side, window) {
  const [head] = side.heads;
  const rests = restsOf(picture, side, head);
  const links = strongestLinks(head.row, side.rows, { threshold: FAINT, rests, except: side.word });
  const isSeen = (/** @type {number} */ at) => !window || (at >= window[0] && at <= window[1]);
  return links.some(({ at, to }) => isSeen(at) && isSeen(to));
}

/**
 * The note while no word is chosen: words with an arc, words whose arc is cut, and why the others
 * have none. Every word is in one count only.
 * @param {Picture} picture
 * @param {Side} side
 * @returns {string}
 */
function noWordNote(picture, side) {
  const [head] = side.heads;
  if (picture.word !== null || side.isCross || picture.isLookedAt || isOverlay(picture)) return "";
  const rests = restsOf(picture, side, head);
  const asked = side.rows.flatMap(({ kind }, at) => (kind === "word" ? [at] : []));
  if (asked.some((at) => !head.row(at))) return "";
  const links = strongestLinks(head.row, side.rows, { threshold: UNCHOSEN, rests });
  const linked = new Set(links.map(({ at }) => at));
  /** @type {Map<string, number>} */
  const counts = new Map();
  let without = 0;
  for (const at of asked.filter((each) => !linked.has(each))) {
    const row = head.row(at) ?? [];
    const best = side.columns.reduce((top, _, to) => (row[to] > row[top] ? to : top), 0);
    const place = best === at ? "" : rests[best] ? side.columns[best].text : null;
    if (place === null || rounded(row[best]) < UNCHOSEN) without += 1;
    else counts.set(place, (counts.get(place) ?? 0) + 1);
  }
  const drawn = Math.min(links.length, MOST_UNCHOSEN);
  if (drawn === asked.length) return "";
  const cut = links.length - drawn;
  const mostly = [...counts].map(([place, count]) => {
    const own = count === 1 ? "itself" : "themselves";
    return `${count} ${count === 1 ? "looks" : "look"} most at ${place || own}`;
  });
  return [
    `${drawn} of ${asked.length} words ${drawn === 1 ? "has" : "have"} an arc`,
    ...(cut ? [`${cut} weaker, not drawn`] : []),
    ...mostly,
    ...(without ? [`${without} without a link of ${UNCHOSEN}%`] : []),
  ].join(DOT);
}

/**
 * The note at the right: what is drawn faintly, and what is not drawn.
 * @param {Picture} picture
 * @param {Layout["shape"]} shape
 * @param {[number, number] | null} [window] words of a long text that are in sight
 * @returns {string}
 */
export function rightNote(picture, shape, window = null) {
  const [side] = sidesOf(picture);
  if (picture.pair || picture.target !== null || !side.heads.length) return "";
  if (side.word === null) return noWordNote(picture, side);
  if (isOverlay(picture)) return overlayNote(picture, side);
  const [head] = side.heads;
  const links = head ? linksOf(picture, side, head) : null;
  if (!links) return "";
  const resting = restingShares(links.resting, picture, side);
  const isFaint = hasFaint(picture, shape) && isAnyFaint(picture, side, window);
  const notes = [
    isFaint ? "Faint: other words\u2019 strongest links" : "",
    hasResting(picture, shape) ? "" : resting && `${resting} is not drawn`,
    hiddenNote(picture, side),
    picture.isLookedAt
      ? countNote(links, thresholdOf(picture))
      : restNote(links, thresholdOf(picture)),
  ];
  return notes.filter(Boolean).join(DOT);
}

/**
 * What a dash in a cell means, for a word that cannot see all others; null if it can.
 * @param {Picture} picture
 * @param {Side} side
 * @returns {Part[] | null}
 */
function unseenNote(picture, side) {
  const at = side.word ?? 0;
  const row = side.heads[0]?.row(at);
  if (!row || !Array.from(row).some((share, to) => isUnseen(picture, side, to, share))) return null;
  const word = { word: side.rows[at].text };
  return picture.isLookedAt
    ? [` ${UNSEEN}: earlier words, which cannot see `, word, "."]
    : [` ${UNSEEN}: later words, which `, word, " cannot see."];
}

/**
 * The note at the left: the meaning of a cell.
 * @param {Picture} picture
 * @param {Layout["shape"]} shape
 * @returns {Part[]}
 */
export function leftNote(picture, shape) {
  const [side] = sidesOf(picture);
  const { heads, isLookedAt, isValued, hidesSpecial } = picture;
  if (side.word === null || picture.pair || !heads.length) return [];
  const own = isLookedAt ? side.columns : side.rows;
  const word = { word: own[side.word].text };
  const off = heads.filter((head) => head.isOff);
  if (off.length) {
    const names = joinAnd(off.map(({ name }) => name));
    const was = off.length === 1 ? "it was" : "they were";
    const from = { word: wordName(side.rows, side.word) };
    return [`Hollow: where ${names} looked, from `, from, `, before ${was} switched off.`];
  }
  const unseen = unseenNote(picture, side);
  const where = shape === "vertical" ? "beside it" : "above it";
  if (isLookedAt) {
    return [
      `Each cell: the share of its own attention that the word ${where} gives to `,
      word,
      ".",
      ...(unseen ?? []),
    ];
  }
  const share = isValued ? "share of attention, weighed by values," : "share of attention";
  const start = [`Each cell: the ${share} that `, word];
  if (heads.length > 1) {
    const place = shape === "vertical" ? "beside it" : "above";
    const rows = unseen ? "." : "; each sums to 100%.";
    return [...start, ` gives to the word ${place}. One row per head${rows}`, ...(unseen ?? [])];
  }
  const sum = unseen ?? [hidesSpecial ? "" : " The row sums to 100%."];
  return [...start, ` gives to the word ${where}.`, ...sum];
}

/**
 * A word's links in words, for screen readers: "it, looks at animal 68 percent, [CLS] 10 percent,
 * street 5 percent, and 10 more under 5 percent".
 * @param {Picture} picture
 * @param {Side} side
 * @param {number} at
 * @returns {string}
 */
export function wordLabel(picture, side, at) {
  const { text } = side.rows[at];
  const answers = answersOf(picture, side);
  const verb = picture.isLookedAt ? "is looked at by" : "looks at";
  const labels = side.heads.map((head) => {
    const links = linksOf(picture, { ...side, word: at }, head);
    if (!links) return "";
    const own = [...links.drawn, ...links.resting].sort((one, two) => two.share - one.share);
    const parts = own.map(({ to, share }) => `${answers[to].text} ${rounded(share)} percent`);
    const under = links.isLimit ? "" : ` under ${thresholdOf(picture)} percent`;
    if (links.restCount) parts.push(`${parts.length ? "and " : ""}${links.restCount} more${under}`);
    const where = isOverlay(picture) ? `in ${head.name} ` : "";
    return parts.length ? `${where}${verb} ${parts.join(", ")}` : "";
  });
  return [text, ...labels.filter(Boolean)].join(", ");
}
