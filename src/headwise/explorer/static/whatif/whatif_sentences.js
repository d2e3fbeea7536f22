// @ts-check
/** Headline and sub of What if: how the answer changes, beside what random heads change. */

/** @import {Prediction, RandomAnswer, Similarity} from "../types.js" */
/** @import {Head, Part} from "../stage/sentences.js" */

import { percent, percentInWords, rounded } from "../stage/numbers.js";
import { inWords } from "../stage/sentences.js";

/** Subjects by what the model predicts. */
export const SUBJECTS = {
  next: "The next word",
  masked: "The masked word",
  end: "The last word",
  class: "The likeliest class",
};
/** Change of a cosine that is worth a headline. */
const MOVED = 0.005;

/** Whether a predicted token ends a line. @param {string} name */
export const isLineBreak = (name) => /^(\\n)+$/.test(name);

/** @param {string} name @returns {Part} */
const word = (name) => (isLineBreak(name) ? "a new line" : { word: name, colour: "" });

/** @param {number} count */
const counted = (count) => (count === 10 ? "ten" : inWords(count));

/** @param {number} count */
const heads = (count) => `${counted(count)} ${count === 1 ? "head" : "heads"}`;

/** @param {number} draws */
const times = (draws) => ["never", "once", "twice"][draws] ?? `${counted(draws)} times`;

/** @param {number[]} values */
const highest = (values) => values.indexOf(Math.max(...values));

/**
 * A range in words, and whether the change lies inside it.
 * @param {number[]} values by draw @param {number} now @param {(value: number) => string} print
 * @param {(value: number) => number} round
 */
function range(values, now, print, round) {
  const low = Math.min(...values),
    high = Math.max(...values);
  const isOne = print(low) === print(high);
  return {
    text: isOne ? `at ${print(low)}` : `between ${print(low)} and ${print(high)}`,
    isInside: round(now) >= round(low) && round(now) <= round(high),
  };
}

/**
 * A sentence on the random heads; "" until their answer is there.
 * @param {RandomAnswer | null} random @param {number} changed number of changed heads
 * @param {number} at which of its values @param {number} now
 * @param {(value: number) => string} print @param {(value: number) => number} round
 */
function control(random, changed, at, now, print, round) {
  if (!random) return "";
  const draws = random.heads.length;
  if (!draws) return " Every head is changed, so no random choice is left to compare with.";
  const { text, isInside } = range(random.values[at], now, print, round);
  const first = random.names[0];
  const turned = random.likeliest.filter((name) => name !== first).length;
  const stays = turned || isInside ? "is" : "stays";
  const picked = `With ${heads(changed)} picked at random, ${times(draws)}, it ${stays} ${text}`;
  const other = turned ? `, and another is likeliest in ${counted(turned)} of them` : "";
  return ` ${picked}${other}.${isInside ? " That is no more than random heads do." : ""}`;
}

/**
 * @param {Prediction} prediction @param {RandomAnswer | null} random @param {number} changed
 * @param {number} all @returns {Head}
 */
export function predictionHead({ what, names, before, after }, random, changed, all) {
  const first = highest(before),
    now = highest(after);
  const subject = SUBJECTS[what];
  const old = word(names[first]),
    fresh = word(names[now]);
  if (!changed) {
    const order = before.map((_, at) => at).sort((one, other) => before[other] - before[one]);
    const next = order[1];
    return {
      headline: [`${subject} is `, old],
      sub: [
        `${percent(before[first])} with all ${all.toLocaleString("en")} heads on.`,
        ...(next === undefined
          ? []
          : [" Next comes ", word(names[next]), `, ${percentInWords(before[next])}.`]),
        " Click heads below to switch them off.",
      ],
    };
  }
  const [from, to] = [rounded(before[first]), rounded(after[first])];
  const moved =
    from === to
      ? ` stays at ${percentInWords(before[first])}.`
      : ` ${to < from ? "falls" : "rises"} from ${percentInWords(before[first])} to ` +
        `${percentInWords(after[first])}.`;
  return {
    headline:
      first === now ? [`${subject} stays `, old] : [`${subject} turns from `, old, " to ", fresh],
    sub: [old, moved, control(random, changed, 0, after[first], percentInWords, rounded)],
  };
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
export const cosine = (value) => value.toFixed(2).replace("-", "\u2212");

/** @param {number} value */
const hundredths = (value) => Math.round(100 * value);

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
      headline: [`Sentences ${named(pairs[0])} are most alike`],
      sub: [
        `Their cosine is ${cosine(pairs[0].before)} with all ${all.toLocaleString("en")} heads on.`,
        " Click heads below to switch them off.",
      ],
    };
  const most = pairs.reduce((best, pair) =>
    Math.abs(pair.after - pair.before) > Math.abs(best.after - best.before) ? pair : best,
  );
  const change = most.after - most.before;
  const chance = control(random, changed, most.at, most.after, cosine, hundredths);
  if (Math.abs(change) < MOVED)
    return {
      headline: ["The sentences stay as alike as before"],
      sub: [`No cosine moves by 0.01. That of ${named(most)} is ${cosine(most.after)}.${chance}`],
    };
  return {
    headline: [`Sentences ${named(most)} become ${change < 0 ? "less" : "more"} alike`],
    sub: [
      `Their cosine ${change < 0 ? "falls" : "rises"} from ${cosine(most.before)} to ` +
        `${cosine(most.after)}.${chance}`,
    ],
  };
}
