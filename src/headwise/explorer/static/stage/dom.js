// @ts-check
/**
 * Elements made by hand, and plain descriptions of SVG elements that can be drawn or printed.
 *
 * User text only ever becomes a text node or an attribute's value.
 */

/** @typedef {Record<string, string | number | boolean | null | undefined>} Attributes */

/**
 * A description of an SVG element. The stage draws it, the saved picture prints it.
 * @typedef {object} Shape
 * @property {string} tag
 * @property {Attributes} attributes
 * @property {(Shape | string)[]} children
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Set attributes: null, undefined and false leave one out, true sets an empty one.
 * @param {Element} element
 * @param {Attributes} attributes
 */
export function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) element.removeAttribute(name);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * An HTML element. Strings among the children become text nodes.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

/**
 * An SVG element. Strings among the children become text nodes.
 * @template {keyof SVGElementTagNameMap} T
 * @param {T} tag
 * @param {Attributes} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElementTagNameMap[T]}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

/**
 * The description of an SVG element.
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...(Shape | string)} children
 * @returns {Shape}
 */
export function shape(tag, attributes = {}, ...children) {
  return { tag, attributes, children };
}

/**
 * The element that a description describes.
 * @param {Shape | string} described
 * @returns {Node}
 */
export function toNode(described) {
  if (typeof described === "string") return document.createTextNode(described);
  const element = document.createElementNS(SVG, described.tag);
  setAttributes(element, described.attributes);
  for (const child of described.children) element.append(toNode(child));
  return element;
}

/**
 * Characters that XML 1.0 cannot hold become the replacement character; the rest is escaped.
 * @param {string} text
 */
function escapeXml(text) {
  return text
    .replace(/[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/gu, "\uFFFD")
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/"/g, "&quot;");
}

/**
 * The description as XML.
 * @param {Shape | string} described
 * @returns {string}
 */
export function toXml(described) {
  if (typeof described === "string") return escapeXml(described);
  const attributes = Object.entries(described.attributes)
    .filter(([, value]) => value !== null && value !== undefined && value !== false)
    .map(([name, value]) => ` ${name}="${escapeXml(value === true ? "" : String(value))}"`)
    .join("");
  const inside = described.children.map(toXml).join("");
  return `<${described.tag}${attributes}>${inside}</${described.tag}>`;
}
