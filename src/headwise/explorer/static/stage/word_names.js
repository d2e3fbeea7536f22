// @ts-check
/** Names of words in lists and sentences: a word that stands in a text several times is counted. */

/** @import {StageWord} from "../types.js" */

/** A word that a text has more often than this is not counted: nobody finds the 37th "the". */
const MOST = 9;

/**
 * "it", or "the (2nd)" if the text has the word several times.
 * @param {StageWord[]} words @param {number} at
 */
export function wordName(words, at) {
  const text = words[at]?.text ?? "";
  const places = words.flatMap((word, place) => (word.text === text ? [place] : []));
  if (places.length < 2 || places.length > MOST) return text;
  const count = places.indexOf(at) + 1;
  return `${text} (${count}${["th", "st", "nd", "rd"][count] ?? "th"})`;
}
