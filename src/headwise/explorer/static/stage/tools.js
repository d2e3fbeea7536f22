// @ts-check
/** The buttons beside the headline: change the sentence, swap a word, view, save; or a pair's. */

import { make } from "./dom.js";

/**
 * One switch of the View menu.
 * @typedef {object} Switch
 * @property {string} key @property {string} words @property {string} title
 * @property {string} usual  value by default @property {string} on  value that the switch turns on
 * @property {string} off  a few words for a saved picture whose switch differs
 */

/** @type {Switch[]} */
export const SWITCHES = [
  {
    key: "words",
    words: "Whole words",
    title: "Off: the pieces of words that the model reads.",
    usual: "1",
    on: "1",
    off: "",
  },
  {
    key: "special",
    words: "Special tokens",
    title: "Off: tokens such as [CLS] are not shown; the shares that they take stay missing.",
    usual: "1",
    on: "1",
    off: "special tokens not shown",
  },
  {
    key: "first",
    words: "First token",
    title: "Off: the first token is left out of every row, and the rest is rescaled to 100%.",
    usual: "1",
    on: "1",
    off: "without the first token",
  },
  {
    key: "by",
    words: "Looked at by",
    title: "On: arcs come from the words that look at the chosen word.",
    usual: "0",
    on: "1",
    off: "shares that the word is given",
  },
  {
    key: "values",
    words: "Weigh by values",
    title: "On: each weight is multiplied by the length of what its value adds to the output.",
    usual: "0",
    on: "1",
    off: "weighed by values",
  },
];

/**
 * @typedef {object} ToolsPicture
 * @property {(key: string) => string} get  values of the switches
 * @property {Record<string, string>} disabled  why a switch or tool cannot be used, by its key
 * @property {{words: [string, string], side: string} | null} pair
 * @property {boolean} isEditing
 */

/**
 * @typedef {object} ToolsActions
 * @property {(() => void) | null} edit @property {(() => void) | null} swap
 * @property {(key: string, value: string) => void} set
 * @property {Record<string, () => void>} save  what can be saved, by its words
 * @property {(side: string) => void} side @property {() => void} close
 */

export class Tools {
  /** @param {HTMLElement} el @param {ToolsActions} on */
  constructor(el, on) {
    this.on = on;
    this.el = el;
    el.classList.add("hv-tools");
    this.shown = "";
    /** The open menu and its button. @type {{menu: HTMLElement, button: HTMLElement} | null} */
    this.open = null;
    this.outside = (/** @type {Event} */ event) => {
      if (this.open && !event.composedPath().includes(el)) this.shut();
    };
    document.addEventListener("pointerdown", this.outside);
    el.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.open) return;
      event.stopPropagation();
      const { button } = this.open;
      this.shut();
      button.focus();
    });
  }

  destroy() {
    document.removeEventListener("pointerdown", this.outside);
  }

  /** @param {string} words @param {Record<string, string | boolean | null>} attributes
   * @param {() => void} act */
  button(words, attributes, act) {
    const button = make("button", { type: "button", class: "hv-button", ...attributes }, words);
    button.addEventListener("click", act);
    return button;
  }

  /** @param {ToolsPicture} picture */
  show(picture) {
    this.picture = picture;
    const key = JSON.stringify([picture.pair, picture.isEditing, picture.disabled]);
    if (key !== this.shown) this.build(picture);
    this.shown = key;
    const isOther = SWITCHES.some(({ key, usual }) => picture.get(key) !== usual);
    this.view?.classList.toggle("hv-differs", isOther);
    this.view?.setAttribute("aria-label", isOther ? "View, changed" : "View");
    for (const box of this.el.querySelectorAll("input"))
      box.checked = picture.get(box.name) === SWITCHES.find(({ key }) => key === box.name)?.on;
  }

  /** @param {ToolsPicture} picture */
  build({ pair, isEditing, disabled }) {
    const focused = this.el.querySelector(":focus")?.getAttribute("data-tool");
    const wasOpen = this.open?.button.dataset.tool;
    this.open = null;
    this.view = null;
    if (pair) this.el.replaceChildren(...this.pairTools(pair));
    else {
      const tool = (
        /** @type {string} */ name,
        /** @type {string} */ words,
        /** @type {(() => void) | null} */ act,
        /** @type {string} */ letter,
      ) => {
        const why = disabled[name];
        return this.button(
          words,
          {
            "data-tool": name,
            "aria-keyshortcuts": letter || null,
            title: why || (letter ? `Key ${letter}` : null),
            disabled: Boolean(why) || !act || isEditing,
          },
          () => act?.(),
        );
      };
      const { edit, swap } = this.on;
      this.el.replaceChildren(
        tool("edit", "Change sentence", edit, "E"),
        tool("swap", "Swap a word", swap, "S"),
        ...this.menu("view", "View", "V", this.switches(disabled)),
        ...this.menu("save", "Save", "", this.saves()),
      );
    }
    const again = wasOpen && this.el.querySelector(`[data-tool=${wasOpen}]`);
    if (again instanceof HTMLElement) this.openMenu(again);
    if (focused)
      /** @type {HTMLElement | null} */ (this.el.querySelector(`[data-tool=${focused}]`))?.focus();
  }

  /** @param {{words: [string, string], side: string}} pair */
  pairTools({ words, side }) {
    const choice = (/** @type {string} */ name, /** @type {string} */ label) =>
      this.button(label, { "aria-pressed": String(side === name), "data-tool": name }, () =>
        this.on.side(name),
      );
    return [
      choice("both", "Both"),
      choice("first", words[0]),
      choice("second", words[1]),
      this.button("Close", { "data-tool": "close" }, () => this.on.close()),
    ];
  }

  /**
   * @param {string} name @param {string} words @param {string} letter @param {HTMLElement} menu
   */
  menu(name, words, letter, menu) {
    menu.hidden = true;
    const button = this.button(
      words,
      {
        "aria-expanded": "false",
        "aria-haspopup": "true",
        "data-tool": name,
        "aria-keyshortcuts": letter || null,
        title: letter ? `Key ${letter}` : null,
      },
      () => (this.open?.menu === menu ? this.shut() : this.openMenu(button)),
    );
    if (name === "view") this.view = button;
    return [make("span", { class: "hv-holder" }, button, menu)];
  }

  /** Open the menu of a button. @param {HTMLElement} button */
  openMenu(button) {
    this.shut();
    const menu = /** @type {HTMLElement} */ (button.nextElementSibling);
    menu.hidden = false;
    button.setAttribute("aria-expanded", "true");
    this.open = { menu, button };
  }

  shut() {
    if (!this.open) return;
    this.open.menu.hidden = true;
    this.open.button.setAttribute("aria-expanded", "false");
    this.open = null;
  }

  /** @param {string} name */
  focus(name) {
    /** @type {HTMLElement | null} */ (this.el.querySelector(`[data-tool=${name}]`))?.focus();
  }

  /** Open or close the View menu with a key. */
  toggleView() {
    if (!this.view) return;
    if (this.open?.button === this.view) this.shut();
    else {
      this.openMenu(this.view);
      /** @type {HTMLElement | null} */ (this.open?.menu.querySelector("input"))?.focus();
    }
  }

  /** @param {Record<string, string>} disabled */
  switches(disabled) {
    const rows = SWITCHES.map(({ key, words, title, on }) => {
      const why = disabled[key];
      const box = make("input", {
        type: "checkbox",
        name: key,
        role: "switch",
        disabled: Boolean(why),
      });
      box.addEventListener("change", () => {
        const off = on === "1" ? "0" : "1";
        this.on.set(key, box.checked ? on : off);
      });
      return make(
        "label",
        { title: why || title, class: why ? "hv-disabled" : null },
        box,
        make("span", {}, make("span", {}, words), make("small", {}, why || title)),
      );
    });
    return make(
      "div",
      { class: "hv-menu hv-switches", role: "group", "aria-label": "View" },
      ...rows,
    );
  }

  saves() {
    const buttons = Object.entries(this.on.save).map(([words, act]) =>
      this.button(words, { class: "hv-menu-item" }, () => {
        this.shut();
        act();
      }),
    );
    return make("div", { class: "hv-menu", role: "group", "aria-label": "Save" }, ...buttons);
  }
}
