// @ts-check
/** The arcs of one sentence: which, along which curve, how wide, in which order. */
import { GROUNDS } from "./colours.js";
import { curvesOf, joined } from "./curves.js";
import { arrowSize, ribbonWidths } from "./geometry.js";
import {
  DRAWN,
  DRAWN_OVERLAID,
  FAINT,
  MOST_UNCHOSEN,
  UNCHOSEN,
  chooseLinks,
  strongestLinks,
} from "./links.js";
import { answersOf, hiddenOf, isOverlay, restsOf } from "./picture.js";
import { isInSight, placeTabs } from "./tabs.js";

/** @import {Curve} from "./geometry.js" */
/** @import {Box, Deck, Layout} from "./layout.js" */
/** @import {Link} from "./links.js" */
/** @import {Measure} from "./measure.js" */
/** @import {Picture, PictureHead, Side} from "./picture.js" */
/** @import {Far, Tab} from "./tabs.js" */

/**
 * @typedef {object} Plan an arc before it has a place
 * @property {"ribbon" | "rest" | "faint" | "plain" | "off"} kind plain: no word is chosen
 * @property {number} from the word that looks
 * @property {number} to the word looked at
 * @property {number} share
 * @property {number} slot index of the head
 */

/**
 * @typedef {object} Placed
 * @property {string} key the same as long as the arc joins the same words in the same place
 * @property {number} deck
 * @property {PictureHead} head
 * @property {Curve} curve
 * @property {{landing: number, start: number}} widths
 * @property {{length: number, width: number}} arrow
 * @property {string} colour
 * @property {number} opacity of the whole arc
 * @property {boolean} isHatched
 * @property {number} twins number of other heads' arcs between the same words
 * @property {boolean} isOuter whether it is the outermost of these
 */

/** @typedef {Plan & Placed} Arc */

/** Widths of a share of 1: words in lines, words one below the other, and faint or plain arcs. */
const FACTOR = { line: 18, vertical: 15, plain: 9, faint: 4 };
/** A dashed line to a resting place is at most this wide. */
const WIDEST_REST = 6;

/**
 * Smallest share that is drawn.
 * @param {Picture} picture
 */
export const thresholdOf = (picture) => (isOverlay(picture) ? DRAWN_OVERLAID : DRAWN);

/**
 * Links of the chosen word in one head; null if its row is not known yet.
 * @param {Picture} picture
 * @param {Side} side
 * @param {PictureHead} head
 */
export function linksOf(picture, side, head) {
  const row = side.word === null ? null : head.row(side.word);
  if (!row) return null;
  const { isLookedAt, restsOnFirst } = picture;
  const answers = answersOf(picture, side);
  return chooseLinks(row, answers, side.isCross ? null : side.word, {
    threshold: thresholdOf(picture),
    rests: isLookedAt ? [] : restsOf(picture, side, head),
    hidden: hiddenOf(picture, answers),
    isCausal: restsOnFirst,
  });
}

/**
 * Arcs of the chosen word.
 * @param {Picture} picture
 * @param {Side} side
 * @param {Layout} layout
 * @returns {Plan[]}
 */
function chosenArcs(picture, side, layout) {
  const at = /** @type {number} */ (side.word);
  return side.heads.flatMap((head, slot) => {
    const links = linksOf(picture, side, head);
    if (!links) return [];
    /** @type {(link: Link, kind: Plan["kind"]) => Plan} */
    const plan = ({ to, share }, kind) => {
      const [from, target] = picture.isLookedAt ? [to, at] : [at, to];
      return { kind, from, to: target, share, slot };
    };
    const kind = head.isOff ? "off" : "ribbon";
    if (picture.target !== null) {
      const row = /** @type {ArrayLike<number>} */ (head.row(at));
      const link = { at, to: picture.target, share: row[picture.target] };
      return picture.target === at && !side.isCross ? [] : [plan(link, kind)];
    }
    const resting = hasResting(picture, layout.shape) ? links.resting : [];
    return [
      ...resting.map((link) => plan(link, head.isOff ? "off" : "rest")),
      ...links.drawn.map((link) => plan(link, kind)),
    ];
  });
}

/**
 * Whether links to resting places are drawn, as dashed lines. If not, the note names them.
 * @param {Picture} picture
 * @param {Layout["shape"]} shape
 */
export const hasResting = (picture, shape) => !isOverlay(picture) && shape !== "wrapped";

/**
 * Whether other words' strongest links are drawn faintly.
 * @param {Picture} picture
 * @param {Layout["shape"]} shape
 */
export function hasFaint(picture, shape) {
  const { pair, next, target, isLookedAt, columns, heads } = picture;
  const isPlain = !pair && !next && !columns && !isLookedAt && target === null;
  return isPlain && !isOverlay(picture) && !heads[0]?.isOff && shape !== "wrapped";
}

/**
 * @param {Picture} picture
 * @param {Side} side
 * @param {Layout} layout
 * @returns {Plan[]}
 */
function plannedArcs(picture, side, layout) {
  if (side.word === null) {
    if (picture.word !== null || picture.pair || side.isCross || picture.isLookedAt) return [];
    return side.heads.flatMap((head, slot) => {
      const rests = restsOf(picture, side, head);
      const options = { threshold: UNCHOSEN, most: MOST_UNCHOSEN, rests };
      const links = strongestLinks(head.row, side.rows, options);
      return links.map((link) => plainArc(link, "plain", slot));
    });
  }
  const chosen = chosenArcs(picture, side, layout);
  if (!hasFaint(picture, layout.shape)) return chosen;
  const [head] = side.heads;
  const rests = restsOf(picture, side, head);
  const options = { threshold: FAINT, rests, except: side.word };
  const faint = strongestLinks(head.row, side.rows, options);
  return [...faint.map((link) => plainArc(link, "faint", 0)), ...chosen];
}

/** @param {Link} link @param {"plain" | "faint"} kind @param {number} slot @returns {Plan} */
const plainArc = ({ at, to, share }, kind, slot) => ({ kind, from: at, to, share, slot });

/** @param {Plan} plan @param {Layout} layout */
function sizesOf({ kind, share }, layout) {
  if (kind === "faint") {
    const line = Math.max(1.2, FACTOR.faint * share);
    return { widths: { landing: line, start: line }, arrow: { length: 7, width: 7 } };
  }
  if (kind === "rest") {
    const line = Math.min(WIDEST_REST, Math.max(1.6, FACTOR.line * share));
    return { widths: { landing: line, start: line }, arrow: { length: 8, width: 8 + line / 2 } };
  }
  const factor =
    kind === "plain" ? FACTOR.plain : FACTOR[layout.shape === "vertical" ? "vertical" : "line"];
  const widths = ribbonWidths(share, factor);
  return { widths, arrow: arrowSize(widths.landing) };
}

/** @param {Plan} plan @param {PictureHead} head @param {Picture} picture */
const colourOf = ({ kind }, head, picture) =>
  kind === "rest" ? GROUNDS[picture.theme].rest : head.colour;

/** Colour of a tab, whose words are small. @param {Plan} plan @param {PictureHead} head
 * @param {Picture} picture */
const tabColour = (plan, head, picture) =>
  plan.kind === "rest" || head.role === null
    ? GROUNDS[picture.theme].soft
    : colourOf(plan, head, picture);

/** @param {Plan} plan */
function opacityOf({ kind, share }) {
  if (kind === "faint") return 0.2;
  return kind === "plain" ? 0.3 + 0.7 * share : 1;
}

/**
 * Whether an earlier head has the same colour, so that a head's arcs need a hatch.
 * @param {{role: string | null}[]} heads
 * @param {number} slot
 */
export const isHatched = (heads, slot) =>
  heads.findIndex(({ role }) => role === heads[slot].role) !== slot;

/** Drawing order of kinds, from the back. */
const ORDER = { faint: 0, plain: 1, rest: 1, off: 2, ribbon: 2 };

/**
 * An arc's ends; a word out of sight is replaced by its tab.
 * @typedef {{plan: Plan, source: Box, target: Box}} Ends
 */

/**
 * Ends of arcs in a window, and tabs for the words out of sight.
 * @param {Ends[]} all
 * @param {Side} side
 * @param {Picture} picture
 * @param {Layout} layout
 * @param {Measure} measure
 * @returns {{ends: Ends[], tabs: Tab[]}}
 */
function inWindow(all, side, picture, layout, measure) {
  const { view } = layout;
  if (!view) return { ends: all, tabs: [] };
  const hub = picture.isLookedAt ? "target" : "source";
  const far = picture.isLookedAt ? "source" : "target";
  const isOwn = (/** @type {Ends} */ { plan }) => plan.kind !== "faint" && plan.kind !== "plain";
  const near = all.filter((end) => isInSight(end[hub], view));
  const leaving = near.filter((end) => isOwn(end) && !isInSight(end[far], view));
  leaving.sort((one, other) => other.plan.share - one.plan.share);
  const words = picture.isLookedAt ? side.rows : side.columns;
  /** @type {Far[]} */
  const asked = leaving.map((end) => ({
    box: end[far],
    word: words[end[far].at].text,
    share: end.plan.share,
    away: end[far].line - end[hub].line,
    colour: tabColour(end.plan, side.heads[end.plan.slot], picture),
    x: end[hub].x + end[hub].w / 2,
  }));
  const unit = layout.shape === "vertical" ? "word" : "line";
  const tabs = placeTabs(asked, view, layout.width, unit, measure);
  const ends = near.flatMap((end) => {
    if (isInSight(end[far], view)) return [end];
    const tab = tabs[leaving.indexOf(end)];
    return tab ? [{ ...end, [far]: { ...end[far], ...tab.rect } }] : [];
  });
  return { ends, tabs: tabs.filter((tab) => tab !== null) };
}

/**
 * A tab that leads back to the chosen word while it is out of sight.
 * @param {Side} side
 * @param {Deck} deck
 * @param {Picture} picture
 * @param {Layout} layout
 * @param {Measure} measure
 * @returns {Tab[]}
 */
function wayBack(side, deck, picture, layout, measure) {
  const { view } = layout;
  const box = side.word === null ? null : deck.rows[side.word];
  if (!box || !view || isInSight(box, view)) return [];
  const lines = deck.rows.flatMap((each) => (each && isInSight(each, view) ? [each.line] : []));
  const edge = box.y < view.top ? Math.min(...lines) : Math.max(...lines);
  const colour = GROUNDS[picture.theme].text;
  const far = { box, word: side.rows[box.at].text, share: null, away: box.line - edge, colour };
  const unit = layout.shape === "vertical" ? "word" : "line";
  return placeTabs([far], view, layout.width, unit, measure).filter((tab) => tab !== null);
}

/**
 * The arcs of one sentence, in drawing order, and the tabs of a window.
 * @param {Picture} picture
 * @param {Side} side
 * @param {Deck} deck
 * @param {Layout} layout
 * @param {Measure} measure
 * @returns {{arcs: Arc[], tabs: Tab[]}}
 */
export function deckArcs(picture, side, deck, layout, measure) {
  const all = plannedArcs(picture, side, layout).flatMap((plan) => {
    const [source, target] = [deck.rows[plan.from], deck.columns[plan.to]];
    return source && target ? [{ plan, source, target }] : [];
  });
  const { ends, tabs } = inWindow(all, side, picture, layout, measure);
  const sized = ends.map((end) => ({ ...end, sizes: sizesOf(end.plan, layout) }));
  const ways = sized.map(({ plan, source, target, sizes }) => {
    const { widths, arrow } = sizes;
    const isFaint = plan.kind === "faint";
    return { source, target, isFaint, widths, arrow: arrow.length, wide: arrow.width };
  });
  const names = ways.map(joined);
  const curves = curvesOf(ways, deck, layout);
  const arcs = sized.map(({ plan, sizes }, index) => {
    const head = side.heads[plan.slot];
    const group = plan.kind === "faint" || plan.kind === "plain" ? plan.kind : "own";
    return {
      ...plan,
      ...sizes,
      key: `${side.index} ${group} ${plan.slot} ${plan.from} ${plan.to}`,
      deck: side.index,
      head,
      curve: curves[index],
      colour: colourOf(plan, head, picture),
      opacity: opacityOf(plan),
      isHatched: isHatched(side.heads, plan.slot),
      twins: names.filter((name) => name === names[index]).length - 1,
      isOuter: names.indexOf(names[index]) === index,
    };
  });
  arcs.sort((one, other) => ORDER[one.kind] - ORDER[other.kind] || one.share - other.share);
  return { arcs, tabs: [...tabs, ...wayBack(side, deck, picture, layout, measure)] };
}
