// @ts-check
/** Headline and sub of What if: how the answer changes, beside what random heads change. */

/** @import {Prediction, RandomAnswer, Similarity} from "../types.js" */
/** @import {Head, Part} from "../stage/sentences.js" */

import { percentInWords, rounded } from "../stage/numbers.js";
import { capital, inWords } from "../stage/sentences.js";

/** Subjects by what the model predicts. */
const SUBJECTS = {
  next: "The next word",
  masked: "The masked word",
  end: "The last word",
  class: "The likeliest class",
};
const INVITATION = "Switch heads off, and see what changes";
const HARDLY = "Hardly any change";
/** A headline for a large change that random heads make, too. */
const AS_RANDOM = "No more change than with random heads";
/** Changes of a share and, if random heads make them, of a cosine that are small. */
const SMALL = 0.05;
/** Smallest change of a cosine for a headline of its own, in thousandths. */
const MOVED = 20;

/** Whether a predicted token ends a line. @param {string} name */
export const isLineBreak = (name) => /^(\\n)+$/.test(name);

/**
 * A predicted token of spaces or line breaks in words; "" for other tokens. A vocabulary may write
 * a space as \u0120 or \u2581, a tab as \u0109.
 * @param {string} name
 */
export function blankName(name) {
  if (isLineBreak(name)) return ["new line", "empty line"][name.length / 2 - 1] ?? "empty lines";
  if (!/^([\s\u0109\u010d\u0120\u2423\u2581]|\\[nrt])+$/.test(name)) return "";
  return /^[ \u0120\u2423\u2581]$/.test(name) ? "space" : "blank";
}

/** @param {string} name @returns {Part} */
function word(name) {
  const blank = blankName(name);
  if (!blank) return { word: name, colour: "" };
  if (blank.endsWith("s")) return blank;
  return `${blank === "empty line" ? "an" : "a"} ${blank}`;
}

/** A part at the beginning of a sentence. @param {Part} part @returns {Part} */
const first = (part) => (typeof part === "string" ? capital(part) : part);

/** @param {number} count */
export const counted = (count) => (count === 10 ? "ten" : inWords(count));

/** @param {number} count */
const heads = (count) => `${counted(count)} ${count === 1 ? "head" : "heads"}`;

/** @param {number} draws */
const times = (draws) => ["never", "once", "twice"][draws] ?? `${counted(draws)} times`;

/** @param {number[]} values */
const highest = (values) => values.indexOf(Math.max(...values));

/**
 * How a number changes beside random heads.
 * @typedef {object} Change
 * @property {number} before @property {number} after
 * @property {number[]} draws  the number with random heads
 * @property {(value: number) => string} print @property {(value: number) => number} round
 */

/** Whether random heads change the number as much. @param {Change} change */
function isInside({ before, after, draws, round }) {
  const [old, now] = [round(before), round(after)];
  const values = [old, ...draws.map(round)];
  return draws.length > 0 && now >= Math.min(...values) && now <= Math.max(...values);
}

/**
 * A sentence on the random heads; "" until their answer is there.
 * @param {RandomAnswer | null} random @param {number} changed number of changed heads
 * @param {Change} change @param {boolean} isRandom whether random heads do as much
 */
function control(random, changed, { draws, print }, isRandom) {
  if (!random) return "";
  const count = random.heads.length;
  if (!count) return " Every head is changed, so no random choice is left to compare with.";
  const [low, high] = [print(Math.min(...draws)), print(Math.max(...draws))];
  const range = low === high ? `at ${low}` : `between ${low} and ${high}`;
  const turned = turns(random);
  const stays = turned || isRandom ? "is" : "stays";
  const picked = `With ${heads(changed)} picked at random, ${times(count)}, it ${stays} ${range}`;
  const other = turned ? `, and another is likeliest in ${counted(turned)} of them` : "";
  return ` ${picked}${other}.${isRandom ? " The change is no larger than with random heads." : ""}`;
}

/** Draws that make another prediction the likeliest. @param {RandomAnswer} random */
const turns = ({ likeliest, names }) => likeliest.filter((name) => name !== names[0]).length;

/** Headline, likeliest and next prediction with all heads on. @param {Prediction} prediction
 * @param {number} all @returns {Head} */
function unchangedHead({ what, names, before }, all) {
  const order = before.map((_, at) => at).sort((one, other) => before[other] - before[one]);
  const share = (/** @type {number} */ at) => ` (${percentInWords(before[at])})`;
  const [most, next] = order;
  const old = word(names[most]);
  const subject = SUBJECTS[what].replace("The", "the");
  /** @type {Part[]} */
  const likeliest =
    what === "next" && typeof old === "string"
      ? [old, " is most likely to come next"]
      : [`${subject} is ${what === "class" ? "" : "most likely "}`, old];
  return {
    headline: [INVITATION],
    sub: [
      `With all ${all.toLocaleString("en")} heads on, `,
      ...likeliest,
      share(most),
      ...(next === undefined ? [] : [", then ", word(names[next]), share(next)]),
      ".",
    ],
  };
}

/**
 * @param {Prediction} prediction @param {RandomAnswer | null} random @param {number} changed
 * @param {number} all @returns {Head}
 */
export function predictionHead(prediction, random, changed, all) {
  const { what, names, before, after } = prediction;
  if (!changed) return unchangedHead(prediction, all);
  const most = highest(before),
    now = highest(after);
  const draws = random?.values[0] ?? [];
  const change = {
    ...{ before: before[most], after: after[most], draws },
    ...{ print: percentInWords, round: rounded },
  };
  const isSame = rounded(change.before) === rounded(change.after);
  const isTurned = most !== now;
  const isRandom = isInside(change) && (!isTurned || (random !== null && turns(random) > 0));
  const isSmall = Math.abs(change.after - change.before) < SMALL;
  const old = word(names[most]),
    fresh = word(names[now]);
  /** @type {Part[]} */
  let headline;
  if (isTurned && !isRandom) headline = turn(SUBJECTS[what], old, fresh);
  else if (isSame || (isRandom && isSmall)) headline = [HARDLY];
  else if (isRandom) headline = [AS_RANDOM];
  else headline = [first(old), ` becomes ${change.after < change.before ? "less" : "more"} likely`];
  /** @type {Part[]} */
  const likeliest = isTurned ? ["; likeliest is now ", fresh] : [];
  return {
    headline,
    sub: [
      ...(typeof old === "string" ? [`The probability of ${old}`] : [old]),
      moved(change),
      ...(isRandom ? likeliest : []),
      ".",
      control(random, changed, change, isRandom),
    ],
  };
}

/** " falls from 92% to 11%". @param {Change} change */
function moved({ before, after, print, round }) {
  if (round(before) === round(after)) return ` stays at ${print(before)}`;
  return ` ${after < before ? "falls" : "rises"} from ${print(before)} to ${print(after)}`;
}

/**
 * A headline on another likeliest prediction; spaces and new lines are not words.
 * @param {string} subject @param {Part} old @param {Part} fresh @returns {Part[]}
 */
function turn(subject, old, fresh) {
  if (typeof old === "string" || typeof fresh === "string")
    return [first(fresh), " becomes likelier than ", old];
  return [`${subject} turns from `, old, " to ", fresh];
}

/**
 * Pairs of sentences, the most alike first; `at` is the pair's place in a RandomAnswer.
 * @typedef {{one: number, other: number, before: number, after: number, at: number}} Pair
 */

/** @param {Similarity} similarity @returns {Pair[]} */
export function sentencePairs({ before, after }) {
  /** @type {Pair[]} */
  const pairs = [];
  for (let other = 1; other < before.length; other++)
    for (let one = 0; one < other; one++)
      pairs.push({
        one,
        other,
        before: before[one][other],
        after: after[one][other],
        at: pairs.length,
      });
  return pairs.sort(
    (left, right) =>
      Math.max(right.before, right.after) - Math.max(left.before, left.after) || left.at - right.at,
  );
}

/** A cosine as printed. @param {number} value */
export const cosine = (value) => value.toFixed(3).replace("-", "\u2212");

/** @param {number} value */
const thousandths = (value) => Math.round(1000 * value);

/**
 * @param {Similarity} similarity @param {RandomAnswer | null} random @param {number} changed
 * @param {number} all @returns {Head}
 */
export function similarityHead(similarity, random, changed, all) {
  const pairs = sentencePairs(similarity);
  if (!pairs.length)
    return { headline: ["One sentence alone"], sub: ["Add a sentence to compare it with."] };
  const named = (/** @type {Pair} */ { one, other }) => `${one + 1} and ${other + 1}`;
  if (!changed)
    return {
      headline: [INVITATION],
      sub: [
        `With all ${all.toLocaleString("en")} heads on, sentences ${named(pairs[0])} are most ` +
          `alike: their cosine is ${cosine(pairs[0].before)}.`,
      ],
    };
  const most = pairs.reduce((best, pair) =>
    Math.abs(pair.after - pair.before) > Math.abs(best.after - best.before) ? pair : best,
  );
  const difference = most.after - most.before;
  const draws = random?.values[most.at] ?? [];
  const change = { ...most, draws, print: cosine, round: thousandths };
  const isRandom = isInside(change);
  const chance = control(random, changed, change, isRandom);
  if (!thousandths(difference))
    return {
      headline: [HARDLY],
      sub: [
        "No cosine moves by 0.001. " +
          `That of sentences ${named(most)} is ${cosine(most.after)}.${chance}`,
      ],
    };
  const direction = difference < 0 ? "less" : "more";
  const by = Math.abs(thousandths(most.after) - thousandths(most.before));
  const isSmall = isRandom ? Math.abs(difference) < SMALL : by < MOVED;
  const other = isRandom ? AS_RANDOM : `Sentences ${named(most)} become ${direction} alike`;
  return {
    headline: [isSmall ? HARDLY : other],
    sub: [`The cosine of sentences ${named(most)}${moved(change)}.${chance}`],
  };
}
