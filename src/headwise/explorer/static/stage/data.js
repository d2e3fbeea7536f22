// @ts-check
/**
 * Weights of one text with the chosen switches: at once for short texts, on request for long ones.
 *
 * Nothing here draws. `changed` is called whenever numbers have arrived.
 */

/** @import {StageWord, TextAnswer} from "../types.js" */
/** @import {SmallMap} from "./grid.js" */
/** @import {Cells, Host, Thumbs} from "./host.js" */
/** @import {Weights} from "./weights.js" */

import { axisOf, layerOf, numberOf, stackOf } from "./host.js";
import { restingPlaces } from "./links.js";
import { roots } from "./shades.js";

/** Largest number of rows and columns of an exact part of a map. */
const TILE = 256;

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
    /** Rows, columns, whole maps and thumbnails of a long text. @type {Map<string, Float32Array>} */
    this.lines = new Map();
    /** @type {Map<string, Cells>} */
    this.cells = new Map();
    /** @type {Map<string, Thumbs>} */
    this.thumbs = new Map();
    /** Resting places by stack. @type {Map<string, boolean[]>} */
    this.rests = new Map();
    /** @type {Set<string>} */
    this.asked = new Set();
    /** An exact part of a long text's map. @type {{head: string, cells: Cells} | null} */
    this.tile = null;
    /** A word's row in every head of a long text. @type {{at: number, by: boolean, thumbs: Thumbs} | null} */
    this.word = null;
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
   * @template T @param {string} key @param {() => Promise<T>} fetch @param {(answer: T) => void} keep
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

  /** Fetch what the chosen heads need first, then every small map. @param {string[]} heads */
  async load(heads) {
    const stacks = [...new Set([...heads, ...this.host.about.layers.map(({ name }) => name)])];
    for (const stack of new Set(stacks.map(stackOf))) {
      if (!this.text.is_small || !this.text.stacks[stack]) continue;
      const options = this.options(stack);
      this.ask(
        `weights ${stack}`,
        () => this.host.weights(this.text, options),
        (weights) => this.weights.set(stack, weights),
      );
    }
    if (!this.text.is_small) await this.loadLong(heads);
  }

  /** @param {string[]} heads */
  async loadLong(heads) {
    for (const head of heads) this.loadCells(head);
    if (this.asked.has("thumbs") || !this.host.long) return;
    this.asked.add("thumbs");
    try {
      for (const { name, heads } of this.host.about.layers) {
        if (this.isOver || !heads) continue;
        const thumbs = await this.host.long.thumbs(this.text, name, this.options(stackOf(name)));
        if (this.isOver) return;
        this.thumbs.set(name, thumbs);
        this.version++;
        this.changed();
      }
    } catch (error) {
      this.asked.delete("thumbs");
      if (!this.isOver) this.failed(error);
    }
  }

  /** @param {string} head */
  loadCells(head) {
    const { long } = this.host;
    if (this.text.is_small || !long) return;
    this.ask(
      `cells ${head}`,
      () => long.cells(this.text, head, null, this.options(stackOf(head))),
      (cells) => this.cells.set(head, cells),
    );
  }

  /** Whether everything that the picture shows has come. @param {string[]} heads */
  isReady(heads) {
    if (this.text.is_small) return heads.every((head) => this.weights.has(stackOf(head)));
    const layers = this.host.about.layers.filter(({ heads }) => heads);
    return heads.every((head) => this.cells.has(head)) && this.thumbs.size >= layers.length;
  }

  /** Whether a map is exact, not reduced. @param {string} head @returns {Cells | null} */
  exact(head) {
    const cells = this.cells.get(head);
    if (!cells) return null;
    const isWhole = cells.shape[0] === this.rows(head).length;
    return isWhole && cells.shape[1] === this.columns(head).length ? cells : null;
  }

  /** Fetch an exact part of a long text's map. @param {string} head
   * @param {{rows: number[], keys: number[]}} part */
  loadTile(head, part) {
    const { long } = this.host;
    const [rows, keys] = [part.rows[1] - part.rows[0], part.keys[1] - part.keys[0]];
    if (!long || this.exact(head) || rows > TILE || keys > TILE) return;
    const key = `tile ${head} ${part.rows} ${part.keys}`;
    this.asked.delete(key);
    this.ask(
      key,
      () => long.cells(this.text, head, part, this.options(stackOf(head))),
      (cells) => (this.tile = { head, cells }),
    );
  }

  /**
   * Shares of a row, or with `by` of a column; null until they have come.
   * @param {string} head @param {number} at @param {boolean} by @returns {Float32Array | null}
   */
  line(head, at, by) {
    const count = by ? this.columns(head).length : this.rows(head).length;
    if (at < 0 || at >= count) return null;
    const weights = this.weights.get(stackOf(head));
    if (weights) return by ? weights.column(head, at) : weights.row(head, at);
    if (this.text.is_small || !this.host.long) return null;
    const exact = this.exact(head);
    if (exact) return lineOf(exact, at, by);
    return this.lines.get(`${head} ${at} ${by}`) ?? null;
  }

  /** Fetch a row or column of a long text. @param {string} head @param {number} at @param {boolean} by */
  loadLine(head, at, by) {
    const { long } = this.host;
    if (this.text.is_small || !long || this.line(head, at, by)) return;
    if (at < 0 || (!this.cells.has(head) && this.rows(head).length <= 256)) return; // it comes whole
    const key = `${head} ${at} ${by}`;
    this.ask(
      `line ${key}`,
      () => long.row(this.text, head, at, by, this.options(stackOf(head))),
      (values) => this.lines.set(key, values),
    );
  }

  /** @param {string} head @param {number} from @param {number} to @returns {number | null} */
  share(head, from, to) {
    const weights = this.weights.get(stackOf(head));
    if (weights) return weights.share(head, from, to);
    return this.line(head, from, false)?.[to] ?? null;
  }

  /** @param {string} head @returns {SmallMap | null} */
  smallMap(head) {
    const weights = this.weights.get(stackOf(head));
    if (weights) return this.fromWeights(weights, head);
    const thumbs = this.thumbs.get(layerOf(head));
    if (!thumbs) return null;
    const [, rows, columns] = thumbs.shape;
    const size = rows * columns,
      start = numberOf(head) * size;
    return {
      key: `${this.text.name} ${size}`,
      bytes: thumbs.values.subarray(start, start + size),
      shape: [rows, columns],
      isResting: () => false,
      isShown: () => true,
    };
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
    if (!this.text.is_small) {
      if (this.word?.at !== at || this.word.by !== by) return null;
      const { shape, values } = this.word.thumbs;
      const place = this.headPlace(head) * shape[1];
      const shares = [...values.subarray(place, place + shape[1])].map((byte) => byte / 255);
      return { shares, isResting: () => false };
    }
    const shares = this.line(head, at, by);
    const resting = this.resting(head);
    return shares && { shares, isResting: (/** @type {number} */ column) => resting[column] };
  }

  /** Place of a head among the heads of its stack. @param {string} head */
  headPlace(head) {
    let place = 0;
    for (const { name, heads } of this.host.about.layers) {
      if (name === layerOf(head)) return place + numberOf(head);
      if (stackOf(name) !== stackOf(head)) continue;
      place += heads;
    }
    return place;
  }

  /**
   * Fetch one word's row in every head of a long text.
   * @param {number} at @param {string} head @param {boolean} by
   */
  loadBars(at, head, by) {
    const { long } = this.host;
    if (this.text.is_small || !long || at < 0 || (this.word?.at === at && this.word.by === by))
      return;
    const key = `bars ${at} ${by}`;
    this.ask(
      key,
      () => long.bars(this.text, at, by, this.options(stackOf(head))),
      (thumbs) => {
        this.word = { at, by, thumbs };
        this.asked.delete(key);
      },
    );
  }
}

/** @param {Cells} cells @param {number} at @param {boolean} by */
function lineOf({ shape, values }, at, by) {
  const [rows, columns] = shape;
  if (!by) return values.subarray(at * columns, (at + 1) * columns);
  return Float32Array.from({ length: rows }, (_, row) => values[row * columns + at]);
}
