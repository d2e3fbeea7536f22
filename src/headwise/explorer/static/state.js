// @ts-check
/** The page's state, kept in its address so that a view can be shared. */

/** @type {Record<string, string>} */
const USUAL = {
  panel: "heads",
  head: "",
  beside: "",
  colour: "maps",
  order: "layer",
  role: "",
  words: "0",
  special: "1",
  sink: "1",
  values: "0",
  off: "",
  step: "",
  text: "",
};
const LONGEST = 2000;
/** Milliseconds between a change and its address: Safari allows only 100 changes in 30 seconds. */
const REST = 300;

/** @type {Set<(changed: Set<string>) => void>} */
const listeners = new Set();
/** @type {Record<string, string>} */
let now = read();
/** Set while a change waits to be written. @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
/** The last known address; if it differs, the user typed another whose event is still to come. */
let known = location.hash;

/** State from the address, with defaults; a text too long for it is kept in the history entry. */
function read() {
  const pairs = [...new URLSearchParams(location.hash.slice(1))].filter(([name]) => name in USUAL);
  return { ...USUAL, ...history.state, ...Object.fromEntries(pairs) };
}

/** @param {string} name @returns {string} */
export const get = (name) => now[name];

/** @param {Record<string, string>} values */
export const set = (values) => change({ ...now, ...values });

/** Set values and add a browser history entry. @param {Record<string, string>} values */
export function go(values) {
  flush();
  change({ ...now, ...values }, "pushState");
}

/**
 * Click handler for a link that only sets `values`; the browser opens new tabs as usual.
 * @param {Record<string, string>} values @returns {(event: MouseEvent) => void}
 */
export const follow = (values) => (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(values);
};

/**
 * Change the state and call listeners, even if the address is written later or not at all.
 * @param {Record<string, string>} next @param {"replaceState" | "pushState"} [how]
 */
function change(next, how = "replaceState") {
  const changed = new Set(Object.keys(next).filter((name) => now[name] !== next[name]));
  if (!changed.size) return;
  now = next;
  clearTimeout(timer);
  if (how === "pushState") write(how);
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
  const isLong = now.text.length > LONGEST;
  const pairs = Object.entries(now).filter(
    ([name, value]) => value !== USUAL[name] && !(name === "text" && isLong),
  );
  try {
    history[how](isLong ? { text: now.text } : null, "", `#${new URLSearchParams(pairs)}`);
  } catch {
    /* the address stays unchanged */
  }
  known = location.hash;
}

/** @param {(changed: Set<string>) => void} listener */
export const listen = (listener) => listeners.add(listener);

addEventListener("pagehide", flush);
addEventListener("hashchange", () => {
  known = location.hash;
  if (document.getElementById(location.hash.slice(1)))
    write("replaceState"); // a link to an element of the page, not a view
  else change(read());
});
