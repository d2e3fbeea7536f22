// @ts-check
/** The grid of heads, one row per layer, with colours, sorting, filters and arrow keys. */

/** @import {RoleFacts} from "./types.js" */

import { coloured, format, ink, make, paint } from "./head_view.js";

export class Grid {
  /**
   * @param {HTMLElement} el
   * @param {{name: string, heads: number}[]} layers
   * @param {object} options
   * @param {(name: string) => void} options.press
   * @param {(name: string) => void} [options.point]
   * @param {boolean} [options.isNumbered]
   */
  constructor(el, layers, { press, point, isNumbered = false }) {
    this.el = el;
    this.isNumbered = isNumbered;
    /** @type {Map<string, HTMLButtonElement>} */
    this.squares = new Map();
    for (const layer of layers) {
      for (let head = 0; head < layer.heads; head++) {
        const name = `${layer.name}H${head}`;
        this.squares.set(
          name,
          make("button", {
            type: "button",
            class: "head",
            role: "gridcell",
            tabindex: -1,
            "data-head": name,
            "data-short": name.replace(".", "\n"),
            "aria-label": name,
            "aria-selected": "false",
            onclick: () => press(name),
            onpointerenter: () => point?.(name),
            onfocus: () => point?.(name),
          }),
        );
      }
    }
    this.layers = layers;
    this.rows = /** @type {string[][]} */ ([]);
    /** The arrangement that is drawn now, as JSON. */
    this.laid = "";
    new ResizeObserver(() => this.fit()).observe(el);
    addEventListener("resize", () => this.fit());
    el.addEventListener("keydown", (event) => this.key(event));
    this.arrange(null);
  }

  /** Sort by value or, if null, by layer. @param {Record<string, number | null> | null} values */
  arrange(values) {
    const names = [...this.squares.keys()];
    this.el.classList.toggle("sorted", Boolean(values)); // each square then shows its name
    if (values) {
      const sorted = names.sort(
        (left, right) => (values[right] ?? -Infinity) - (values[left] ?? -Infinity),
      );
      const wide = innerWidth < 600 ? 8 : 12; // leaves space for names
      this.rows = Array.from({ length: Math.ceil(sorted.length / wide) }, (_, at) =>
        sorted.slice(at * wide, (at + 1) * wide),
      );
    } else {
      let start = 0;
      this.rows = this.layers.map((layer) => names.slice(start, (start += layer.heads)));
    }
    const laid = JSON.stringify([Boolean(values), this.rows]);
    if (laid === this.laid) return; // moving squares would lose the focus
    this.laid = laid;
    const columns =
      this.isNumbered && !values ? Math.max(...this.rows.map((row) => row.length)) : 0;
    const numbers = make(
      "div",
      { role: "row" },
      make("span", { class: "layer", role: "columnheader" }, "head"),
      ...Array.from({ length: columns }, (_, at) =>
        make("span", { class: "column", role: "columnheader" }, String(at)),
      ),
    );
    this.el.replaceChildren(
      ...(columns ? [numbers] : []),
      ...this.rows.map((row, at) =>
        make(
          "div",
          { role: "row" },
          make(
            "span",
            { class: "layer", role: "rowheader" },
            values ? `${row.length ? this.rank(at) : ""}` : this.layers[at].name,
          ),
          ...row.map((name) => this.square(name)),
        ),
      ),
    );
    this.focusable(this.chosen || this.rows.flat()[0]);
    this.fit();
  }

  /** Make squares as large as fits, but always large enough to see and press. */
  fit() {
    const widest = Math.max(1, ...this.rows.map((row) => row.length));
    this.el.closest(".columns")?.classList.toggle("stacked", widest > 20);
    const unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16,
      room = this.el.clientWidth - 60 * unit;
    if (room > 0) {
      const largest = (widest > 20 ? 30 : 52) * unit;
      const size = Math.max(20, Math.min(largest, Math.floor(room / widest) - 3));
      this.el.style.setProperty("--cell", `${size}px`);
    }
    this.el.closest(".columns")?.classList.toggle("tall", this.el.offsetHeight > 0.8 * innerHeight);
  }

  /** @param {string} name */
  square(name) {
    return /** @type {HTMLButtonElement} */ (this.squares.get(name));
  }

  /** @param {number} at */
  rank(at) {
    return this.rows.slice(0, at).reduce((sum, row) => sum + row.length, 1);
  }

  /** @param {string | undefined} name */
  focusable(name) {
    for (const [each, square] of this.squares) square.tabIndex = each === name ? 0 : -1;
  }

  /** @param {string} name */
  choose(name) {
    this.chosen = name;
    for (const [each, square] of this.squares)
      square.setAttribute("aria-selected", String(each === name));
    if (this.squares.has(name)) this.focusable(name);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[
      event.key
    ];
    const name = /** @type {HTMLElement} */ (event.target).dataset?.head;
    if (!move || !name) return;
    event.preventDefault();
    const row = this.rows.findIndex((names) => names.includes(name)),
      column = this.rows[row].indexOf(name);
    const nextRow = this.rows[Math.max(0, Math.min(this.rows.length - 1, row + move[0]))];
    const next = nextRow[Math.max(0, Math.min(nextRow.length - 1, column + move[1]))];
    this.focusable(next);
    this.square(next).focus();
  }

  /**
   * Colour squares by a measure, from faint to strong.
   * @param {Record<string, number | null>} values @param {string} words
   */
  colour(values, words) {
    const known = Object.values(values).filter((value) => value != null);
    const low = Math.min(...known),
      high = Math.max(...known);
    for (const [name, square] of this.squares) {
      const value = values[name];
      square.replaceChildren();
      const share = value == null ? 0 : (value - low) / (high - low || 1);
      const colour = [...coloured([share], 1, 1, this.el).slice(0, 3)];
      square.style.background = value == null ? "" : `rgb(${colour.join(" ")})`;
      square.style.color = value == null ? "" : ink(colour);
      square.setAttribute("aria-label", value == null ? name : `${name}: ${format(value)}`);
      square.title = value == null ? name : `${name}: ${format(value)} (${words})`;
    }
    return known.length
      ? `${words}: from ${format(low)} (faint) to ${format(high)} (strong).`
      : `${words}: not measured on this text.`;
  }

  /**
   * Colour squares by role, with the first role's letter, and a plus if there are more than two.
   * @param {Record<string, string[]>} roles @param {Record<string, RoleFacts>} facts
   */
  roles(roles, facts) {
    for (const [name, square] of this.squares) {
      const own = roles[name] ?? [];
      square.replaceChildren(
        ...(own.length
          ? [
              make(
                "span",
                { class: "letter", "aria-hidden": "true" },
                `${facts[own[0]]?.letter ?? "?"}${own.length > 2 ? "+" : ""}`,
              ),
            ]
          : []),
      );
      square.style.color = own.length ? "#fff" : "";
      const part = 100 / (own.length || 1);
      square.style.background =
        own.length === 0
          ? ""
          : `linear-gradient(135deg, ${own
              .map((role, at) => `${facts[role]?.colour} ${at * part}% ${(at + 1) * part}%`)
              .join(", ")})`;
      square.setAttribute("aria-label", `${name}: ${own.join(", ") || "no role"}`);
      square.title = `${name}: ${own.join(", ") || "no role found"}`;
    }
  }

  /**
   * Draw thumbnail maps of one layer's heads.
   * @param {string} layer @param {{shape: number[], values: Uint8Array}} thumbs
   */
  maps(layer, { shape, values }) {
    const [heads, rows, columns] = shape,
      size = rows * columns;
    for (let head = 0; head < heads; head++) {
      const square = this.square(`${layer}H${head}`),
        canvas = make("canvas", { "aria-hidden": "true" });
      const map = values.subarray(head * size, (head + 1) * size);
      paint(canvas, map, [rows, columns], 255, 1, this.el);
      square.replaceChildren(canvas);
      square.style.background = square.style.color = "";
      square.title = `${layer}H${head}`;
      square.setAttribute("aria-label", `${layer}H${head}, map`);
    }
  }

  /** @param {(name: string) => boolean} isShown */
  filter(isShown) {
    for (const [name, square] of this.squares) square.classList.toggle("dim", !isShown(name));
  }

  /** Mark heads that are silenced or scaled. @param {Map<string, number>} factors */
  factors(factors) {
    for (const [name, square] of this.squares) {
      const factor = factors.get(name) ?? 1;
      if (!square.firstChild)
        square.append(
          make(
            "span",
            { class: "number", "aria-hidden": "true" },
            name.slice(name.lastIndexOf("H") + 1),
          ),
        );
      square.classList.toggle("off", factor === 0);
      square.classList.toggle("part", factor !== 0 && factor !== 1);
      const changed = factor === 0 ? "silenced" : `times ${factor}`;
      square.title = `${name}: ${factor === 1 ? "on" : changed}`;
      square.setAttribute("aria-label", square.title);
    }
  }
}
