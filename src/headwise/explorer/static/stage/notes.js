// @ts-check
/** The notes under the row: how to read a cell, what is faint, and what is not drawn. */

/** @import {Part} from "./sentences.js" */
/** @import {Frame} from "./view_pictures.js" */
/** @import {Picture, PictureHead, Side} from "./picture.js" */

import { linksOf, thresholdOf } from "./arcs.js";
import { FAINT, strongestLinks } from "./links.js";
import { percent, rounded } from "./numbers.js";
import { restsOf, sidesOf } from "./picture.js";
import { overlayNote, restNote, rowNote } from "./sentences.js";

/**
 * @param {Frame} frame @param {Picture} picture @param {"line" | "wrapped" | "vertical"} shape
 * @returns {{left: Part[], right: string}}
 */
export function notesOf(frame, picture, shape) {
  if (frame.word === null || frame.pair?.side === "both") return { left: [], right: "" };
  const [side] = sidesOf(picture);
  const { isLookedAt } = frame;
  const own = isLookedAt ? side.columns : side.rows;
  const source = { word: own[frame.word]?.text ?? "", colour: "" };
  const left = rowNote(source, {
    isLookedAt,
    isValued: frame.host.get("values") === "1",
    heads: frame.heads.length,
  });
  if (frame.hidesSpecial && !isLookedAt) left.push(...missing(side, frame.word));
  const right =
    frame.heads.length > 1 ? several(picture, side) : single(picture, side, shape, frame.isNarrow);
  return { left: frame.isNarrow ? [] : left, right };
}

/** The share of special tokens that are not shown. @param {Side} side @param {number} at */
function missing(side, at) {
  const shares = side.heads[0].row(at);
  if (!shares) return [];
  const sum = side.columns.reduce(
    (sum, { kind }, to) => sum + (kind === "special" ? shares[to] : 0),
    0,
  );
  return rounded(sum) ? [` ${percent(sum)} is on special tokens.`] : [];
}

/** Names of resting places that a head has links to. @param {Side} side @param {number} to */
const nameOf = (side, to) => side.columns[to]?.text ?? "";

/** @param {Picture} picture @param {Side} side @param {string} shape @param {boolean} isNarrow */
function single(picture, side, shape, isNarrow) {
  const [head] = side.heads;
  const links = linksOf(picture, side, head);
  if (!links) return "";
  const undrawn =
    shape === "wrapped"
      ? links.resting.map(({ to, share }) => `${percent(share)} on ${nameOf(side, to)} is not drawn`)
      : [];
  return restNote({
    hasFaint: !isNarrow && hasFaintArcs(picture, side, head, shape),
    undrawn,
    count: links.restCount,
    share: links.restShare,
    isLimit: links.isLimit,
    threshold: thresholdOf(picture) / 100,
  });
}

/** @param {Picture} picture @param {Side} side @param {PictureHead} head @param {string} shape */
function hasFaintArcs(picture, side, head, shape) {
  if (shape === "wrapped" || picture.isLookedAt || picture.target !== null || side.isCross)
    return false;
  const options = { threshold: FAINT, rests: restsOf(picture, side, head), except: side.word };
  return strongestLinks(head.row, side.rows, { ...options, most: 1 }).length > 0;
}

/** @param {Picture} picture @param {Side} side */
function several(picture, side) {
  let count = 0;
  /** @type {Map<string, number[]>} */
  const resting = new Map();
  for (const head of side.heads) {
    const links = linksOf(picture, side, head);
    if (!links) continue;
    count += links.restCount;
    for (const { to, share } of links.resting) {
      const name = nameOf(side, to);
      resting.set(name, [...(resting.get(name) ?? []), share]);
    }
  }
  const named = [...resting].map(([name, shares]) => ({ name, shares }));
  return overlayNote(count, thresholdOf(picture) / 100, named);
}
