// @ts-check
/** Tables of the planner: costs of the chosen sizes, and every way to share out the width. */

/** @import {HeadChoiceAnswer, PlanAnswer} from "../types.js" */

import { make } from "../stage/dom.js";
import { inBytes, short } from "./plan_numbers.js";

/** Most heads that the table lists. */
const MOST = 256;

/** @param {string} text @param {string} kind */
const cell = (text, kind = "number") => make("td", { class: kind }, text);

/**
 * Name of the attention weights, with their shape if all columns have the same.
 * @param {PlanAnswer[]} plans @param {number} batch
 */
export function weightsTitle(plans, batch) {
  const [{ num_heads: heads, length }] = plans;
  const isOne = plans.every((plan) => plan.num_heads === heads && plan.length === length);
  const count = length.toLocaleString("en");
  const axes = isOne && batch === 1 ? [heads, count, count] : ["heads", "tokens", "tokens"];
  const all = batch === 1 ? axes : ["sequences", ...axes];
  return `Attention weights of one layer (${all.join(" \u00d7 ")})`;
}

/**
 * Costs, beside those of the loaded model.
 * @param {PlanAnswer} plan @param {PlanAnswer | null} loaded null if these are the same
 * @param {number} batch
 */
export function costTable(plan, loaded, batch) {
  const columns = loaded ? [plan, loaded] : [plan];
  /** @type {[string, (plan: PlanAnswer) => string][]} */
  const rows = [
    ["Parameters, one layer", ({ parameters_layer: value }) => value.toLocaleString("en")],
    ["Parameters, all layers", ({ parameters_attention: value }) => value.toLocaleString("en")],
    ["Multiply-adds per token", ({ multiply_adds_per_token: value }) => short(value)],
    ["KV cache", ({ cache_bytes: value }) => inBytes(value)],
    [weightsTitle(columns, batch), ({ weight_matrix_bytes: value }) => inBytes(value)],
    [
      "Operations per byte read in decoding",
      ({ decode_intensity: value }) => (value == null ? "\u2013" : value.toFixed(2)),
    ],
  ];
  const heading = (/** @type {PlanAnswer} */ each) => make("th", { scope: "col" }, each.name);
  return make(
    "table",
    {},
    make("thead", {}, make("tr", {}, make("td", {}), ...columns.map(heading))),
    make(
      "tbody",
      {},
      ...rows.map(([words, print]) =>
        make(
          "tr",
          {},
          make("th", { scope: "row" }, words),
          ...columns.map((each) => cell(print(each))),
        ),
      ),
    ),
  );
}

/** @param {HeadChoiceAnswer[]} choices @param {number} own number of heads now */
export function choiceTable(choices, own) {
  const titles = [
    "Heads",
    "Size of each",
    "Parameters",
    "Multiply-adds",
    "Attention weights",
    "Remarks",
  ];
  return make(
    "table",
    {},
    make(
      "thead",
      {},
      make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title))),
    ),
    make(
      "tbody",
      {},
      ...choices
        .filter(({ heads }) => heads <= MOST)
        .map((choice) =>
          make(
            "tr",
            choice.heads === own ? { class: "pl-own", "aria-current": "true" } : {},
            make("th", { scope: "row", class: "number" }, String(choice.heads)),
            cell(String(choice.d_key)),
            cell(short(choice.parameters)),
            cell(short(choice.multiply_adds_per_token)),
            cell(inBytes(choice.weight_matrix_bytes)),
            cell(choice.remarks.join(", "), ""),
          ),
        ),
    ),
  );
}
