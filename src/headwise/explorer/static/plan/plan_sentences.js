// @ts-check
/** Sentences of the planner. */

/** @import {PlanAnswer} from "../types.js" */
/** @import {Sizes} from "./plan_sizes.js" */

import { many } from "../stage/sentences.js";
import { inBytes, short, timesAs } from "./plan_numbers.js";

export const SHARED =
  "However many heads share the width, one layer has the same parameters and multiply-adds, if " +
  "each head has its own keys and values. The heads get smaller, and the attention weights of " +
  "one layer take more memory.";
export const REMARKS =
  "\u201cunder 64\u201d and \u201cover 128\u201d: nearly all published models have heads of 64 " +
  "to 128. \u201crank 64 of 8,192\u201d: a head of 64 numbers cannot form every pattern of " +
  "weights over 8,192 tokens.";

export const NO_BIASES = "Sizes of your own are counted without biases and norms.";

/**
 * @param {string} title the loaded model's name @param {PlanAnswer | null} loaded
 * @param {string} why the reason why the loaded model's costs are unknown
 */
export function kicker(title, loaded, why) {
  if (why) return `The costs of ${title} are unknown: ${why}.`;
  return loaded ? `Beside ${title}, the loaded model` : "The loaded model";
}

/** @param {PlanAnswer} plan @param {PlanAnswer | null} loaded @param {boolean} isUnknown */
export function headline(plan, loaded, isUnknown) {
  const numbers = `${plan.d_key.toLocaleString("en")} numbers${plan.num_heads > 1 ? " each" : ""}`;
  const size = `${many(plan.num_heads, "head")} per layer, ${numbers}`;
  return loaded || isUnknown
    ? `${size}, on a width of ${plan.d_model.toLocaleString("en")}`
    : `${plan.name}: ${size}`;
}

/** @param {PlanAnswer} plan @param {PlanAnswer | null} loaded @param {Sizes} sizes */
export function summary(plan, loaded, { heads, d_model: width, d_key: size, batch }) {
  const often = batch > 1 ? ` and ${batch.toLocaleString("en")} sequences` : "";
  const cache = plan.cache_bytes
    ? `The KV cache takes ${inBytes(plan.cache_bytes)} for ` +
      `${plan.length.toLocaleString("en")} tokens${often}.`
    : "It reads both ways and has no KV cache.";
  const times = loaded && timesAs(plan.parameters_attention / loaded.parameters_attention);
  const same = ", as many as the loaded model\u2019s";
  const ratio = !times ? "" : times === "1 times" ? same : `, ${times} the loaded model\u2019s`;
  const uneven =
    width % heads && !size
      ? ` ${heads} heads do not share a width of ${width.toLocaleString("en")} evenly: each has ` +
        `${plan.d_key} numbers.`
      : "";
  const parameters = `${short(plan.parameters_attention)} parameters of attention`;
  return `${parameters} in ${many(plan.num_layers, "layer")}${ratio}. ${cache}${uneven}`;
}
