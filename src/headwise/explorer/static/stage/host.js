// @ts-check
/**
 * The host of a view: the explorer's page, a notebook widget or an exported file.
 *
 * A view reads its state and data from the host and never sends a request itself. What a host
 * cannot do is null: a file has no model, so it can neither read a new text nor measure a head.
 */

/** @import {HeadAnswer, JobAnswer, ModelAnswer, PairAnswer} from "../types.js" */
/** @import {StageAxis, TextAnswer} from "../types.js" */
/** @import {Weights} from "./weights.js" */

/**
 * How the weights of a text are asked for.
 * @typedef {object} WeightOptions
 * @property {string} stack  name of the stack, "" in most models
 * @property {boolean} words  whole words instead of pieces
 * @property {boolean} first  whether the first token counts
 * @property {boolean} values  whether weights are multiplied by the lengths of values
 */

/**
 * A part of a long text's map, or the whole map reduced to the largest weight of each block.
 * @typedef {object} Cells
 * @property {number[]} rows  first row, and the row after the last
 * @property {number[]} keys
 * @property {number[]} shape
 * @property {Float32Array} values
 */

/** Shares with their shape. @typedef {{shape: number[], values: Float32Array}} Shares */

/**
 * Bytes of 0 to 255 with their shape; 255 means a weight of one, on a square-root scale.
 * @typedef {{shape: number[], values: Uint8Array}} Thumbs
 */

/**
 * Requests that only long texts need: nothing of them is fetched in advance.
 * @typedef {object} LongText
 * @property {(text: TextAnswer, head: string, at: number, by: boolean, options: WeightOptions) =>
 *   Promise<Float32Array>} row  one row of a head's map, or with `by` one column
 * @property {(text: TextAnswer, head: string, part: {rows: number[], keys: number[]} | null,
 *   options: WeightOptions) => Promise<Shares>} cells  null: the whole map, perhaps reduced
 * @property {(text: TextAnswer, layer: string, size: number, options: WeightOptions) =>
 *   Promise<Thumbs>} thumbs  of at most `size` rows and columns
 * @property {(text: TextAnswer, at: number, by: boolean, size: number, options: WeightOptions) =>
 *   Promise<Thumbs>} bars  one word's row in every head of a stack, linear: 255 means one
 */

/**
 * The state of the text that is being read, for the page's own reading bar and status line.
 * @typedef {object} Reading
 * @property {string} text  the text being read, "" if none is
 * @property {string} error  why the last text could not be read, "" if it could
 */

/**
 * @typedef {object} Host
 * @property {(key: string) => string} get  a value of the state
 * @property {(values: Record<string, string>, how?: "push" | "replace") => void} set
 * @property {(listener: (changed: Set<string>) => void) => (() => void)} on  call the listener with
 *   the changed state keys, and with "reading", "theme" or "about"; returns how to stop it
 * @property {ModelAnswer} about
 * @property {string} version  headwise's version, for the caption of a saved picture
 * @property {() => TextAnswer | null} text  the text on the stage
 * @property {() => Reading} reading
 * @property {() => "light" | "dark"} theme
 * @property {(text: TextAnswer, options: WeightOptions) => Promise<Weights>} weights
 * @property {((text: string) => Promise<TextAnswer>) | null} read
 * @property {((text: string, other: string) => Promise<PairAnswer>) | null} pair
 * @property {((text: TextAnswer, head: string) => Promise<HeadAnswer>) | null} headFacts
 * @property {LongText | null} long
 * @property {((name: string, action: "start" | "stop" | "state") => Promise<JobAnswer>) | null} job
 * @property {(() => Promise<void>) | null} refresh  ask for the model and the text again, after a
 *   job has added roles or measures
 * @property {((blob: Blob, name: string) => void) | null} save
 * @property {(() => Promise<void>) | null} savePage  save the stage as one HTML file
 * @property {Record<string, string>} [cannot]  tools and switches that do not work here, and why
 * @property {string | null} missing  what this host leaves out, as a sentence
 * @property {number} [narrow]  width in rem below which the stage is vertical
 * @property {boolean} hasKeys  whether E, S, V and the brackets work in the whole document
 * @property {(error: unknown) => string} sentence  an error for the reader; may read a text again
 * @property {((name: string, heads: string[]) => void) | null} drawn  called once everything shows
 */

/** Stack of a head or layer: "encoder" for encoder.L3H1, "" for L3H1. @param {string} name */
export const stackOf = (name) => (name.includes(".") ? name.slice(0, name.lastIndexOf(".")) : "");

/** Name of the layer of a head. @param {string} head */
export const layerOf = (head) => head.slice(0, head.lastIndexOf("H"));

/** Number of a head in its layer. @param {string} head */
export const numberOf = (head) => Number(head.slice(head.lastIndexOf("H") + 1));

/**
 * Rows and columns of a stack, by word if that is chosen and possible.
 * @param {TextAnswer} text @param {string} stack @param {boolean} byWord
 * @returns {{axis: StageAxis, isByWord: boolean}}
 */
export function axisOf(text, stack, byWord) {
  const axes = text.stacks[stack] ?? Object.values(text.stacks)[0];
  return byWord && axes.words
    ? { axis: axes.words, isByWord: true }
    : { axis: axes.pieces, isByWord: false };
}
