// @ts-check
/** Whether the page around a widget is light or dark, whoever made that page. */

/** The element that contains another, also across the border of a shadow tree. @param {Element} el */
function parentOf(el) {
  const root = el.getRootNode();
  return el.parentElement ?? (root instanceof ShadowRoot ? root.host : null);
}

/** Red, green, blue of 0 to 255, and alpha. @param {string} colour as computed @returns {number[]} */
function channels(colour) {
  const numbers = (colour.match(/[\d.]+/g) ?? []).map(Number);
  const scale = colour.startsWith("color(") ? 255 : 1;
  return [...numbers.slice(0, 3).map((value) => value * scale), numbers[3] ?? 1];
}

/**
 * The theme of the first painted ground behind an element; without one, the reader's own.
 * @param {Element} el @returns {"light" | "dark"}
 */
export function groundTheme(el) {
  for (let at = parentOf(el); at; at = parentOf(at)) {
    const { backgroundColor, colorScheme } = getComputedStyle(at);
    if (/^(rgb|color\(srgb)/.test(backgroundColor)) {
      const [red, green, blue, alpha] = channels(backgroundColor);
      if (alpha > 0.5) return 0.3 * red + 0.6 * green + 0.1 * blue < 128 ? "dark" : "light";
    }
    if (at === document.documentElement && colorScheme === "dark") return "dark";
  }
  return "light";
}

/**
 * Call `changed` when the page's theme may have changed; returns a function that stops it.
 * @param {() => void} changed
 */
export function watchTheme(changed) {
  const observer = new MutationObserver(() => setTimeout(changed, 50));
  for (const el of [document.documentElement, document.body])
    observer.observe(el, { attributes: true });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    dark.removeEventListener("change", changed);
  };
}
