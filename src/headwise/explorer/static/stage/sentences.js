// @ts-check
/**
 * Every sentence of the view, as templates: a list of strings, words of the text and names.
 *
 * In: numbers and words. Out: parts for `fill`, which sets words in serif italics. Nothing here
 * knows what a word means, and "links" never claims that a link is right.
 */

import { make } from "./dom.js";
import { percent, percentInWords, rounded } from "./numbers.js";

/**
 * A word of the text in a sentence; `colour` is a CSS colour, or "" for ink.
 * @typedef {{word: string, colour?: string}} Word
 */
/** A part of a sentence. @typedef {string | Word} Part */
/** A headline and the line below it. @typedef {{headline: Part[], sub: Part[]}} Head */

/**
 * The strongest links of one row, for a headline.
 * @typedef {object} Top
 * @property {Word} source
 * @property {Word | null} target  where the row's largest share goes
 * @property {number | null} at  its place
 * @property {number} share
 * @property {boolean} isSelf
 * @property {boolean} isResting  whether the target is a resting place
 * @property {{word: Word, share: number} | null} next  the next one that is not a resting place
 * @property {{word: Word, share: number} | null} by  the other word that looks at the source most
 */

export const NOT_SAVED = "The picture could not be saved.";
export const EMPTY = "Write a few words.";
export const ONE_WORD = "One word can only look at itself.";
export const NOT_MEASURED = "role not measured";
export const NO_ROLE = "no clear role";
export const ROLES =
  "A colour and its letter name a role: what the head tends to do in other text. A head with " +
  "several (+) counts in each.";
export const A_HEAD =
  "Each square is one head: a part of the model that decides where each word looks. Layers and " +
  "heads count from 0.";
export const UNKNOWN =
  "This model does not know most of these characters: it reads one token for all of them, so its " +
  "links say little.";
const COUNTS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];

/**
 * How the squares of the grid are read.
 * @param {Part | null} word  whose bars they show; null: they are small maps
 * @param {boolean} isLookedAt @param {number} heads  number of heads on the stage
 * @returns {Part[]}
 */
export function gridHint(word, isLookedAt, heads) {
  const choose = "Choose another to see its arcs.";
  if (word) {
    const tall = isLookedAt ? [" tall if it looks at ", word] : [" tall if ", word, " looks there"];
    return ["Each has a bar for every word, in order,", ...tall, `. ${choose}`];
  }
  const outlined =
    heads > 1 ? "The outlined ones are the large maps" : "The outlined one is the large map";
  return [`${outlined} made small: each row is a word, dark where that word looks. ${choose}`];
}

/** @param {Part[]} parts */
export const plain = (parts) =>
  parts.map((part) => (typeof part === "string" ? part : part.word)).join("");

/**
 * Put a sentence into an element; words of the text are only ever set as text.
 * @param {Element} el @param {Part[]} parts
 */
export function fill(el, parts) {
  el.replaceChildren(
    ...parts.map((part) => {
      if (typeof part === "string") return part;
      const word = make("i", { class: "hw-word", dir: "auto" }, part.word);
      word.style.color = part.colour ?? "";
      return word;
    }),
  );
}

/** A number below ten in words. @param {number} count */
export const inWords = (count) => COUNTS[count] ?? count.toLocaleString("en");

/** @param {string} text */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** @param {number} count @param {string} noun */
export const many = (count, noun) =>
  `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** A list with "and" before its last part. @param {Part[]} parts @returns {Part[]} */
export function listed(parts) {
  return parts.flatMap((part, at) => {
    if (!at) return [part];
    return [at === parts.length - 1 ? " and " : ", ", part];
  });
}

/** "layer 3, head 1", or "layer 3 of the encoder, head 1". @param {string} head */
export function placeOf(head) {
  const [, stack, layer, number] = /^(.*?)\.?L(\d+)H(\d+)$/.exec(head) ?? ["", "", "?", "?"];
  const name = stack === "cross" ? "cross-attention" : stack;
  return `layer ${layer}${name ? ` of the ${name}` : ""}, head ${number}`;
}

/**
 * One head and a chosen word.
 * @param {Top} top @param {object} about
 * @param {string} about.head
 * @param {string} about.meaning  "In other texts this head tends to ...", or ""
 * @param {number} about.away  distance of the target in a text of several lines, or 0
 * @param {boolean} about.isHovered @param {boolean} about.isLookedAt
 * @returns {Head}
 */
export function wordHead(top, { head, meaning, away, isHovered, isLookedAt }) {
  const { source, target, share } = top;
  if (!target)
    return { headline: [source, " has no link in this head"], sub: [`In ${placeOf(head)}.`] };
  const verb = top.isResting ? " rests on " : " looks at ";
  const headline = isLookedAt
    ? [source, " is looked at by ", top.isSelf ? "itself" : target]
    : [source, verb, top.isSelf ? "itself" : target];
  if (isLookedAt)
    return {
      headline,
      sub: [target, ` gives it ${percentInWords(share)} of its attention, in ${placeOf(head)}.`],
    };
  const gist = capital(`${percentInWords(share)} of its attention`);
  if (isHovered) {
    const by = top.by;
    return {
      headline,
      sub: by
        ? [`${gist}. Looked at most by `, by.word, `, ${percent(by.share)}.`]
        : [`${gist}, in ${placeOf(head)}.`],
    };
  }
  /** @type {Part[]} */
  const then =
    top.isResting && top.next
      ? [" Next comes ", top.next.word, ` with ${percent(top.next.share)}.`]
      : [];
  const far = away ? `, ${positions(away)}` : "";
  const last = meaning ? ` ${meaning}` : "";
  return { headline, sub: [`${gist}, in ${placeOf(head)}${far}.`, ...then, last] };
}

/** "18 positions back". @param {number} away */
const positions = (away) => `${many(Math.abs(away), "position")} ${away < 0 ? "back" : "ahead"}`;

/** A hovered cell of the map. @param {Word} source @param {Word} target @param {number} share */
export const cellHead = (source, target, share) => [
  source,
  " looks at ",
  target,
  `, ${rounded(share) < 1 ? "<1%" : percent(share)}`,
];

/**
 * One head with no word chosen: what is drawn, and what the head tends to do.
 * @param {string} head
 * @param {object} about
 * @param {string} about.gist  "In other texts this head tends to ...", or ""
 * @param {boolean} about.isResting  whether links to resting places are drawn like others
 * @param {number | null} about.links  number of links that are drawn; null if none ever are
 * @returns {Head}
 */
export function noWordHead(head, { gist, isResting, links }) {
  const then = gist ? [`${gist} `] : [];
  if (links === null)
    return {
      headline: [`No word is chosen in ${head}`],
      sub: [...then, "Choose one to see its links."],
    };
  const to = isResting ? "" : " to another word";
  const headline = links
    ? `Each word\u2019s strongest link${to} in ${head}`
    : `No link${to} reaches 15% in ${head}`;
  const drawn = links ? `Links${to} are drawn from 15% up. ` : "";
  return { headline: [headline], sub: [...then, `${drawn}Choose a word to see all of its links.`] };
}

/**
 * Heads that rest, by their place: "; L1H6 and L2H8 rest on [CLS]".
 * @param {{name: string, word: Word}[]} resting
 * @returns {Part[]}
 */
function restingHeads(resting) {
  const places = [...new Set(resting.map(({ word }) => word.word))];
  return places.flatMap((place) => {
    const own = resting.filter(({ word }) => word.word === place);
    const names = plain(listed(own.map(({ name }) => name)));
    return [`; ${names} ${own.length === 1 ? "rests" : "rest"} on `, own[0].word];
  });
}

/**
 * Several heads on one word: "it looks at animal and tired; L1H11 rests on [CLS]".
 * @param {Word} source
 * @param {({name: string, word: Word, isResting: boolean} | null)[]} targets by head; null: it
 *   has none
 * @param {boolean} isLookedAt
 * @returns {Part[]}
 */
export function overlayHeadline(source, targets, isLookedAt) {
  const known = targets.filter((target) => target !== null);
  const resting = known.filter(({ isResting }) => isResting);
  const verb = isLookedAt ? " is looked at by " : " looks at ";
  if (!known.length) return [source, `${verb}no word with 10% or more`];
  const isAllRest = resting.length === known.length;
  const words = isAllRest ? resting : known.filter(({ isResting }) => !isResting);
  const different = [...new Map(words.map(({ word }) => [word.word, word])).values()];
  if (isAllRest) return [source, " rests on ", ...listed(different)];
  return [source, verb, ...listed(different), ...restingHeads(resting)];
}

/** Several heads and no word. @param {number} count @returns {Head} */
export const overlayNoWord = (count) => ({
  headline: [`${capital(inWords(count))} heads on one sentence`],
  sub: ["Choose a word to see where each head looks from it."],
});

/**
 * What a swap moves: the largest change, and the words that gain or lose most besides.
 * @typedef {object} Moves
 * @property {Word} source @property {Word | null} swapped  the new word
 * @property {{word: Word, before: number, after: number} | null} most
 * @property {Gain[]} others  changes in the other direction, the largest first
 */
/**
 * A change in points, and the share it leads to.
 * @typedef {{word: Word, points: number, after: number, isResting: boolean}} Gain
 */

/**
 * Which words gain what another one loses, or lose what it gains. Says if most of it goes to a
 * resting place.
 * @param {Gain[]} others @param {number} moved  points that the other word loses or gains
 * @param {boolean} isLess
 * @returns {Part[]}
 */
function gains(others, moved, isLess) {
  const [first] = others;
  if (!first) return [];
  const turn = isLess ? "gains" : "loses";
  const size = Math.abs(first.points);
  const isPart = first.isResting && size <= Math.abs(moved);
  const part = 2 * size > Math.abs(moved) ? "Most" : "The largest part";
  /** @type {Part[]} */
  const start = isPart
    ? [` ${part} of that ${isLess ? "goes to" : "comes from"} ${first.word.word}: `]
    : [];
  const points = (/** @type {number} */ count) => many(Math.abs(count), "point");
  const rest = (isPart ? others.slice(1, 3) : others.slice(0, 3)).flatMap(
    ({ word, points: count, after, isResting }, at) => [
      at ? "; " : " ",
      isResting ? word.word : word,
      at ? ` ${Math.abs(count)}` : ` ${turn} ${isPart ? Math.abs(count) : points(count)}`,
      `, to ${percent(after)}`,
    ],
  );
  const all = isPart ? [...start, points(size), "."] : [];
  return [...all, ...rest, rest.length ? "." : ""];
}

/** @param {Moves} moves @returns {Head} */
export function pairHead({ source, swapped, most, others }) {
  /** @type {Part[]} */
  const start = swapped
    ? ["With ", { ...swapped, colour: "" }, ", "]
    : ["In the second sentence, "];
  if (!most)
    return {
      headline: [...start, source, " looks the same way"],
      sub: ["No share changes by 3 points or more."],
    };
  const { word, before, after } = most;
  const isLess = after < before;
  const verb = isLess ? "falls" : "rises";
  const moved = rounded(Math.abs(after - before));
  return {
    headline: [...start, source, ` looks ${isLess ? "less" : "more"} at `, word],
    sub: [`${percent(before)} ${verb} to ${percent(after)}.`, ...gains(others, moved, isLess)],
  };
}

/**
 * A head in the grid, for a screen reader.
 * @param {string} name @param {string[]} roles @param {boolean} isMeasured @param {string[]} states
 */
export function headLabel(name, roles, isMeasured, states) {
  const role = roles.length ? plain(listed(roles)) : isMeasured ? NO_ROLE : NOT_MEASURED;
  return [name, role, ...states].join(", ");
}

/** Caption of a saved picture. @param {object} about
 * @param {string} about.model @param {string[]} about.heads @param {boolean} about.isByWord
 * @param {string} about.switches @param {string} about.version */
export function caption({ model, heads, isByWord, switches, version }) {
  const where = heads.length === 1 ? placeOf(heads[0]) : `heads ${heads.join(", ")}`;
  const unit = isByWord ? "whole words" : "pieces of words";
  return (
    `${model}, ${where}. A row looks at a column; ${unit}; special tokens in grey` +
    `${switches ? `; ${switches}` : ""}. Colour: share of attention, square-root scale. ` +
    `Made with headwise ${version}.`
  );
}

/** "one word back", "two words ahead". @param {number} offset @param {string} noun */
export function distance(offset, noun) {
  if (!offset) return "the same " + noun;
  const size = Math.abs(offset);
  return `${inWords(size)} ${noun}${size === 1 ? "" : "s"} ${offset < 0 ? "back" : "ahead"}`;
}
