// @ts-check
/** Parts of the lesson's figures: bars, strips of numbers, matrices, toggles, numbers, tokens. */

import { make } from "./head_view.js";

/** @typedef {{choose: (position: number) => void}} Panel */

const ORDINALS = ["th", "st", "nd", "rd"];

/** Three significant digits, or a whole number. @param {number} value @returns {string} */
export function number(value) {
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e6) return value.toExponential(1).replaceAll("-", "\u2212");
  return signed(value, Math.max(0, Math.min(5, 2 - Math.floor(Math.log10(size)))));
}

/**
 * A number with `digits` decimals, and a minus sign as wide as a digit.
 * @param {number} value @param {number} [digits]
 */
export const signed = (value, digits = 2) =>
  value
    .toFixed(digits)
    .replace(/^-0\.?0*$/, (zero) => zero.slice(1))
    .replace("-", "\u2212");

/** A share with two decimals, or up to four if it is small. @param {number} value */
export const share = (value) =>
  value >= 0.01 || value === 0
    ? value.toFixed(2)
    : value >= 0.0005
      ? value.toFixed(3)
      : value.toFixed(4);

/** @param {number} count @param {string} noun */
export const counted = (count, noun) =>
  `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/**
 * A token for use in a sentence, numbered if it occurs several times in the text.
 * @param {string[]} tokens @param {number} at
 */
export function named(tokens, at) {
  const token = tokens[at],
    same = tokens.flatMap((other, where) => (other === token ? [where] : [])),
    turn = same.length > 1 ? ` (${ordinal(same.indexOf(at) + 1)})` : "";
  return `"\u2068${token.trim() || "\u00b7"}\u2069"${turn}`;
}

/** An ordinal number, such as 3rd. @param {number} count */
export const ordinal = (count) =>
  `${count}${count % 100 > 10 && count % 100 < 14 ? "th" : (ORDINALS[count % 10] ?? "th")}`;

/** A token as a label; it may be written from right to left. @param {string} token */
export const label = (token) =>
  make("bdi", { class: "lesson-token", title: token }, token.trim() || "\u00b7");

/**
 * @template {HTMLElement} Kind
 * @param {Kind} element @param {Record<string, string>} style
 * @returns {Kind}
 */
export function styled(element, style) {
  Object.assign(element.style, style);
  return element;
}

/** @param {number} part */
const percent = (part) => `${(100 * Math.max(0, Math.min(1, part || 0))).toFixed(2)}%`;

/** A bar that fills `part` of its width. @param {number} part @param {string} [kind] */
export const bar = (part, kind = "") =>
  make(
    "span",
    { class: `lesson-bar ${kind}`, "aria-hidden": "true" },
    styled(make("span"), { width: percent(part) }),
  );

/** Make a bar longer or shorter. @param {HTMLElement} drawn @param {number} part */
export const stretch = (drawn, part) =>
  styled(/** @type {HTMLElement} */ (drawn.firstElementChild), { width: percent(part) });

/**
 * A bar that extends to the right if the number is positive, and to the left if it is negative.
 * @param {number} value @param {number} top
 */
export function twoSided(value, top) {
  const part = 50 * Math.min(1, Math.abs(value) / (top || 1));
  return make(
    "span",
    { class: `lesson-bar two-sided ${value < 0 ? "below" : ""}`, "aria-hidden": "true" },
    styled(make("span"), {
      width: `${part.toFixed(2)}%`,
      marginLeft: `${(value < 0 ? 50 - part : 50).toFixed(2)}%`,
    }),
  );
}

/**
 * Buttons of which exactly one is pressed, at first the first one.
 * @param {string} words @param {string[]} labels @param {(at: number) => void} choose
 */
export function toggles(words, labels, choose) {
  const press = (/** @type {number} */ at) =>
    buttons.forEach((button, other) => button.setAttribute("aria-pressed", String(other === at)));
  const buttons = labels.map((text, at) =>
    make(
      "button",
      {
        type: "button",
        onclick: () => {
          press(at);
          choose(at);
        },
      },
      text,
    ),
  );
  press(0);
  return make("div", { class: "controls", role: "group", "aria-label": words }, ...buttons);
}

/** One row of weights as vertical bars. @param {number[]} weights @param {number} top */
export const standing = (weights, top) =>
  make(
    "svg",
    {
      class: "lesson-row-bars",
      viewBox: `0 0 ${weights.length} 1`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    },
    ...weights.map((weight, at) =>
      make("rect", {
        x: at + 0.12,
        width: 0.76,
        y: (1 - weight / top).toFixed(4),
        height: Math.max(0.012, weight / top).toFixed(4),
      }),
    ),
  );

/**
 * Numbers as small bars, up if positive and down if negative; pointing or arrow keys read single
 * numbers.
 * @param {string} name @param {string} about @param {number[]} values
 */
export function strip(name, about, values) {
  const top = Math.max(...values.map(Math.abs)) || 1,
    wide = values.length > 96 ? 1 : 0.84;
  const range = `from ${signed(Math.min(...values))} to ${signed(Math.max(...values))}`,
    usual = `${counted(values.length, "number")}, ${range}`;
  const rects = values.map((value, at) =>
    make("rect", {
      class: value < 0 ? "below" : "above",
      x: (at + (1 - wide) / 2).toFixed(2),
      width: wide,
      y: (value < 0 ? 20 : 20 - (19 * value) / top).toFixed(2),
      height: Math.max(0.3, (19 * Math.abs(value)) / top).toFixed(2),
    }),
  );
  const mark = make("rect", {
    class: "mark",
    y: 0,
    height: 40,
    width: 1,
    x: 0,
    visibility: "hidden",
  });
  const readout = make("span", { class: "lesson-read" }, usual);
  const drawn = make(
    "svg",
    { viewBox: `0 0 ${values.length} 40`, preserveAspectRatio: "none", "aria-hidden": "true" },
    mark,
    ...rects,
    make("line", { x1: 0, x2: values.length, y1: 20, y2: 20 }),
  );
  let now = 0;
  const el = make(
    "div",
    {
      class: "lesson-strip",
      role: "slider",
      tabindex: 0,
      "aria-label": `${name}, number by number`,
      "aria-valuemin": 1,
      "aria-valuemax": values.length,
      onpointermove: (/** @type {PointerEvent} */ event) => {
        const box = drawn.getBoundingClientRect();
        point(Math.floor(((event.clientX - box.left) / box.width) * values.length));
      },
      onpointerleave: () => {
        if (document.activeElement !== el) leave();
      },
      onfocus: () => point(now),
      onblur: () => leave(),
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        const to = {
          ArrowRight: now + 1,
          ArrowUp: now + 1,
          ArrowLeft: now - 1,
          ArrowDown: now - 1,
          Home: 0,
          End: values.length - 1,
          PageUp: now + 10,
          PageDown: now - 10,
        }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        point(to);
      },
    },
    drawn,
  );
  const tell = () => {
    el.setAttribute("aria-valuenow", String(now + 1));
    el.setAttribute("aria-valuetext", `number ${now + 1}: ${signed(values[now], 3)}`);
  };
  const leave = () => {
    mark.setAttribute("visibility", "hidden");
    readout.textContent = usual;
  };
  /** @param {number} at */
  const point = (at) => {
    now = Math.max(0, Math.min(values.length - 1, at));
    mark.setAttribute("x", String(now));
    mark.setAttribute("visibility", "visible");
    readout.textContent = `number ${now + 1}: ${signed(values[now], 3)}`;
    tell();
  };
  tell();
  return make(
    "div",
    { class: "lesson-vector" },
    make("p", {}, make("strong", {}, name), ` ${about}`),
    el,
    readout,
  );
}

/**
 * A small matrix with named rows; `how` selects column names, marked ranges and bars.
 * @param {string} title @param {string} formula @param {number[][]} rows @param {string[]} names
 * @param {{columns?: string[], marked?: number[], across?: number[], bars?: boolean}} [how]
 */
export function matrix(title, formula, rows, names, how = {}) {
  const marked = (/** @type {number[] | undefined} */ part, /** @type {number} */ at) =>
    part !== undefined && at >= part[0] && at < part[1];
  const head = how.columns
    ? [
        make(
          "tr",
          {},
          make("td"),
          ...how.columns.map((title) => make("th", { scope: "col" }, title)),
        ),
      ]
    : [];
  return make(
    "table",
    { class: "matrix lesson-matrix" },
    make("caption", {}, make("strong", {}, title), make("br"), formula),
    ...head,
    ...rows.map((row, at) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, names[at] ?? ""),
        ...row.map((value, column) =>
          make(
            "td",
            {
              class: marked(how.marked, column) || marked(how.across, at) ? "own" : "",
            },
            signed(value).replace(/\.00$/, ""),
            ...(how.bars ? [bar(value)] : []),
          ),
        ),
      ),
    ),
  );
}
