// @ts-check
/** Keys of the view: E, S, V, the brackets and Esc. Words and cells have their own arrow keys. */

/** @import {View} from "./view.js" */

import { allHeads, chosenHeads, rolesOf } from "./frame.js";

const TYPED = "input, textarea, select, [contenteditable]";

/** @param {View} view @param {KeyboardEvent} event */
export function viewKey(view, event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!view.data || !view.el.offsetParent) return; // another panel is shown
  const target = /** @type {Element} */ (event.target);
  const isTyped = target.matches?.(TYPED) && !target.matches("input[type=checkbox]");
  if (isTyped) return;
  const act = keys(view)[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

/** @param {View} view @returns {Record<string, () => void>} */
function keys(view) {
  return {
    e: () => view.editing.start(),
    s: () => view.editing.swap(),
    v: () => view.parts.tools.toggleView(),
    "[": () => stepHead(view, -1),
    "]": () => stepHead(view, 1),
    Escape: () => escape(view),
  };
}

/**
 * Choose the head `by` places further on among those of the same lead role.
 * @param {View} view @param {number} by
 */
function stepHead(view, by) {
  const { about } = view.host;
  const roles = rolesOf(about);
  const [head] = chosenHeads(view.host);
  const lead = (/** @type {string} */ name) => roles?.[name]?.[0];
  const alike = allHeads(about).filter((name) => lead(name) === lead(head));
  view.choose(alike[(alike.indexOf(head) + by + alike.length) % alike.length]);
}

/** Leave what is innermost: a menu, a swap, or the locked word. @param {View} view */
function escape(view) {
  if (view.parts.tools.open) return view.parts.tools.shut();
  if (view.editing.isSwapping) {
    view.editing.stopSwap();
    return view.show();
  }
  const { locked } = view.frame();
  return locked === null ? undefined : view.lock(locked);
}
