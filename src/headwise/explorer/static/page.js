// @ts-check
/** Shared by the panels: the page's elements by id, and the type of the page. */

/** @import {TextAnswer} from "./types.js" */
/** @import {Host} from "./stage/host.js" */

/**
 * @typedef {object} Page
 * @property {Host} host
 * @property {(text: string, isBad?: boolean) => void} say show a sentence in the status line
 * @property {(error: unknown) => Promise<void>} fail show an error; read a dropped text again
 * @property {(text: string) => Promise<TextAnswer>} read read a text and put it on the stage
 * @property {() => "light" | "dark"} theme
 * @property {TextAnswer | null} reading
 * @property {string} text
 * @property {string} sample
 * @property {boolean} isScanned whether roles are known from a scan
 */

/**
 * A panel other than Heads; it fills its own section of the page.
 * @typedef {object} Panel
 * @property {(changed: Set<string>) => void} show
 * @property {(answer: TextAnswer, text: string) => void} [read] a new text was read
 * @property {() => void} [light] the theme has changed
 */

/**
 * @template {HTMLElement} Kind
 * @param {string} id @param {new () => Kind} kind
 * @returns {Kind}
 */
export function byId(id, kind) {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`the page has no ${kind.name} ${id}`);
  return element;
}
