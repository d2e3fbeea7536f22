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
  let count = 0,
    place = 0;
  for (let other = 0; other < words.length && count <= MOST; other++) {
    if (words[other].text !== text) continue;
    count++;
    if (other <= at) place = count;
  }
  if (count < 2 || count > MOST) return text;
  return `${text} (${place}${["th", "st", "nd", "rd"][place] ?? "th"})`;
}
