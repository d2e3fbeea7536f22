// @ts-check
/** Sentences of the page about a model and about reading a text. */

/** @import {ModelAnswer, TextAnswer} from "./types.js" */

import * as api from "./api.js";
import { EMPTY, ONE_WORD } from "./stage/sentences.js";

/**
 * The model's name and size for wide, narrower and small windows.
 * @param {ModelAnswer} about @returns {[string, string, string]}
 */
export function modelNames({ name, title, layers }) {
  const short = name.split("/").at(-1) || name;
  const heads = new Set(layers.map((layer) => layer.heads));
  const all = layers.reduce((sum, layer) => sum + layer.heads, 0);
  const [each] = heads;
  if (heads.size !== 1)
    return [
      `${title} \u00b7 ${layers.length} layers, ${all} heads`,
      `${short} \u00b7 ${all}`,
      short,
    ];
  return [
    `${title} \u00b7 ${layers.length} layers \u00d7 ${each} heads`,
    `${short} \u00b7 ${layers.length} \u00d7 ${each}`,
    short,
  ];
}

/**
 * How much was read, and what was left out; worth seeing only in the second case.
 * @param {TextAnswer | null} answer @param {number} seconds @param {boolean} isLong
 */
export function summary(answer, seconds, isLong) {
  if (!answer) return { words: "", isWorthSeeing: false };
  const tokens = answer.tokens.toLocaleString("en");
  const time = seconds < 0.05 ? "" : ` in ${seconds.toFixed(1)} s`;
  let words = `${tokens} tokens read${time}.`;
  if (answer.measured < answer.tokens)
    words += ` Measures are means over ${answer.measured} random ones; maps are exact.`;
  if (answer.left_out) {
    const who = answer.is_models_limit ? "The model takes" : "This page reads";
    const count = answer.left_out.toLocaleString("en");
    const last = answer.left_out === 1 ? "token was" : `${count} tokens were`;
    words += ` ${who} at most ${tokens} tokens: the last ${last} left out.`;
  }
  if (isLong) words += " The text is too long for the link, which leaves it out.";
  return { words, isWorthSeeing: isLong || answer.left_out > 0 };
}

/** Why a text was not read, for the user. @param {string} text @param {Error} error */
export function refusal(text, error) {
  if (!text.trim()) return EMPTY;
  if (!error.message.includes("too little text")) return api.sentence(error);
  return /\s/.test(text.trim()) ? "This is too little text: write at least two words." : ONE_WORD;
}
