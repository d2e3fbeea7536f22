// @ts-check
/**
 * Everything on the stage, computed: arcs, shares on them, cells and the states of words.
 *
 * In: a picture and its layout. Out: a scene, which draw.js turns into SVG. Draws nothing itself,
 * and so can be tested without a browser.
 */
import { deckArcs } from "./arcs.js";
import { cellsBeside, deckCells, deckChanges, deckLetters } from "./cells.js";
import { pillOf } from "./draw.js";
import { LABEL, WRITTEN, placeLabels } from "./labels.js";
import { percent, rounded } from "./numbers.js";
import { sidesOf } from "./picture.js";
import { deckWords, wordColour } from "./words.js";

/** @import {Arc} from "./arcs.js" */
/** @import {Cell, Note} from "./cells.js" */
/** @import {Deck, Layout} from "./layout.js" */
/** @import {Measure} from "./measure.js" */
/** @import {Picture} from "./picture.js" */
/** @import {Spot} from "./labels.js" */
/** @import {Tab} from "./tabs.js" */
/** @import {WordState} from "./words.js" */

/**
 * @typedef {object} Label a share on an arc
 * @property {string} key of its arc
 * @property {Spot} spot
 * @property {string} text
 * @property {string} colour
 */

/**
 * @typedef {object} Scene
 * @property {Arc[]} arcs in drawing order
 * @property {Tab[]} tabs links that leave the window on a long text
 * @property {Label[]} labels
 * @property {Cell[]} cells
 * @property {Note[]} notes letters of rows and signed changes
 * @property {WordState[][]} words by deck, by word that looks
 * @property {WordState[] | null} columns the words looked at, if they are others
 */

/** Whether a sentence's arc leads to a resting place. @param {Arc} arc */
const isResting = ({ kind }) => kind === "rest";

/**
 * Shares on the arcs of one sentence: the strongest link to a real word comes first.
 * @param {Arc[]} arcs
 * @param {Deck} deck
 * @param {Layout} layout
 * @param {Picture} picture
 * @param {Measure} measure
 * @returns {Label[]}
 */
function labelsOf(arcs, deck, layout, picture, measure) {
  if (layout.shape === "wrapped") return [];
  const own = arcs.filter((arc) => arc.kind !== "faint" && arc.kind !== "plain");
  own.sort(
    (one, other) => Number(isResting(one)) - Number(isResting(other)) || other.share - one.share,
  );
  const isStrong = (/** @type {Arc} */ arc) => rounded(arc.share) >= WRITTEN;
  const nameOf = (/** @type {Arc} */ { from, to }) => `${from} ${to}`;
  const strong = new Set(own.filter(isStrong).map(nameOf));
  const lanes = own.map((arc) => {
    const name = nameOf(arc);
    const text = strong.has(name) ? percent(arc.share) : "";
    const width = text ? measure.label(text, LABEL.size, LABEL.weight) : 0;
    const isThin = isResting(arc) && layout.shape === "vertical";
    const thickness = isThin ? null : arc.widths.landing;
    const { curve, arrow } = arc;
    const twins = arc.twins ? name : "";
    const about = { isResting: isResting(arc), twins, isOuter: arc.isOuter };
    return { curve, thickness, arrowWidth: arrow.width, text, width, ...about };
  });
  const words = deck.rows.flatMap((box) => (box ? [pillOf(box, false)] : []));
  const spots = placeLabels(lanes, words, layout.width);
  return own.flatMap((arc, index) => {
    const spot = spots[index];
    if (!spot) return [];
    const { text } = lanes[index];
    const colour = isResting(arc) ? arc.colour : wordColour(arc.head, picture.theme);
    return [{ key: arc.key, spot, text, colour }];
  });
}

/**
 * @param {Picture} picture
 * @param {Layout} layout
 * @param {Measure} measure
 * @returns {Scene}
 */
export function makeScene(picture, layout, measure) {
  const sides = sidesOf(picture);
  const byDeck = sides.map((side, index) => {
    const deck = layout.decks[index];
    const { arcs, tabs } = deckArcs(picture, side, deck, layout, measure);
    return {
      arcs,
      tabs,
      labels: labelsOf(arcs, deck, layout, picture, measure),
      cells: deckCells(picture, side, deck, layout, measure),
      letters: deckLetters(picture, side, deck, layout),
      words: deckWords(picture, side, "rows", layout.shape),
      columns: side.isCross ? deckWords(picture, side, "columns", layout.shape) : null,
    };
  });
  return {
    arcs: byDeck.flatMap(({ arcs }) => arcs),
    tabs: byDeck.flatMap(({ tabs }) => tabs),
    labels: byDeck.flatMap(({ labels }) => labels),
    cells: [
      ...byDeck.flatMap(({ cells }) => cells),
      ...cellsBeside(picture, sides, layout, measure),
    ],
    notes: [...byDeck.flatMap(({ letters }) => letters), ...deckChanges(picture, layout)],
    words: byDeck.map(({ words }) => words),
    columns: byDeck[0].columns,
  };
}
