// @ts-check
/** Sizes that the planner's sliders choose, and how the address writes them. */

/** @import {PlanAnswer} from "../types.js" */

/** @typedef {"d_model" | "heads" | "kv_heads" | "layers" | "length" | "batch"} Name */
/** Sizes by name; `d_key` is 0 if the width is shared evenly. */
/** @typedef {Record<Name, number> & {d_key: number, isCausal: boolean}} Sizes */

/** @type {{name: Name, words: string, values: number[]}[]} */
export const SLIDERS = [
  {
    name: "d_model",
    words: "Width (d_model)",
    values: [
      128, 256, 384, 512, 576, 768, 1024, 1280, 1600, 2048, 2560, 3072, 4096, 5120, 6144, 8192,
      12288,
    ],
  },
  {
    name: "heads",
    words: "Heads per layer",
    values: [1, 2, 3, 4, 6, 8, 9, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128],
  },
  {
    name: "kv_heads",
    words: "KV heads per layer",
    values: [1, 2, 3, 4, 6, 8, 9, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128],
  },
  {
    name: "layers",
    words: "Layers",
    values: [1, 2, 4, 6, 8, 12, 16, 24, 30, 32, 36, 40, 48, 64, 80, 96, 126],
  },
  {
    name: "length",
    words: "Context in tokens",
    values: [128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 1048576],
  },
  { name: "batch", words: "Sequences at once", values: [1, 2, 4, 8, 16, 32, 64, 128, 256] },
];
const NAMES = SLIDERS.map(({ name }) => name);

/** Sizes if the loaded model's are unknown. @type {Sizes} */
export const USUAL = {
  d_model: 768,
  heads: 12,
  kv_heads: 12,
  layers: 12,
  length: 1024,
  batch: 1,
  d_key: 0,
  isCausal: true,
};

/** Sizes of a known model. @param {PlanAnswer} plan @returns {Sizes} */
export const sizesOf = (plan) => ({
  d_model: plan.d_model,
  heads: plan.num_heads,
  kv_heads: plan.num_kv_heads,
  layers: plan.num_layers,
  length: plan.length,
  batch: 1,
  d_key: plan.d_key * plan.num_heads === plan.d_model ? 0 : plan.d_key,
  isCausal: plan.is_causal,
});

/** @param {Sizes} one @param {Sizes} other */
export const isSame = (one, other) => writeSizes(one, other) === "";

/**
 * Sizes as "heads.16,layers.30": only those that differ from `usual`.
 * @param {Sizes} sizes @param {Sizes} usual
 */
export function writeSizes(sizes, usual) {
  const parts = NAMES.filter((name) => sizes[name] !== usual[name]).map(
    (name) => `${name}.${sizes[name]}`,
  );
  if (sizes.d_key !== usual.d_key) parts.push(`d_key.${sizes.d_key}`);
  if (sizes.isCausal !== usual.isCausal) parts.push(`causal.${Number(sizes.isCausal)}`);
  return parts.join(",");
}

/** @param {string} text @param {Sizes} usual @returns {Sizes} */
export function readSizes(text, usual) {
  const sizes = { ...usual };
  for (const part of text.split(",").filter(Boolean)) {
    const [name, digits] = part.split(".");
    const value = Number(digits);
    if (name === "causal") sizes.isCausal = value === 1;
    else if (name === "d_key" && Number.isInteger(value) && value >= 0 && value <= 4096)
      sizes.d_key = value;
    else if (/^[1-9]\d{0,6}$/.test(digits ?? "") && NAMES.includes(/** @type {Name} */ (name)))
      sizes[/** @type {Name} */ (name)] = Math.min(value, LARGEST[/** @type {Name} */ (name)]);
  }
  if (sizes.heads % sizes.kv_heads) sizes.kv_heads = sizes.heads;
  return sizes;
}
/** As the server allows. @type {Record<Name, number>} */
const LARGEST = {
  d_model: 65536,
  heads: 1024,
  kv_heads: 1024,
  layers: 1024,
  length: 10 ** 7,
  batch: 65536,
};

/** A slider's values, with the one that it has now. @param {number[]} values @param {number} now */
export const withValue = (values, now) =>
  values.includes(now) ? values : [...values, now].sort((one, other) => one - other);

/**
 * Sizes after a slider moved; KV heads follow the heads that they must divide.
 * @param {Sizes} sizes @param {Name} name @param {number} value @param {number} asked KV heads
 * @returns {Sizes}
 */
export function moved(sizes, name, value, asked) {
  const next = { ...sizes, [name]: value };
  if (name === "heads" || name === "d_model") next.d_key = 0;
  if (name === "heads") {
    const divisors = withValue(SLIDERS[2].values, value).filter((kv) => value % kv === 0);
    next.kv_heads = divisors.filter((kv) => kv <= asked).at(-1) ?? 1;
  }
  if (name === "kv_heads" && next.heads % value) {
    const divisors = withValue(SLIDERS[2].values, next.heads).filter((kv) => !(next.heads % kv));
    const isDown = value < sizes.kv_heads;
    const further = divisors.filter((kv) => (isDown ? kv < value : kv > value));
    next.kv_heads = (isDown ? further.at(-1) : further[0]) ?? sizes.kv_heads;
  }
  return next;
}

/** Query of /api/plan. @param {Sizes} sizes @returns {Record<string, number>} */
export function planQuery({ d_key: size, isCausal, ...sizes }) {
  const isUneven = sizes.d_model % sizes.heads !== 0;
  const d_key = size || (isUneven ? Math.max(1, Math.round(sizes.d_model / sizes.heads)) : 0);
  return { ...sizes, ...(d_key ? { d_key } : {}), is_causal: Number(isCausal) };
}
