// @ts-check
/** Pictures for the parts of the view: stage, map, grid and headline, from one frame. */

/** @import {TextData} from "./data.js" */
/** @import {GridPicture} from "./grid.js" */
/** @import {Host} from "./host.js" */
/** @import {MapPicture} from "./map.js" */
/** @import {Match} from "./pair.js" */
/** @import {Picture, PictureHead} from "./picture.js" */

import { carriers } from "./carriers.js";
import { GROUNDS, ink, mix } from "./colours.js";
import { inkOf, restColour, roleColour, rolesOf, shownRole } from "./frame.js";
import { format } from "./head_facts.js";
import { layerOf, numberOf, stackOf } from "./host.js";
import { isRestingRole } from "./links.js";
import { shades } from "./shades.js";

/**
 * What is shown now, after hovering.
 * @typedef {object} Frame
 * @property {Host} host @property {TextData} data
 * @property {string[]} heads  on the stage, all of one stack
 * @property {string[]} chosen  of the address
 * @property {number | null} word @property {number | null} locked @property {number | null} target
 * @property {boolean} isHovered  whether the word or head is only hovered
 * @property {boolean} isPointed  whether a word is hovered on the stage
 * @property {boolean} isLookedAt @property {boolean} hidesSpecial
 * @property {{data: TextData, aligned: Match[], partner: (at: number | null) => number | null,
 *   side: string, words: [string, string], carries: Record<string, number> | null,
 *   whyNoCarries: string | null} | null} pair
 * @property {string} tab  the head whose map is shown
 * @property {[number, number] | null} window  words of a long text that the stage shows
 * @property {boolean} isNarrow @property {boolean} isWrapped  whether the stage has several lines
 */

/** Largest number of words that are set before they have been read. */
const MOST_UNREAD = 60;

/** Subscript of the second head of one role; heads without a role are named instead.
 * @param {(string | null)[]} roles @param {number} at */
export function markOf(roles, at) {
  if (roles[at] === null) return "";
  const before = roles.slice(0, at).filter((role) => role === roles[at]).length;
  return before ? String(before + 1) : "";
}

/**
 * A head without a role beside its row: "H7", or "L3H7" if another one on the stage has its number.
 * @param {string[]} heads @param {number} at
 */
export function shortName(heads, at) {
  const [name, number] = [heads[at], numberOf(heads[at])];
  const isAlone = heads.every((head) => head === name || numberOf(head) !== number);
  return isAlone ? `H${number}` : `${layerOf(name).replace(/^.*\./, "")}H${number}`;
}

/** @param {Frame} frame @param {TextData} data @returns {PictureHead[]} */
export function pictureHeads({ host, heads, isLookedAt }, data) {
  const roles = heads.map((head) => shownRole(host, head));
  return heads.map((name, at) => ({
    name,
    role: roles[at],
    letter: host.about.roles[roles[at] ?? ""]?.letter ?? shortName(heads, at),
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
    rows: frame.chosen.length,
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

/**
 * The words of a text that is being read: no arcs, and no shares yet.
 * @param {Picture} picture  of the last text @param {string} text @returns {Picture}
 */
export function unreadPicture(picture, text) {
  const words = text.split(/\s+/).filter(Boolean).slice(0, MOST_UNREAD);
  return {
    ...picture,
    words: words.map((word) => ({ text: word, space: true, kind: "word" })),
    heads: picture.heads.map((head) => ({ ...head, row: () => null })),
    ...{ columns: null, word: null, locked: null, target: null, pair: null },
    restsOnFirst: false,
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
  const tile = data.long?.tile;
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
    overview: data.overview(tab),
    tile: tile?.head === tab ? tile.cells : null,
    window: frame.window,
    isTable: host.get("table") === "1",
  };
}

/**
 * Whether small maps are bars, one word's row in every head: for a hovered word, and for several
 * heads until the reader asks for maps.
 * @param {Frame} frame
 */
export function hasBars({ host, data, heads, word, isPointed }) {
  if (word === null) return false;
  const mode = host.get("grid");
  if (mode === "word") return true;
  const isAuto = mode === "maps" ? isPointed : mode === "" && (isPointed || heads.length > 1);
  return isAuto && data.text.is_small;
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
  const isBars = hasBars(frame);
  const inStack = (/** @type {string} */ head) => stackOf(head) === stackOf(heads[0]);
  const key = column ? mode : isBars ? `word ${word} ${frame.isLookedAt}` : "maps";
  return {
    facts: host.about.roles,
    roles: rolesOf(host.about),
    chosen: frame.chosen,
    lent: heads.find((head) => !frame.chosen.includes(head)) ?? null,
    only: host.get("only") || null,
    theme,
    colours: {
      own: (role) => roleColour(host, role),
      rest: restColour(host),
      shades: (colour) => shades(theme, colour),
    },
    key: `${data.text.name} ${JSON.stringify(data.switches)} ${key}`,
    maps: (head) => data.smallMap(head),
    bars: isBars
      ? (head) =>
          inStack(head) ? data.bars(head, /** @type {number} */ (word), frame.isLookedAt) : null
      : null,
    values: column ? shadeValues(column, names, theme) : null,
    carries: frame.pair?.side === "both" ? carriers(frame.pair.carries) : undefined,
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
