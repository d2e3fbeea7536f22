// @ts-check
/** What is fetched of a long text, and only when it is shown: maps, rows, thumbnails, bars. */

/** @import {SmallMap} from "./grid.js" */
/** @import {TextData} from "./data.js" */
/** @import {Cells, LongText, Shares, Thumbs} from "./host.js" */

import { layerOf, numberOf, stackOf } from "./host.js";

/** Largest number of rows and columns of an exact part of a map, and of a small map. */
const TILE = 256,
  SMALL = 64;
/** Milliseconds between pictures while small maps arrive. */
const BETWEEN = 250;

export class LongData {
  /** @param {TextData} data @param {LongText} source */
  constructor(data, source) {
    this.data = data;
    this.source = source;
    /** Rows and columns. @type {Map<string, Float32Array>} */
    this.lines = new Map();
    /** Whole maps by head. @type {Map<string, Cells>} */
    this.cells = new Map();
    /** Small maps by layer. @type {Map<string, Thumbs>} */
    this.thumbs = new Map();
    /** An exact part of a map. @type {{head: string, cells: Cells} | null} */
    this.tile = null;
    /** A word's row in every head. @type {{at: number, by: boolean, thumbs: Thumbs} | null} */
    this.word = null;
    this.isAsking = false;
    this.size = SMALL;
  }

  /** Layers that have heads. */
  layers() {
    return this.data.host.about.layers.filter(({ heads }) => heads);
  }

  /**
   * Fetch the chosen heads' maps, then every small map.
   * @param {string[]} heads @param {number} dots  pixels along a small map
   */
  async load(heads, dots) {
    const { data } = this;
    for (const head of heads)
      data.ask(
        `cells ${head}`,
        () => this.source.cells(data.text, head, null, data.options(stackOf(head))),
        (shares) => this.cells.set(head, this.placed(head, shares, null)),
      );
    if (this.isAsking) return;
    this.isAsking = true;
    this.size = Math.min(SMALL, dots || SMALL);
    try {
      await this.loadSmallMaps();
    } catch (error) {
      this.isAsking = false;
      if (!data.isOver) data.failed(error);
    }
  }

  /** Fetch small maps layer by layer: the server computes one while the last one is drawn. */
  async loadSmallMaps() {
    const { data, source } = this;
    const layers = this.layers();
    const fetch = (/** @type {number} */ at) => {
      const name = layers[at]?.name;
      const answer = name && source.thumbs(data.text, name, this.size, data.options(stackOf(name)));
      if (answer) answer.catch(() => {}); // it fails again where it is awaited
      return answer;
    };
    let next = fetch(0),
      drawn = performance.now();
    for (let at = 0; next; at++) {
      const thumbs = await next;
      if (data.isOver) return;
      next = fetch(at + 1);
      this.thumbs.set(layers[at].name, thumbs);
      if (next && performance.now() - drawn < BETWEEN) continue;
      data.version++;
      data.changed();
      drawn = performance.now();
    }
  }

  /**
   * A part of a map with its place.
   * @param {string} head @param {Shares} shares
   * @param {{rows: number[], keys: number[]} | null} part  null: the whole map
   * @returns {Cells}
   */
  placed(head, { shape, values }, part) {
    const { data } = this;
    const whole = { rows: [0, data.rows(head).length], keys: [0, data.columns(head).length] };
    return { ...(part ?? whole), shape, values };
  }

  /** Whether everything that the picture shows has come. @param {string[]} heads */
  isReady(heads) {
    const isWhole = this.thumbs.size >= this.layers().length;
    return isWhole && heads.every((head) => this.cells.has(head));
  }

  /** A map if it is exact, not reduced. @param {string} head @returns {Cells | null} */
  exact(head) {
    const cells = this.cells.get(head);
    if (!cells) return null;
    const [rows, columns] = cells.shape;
    const isWhole = rows === this.data.rows(head).length;
    return isWhole && columns === this.data.columns(head).length ? cells : null;
  }

  /** Fetch an exact part of a map. @param {string} head
   * @param {{rows: number[], keys: number[]}} part */
  loadTile(head, part) {
    const { data } = this;
    const [rows, keys] = [part.rows[1] - part.rows[0], part.keys[1] - part.keys[0]];
    if (this.exact(head) || rows > TILE || keys > TILE) return;
    const key = `tile ${head} ${part.rows} ${part.keys}`;
    data.asked.delete(key);
    data.ask(
      key,
      () => this.source.cells(data.text, head, part, data.options(stackOf(head))),
      (shares) => (this.tile = { head, cells: this.placed(head, shares, part) }),
    );
  }

  /** @param {string} head @param {number} at @param {boolean} by @returns {Float32Array | null} */
  line(head, at, by) {
    const exact = this.exact(head);
    if (!exact) return this.lines.get(`${head} ${at} ${by}`) ?? null;
    const [rows, columns] = exact.shape;
    if (!by) return exact.values.subarray(at * columns, (at + 1) * columns);
    return Float32Array.from({ length: rows }, (_, row) => exact.values[row * columns + at]);
  }

  /** Fetch a row or column. @param {string} head @param {number} at @param {boolean} by */
  loadLine(head, at, by) {
    const { data } = this;
    if (at < 0 || data.line(head, at, by)) return;
    if (!this.cells.has(head) && data.rows(head).length <= TILE) return; // it comes whole
    const key = `${head} ${at} ${by}`;
    data.ask(
      `line ${key}`,
      () => this.source.row(data.text, head, at, by, data.options(stackOf(head))),
      (values) => this.lines.set(key, values),
    );
  }

  /** @param {string} head @returns {SmallMap | null} */
  smallMap(head) {
    const thumbs = this.thumbs.get(layerOf(head));
    if (!thumbs) return null;
    const [, rows, columns] = thumbs.shape;
    const size = rows * columns,
      start = numberOf(head) * size;
    return {
      key: `${this.data.text.name} ${size}`,
      bytes: thumbs.values.subarray(start, start + size),
      shape: [rows, columns],
      isResting: () => false,
      isShown: () => true,
    };
  }

  /** @param {string} head @param {number} at @param {boolean} by */
  bars(head, at, by) {
    if (this.word?.at !== at || this.word.by !== by) return null;
    const { shape, values } = this.word.thumbs;
    const place = this.headPlace(head) * shape[1];
    const shares = [...values.subarray(place, place + shape[1])].map((byte) => byte / 255);
    return { shares, isResting: () => false };
  }

  /** Place of a head among the heads of its stack. @param {string} head */
  headPlace(head) {
    let place = 0;
    for (const { name, heads } of this.layers()) {
      if (name === layerOf(head)) return place + numberOf(head);
      if (stackOf(name) === stackOf(head)) place += heads;
    }
    return place;
  }

  /** Fetch one word's row in every head. @param {number} at @param {string} head
   * @param {boolean} by */
  loadBars(at, head, by) {
    const { data } = this;
    if (at < 0 || (this.word?.at === at && this.word.by === by)) return;
    const key = `bars ${at} ${by}`;
    data.ask(
      key,
      () => this.source.bars(data.text, at, by, this.size, data.options(stackOf(head))),
      (thumbs) => {
        this.word = { at, by, thumbs };
        data.asked.delete(key);
      },
    );
  }
}
