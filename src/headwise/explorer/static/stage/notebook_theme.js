// @ts-check
/** Whether the page around a widget is dark, whatever notebook it is. */

/** Attributes by which notebooks change their theme. */
const ATTRIBUTES = ["class", "style", "theme", "data-jp-theme-light", "data-theme"];
/** Colours darker than this are dark grounds, from 0 to 1. */
const DARK = 0.5;

/** Lightness of a computed colour, 0 to 1; null if it is see-through. @param {string} colour */
export function lightness(colour) {
  const parts = colour.match(/[\d.]+/g)?.map(Number) ?? [];
  const [red, green, blue, alpha = 1] = parts;
  if (parts.length < 3 || alpha < DARK) return null;
  const most = colour.startsWith("color(") ? 1 : 255;
  return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / most;
}

/**
 * The theme of the ground on which an element stands.
 * @param {Element} element @returns {"light" | "dark"}
 */
export function themeAround(element) {
  for (let at = above(element); at; at = above(at)) {
    const found = lightness(getComputedStyle(at).backgroundColor);
    if (found !== null) return found < DARK ? "dark" : "light";
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** The element around another one, out of a shadow tree too. @param {Element} element */
function above(element) {
  if (element.parentElement) return element.parentElement;
  const root = element.getRootNode();
  return root instanceof ShadowRoot ? root.host : null;
}

/**
 * Call `changed` when the theme of the page may have changed; returns a function that stops it.
 * @param {() => void} changed
 */
export function watchTheme(changed) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(changed);
  for (const element of [document.documentElement, document.body])
    observer.observe(element, { attributes: true, attributeFilter: ATTRIBUTES });
  dark.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    dark.removeEventListener("change", changed);
  };
}
