// @ts-check
/** The headline of a frame: which sentence says what is shown. */

/** @import {StageWord} from "../types.js" */
/** @import {HeadlinePicture} from "./headline.js" */
/** @import {Part, Word} from "./sentences.js" */
/** @import {Frame} from "./view_pictures.js" */

import { GROUNDS } from "./colours.js";
import { detailOf, inkOf, restColour, rolesOf, shownRole, tendencyOf, topLinks } from "./frame.js";
import { DRAWN_OVERLAID, isRestingRole, strongestLinks, UNCHOSEN } from "./links.js";
import { rounded } from "./numbers.js";
import { movesOf } from "./pair.js";
import * as say from "./sentences.js";
import { markOf } from "./view_pictures.js";
import { wordName } from "./word_names.js";

/** @param {Frame} frame @param {number} at @param {string} colour @returns {Word} */
const wordAt = ({ data, heads, isLookedAt }, at, colour) => ({
  word: wordName(isLookedAt ? data.columns(heads[0]) : data.rows(heads[0]), at),
  colour,
});

/** @param {Frame} frame @param {string} error @param {string} remark @returns {HeadlinePicture} */
export function headlinePicture(frame, error, remark) {
  const { host, heads } = frame;
  const { about } = host;
  const roles = heads.length === 1 ? (rolesOf(about)?.[heads[0]] ?? []) : [];
  const shown = heads.map((head) => shownRole(host, head));
  const { headline, sub } = sentencesOf(frame);
  return {
    heads: heads.map((name, at) => ({
      name,
      role: shown[at],
      mark: markOf(shown, at),
      detail: shown[at] ? detailOf(about, name, shown[at] ?? "") : "",
    })),
    roles,
    role: shown[0],
    isMeasured: Boolean(about.scan),
    facts: about.roles,
    theme: host.theme(),
    remark,
    headline,
    sub,
    error,
    isSpoken: !frame.isHovered,
  };
}

/** @param {Frame} frame @returns {{headline: Part[], sub: Part[]}} */
function sentencesOf(frame) {
  const { host, data, heads, word, target, pair, isLookedAt } = frame;
  const head = heads[0],
    role = shownRole(host, head);
  const colour = inkOf(host, role);
  const rows = data.rows(head);
  if (rows.filter(({ kind }) => kind !== "special").length === 1 && heads.length === 1)
    return { headline: [say.ONE_WORD], sub: [] };
  if (word === null) return noWord(frame, role);
  if (target !== null) {
    const share = data.share(head, word, target);
    const to = wordName(data.columns(head), target);
    const headline = say.cellHead(wordAt(frame, word, colour), { word: to, colour }, share ?? 0);
    return { headline, sub: [] };
  }
  if (pair?.side === "both") {
    const moves = pairMoves(frame, colour);
    const others = moves?.others.slice(0, frame.isNarrow ? 1 : undefined) ?? [];
    if (moves) return say.pairHead({ ...moves, others });
  }
  if (heads.length > 1) return overlay(frame);
  const top = topLinks(data, head, role, word, {
    isLookedAt,
    hidesSpecial: frame.hidesSpecial,
    colour,
    rest: GROUNDS[host.theme()].soft,
  });
  if (!top) return { headline: [wordAt(frame, word, colour)], sub: [] };
  // It says nothing on a word that rests.
  const isBare = frame.isNarrow || frame.isWrapped || top.isResting;
  const meaning = isBare ? "" : tendencyOf(host.about, head, role);
  const isFar = frame.isWrapped && !top.isResting && !data.isCross(head);
  const away = isFar && top.at !== null ? top.at - word : 0;
  return say.wordHead(top, { head, meaning, away, isHovered: frame.isHovered, isLookedAt });
}

/** What a head tends to do, or that it is not known. @param {Frame} frame
 * @param {string | null} role */
function gistOf({ host, heads, isNarrow, isWrapped }, role) {
  if (isNarrow || isWrapped) return "";
  if (role) return tendencyOf(host.about, heads[0], role);
  return host.about.scan ? "No clear role." : "Its role is not measured yet.";
}

/** @param {Frame} frame @param {string | null} role */
function noWord(frame, role) {
  const { data, heads, isLookedAt, pair } = frame;
  if (heads.length > 1) return say.overlayNoWord(heads.length);
  const [head] = heads;
  const isDrawn = data.text.is_small && !isLookedAt && !data.isCross(head) && !pair;
  const isResting = isRestingRole(role);
  const rests = isResting ? [] : data.resting(head);
  const row = (/** @type {number} */ at) => data.line(head, at, false);
  const links = strongestLinks(row, data.rows(head), { threshold: UNCHOSEN, rests });
  return say.noWordHead(head, {
    gist: gistOf(frame, role),
    isResting,
    links: isDrawn ? links.length : null,
  });
}

/** @param {Frame} frame */
function overlay(frame) {
  const { host, data, heads, word, isLookedAt } = frame;
  const targets = heads.map((head) => {
    const role = shownRole(host, head);
    const top = topLinks(data, head, role, word ?? 0, {
      isLookedAt,
      hidesSpecial: frame.hidesSpecial,
      colour: inkOf(host, role),
      rest: restColour(host),
    });
    const isResting = Boolean(top?.isResting);
    const best = isResting && top?.target ? { word: top.target, share: top.share } : top?.next;
    if (!best || rounded(best.share) < DRAWN_OVERLAID) return null;
    return { name: head, word: best.word, isResting };
  });
  const source = wordAt(frame, word ?? 0, "");
  return { headline: say.overlayHeadline(source, targets, isLookedAt), sub: [] };
}

/** Where the swap moves the word's attention. @param {Frame} frame @param {string} colour */
export function pairMoves({ data, heads, word, pair }, colour) {
  const head = heads[0];
  const partner = pair?.partner(word) ?? null;
  if (!pair || word === null || partner === null) return null;
  const before = data.line(head, word, false),
    after = pair.data.line(head, partner, false);
  if (!before || !after) return null;
  const first = data.columns(head),
    second = pair.data.columns(head);
  const isWord = (/** @type {StageWord | undefined} */ each) => each?.kind !== "special";
  return movesOf({
    before,
    after,
    aligned: pair.aligned,
    first,
    second,
    rests: data.resting(head),
    source: { word: wordName(data.rows(head), word), colour },
    colour: (column) => (column === null || isWord(first[column]) ? colour : ""),
  });
}
