// @ts-check
/** Sentences on cutting the heads that are off: the savings, the reason against it, the file. */

/** @import {ModelAnswer, WhatIfAnswer} from "../types.js" */

import { many } from "../stage/sentences.js";

/**
 * @param {WhatIfAnswer | null} answer @param {number} off @param {number} scaled
 * @returns {{cannotCut: boolean, sentence: string}}
 */
export function describeCut(answer, off, scaled) {
  if (!off) {
    const none = `Keep these cuts: no head is off.`;
    return {
      cannotCut: true,
      sentence: scaled ? `${none} Heads that are only scaled cannot be cut.` : "",
    };
  }
  if (!answer) return { cannotCut: false, sentence: "" };
  const { cannot_cut: why, saved, parameters } = answer.savings;
  if (why) return { cannotCut: true, sentence: `Keep these cuts: not possible. ${why}.` };
  const share = ((100 * saved) / parameters).toFixed(2);
  const them = off === 1 ? "it" : "them";
  return {
    cannotCut: false,
    sentence: `Cutting ${them} would save ${saved.toLocaleString("en")} parameters (${share}%).`,
  };
}

/**
 * What was saved, and the command that cuts the heads.
 * @param {ModelAnswer} about @param {number} off @param {number} scaled
 */
export function keptSentence({ loads_as: model }, off, scaled) {
  const left = scaled
    ? ` ${many(scaled, "head")} scaled, not off, and left out: a plan only lists heads to cut.`
    : "";
  const how = model
    ? `headwise prune ${model} --plan plan.json --out smaller`
    : 'headwise.cut(model, headwise.CutPlan.read("plan.json").heads) in Python';
  const them = off === 1 ? "it" : "them";
  return `Saved plan.json with ${many(off, "head")}.${left} Cut ${them} with: ${how}`;
}
