// @ts-check
/** The page's state, kept in its address so that a view can be shared. All values are strings. */

/** @import {How} from "./stage/hash_state.js" */

import { State, USUAL } from "./stage/hash_state.js";

/** Longest text in an address. */
const LONGEST = 2000;
/** Milliseconds between a change and its address: Safari allows only 100 changes in 30 seconds. */
const REST = 300;
const KEY = /^[a-z][a-z_-]{0,29}$/;

/** Set while a change waits to be written. @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
/** The last known address; if it differs, the user typed another whose event is still to come. */
let known = location.hash;

/** State from the address; a text too long for it is kept in the history entry. */
function read() {
  const pairs = [...new URLSearchParams(location.hash.slice(1))].filter(([key]) => KEY.test(key));
  return { ...history.state, ...Object.fromEntries(pairs) };
}

/** Values in the address; replaced ones are written after a while. */
class PageState extends State {
  /** @override @param {Record<string, string>} values @param {How} [how] */
  set(values, how = "push") {
    if (how === "push") flush();
    super.set(values, how);
  }

  /** @override @param {How} how */
  write(how) {
    clearTimeout(timer);
    if (how === "push") write("pushState");
    else timer = setTimeout(flush, REST);
  }
}

const state = new PageState(read());

/** @param {string} key @returns {string} */
export const get = (key) => state.get(key);

/** Whether the address leaves the text out, because it is too long. */
export const isLong = () => get("text").length > LONGEST;

/**
 * Set values; by default they become a browser history entry.
 * @param {Record<string, string>} values @param {How} [how]
 */
export const set = (values, how) => state.set(values, how);

/**
 * Click handler for a link that only sets `values`; the browser opens new tabs as usual.
 * @param {Record<string, string>} values @returns {(event: MouseEvent) => void}
 */
export const follow = (values) => (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  set(values);
};

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
  const pairs = Object.entries(state.now).filter(
    ([key, value]) => value !== (USUAL[key] ?? "") && !(key === "text" && left),
  );
  try {
    history[how](left ? { text: state.now.text } : null, "", `#${new URLSearchParams(pairs)}`);
  } catch {
    /* the address stays unchanged */
  }
  known = location.hash;
}

/**
 * Call a listener with the keys of every change; returns a function that stops it.
 * @param {(changed: Set<string>) => void} listener
 */
export const listen = (listener) => state.on(listener);

addEventListener("pagehide", flush);
addEventListener("hashchange", () => {
  known = location.hash;
  if (document.getElementById(location.hash.slice(1)))
    write("replaceState"); // a link to an element of the page, not a view
  else state.change(read(), "replace");
});
