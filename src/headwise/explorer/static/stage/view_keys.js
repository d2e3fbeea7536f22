// @ts-check
/** Keys of the view: E, S, V, the brackets and Esc. Words and cells have arrow keys of their own. */

/** @import {View} from "./view.js" */

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
    "[": () => view.step(-1),
    "]": () => view.step(1),
    Escape: () => escape(view),
  };
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
