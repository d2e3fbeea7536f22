// @ts-check
/** The page's state, kept in its address so that a view can be shared. All values are strings. */

/** Values by default; they are left out of the address, and every other key is "" by default. */
const USUAL = /** @type {Record<string, string>} */ ({
  panel: "heads",
  words: "1",
  special: "1",
  first: "1",
  by: "0",
  values: "0",
  side: "both",
});
/** Longest text in an address. */
const LONGEST = 2000;
/** Milliseconds between a change and its address: Safari allows only 100 changes in 30 seconds. */
const REST = 300;
const KEY = /^[a-z][a-z_-]{0,29}$/;

/** @type {Set<(changed: Set<string>) => void>} */
const listeners = new Set();
/** @type {Record<string, string>} */
let now = read();
/** Set while a change waits to be written. @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
/** The last known address; if it differs, the user typed another whose event is still to come. */
let known = location.hash;

/** State from the address; a text too long for it is kept in the history entry. */
function read() {
  const pairs = [...new URLSearchParams(location.hash.slice(1))].filter(([key]) => KEY.test(key));
  return { ...history.state, ...Object.fromEntries(pairs) };
}

/** @param {string} key @returns {string} */
export const get = (key) => now[key] ?? USUAL[key] ?? "";

/** Whether the address leaves the text out, because it is too long. */
export const isLong = () => get("text").length > LONGEST;

/**
 * Set values; by default they become a browser history entry.
 * @param {Record<string, string>} values @param {"push" | "replace"} [how]
 */
export function set(values, how = "push") {
  if (how === "push") flush();
  change({ ...now, ...values }, how);
}

/**
 * Click handler for a link that only sets `values`; the browser opens new tabs as usual.
 * @param {Record<string, string>} values @returns {(event: MouseEvent) => void}
 */
export const follow = (values) => (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  set(values);
};

/**
 * Change the state and call listeners, even if the address is written later or not at all.
 * @param {Record<string, string>} next @param {"push" | "replace"} how
 */
function change(next, how) {
  const before = now;
  const value = (/** @type {Record<string, string>} */ all, /** @type {string} */ key) =>
    all[key] ?? USUAL[key] ?? "";
  const keys = [...Object.keys(before), ...Object.keys(next)];
  const changed = new Set(keys.filter((key) => value(before, key) !== value(next, key)));
  if (!changed.size) return;
  now = next;
  clearTimeout(timer);
  if (how === "push") write("pushState");
  else timer = setTimeout(flush, REST);
  for (const listener of listeners) listener(changed);
}

/** Write a waiting change now, unless the user has typed another address meanwhile. */
function flush() {
  if (timer === undefined) return;
  clearTimeout(timer);
  timer = undefined;
  if (location.hash === known) write("replaceState");
}

/** @param {"replaceState" | "pushState"} how */
function write(how) {
  timer = undefined;
  const left = isLong();
  const pairs = Object.entries(now).filter(
    ([key, value]) => value !== (USUAL[key] ?? "") && !(key === "text" && left),
  );
  try {
    history[how](left ? { text: now.text } : null, "", `#${new URLSearchParams(pairs)}`);
  } catch {
    /* the address stays unchanged */
  }
  known = location.hash;
}

/**
 * Call a listener with the keys of every change; returns a function that stops it.
 * @param {(changed: Set<string>) => void} listener
 */
export function listen(listener) {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

addEventListener("pagehide", flush);
addEventListener("hashchange", () => {
  known = location.hash;
  if (document.getElementById(location.hash.slice(1)))
    write("replaceState"); // a link to an element of the page, not a view
  else change(read(), "replace");
});
