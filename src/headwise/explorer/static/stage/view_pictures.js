// @ts-check
/** Pictures for the parts of the view: stage, map, grid and headline, from one frame. */

/** @import {StageWord} from "../types.js" */
/** @import {TextData} from "./data.js" */
/** @import {GridPicture} from "./grid.js" */
/** @import {HeadlinePicture} from "./headline.js" */
/** @import {Host} from "./host.js" */
/** @import {MapPicture} from "./map.js" */
/** @import {Match} from "./pair.js" */
/** @import {Part, Word} from "./sentences.js" */
/** @import {Picture, PictureHead} from "./picture.js" */

import { GROUNDS, mix, ink } from "./colours.js";
import {
  detailOf,
  inkOf,
  meaningOf,
  restColour,
  roleColour,
  rolesOf,
  shownRole,
  topLinks,
} from "./frame.js";
import { format } from "./head_facts.js";
import { stackOf } from "./host.js";
import { isRestingRole, strongestLinks, UNCHOSEN } from "./links.js";
import { rounded } from "./numbers.js";
import { movesOf } from "./pair.js";
import * as say from "./sentences.js";
import { shades } from "./shades.js";

/**
 * What is shown now, after hovering.
 * @typedef {object} Frame
 * @property {Host} host @property {TextData} data
 * @property {string[]} heads  on the stage, all of one stack
 * @property {string[]} chosen  of the address
 * @property {number | null} word @property {number | null} locked @property {number | null} target
 * @property {boolean} isHovered  whether the word or head is only hovered
 * @property {boolean} isLookedAt @property {boolean} hidesSpecial
 * @property {{data: TextData, aligned: Match[], partner: (at: number | null) => number | null,
 *   side: string, words: [string, string]} | null} pair
 * @property {string} tab  the head whose map is shown
 * @property {[number, number] | null} window  words of a long text that the stage shows
 * @property {boolean} isNarrow @property {boolean} isWrapped  whether the stage has several lines
 */

/** Subscript of the second head of one role. @param {(string | null)[]} roles @param {number} at */
function markOf(roles, at) {
  const before = roles.slice(0, at).filter((role) => role === roles[at]).length;
  return before ? String(before + 1) : "";
}

/** @param {Frame} frame @param {TextData} data @returns {PictureHead[]} */
export function pictureHeads({ host, heads, isLookedAt }, data) {
  const roles = heads.map((head) => shownRole(host, head));
  return heads.map((name, at) => ({
    name,
    role: roles[at],
    letter: roles[at] ? (host.about.roles[roles[at] ?? ""]?.letter ?? "") : "",
    colour: roleColour(host, roles[at]),
    mark: markOf(roles, at),
    row: (/** @type {number} */ word) => data.line(name, word, isLookedAt),
    isOff: false,
  }));
}

/** @param {Frame} frame @returns {Picture} */
export function stagePicture(frame) {
  const { host, data, heads, word, locked, target, pair } = frame;
  const isCross = data.isCross(heads[0]);
  return {
    words: data.rows(heads[0]),
    columns: isCross ? data.columns(heads[0]) : null,
    heads: pictureHeads(frame, data),
    word,
    locked,
    target,
    restsOnFirst: data.text.rests_on_first,
    hidesSpecial: frame.hidesSpecial,
    isLookedAt: frame.isLookedAt,
    isValued: host.get("values") === "1",
    theme: host.theme(),
    pair:
      pair?.side === "both"
        ? {
            words: pair.data.rows(heads[0]),
            heads: pictureHeads(frame, pair.data),
            aligned: pair.aligned,
            word: pair.partner(word),
          }
        : null,
    next: null,
    shape: frame.isNarrow ? "vertical" : "auto",
  };
}

/** @param {Frame} frame @returns {MapPicture} */
export function mapPicture(frame) {
  const { host, word, tab, target } = frame;
  const second = frame.pair && frame.pair.side === "both" && host.get("of") === "second";
  const data = second && frame.pair ? frame.pair.data : frame.data;
  const at = second && frame.pair ? frame.pair.partner(word) : word;
  const role = shownRole(host, tab);
  const resting = isRestingRole(role) ? data.columns(tab).map(() => false) : data.resting(tab);
  const isSame = !data.isCross(tab);
  const cells = data.text.is_small ? null : (data.cells.get(tab) ?? null);
  return {
    key: `${data.text.name} ${tab} ${data.version}`,
    rows: data.rows(tab),
    columns: data.columns(tab),
    share: (row, column) => data.share(tab, row, column),
    resting,
    hidesSpecial: frame.hidesSpecial,
    own: roleColour(host, role),
    ink: inkOf(host, role) || GROUNDS[host.theme()].text,
    rest: restColour(host),
    theme: host.theme(),
    row: at,
    column: target ?? (frame.isHovered && isSame ? at : null),
    isLookedAt: frame.isLookedAt,
    isLong: !data.text.is_small,
    overview: cells,
    tile: data.tile?.head === tab ? data.tile.cells : null,
    window: frame.window,
    isTable: host.get("table") === "1",
  };
}

/**
 * @param {Frame} frame @param {Record<string, (number | null)[]>} measures  of every head
 * @param {string[]} names  heads in the order of `measures`
 * @returns {GridPicture}
 */
export function gridPicture(frame, measures, names) {
  const { host, data, heads, word } = frame;
  const theme = host.theme(),
    mode = host.get("grid");
  const column = measures[mode];
  const isWord = word !== null && (mode === "word" || frame.isHovered || heads.length > 1);
  const hasBars = isWord && (data.text.is_small || mode === "word");
  const inStack = (/** @type {string} */ head) => stackOf(head) === stackOf(heads[0]);
  const key = column ? mode : hasBars ? `word ${word} ${frame.isLookedAt}` : "maps";
  return {
    facts: host.about.roles,
    roles: rolesOf(host.about),
    chosen: frame.chosen,
    only: host.get("only") || null,
    theme,
    colours: {
      own: (role) => roleColour(host, role),
      rest: restColour(host),
      shades: (colour) => shades(theme, colour),
    },
    key: `${data.text.name} ${JSON.stringify(data.switches)} ${key}`,
    maps: (head) => data.smallMap(head),
    bars: hasBars
      ? (head) =>
          inStack(head) ? data.bars(head, /** @type {number} */ (word), frame.isLookedAt) : null
      : null,
    values: column ? shadeValues(column, names, theme) : null,
  };
}

/**
 * A measure in shades of grey: only roles have hues.
 * @param {(number | null)[]} column @param {string[]} names @param {"light" | "dark"} theme
 */
function shadeValues(column, names, theme) {
  const known = column.filter((value) => value !== null);
  const low = Math.min(...known),
    high = Math.max(...known);
  return Object.fromEntries(
    names.map((name, at) => {
      const value = column[at];
      if (value === null) return [name, { fill: "", ink: "", words: "not measured" }];
      const share = (value - low) / (high - low || 1);
      const fill = mix(theme, GROUNDS[theme].text, 0.75 * share ** 2);
      return [name, { fill, ink: ink(fill, theme, 1), words: format(value) }];
    }),
  );
}

/** @param {Frame} frame @param {number} at @param {string} colour @returns {Word} */
const wordAt = ({ data, heads, isLookedAt }, at, colour) => ({
  word: (isLookedAt ? data.columns(heads[0]) : data.rows(heads[0]))[at]?.text ?? "",
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
    const to = data.columns(head)[target];
    const headline = say.cellHead(
      wordAt(frame, word, colour),
      { word: to.text, colour },
      share ?? 0,
    );
    return { headline, sub: [] };
  }
  if (pair?.side === "both") {
    const moves = pairMoves(frame, colour);
    if (moves) return say.pairHead(moves);
  }
  if (heads.length > 1) return overlay(frame);
  const top = topLinks(data, head, role, word, {
    isLookedAt,
    hidesSpecial: frame.hidesSpecial,
    colour,
    rest: GROUNDS[host.theme()].soft,
  });
  if (!top) return { headline: [wordAt(frame, word, colour)], sub: [] };
  const meaning = frame.isNarrow || frame.isWrapped ? "" : meaningOf(about(host, role), role);
  const isFar = frame.isWrapped && !top.isResting && !data.isCross(head);
  const away = isFar && top.at !== null ? top.at - word : 0;
  return say.wordHead(top, { head, meaning, away, isHovered: frame.isHovered, isLookedAt });
}

/** @param {Host} host @param {string | null} role */
const about = (host, role) => (role ? host.about.roles[role] : undefined);

/** @param {Frame} frame @param {string | null} role */
function noWord(frame, role) {
  const { host, data, heads } = frame;
  if (heads.length > 1) return say.overlayNoWord(heads.length);
  const rests = isRestingRole(role) ? [] : data.resting(heads[0]);
  const row = (/** @type {number} */ at) => data.line(heads[0], at, false);
  const links = data.text.is_small
    ? strongestLinks(row, data.rows(heads[0]), { threshold: UNCHOSEN, rests, most: 1 })
    : [null];
  return say.noWordHead(
    about(host, role)?.headline ?? "",
    Boolean(host.about.scan),
    links.length > 0,
    true,
  );
}

/** @param {Frame} frame */
function overlay(frame) {
  const { host, data, heads, word, isLookedAt } = frame;
  const targets = heads.map((head) => {
    const role = shownRole(host, head);
    const top = topLinks(data, head, role, word ?? 0, {
      isLookedAt,
      hidesSpecial: true,
      colour: inkOf(host, role),
      rest: restColour(host),
    });
    const best =
      isRestingRole(role) && top?.target ? { word: top.target, share: top.share } : top?.next;
    return best && rounded(best.share) >= 10 ? best.word : null;
  });
  const source = wordAt(frame, word ?? 0, "");
  return { headline: say.overlayHeadline(source, targets), sub: [] };
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
    source: { word: data.rows(head)[word].text, colour },
    colour: (column) => (column === null || isWord(first[column]) ? colour : ""),
  });
}
