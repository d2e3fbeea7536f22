// @ts-check
/** The state of a view as strings: in the address of a saved page, or only in memory. */

/** Values by default, which addresses leave out; every other key is "" by default. */
export const USUAL = /** @type {Record<string, string>} */ ({
  panel: "heads",
  words: "1",
  special: "1",
  first: "1",
  by: "0",
  values: "0",
  side: "both",
});

/** @typedef {"push" | "replace"} How */

/** Values in memory, with listeners. */
export class State {
  /** @param {Record<string, string>} [start] values at the start */
  constructor(start = {}) {
    this.start = start;
    this.now = start;
    /** @type {Set<(changed: Set<string>) => void>} */
    this.listeners = new Set();
  }

  /** @param {string} key */
  get(key) {
    return this.valueIn(this.now, key);
  }

  /** @param {Record<string, string>} values @param {string} key */
  valueIn(values, key) {
    return values[key] ?? USUAL[key] ?? "";
  }

  /** @param {Record<string, string>} values @param {How} [how] */
  set(values, how = "push") {
    this.change({ ...this.now, ...values }, how);
  }

  /** @param {Record<string, string>} next @param {How | null} how  null: the address is known */
  change(next, how) {
    const before = this.now;
    const keys = [...Object.keys(before), ...Object.keys(next)];
    const changed = keys.filter((key) => this.valueIn(before, key) !== this.valueIn(next, key));
    if (!changed.length) return;
    this.now = next;
    if (how) this.write(how);
    this.emit(new Set(changed));
  }

  /** Keep the values for the next visit; a state in memory does not. @param {How} _how */
  write(_how) {}

  /** @param {Set<string>} changed */
  emit(changed) {
    for (const listener of this.listeners) listener(changed);
  }

  /** @param {(changed: Set<string>) => void} listener */
  on(listener) {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }
}

/** Values in the address; inside another page they add no history entries to it. */
export class HashState extends State {
  /** @param {Record<string, string>} start values that the address leaves out */
  constructor(start) {
    super(start);
    this.now = this.read();
    addEventListener("hashchange", () => this.change(this.read(), null));
  }

  read() {
    return { ...this.start, ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))) };
  }

  /** @override @param {How} how */
  write(how) {
    const usual = (/** @type {string} */ key) => this.start[key] ?? USUAL[key] ?? "";
    const pairs = Object.entries(this.now).filter(([key, value]) => value !== usual(key));
    const isInside = window.parent !== window;
    const method = how === "push" && !isInside ? "pushState" : "replaceState";
    try {
      history[method](null, "", `#${new URLSearchParams(pairs)}`);
    } catch {
      /* some pages may not change their address: the state is kept in memory */
    }
  }
}
