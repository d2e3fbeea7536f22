// @ts-check
/** Attention of all heads of a text: who looks at whom, in steps of 1/65535. */

/** Largest stored number, which stands for a share of 1. */
export const STEPS = 65535;

/**
 * Numbers as the server sends them: 16 bits each, little-endian, whatever the machine's order.
 * @param {ArrayBuffer} bytes
 */
function steps(bytes) {
  const view = new DataView(bytes);
  const values = new Uint16Array(bytes.byteLength / 2);
  for (let at = 0; at < values.length; at++) values[at] = view.getUint16(2 * at, true);
  return values;
}

/** Shares as the server sends them. @param {ArrayBuffer} bytes */
export function shares(bytes) {
  const values = Float32Array.from(steps(bytes));
  for (let at = 0; at < values.length; at++) values[at] /= STEPS;
  return values;
}

export class Weights {
  /**
   * @param {string[]} names heads in the order of `values`
   * @param {number} rows
   * @param {number} columns
   * @param {Uint16Array} values heads, rows, columns
   */
  constructor(names, rows, columns, values) {
    if (values.length !== names.length * rows * columns) {
      const shape = `${names.length},${rows},${columns}`;
      throw new Error(`weights have ${values.length} values: shape ${shape} does not fit`);
    }
    this.names = names;
    this.rows = rows;
    this.columns = columns;
    this.values = values;
    /** @type {Map<string, number>} */
    this.places = new Map(names.map((name, place) => [name, place]));
    /** @type {Map<string, Float32Array>} */
    this.cached = new Map();
  }

  /**
   * Weights as the server sends them.
   * @param {string[]} names
   * @param {number} rows
   * @param {number} columns
   * @param {ArrayBuffer} bytes
   * @returns {Weights}
   */
  static fromBytes(names, rows, columns, bytes) {
    return new Weights(names, rows, columns, steps(bytes));
  }

  /** @param {string} head whether the head is here */
  has(head) {
    return this.places.has(head);
  }

  /**
   * Where a head's values begin.
   * @param {string} head
   * @returns {number}
   */
  start(head) {
    const place = this.places.get(head);
    if (place === undefined) throw new Error(`${head} is not among these weights`);
    return place * this.rows * this.columns;
  }

  /**
   * Share of its attention that word `at` gives to each column.
   * @param {string} head
   * @param {number} at
   * @returns {Float32Array}
   */
  row(head, at) {
    return this.#kept(`${head} ${at}`, this.columns, this.start(head) + at * this.columns, 1);
  }

  /**
   * Share of its attention that each row gives to column `at`.
   * @param {string} head
   * @param {number} at
   * @returns {Float32Array}
   */
  column(head, at) {
    return this.#kept(`${head} |${at}`, this.rows, this.start(head) + at, this.columns);
  }

  /**
   * Share of its attention that word `at` gives to `to`.
   * @param {string} head
   * @param {number} at
   * @param {number} to
   * @returns {number}
   */
  share(head, at, to) {
    return this.values[this.start(head) + at * this.columns + to] / STEPS;
  }

  /**
   * @param {string} key
   * @param {number} count
   * @param {number} first
   * @param {number} step
   */
  #kept(key, count, first, step) {
    let shares = this.cached.get(key);
    if (!shares) {
      shares = new Float32Array(count);
      for (let at = 0; at < count; at++) shares[at] = this.values[first + at * step] / STEPS;
      this.cached.set(key, shares);
    }
    return shares;
  }
}
