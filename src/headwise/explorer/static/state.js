// @ts-check
/** What the page shows, kept in its address, so that a view can be shared. */

/** @type {Record<string, string>} */
const USUAL = {
  panel: "heads", head: "", beside: "", colour: "maps", order: "layer", role: "",
  words: "0", special: "1", sink: "1", values: "0", off: "", step: "", text: "",
};
const LONGEST = 2000;

/** @type {Set<(changed: Set<string>) => void>} */
const listeners = new Set();
/** @type {Record<string, string>} */
let now = read();

function read() {
  const said = new URLSearchParams(location.hash.slice(1));
  return Object.fromEntries(Object.entries(USUAL).map(([name, usual]) => [name, said.get(name) ?? usual]));
}

/** @param {string} name @returns {string} */
export const get = (name) => now[name];

/** @param {Record<string, string>} values */
export function set(values) {
  const changed = new Set(Object.keys(values).filter((name) => now[name] !== values[name]));
  if (!changed.size) return;
  now = { ...now, ...values };
  write();
  for (const listener of listeners) listener(changed);
}

function write() {
  const said = Object.entries(now).filter(([name, value]) =>
    value !== USUAL[name] && (name !== "text" || value.length <= LONGEST));
  history.replaceState(null, "", `#${new URLSearchParams(said)}`);
}

/** @param {(changed: Set<string>) => void} listener */
export const listen = (listener) => listeners.add(listener);

addEventListener("hashchange", () => {
  const before = now;
  const said = new URLSearchParams(location.hash.slice(1));
  now = { ...before, ...Object.fromEntries([...said].filter(([name]) => name in USUAL)) };
  write();
  const changed = new Set(Object.keys(now).filter((name) => now[name] !== before[name]));
  for (const listener of listeners) listener(changed);
});
