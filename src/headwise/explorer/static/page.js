// @ts-check
/** Shared by the panels: the page's elements by id, and the type of the page. */

/** @import {TextAnswer} from "./types.js" */

/**
 * @typedef {object} Page
 * @property {(text: string, isBad?: boolean) => void} say show a sentence in the status line
 * @property {(error: unknown) => Promise<void>} fail show an error; read a dropped text again
 * @property {TextAnswer | null} reading
 * @property {string} text
 * @property {string} sample
 * @property {boolean} isScanned whether a scan has found roles
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
