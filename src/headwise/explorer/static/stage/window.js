// @ts-check
/**
 * The window on a long text: three lines that scroll as text, with tabs at its edges.
 *
 * In: a layout and the tabs of its scene. Out: the part in sight, and which words are in it.
 */
import { make } from "./dom.js";
import { BAND, isBanded, isInSight, isUnder } from "./tabs.js";

/** @import {Box, Layout, View} from "./layout.js" */
/** @import {Tab} from "./tabs.js" */

/** Texts of more words than this are shown in a window. */
export const LONG = 60;
/** Lines, or words one below the other, in the window. */
const LINES = 3;
const WORDS = 10;
/** Room above the first line of the window, and for tabs below its last, with the gap of lines. */
const ROOM = { above: 46, below: 24 };
/** Room above the first of the words one below the other, and below the last: for tabs. */
const BANDS = { above: BAND + 8, both: 2 * BAND + 4 };

/** @param {number} units 1/16 rem */
const rem = (units) => `${units / 16}rem`;

/**
 * Height of the window on a text of `count` words; null if the text is shown whole.
 * @param {Layout} layout
 * @param {number} count
 * @returns {number | null}
 */
export function windowHeight(layout, count) {
  const isVertical = layout.shape === "vertical";
  const most = isVertical ? WORDS * layout.pitch + BANDS.both : LINES * layout.pitch + ROOM.below;
  return count > LONG && layout.shape !== "line" && layout.height > most ? most : null;
}

/**
 * Top of a window in whose middle a word stands.
 * @param {Box} box
 * @param {Layout} layout
 * @returns {number}
 */
export function windowTop(box, layout) {
  const isVertical = layout.shape === "vertical";
  const before = isVertical ? (WORDS / 2) * layout.pitch : layout.pitch + ROOM.above;
  return Math.max(0, box.y - before);
}

export class TextWindow {
  /**
   * @param {HTMLElement} place scrolls
   * @param {HTMLElement} content as high as the whole text
   * @param {(word: number) => void} go
   */
  constructor(place, content, go) {
    this.place = place;
    this.content = content;
    this.tabs = make("div", { class: "hw-tabs" });
    this.stops = make("div", { class: "hw-stops" });
    this.content.append(this.tabs, this.stops);
    const [above, below] = ["above", "below"].map((side) =>
      make("p", { class: `hw-more hw-more-${side}`, hidden: true }),
    );
    this.more = { above, below };
    this.place.prepend(above);
    this.place.append(below);
    /** @type {number[]} Tops of lines. */
    this.lines = [];
    this.isOpen = false;
    this.unit = "line";
    this.height = 0;
    this.tabs.addEventListener("click", (event) => {
      const tab = event.target instanceof Element ? event.target.closest("button") : null;
      if (tab) go(Number(tab.dataset.word));
    });
  }

  /**
   * Open a window if the text is long, and none otherwise.
   * @param {Layout} layout
   * @param {number} count number of words
   */
  fit(layout, count) {
    const height = windowHeight(layout, count);
    this.isOpen = height !== null;
    this.height = height ?? layout.height;
    this.place.classList.toggle("hw-window", this.isOpen);
    this.place.style.height = rem(this.height);
    Object.assign(this.content.style, { width: rem(layout.width), height: rem(layout.height) });
    const above = layout.shape === "vertical" ? BANDS.above : ROOM.above;
    const tops = layout.decks.flatMap(({ rows }) => rows.flatMap((box) => (box ? [box.y] : [])));
    this.lines = this.isOpen ? [...new Set(tops)] : [];
    this.unit = layout.shape === "vertical" ? "word" : "line";
    const stops = this.lines.map((y) => {
      const stop = make("i", {});
      stop.style.top = rem(Math.max(0, y - above));
      return stop;
    });
    this.stops.replaceChildren(...stops);
    const last = this.lines.at(this.unit === "line" ? -LINES : -WORDS) ?? 0;
    const room = this.isOpen ? last - above + this.height - layout.height : 0;
    this.content.style.marginBottom = rem(Math.max(0, room));
    if (this.isOpen) return;
    this.place.scrollTop = 0;
    this.tabs.replaceChildren();
    this.more.above.hidden = this.more.below.hidden = true;
  }

  /**
   * The part in sight; null if there is no window.
   * @param {number} unit CSS pixels per unit
   * @returns {View | null}
   */
  view(unit) {
    if (!this.isOpen) return null;
    const top = this.place.scrollTop / unit;
    const bottom = top + this.height;
    if (this.unit === "line") return { top, bottom };
    const foot = { bottom: bottom - BAND, foot: bottom };
    return top ? { top: top + BAND, edge: top, ...foot } : { top, ...foot };
  }

  /**
   * Scroll until the word is in sight, in the middle.
   * @param {Box | null | undefined} box
   * @param {Layout} layout
   * @param {number} unit
   */
  reveal(box, layout, unit) {
    const view = this.view(unit);
    if (!view || !box || isInSight(box, view)) return;
    this.place.scrollTop = windowTop(box, layout) * unit;
  }

  /** Say how many lines are out of sight. @param {View} view */
  #count(view) {
    const counts = {
      above: this.lines.filter((y) => isUnder(y, view)).length,
      below: this.lines.filter((y) => y > view.bottom - 6 || (isBanded(y, view) && y > view.top))
        .length,
    };
    for (const side of /** @type {("above" | "below")[]} */ (["above", "below"])) {
      const count = counts[side];
      const text = `${count} more ${this.unit}${count === 1 ? "" : "s"}`;
      this.more[side].hidden = !count;
      if (this.more[side].textContent !== text) this.more[side].textContent = text;
    }
  }

  /** @param {Tab[]} tabs @param {View | null} view */
  show(tabs, view) {
    if (view) this.#count(view);
    this.tabs.replaceChildren(
      ...tabs.map(({ at, word, rest, colour, isAbove, rect }) => {
        const where = isAbove ? "hw-tab-above" : "hw-tab-below";
        const attributes = { type: "button", class: `hw-tab ${where}`, "data-word": at };
        const tab = make("button", attributes, make("i", {}, word), rest);
        tab.style.setProperty("--hw-colour", colour);
        const { x, y, w } = rect;
        Object.assign(tab.style, { left: rem(x), top: rem(y), width: rem(w) });
        return tab;
      }),
    );
  }

  /**
   * First and last word in sight.
   * @param {Layout} layout
   * @param {number} unit
   * @returns {[number, number] | null}
   */
  inSight(layout, unit) {
    const view = this.view(unit);
    if (!view) return null;
    const seen = layout.decks[0].rows.flatMap((box) =>
      box && isInSight(box, view) ? [box.at] : [],
    );
    return seen.length ? [seen[0], seen[seen.length - 1]] : null;
  }
}
