// @ts-check
/** The arcs of one sentence: which, along which curve, how wide, in which order. */
import { GROUNDS } from "./colours.js";
import { arch, arcHeight, arrowSize, bend, bulge, bulgeApex, ribbonWidths } from "./geometry.js";
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
import { landings, starts } from "./ports.js";

/** @import {Curve} from "./geometry.js" */
/** @import {Box, Deck, Layout, Rect} from "./layout.js" */
/** @import {Link} from "./links.js" */
/** @import {Picture, PictureHead, Side} from "./picture.js" */

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
 */

/** @typedef {Plan & Placed} Arc */

/** Widths of a share of 1: words in lines, words one below the other, and faint or plain arcs. */
const FACTOR = { line: 18, vertical: 15, plain: 9, faint: 4 };
/** A dashed line to a resting place is at most this wide. */
const WIDEST_REST = 6;
/** Space between a word and the arcs at its side, on a phone. */
const BESIDE = { start: 13, end: 13 };

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

/** @param {Plan} plan */
function opacityOf({ kind, share }) {
  if (kind === "faint") return 0.2;
  return kind === "plain" ? 0.3 + 0.7 * share : 1;
}

/** Drawing order of kinds, from the back. */
const ORDER = { faint: 0, plain: 1, rest: 1, off: 2, ribbon: 2 };

/**
 * The arcs of one sentence, in drawing order.
 * @param {Picture} picture
 * @param {Side} side
 * @param {Deck} deck
 * @param {Layout} layout
 * @returns {Arc[]}
 */
export function deckArcs(picture, side, deck, layout) {
  const plans = plannedArcs(picture, side, layout).filter(
    ({ from, to }) => deck.rows[from] && deck.columns[to],
  );
  const curves = curvesOf(plans, side, deck, layout);
  const arcs = plans.map((plan, index) => {
    const head = side.heads[plan.slot];
    const group = plan.kind === "faint" || plan.kind === "plain" ? plan.kind : "own";
    return {
      ...plan,
      ...sizesOf(plan, layout),
      key: `${side.index} ${group} ${plan.slot} ${plan.from} ${plan.to}`,
      deck: side.index,
      head,
      curve: curves[index],
      colour: colourOf(plan, head, picture),
      opacity: opacityOf(plan),
      isHatched: side.heads.findIndex(({ role }) => role === head.role) !== plan.slot,
    };
  });
  return arcs.sort((one, other) => ORDER[one.kind] - ORDER[other.kind] || one.share - other.share);
}

/** @param {Rect} box */
const middle = (box) => ({ x: box.x + box.w / 2, y: box.y + box.h / 2 });

/**
 * How far each end of each arc is from the middle of its word.
 * @param {Plan[]} plans
 * @param {Side} side
 * @param {Deck} deck
 * @param {Layout} layout
 */
function portsOf(plans, side, deck, layout) {
  const axis = layout.shape === "vertical" ? "y" : "x";
  const from = plans.map(() => 0);
  const to = plans.map(() => 0);
  const boxes = plans.map((plan) => ({
    from: /** @type {Box} */ (deck.rows[plan.from]),
    to: /** @type {Box} */ (deck.columns[plan.to]),
  }));
  /** @type {(index: number, end: "from" | "to") => {toward: number, isStraight: boolean}} */
  const port = (index, end) => {
    const { from: source, to: target } = boxes[index];
    const distance = middle(target)[axis] - middle(source)[axis];
    const isStraight = layout.shape === "wrapped" && (side.isCross || source.line !== target.line);
    return { toward: end === "from" ? distance : -distance, isStraight };
  };
  /** @param {"from" | "to"} end @param {number[]} offsets */
  const assign = (end, offsets) => {
    /** @type {Map<number, number[]>} */
    const groups = new Map();
    plans.forEach((plan, index) => {
      groups.set(plan[end], [...(groups.get(plan[end]) ?? []), index]);
    });
    for (const [word, indices] of groups) {
      const own = indices.filter((index) => plans[index].kind !== "faint" || end === "to");
      const box = boxes[indices[0]][end];
      const half = axis === "x" ? box.w / 2 : 10;
      const isHub = word === side.word && own.length > 1;
      const place = isHub || end === "from" ? starts : landings;
      const found = place(
        own.map((index) => port(index, end)),
        half,
      );
      own.forEach((index, order) => (offsets[index] = found[order]));
    }
  };
  assign("from", from);
  assign("to", to);
  return { from, to, boxes };
}

/**
 * @param {Plan[]} plans
 * @param {Side} side
 * @param {Deck} deck
 * @param {Layout} layout
 * @returns {Curve[]}
 */
function curvesOf(plans, side, deck, layout) {
  const { from, to, boxes } = portsOf(plans, side, deck, layout);
  const shown = deck.columns.filter((box) => box !== null);
  const left = Math.min(...shown.map((box) => box.x));
  const right = Math.max(...shown.map((box) => box.x + box.w));
  return plans.map((plan, index) => {
    const { from: source, to: target } = boxes[index];
    const arrow = sizesOf(plan, layout).arrow.length;
    const [a, b] = [middle(source), middle(target)];
    if (layout.shape === "vertical") {
      const extent = shown.length * 44;
      return sideCurve(source, target, from[index], to[index], {
        left,
        right,
        extent,
        layout,
        arrow,
      });
    }
    if (side.isCross || source.line !== target.line) {
      return lineCurve(source, target, a.x + from[index], b.x + to[index], plan.to, deck, arrow);
    }
    const [x0, x1] = [a.x + from[index], b.x + to[index]];
    const edge = deck.isBelow ? source.y + source.h + 2 : source.y - 2;
    const most = layout.shape === "wrapped" && source.line === 0 ? 44 : layout.rise;
    const height = arcHeight(b.x - a.x, right - left, most);
    return arch(x0, x1, edge, height, arrow, deck.isBelow);
  });
}

/**
 * An arc beside words that stand one below the other.
 * @param {Box} source
 * @param {Box} target
 * @param {number} from
 * @param {number} to
 * @param {{left: number, right: number, extent: number, layout: Layout, arrow: number}} all
 */
function sideCurve(source, target, from, to, { left, right, extent, layout, arrow }) {
  const dy = middle(target).y - middle(source).y;
  const sign = layout.isMirrored ? -1 : 1;
  const ends = [source, target].map((box) => (sign > 0 ? box.x + box.w : layout.width - box.x));
  const widest = sign > 0 ? right : layout.width - left;
  const apex = bulgeApex(dy, widest, layout.width, extent);
  /** @param {number} x */
  const turn = (x) => (sign > 0 ? x : layout.width - x);
  return bulge(
    { x: turn(ends[0] + BESIDE.start), y: middle(source).y + from },
    { x: turn(ends[1] + BESIDE.end), y: middle(target).y + to },
    turn(apex),
    arrow,
  );
}

/**
 * An S from a word to the foot of a cell above, or from the foot of a cell to a word below.
 * @param {Box} source
 * @param {Box} target
 * @param {number} from
 * @param {number} to
 * @param {number} column
 * @param {Deck} deck
 * @param {number} arrow length of the arrowhead
 */
function lineCurve(source, target, from, to, column, deck, arrow) {
  if (target.y < source.y) {
    const foot = footOf(target, deck.cells.at(-1)?.[column]);
    return bend({ x: from, y: source.y - 1 }, { x: to, y: foot }, arrow);
  }
  const own = deck.columns === deck.rows ? deck.cells.at(-1)?.[source.at] : null;
  return bend({ x: from, y: footOf(source, own) }, { x: to, y: target.y - 2 }, arrow);
}

/** @param {Rect} box @param {Rect | null | undefined} cell */
const footOf = (box, cell) => (cell ? cell.y + cell.h : box.y + box.h) + 3;
