// @ts-check
/**
 * Weights of one text with the chosen switches: at once for short texts, on request for long ones.
 *
 * Nothing here draws. `changed` is called whenever numbers have arrived.
 */

/** @import {StageWord, TextAnswer} from "../types.js" */
/** @import {SmallMap} from "./grid.js" */
/** @import {Cells, Host} from "./host.js" */
/** @import {Weights} from "./weights.js" */

import { axisOf, stackOf } from "./host.js";
import { restingPlaces } from "./links.js";
import { LongData } from "./long_data.js";
import { roots } from "./shades.js";

/** @typedef {{words: boolean, first: boolean, values: boolean}} Switches */

export class TextData {
  /**
   * @param {Host} host @param {TextAnswer} text @param {Switches} switches
   * @param {() => void} changed @param {(error: unknown) => void} failed
   */
  constructor(host, text, switches, changed, failed) {
    this.host = host;
    this.text = text;
    this.switches = switches;
    this.changed = changed;
    this.failed = failed;
    this.isOver = false;
    /** Counts answers, so that a picture knows when to draw its maps again. */
    this.version = 0;
    /** Weights by stack. @type {Map<string, Weights>} */
    this.weights = new Map();
    /** Square roots of weights by head, as bytes. @type {Map<string, Uint8Array>} */
    this.bytes = new Map();
    /** Resting places by stack. @type {Map<string, boolean[]>} */
    this.rests = new Map();
    /** @type {Set<string>} */
    this.asked = new Set();
    /** Null for short texts. */
    this.long = text.is_small || !host.long ? null : new LongData(this, host.long);
  }

  end() {
    this.isOver = true;
  }

  /** @param {string} stack */
  options(stack) {
    const { isByWord } = axisOf(this.text, stack, this.switches.words);
    return { ...this.switches, words: isByWord, stack };
  }

  /** @param {string} head @returns {StageWord[]} */
  rows(head) {
    return axisOf(this.text, stackOf(head), this.switches.words).axis.rows;
  }

  /** @param {string} head @returns {StageWord[]} */
  columns(head) {
    const { axis } = axisOf(this.text, stackOf(head), this.switches.words);
    return axis.columns ?? axis.rows;
  }

  /** Whether rows and columns are different texts. @param {string} head */
  isCross(head) {
    return axisOf(this.text, stackOf(head), this.switches.words).axis.columns !== null;
  }

  /** Columns where heads rest. @param {string} head @returns {boolean[]} */
  resting(head) {
    const stack = stackOf(head);
    let rests = this.rests.get(stack);
    if (!rests) {
      rests = restingPlaces(this.columns(head), this.text.rests_on_first && !this.isCross(head));
      this.rests.set(stack, rests);
    }
    return rests;
  }

  /**
   * Fetch once what a key stands for, and draw again when it has come.
   * @template T @param {string} key @param {() => Promise<T>} fetch
   * @param {(answer: T) => void} keep
   */
  ask(key, fetch, keep) {
    if (this.asked.has(key)) return;
    this.asked.add(key);
    fetch().then(
      (answer) => {
        if (this.isOver) return;
        keep(answer);
        this.version++;
        this.changed();
      },
      (error) => {
        this.asked.delete(key);
        if (!this.isOver) this.failed(error);
      },
    );
  }

  /**
   * Fetch what the chosen heads need first, then every small map.
   * @param {string[]} heads @param {number} [dots]  pixels along a small map
   */
  async load(heads, dots = 0) {
    if (this.long) return this.long.load(heads, dots);
    const all = [...heads, ...this.host.about.layers.map(({ name }) => name)];
    for (const stack of new Set(all.map(stackOf))) {
      if (!this.text.stacks[stack]) continue;
      this.ask(
        `weights ${stack}`,
        () => this.host.weights(this.text, this.options(stack)),
        (weights) => this.weights.set(stack, weights),
      );
    }
  }

  /** Whether everything that the picture shows has come. @param {string[]} heads */
  isReady(heads) {
    if (this.long) return this.long.isReady(heads);
    return heads.every((head) => this.weights.has(stackOf(head)));
  }

  /** Whether a head can be shown. @param {string} head */
  hasHead(head) {
    return this.long ? this.long.cells.has(head) : this.weights.has(stackOf(head));
  }

  /** The whole map of a long text's head, perhaps reduced. @param {string} head
   * @returns {Cells | null} */
  overview(head) {
    return this.long?.cells.get(head) ?? null;
  }

  /**
   * Shares of a row, or with `by` of a column; null until they have come.
   * @param {string} head @param {number} at @param {boolean} by @returns {Float32Array | null}
   */
  line(head, at, by) {
    const count = by ? this.columns(head).length : this.rows(head).length;
    if (at < 0 || at >= count) return null;
    if (this.long) return this.long.line(head, at, by);
    const weights = this.weights.get(stackOf(head));
    if (!weights) return null;
    return by ? weights.column(head, at) : weights.row(head, at);
  }

  /** Fetch a row or column of a long text. @param {string} head @param {number} at
   * @param {boolean} by */
  loadLine(head, at, by) {
    this.long?.loadLine(head, at, by);
  }

  /** @param {string} head @param {number} from @param {number} to @returns {number | null} */
  share(head, from, to) {
    const weights = this.weights.get(stackOf(head));
    if (weights) return weights.share(head, from, to);
    return this.line(head, from, false)?.[to] ?? this.line(head, to, true)?.[from] ?? null;
  }

  /** @param {string} head @returns {SmallMap | null} */
  smallMap(head) {
    if (this.long) return this.long.smallMap(head);
    const weights = this.weights.get(stackOf(head));
    return weights ? this.fromWeights(weights, head) : null;
  }

  /** @param {Weights} weights @param {string} head */
  fromWeights(weights, head) {
    let bytes = this.bytes.get(head);
    const { rows, columns } = weights;
    if (!bytes) {
      const start = weights.start(head);
      bytes = roots(weights.values.subarray(start, start + rows * columns));
      this.bytes.set(head, bytes);
    }
    const resting = this.resting(head),
      words = this.rows(head);
    const isPlain = words.some(({ kind }) => kind !== "special");
    return {
      key: "all",
      bytes,
      shape: [rows, columns],
      isResting: (/** @type {number} */ column) => resting[column],
      isShown: (/** @type {number} */ row) => !isPlain || words[row].kind !== "special",
    };
  }

  /** One word's row in a small map. @param {string} head @param {number} at @param {boolean} by */
  bars(head, at, by) {
    if (this.long) return this.long.bars(head, at, by);
    const shares = this.line(head, at, by);
    const resting = this.resting(head);
    return shares && { shares, isResting: (/** @type {number} */ column) => resting[column] };
  }
}
