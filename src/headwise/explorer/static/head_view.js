// @ts-check
/**
 * The head view: one head's map and the sentence with its arcs, drawn from the values of a model.
 *
 * The explorer and the notebook both use it. It imports nothing and sends no requests: it draws the
 * values of a model, an object with get, set, on, off and save_changes. They are
 *   head     name of the head
 *   row_labels, key_labels  labels of the tokens that attend, and of those attended to
 *   cells    {rows: [a, b], keys: [a, b], shape: [n, m], values, largest, tile}: a part of the map;
 *            a part of at most `tile` rows and columns is exact, a larger one is reduced
 *   links    [row, key, weight] of the strongest links
 *   window   {rows: [a, b], keys: [a, b]}: the part to show; set by this view
 *   token    the token whose row is shown in the sentence, or -1; set by this view
 * and in a notebook, which has no grid of its own,
 *   names    every head, to choose from
 *   shades   a number from 0 to 1 for each head
 *   words    a description of each head
 *   facts    lines of text about the chosen head
 * Tokens come from users, so they are only ever inserted as text, never as HTML.
 */

/** @typedef {{rows: number[], keys: number[]}} Part */
/**
 * @typedef {object} Cells
 * @property {number[]} rows
 * @property {number[]} keys
 * @property {number[]} shape
 * @property {ArrayLike<number> | DataView} values
 * @property {number} largest
 * @property {number} tile
 */
/** Row, key and weight. @typedef {number[]} Link */
/**
 * @typedef {object} Values
 * @property {string} head
 * @property {string[]} row_labels
 * @property {string[]} key_labels
 * @property {Cells | null} cells
 * @property {Link[]} links
 * @property {Part | null} window
 * @property {number} token
 * @property {string[]} [names]
 * @property {number[]} [shades]
 * @property {string[]} [words]
 * @property {string[]} [facts]
 */
/**
 * @typedef {object} Model
 * @property {<Name extends keyof Values>(name: Name) => Values[Name]} get
 * @property {<Name extends keyof Values>(name: Name, value: Values[Name]) => void} set
 * @property {(event: string, listener: () => void) => void} on
 * @property {(event: string, listener: () => void) => void} off
 * @property {() => void} save_changes
 */
/** @typedef {keyof HTMLElementTagNameMap | keyof SVGElementTagNameMap} TagName */
/**
 * @template {TagName} Name
 * @typedef {Name extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[Name]
 *   : Name extends keyof SVGElementTagNameMap ? SVGElementTagNameMap[Name] : never} ElementOf
 */

const STEPS = 65535;
/** Font size in pixels above which the map grows with the text. */
const USUAL = 15;
const LABELS = /** @type {const} */ ({ rows: "row_labels", keys: "key_labels" });
const SVG_TAGS = ["svg", "path", "rect", "text", "line", "circle", "title", "g"];

/**
 * @template {TagName} Name
 * @param {Name} name
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Node | string)} children
 * @returns {ElementOf<Name>}
 */
export function make(name, attributes = {}, ...children) {
  const element = SVG_TAGS.includes(name)
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function")
      element.addEventListener(key.slice(2), /** @type {EventListener} */ (value));
    else if (value !== false && value != null)
      element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children);
  return /** @type {ElementOf<Name>} */ (element);
}

/** @param {string} name @param {Element} [near] @returns {number[]} */
function rgb(name, near = document.documentElement) {
  const text =
    getComputedStyle(near).getPropertyValue(name).trim() ||
    (name === "--hot" ? "#08306b" : "#f5f8fc");
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

/**
 * Black or white, whichever has more contrast on a colour: both have the same at a luminance of
 * 0.179.
 * @param {number[]} colour
 */
export function ink(colour) {
  const [red, green, blue] = colour.map((part) =>
    part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

/**
 * Numbers from 0 to `top` as colours from cold to hot; a `power` below 1 lifts small numbers.
 * @param {ArrayLike<number>} values @param {number} top @param {number} power
 * @param {Element} [near]
 */
export function coloured(values, top, power, near) {
  const cold = rgb("--cold", near),
    hot = rgb("--hot", near);
  const pixels = new Uint8ClampedArray(values.length * 4);
  for (let at = 0; at < values.length; at++) {
    const share = Math.min(1, values[at] / top) ** power;
    for (let part = 0; part < 3; part++)
      pixels[at * 4 + part] = cold[part] + (hot[part] - cold[part]) * share;
    pixels[at * 4 + 3] = 255;
  }
  return pixels;
}

/**
 * Paint one pixel per number, in the colours of the element `near`.
 * @param {HTMLCanvasElement} canvas @param {ArrayLike<number>} values @param {number[]} shape
 * @param {number} top @param {number} power @param {Element} [near]
 */
export function paint(canvas, values, shape, top, power, near) {
  canvas.width = shape[1];
  canvas.height = shape[0];
  if (!shape[0] || !shape[1]) return;
  canvas
    .getContext("2d")
    ?.putImageData(new ImageData(coloured(values, top, power, near), shape[1], shape[0]), 0, 0);
}

/**
 * A number with three decimals up to 1, two up to 1000 and none beyond; tiny ones as a power of
 * ten.
 * @param {number} value
 */
export function format(value) {
  const size = Math.abs(value);
  if (size > 0 && size < 0.0005) return value.toExponential(1);
  return value.toFixed(size < 1.0005 ? 3 : size < 1000 ? 2 : 0);
}

/** One head's map on a canvas: hover, keyboard, zoom and pan. */
class HeadMap {
  /** @param {Model} model @param {HTMLElement} el */
  constructor(model, el) {
    this.model = model;
    this.canvas = make("canvas", { tabindex: 0, role: "img" });
    this.readout = make("div", { class: "readout", "aria-live": "polite" });
    this.box = make("div", { class: "map" }, this.canvas);
    this.scale = make("div", { class: "legend" });
    const zoom = (/** @type {number} */ factor) => () => this.zoom(factor);
    this.tools = make(
      "div",
      { class: "controls" },
      make("button", { type: "button", onclick: zoom(0.5), "aria-label": "Zoom in" }, "+"),
      make("button", { type: "button", onclick: zoom(2), "aria-label": "Zoom out" }, "\u2212"),
      make("button", { type: "button", onclick: zoom(Infinity) }, "Whole map"),
    );
    el.append(this.box, this.scale, this.readout, this.tools);
    this.at = /** @type {number[] | null} */ (null);
    /** The row and key to point at once the next cells arrive. */
    this.next = /** @type {number[] | null} */ (null);
    this.canvas.addEventListener("pointermove", (event) => this.moved(event));
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener("pointerdown", (event) => this.pressed(event));
    this.canvas.addEventListener("pointerup", (event) => this.released(event));
    this.canvas.addEventListener("pointercancel", () => {
      this.drag = null;
    }); // a finger began to scroll the page
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    /** The point where a drag began, and the part that was shown then. */
    this.drag = /** @type {(Part & {x: number, y: number}) | null} */ (null);
    this.frame = { left: 0, top: 0, size: 0, unit: 1 };
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.box);
  }

  get cells() {
    return /** @type {Cells} */ (this.model.get("cells"));
  }

  /** After the cells changed: point at the cell that the arrow keys moved to, if any. */
  renew() {
    const at = this.next?.map((index, side) => index - this.cells[side ? "keys" : "rows"][0]);
    this.next = null;
    const isInside = at?.every((index, side) => index >= 0 && index < this.cells.shape[side]);
    this.point(at && isInside ? at : null);
  }

  draw() {
    const cells = this.cells;
    // Without a text, a head table has no maps.
    this.box.hidden = this.scale.hidden = this.tools.hidden = !cells?.shape;
    const width = this.box.clientWidth;
    if (!cells?.shape || !width) return;
    const [rows, columns] = cells.shape;
    const exact = cells.rows[1] - cells.rows[0] === rows;
    const near = getComputedStyle(this.canvas),
      unit = Math.max(1, parseFloat(near.fontSize) / USUAL);
    const room = (/** @type {string[]} */ labels) =>
      unit * Math.min(110, 8 + 6.6 * Math.max(0, ...labels.map((label) => label.length)));
    const labels = { rows: this.labels("rows"), keys: this.labels("keys") };
    let left = room(labels.rows),
      top = room(labels.keys);
    let size = Math.min(26 * unit, (width - left - 2) / Math.max(1, columns));
    if (!exact || size < 8) {
      left = top = 2;
      size = (width - 4) / Math.max(1, columns);
    }
    const ratio = devicePixelRatio || 1;
    const height = top + size * rows + 2;
    this.frame = { left, top, size, unit };
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.height = `${height}px`;
    const pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    const small = document.createElement("canvas");
    pen.scale(ratio, ratio);
    paint(small, this.values, cells.shape, STEPS, 0.6, this.canvas);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, left, top, size * columns, size * rows);
    pen.strokeStyle = near.getPropertyValue("--line") || "#c9d1dc";
    pen.strokeRect(left, top, size * columns, size * rows);
    if (left > 2) this.write(pen, labels, near.color);
    if (this.at) {
      pen.strokeStyle = near.getPropertyValue("--warm") || "#a34400";
      pen.lineWidth = 2;
      pen.strokeRect(
        left + this.at[1] * size,
        top + this.at[0] * size,
        Math.max(size, 3),
        Math.max(size, 3),
      );
    }
    const numRows = this.model.get("row_labels").length;
    const numKeys = this.model.get("key_labels").length;
    const strong = Number(format(cells.largest ?? 1));
    this.tools.hidden = numRows <= 24;
    this.scale.textContent = `Rows look at columns: faint is 0, strong ${strong}.`;
    const isPart =
      cells.rows[1] - cells.rows[0] < numRows || cells.keys[1] - cells.keys[0] < numKeys;
    this.box.classList.toggle("zoomed", isPart);
    this.canvas.setAttribute(
      "aria-label",
      `Attention map of head ${this.model.get("head")}: ${rows} by ${columns} cells, ` +
        "rows look at columns; arrow keys read single weights",
    );
  }

  /** The cells as two-byte numbers; a notebook sends them as a DataView. */
  get values() {
    const { values } = this.cells;
    return values instanceof DataView
      ? new Uint16Array(
          values.buffer.slice(values.byteOffset, values.byteOffset + values.byteLength),
        )
      : values;
  }

  /**
   * @param {CanvasRenderingContext2D} pen @param {{rows: string[], keys: string[]}} labels
   * @param {string} colour
   */
  write(pen, labels, colour) {
    const { left, top, size, unit } = this.frame;
    const cut = (/** @type {string} */ label) =>
      label.length > 15 ? `${label.slice(0, 14)}\u2026` : label;
    pen.fillStyle = colour;
    pen.font = `${Math.min(12 * unit, size + 1)}px system-ui, sans-serif`;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    labels.rows.forEach((label, at) => pen.fillText(cut(label), left - 4, top + (at + 0.5) * size));
    pen.textAlign = "left";
    labels.keys.forEach((label, at) => {
      pen.save();
      pen.translate(left + (at + 0.5) * size, top - 4);
      pen.rotate(-Math.PI / 2);
      pen.fillText(cut(label), 0, 0);
      pen.restore();
    });
  }

  /** @param {"rows" | "keys"} side @returns {string[]} */
  labels(side) {
    const [start, stop] = this.cells[side];
    return this.model.get(LABELS[side]).slice(start, stop);
  }

  /** @param {PointerEvent} event */
  cellAt(event) {
    const box = this.canvas.getBoundingClientRect(),
      frame = this.frame;
    if (!frame.size) return null;
    const row = Math.floor((event.clientY - box.top - frame.top) / frame.size);
    const column = Math.floor((event.clientX - box.left - frame.left) / frame.size);
    const [rows, columns] = this.cells.shape;
    return row >= 0 && column >= 0 && row < rows && column < columns ? [row, column] : null;
  }

  /** @param {PointerEvent} event */
  moved(event) {
    if (this.drag && event.buttons) {
      const { size } = this.frame,
        shift = (/** @type {number} */ pixels) => Math.round((-pixels / size) * this.step("rows"));
      const rows = shift(event.clientY - this.drag.y),
        keys = shift(event.clientX - this.drag.x);
      if (rows || keys) {
        this.look(
          this.drag.rows.map((row) => row + rows),
          this.drag.keys.map((key) => key + keys),
        );
      }
      return;
    }
    this.point(this.cellAt(event));
  }

  /** @param {PointerEvent} event */
  pressed(event) {
    this.drag = {
      x: event.clientX,
      y: event.clientY,
      rows: this.cells.rows,
      keys: this.cells.keys,
    };
  }

  /** A press that did not drag chooses the row's token. @param {PointerEvent} event */
  released(event) {
    const isPress =
        this.drag && Math.hypot(event.clientX - this.drag.x, event.clientY - this.drag.y) < 5,
      at = this.cellAt(event);
    this.drag = null;
    if (isPress && at)
      (this.model.set("token", this.place("rows", at[0])[0]), this.model.save_changes());
  }

  /** Number of tokens per cell. @param {"rows" | "keys"} side */
  step(side) {
    const [start, stop] = this.cells[side];
    return Math.max(
      1,
      Math.ceil((stop - start) / Math.max(1, this.cells.shape[side === "rows" ? 0 : 1])),
    );
  }

  /** @param {"rows" | "keys"} side @param {number} at @returns {number[]} */
  place(side, at) {
    const step = this.step(side),
      [start, stop] = this.cells[side];
    return [start + at * step, Math.min(stop, start + (at + 1) * step)];
  }

  /** @param {number[] | null} at */
  point(at) {
    this.at = at;
    if (at) {
      const value = (this.values[at[0] * this.cells.shape[1] + at[1]] / STEPS) * this.cells.largest;
      const name = (/** @type {"rows" | "keys"} */ side, /** @type {number} */ index) => {
        const [start, stop] = this.place(side, index);
        const label = this.model.get(LABELS[side])[start] ?? "";
        return stop - start > 1 ? `${label} (${start}\u2013${stop - 1})` : `${label} (${start})`;
      };
      const [row, key] = [name("rows", at[0]), name("keys", at[1])];
      this.readout.textContent = `${row} \u2192 ${key}: ${format(value)}`;
    } else {
      this.readout.textContent = "";
    }
    this.draw();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[
      event.key
    ];
    if (!move || !this.cells) return;
    event.preventDefault();
    const { shape } = this.cells,
      to = (this.at ?? [0, 0]).map((index, side) => index + move[side]);
    const isOutside = to.some((index, side) => index < 0 || index >= shape[side]);
    if (isOutside && this.shift(to, move)) return;
    this.point(to.map((index, side) => Math.max(0, Math.min(shape[side] - 1, index))));
  }

  /**
   * Move past the edge by a quarter of the visible part; return whether it moved.
   * @param {number[]} to @param {number[]} move
   */
  shift(to, move) {
    const { rows, keys, shape } = this.cells,
      by = move.map((direction, side) => direction * Math.ceil(shape[side] / 4));
    const isMoved = this.look(
      rows.map((row) => row + by[0]),
      keys.map((key) => key + by[1]),
    );
    if (isMoved) this.next = [rows[0] + to[0], keys[0] + to[1]];
    return isMoved;
  }

  /** @param {number} factor */
  zoom(factor) {
    const cells = this.cells,
      most = {
        rows: this.model.get("row_labels").length,
        keys: this.model.get("key_labels").length,
      };
    const next = (/** @type {"rows" | "keys"} */ side) => {
      const [start, stop] = cells[side];
      let size = Math.round((stop - start) * factor);
      if (factor < 1 && size > cells.tile) size = cells.tile;
      if (factor > 1 && size > cells.tile) return [0, most[side]];
      size = Math.max(8, Math.min(most[side], size));
      const middle =
        this.model.get("token") >= 0 && factor < 1 ? this.model.get("token") : (start + stop) / 2;
      return [Math.round(middle - size / 2), Math.round(middle - size / 2) + size];
    };
    this.look(next("rows"), next("keys"));
  }

  /** Show a part; return whether it is a new one. @param {number[]} rows @param {number[]} keys */
  look(rows, keys) {
    const within = (/** @type {number[]} */ [start, stop], /** @type {number} */ most) => {
      const size = Math.min(most, stop - start),
        low = Math.max(0, Math.min(most - size, start));
      return [low, low + size];
    };
    const next = {
      rows: within(rows, this.model.get("row_labels").length),
      keys: within(keys, this.model.get("key_labels").length),
    };
    if (String([next.rows, next.keys]) === String([this.cells.rows, this.cells.keys])) return false;
    this.next = null;
    this.model.set("window", next);
    this.model.save_changes();
    return true;
  }

  end() {
    this.watcher.disconnect();
  }
}

/** The sentence, with arcs from the chosen token to the tokens it attends to. */
class Sentence {
  /** @param {Model} model @param {HTMLElement} el */
  constructor(model, el) {
    this.model = model;
    this.arcs = make("svg", { "aria-hidden": "true" });
    this.box = make("div", {
      class: "sentence",
      role: "group",
      "aria-label": "The text: choose a token to see where it looks",
    });
    el.append(this.box);
    this.start = 0;
    this.width = 0;
    this.tokens = /** @type {HTMLButtonElement[]} */ ([]);
    this.watcher = new ResizeObserver(() => {
      if (this.box.clientWidth !== this.width) this.draw(); // tokens have moved
    });
    this.watcher.observe(this.box);
  }

  end() {
    this.watcher.disconnect();
  }

  lay() {
    const keys = this.model.get("key_labels") ?? [],
      cells = this.model.get("cells"),
      most = cells?.tile ?? 0,
      chosen = this.model.get("token");
    const first = cells?.keys?.[0] ?? 0;
    const isFar = chosen >= 0 && (chosen < first || chosen >= first + most); // then centre it
    const start = isFar
        ? Math.max(0, Math.min(keys.length - most, chosen - Math.floor(most / 2)))
        : first,
      stop = Math.min(keys.length, start + most);
    this.start = start;
    this.tokens = keys.slice(start, stop).map((label, at) =>
      make(
        "button",
        {
          type: "button",
          class: "token",
          "aria-pressed": "false",
          onclick: () => {
            this.model.set("token", this.model.get("token") === start + at ? -1 : start + at);
            this.model.save_changes();
          },
        },
        label,
      ),
    );
    const more =
      keys.length > stop - start
        ? [make("span", { class: "legend" }, ` \u2026 ${keys.length.toLocaleString("en")} in all`)]
        : [];
    this.box.replaceChildren(this.arcs, ...this.tokens, ...more);
    this.draw();
  }

  /** Scroll to the newly chosen token. */
  choose() {
    const at = this.model.get("token") - this.start;
    if (at + this.start >= 0 && !this.tokens[at]) this.lay();
    else this.draw();
    const { box } = this,
      token = this.tokens[this.model.get("token") - this.start];
    if (
      token &&
      (token.offsetTop < box.scrollTop ||
        token.offsetTop > box.scrollTop + box.clientHeight - token.offsetHeight)
    )
      box.scrollTop = token.offsetTop - box.clientHeight / 2;
  }

  draw() {
    const chosen = this.model.get("token"),
      links = this.model.get("links") ?? [];
    const shown = links.filter((link) => chosen < 0 || link[0] === chosen);
    const weights = new Map(
      chosen < 0 ? [] : shown.map(([, key, weight]) => /** @type {const} */ ([key, weight])),
    );
    const cold = rgb("--cold", this.box),
      hot = rgb("--hot", this.box);
    this.tokens.forEach((token, at) => {
      const weight = weights.get(this.start + at);
      const share = (weight ?? 0) ** 0.6,
        colour = cold.map((part, of) => Math.round(part + (hot[of] - part) * share));
      token.setAttribute("aria-pressed", String(this.start + at === chosen));
      token.style.background = share ? `rgb(${colour.join(" ")})` : "";
      token.style.color = share ? ink(colour) : "";
      token.title = weight === undefined ? "" : format(weight);
    });
    this.arcs.replaceChildren(...this.shapes(shown, chosen < 0 ? 0.2 : 0));
  }

  /** @param {number[][]} links @param {number} least */
  shapes(links, least) {
    const box = this.box.getBoundingClientRect();
    this.width = this.box.clientWidth;
    const middle = (/** @type {number} */ token) => {
      const place = this.tokens[token - this.start]?.getBoundingClientRect();
      return (
        place && {
          x: place.left + place.width / 2 - box.left + this.box.scrollLeft,
          y: place.top - box.top + this.box.scrollTop,
        }
      );
    };
    this.arcs.setAttribute("width", String(this.box.scrollWidth));
    this.arcs.setAttribute("height", String(this.box.scrollHeight));
    return links
      .filter((link) => link[2] >= least && link[0] !== link[1])
      .slice(0, 400)
      .flatMap(([row, key, value]) => {
        const from = middle(row),
          to = middle(key);
        // Unless a token is chosen, arcs to other lines would only strike through words.
        if (!from || !to || (this.model.get("token") < 0 && Math.abs(from.y - to.y) > 4)) return [];
        const high = Math.min(from.y, to.y) - Math.min(24, 6 + Math.abs(from.x - to.x) / 9);
        return [
          make("path", {
            class: "arc",
            d: `M${from.x},${from.y} C${from.x},${high} ${to.x},${high} ${to.x},${to.y}`,
            "stroke-width": (0.6 + 3 * value).toFixed(2),
            "stroke-opacity": (0.25 + 0.7 * value).toFixed(2),
          }),
        ];
      });
  }
}

/** Every head as a small square, one row per layer: a notebook's grid. */
class Picker {
  /** @param {Model} model @param {HTMLElement} el */
  constructor(model, el) {
    this.model = model;
    this.box = make("div", { class: "picker", role: "group", "aria-label": "Heads by layer" });
    el.append(this.box);
    const layers = /** @type {Map<string, HTMLElement>} */ (new Map());
    (model.get("names") ?? []).forEach((name, at) => {
      const layer = name.slice(0, name.lastIndexOf("H")),
        shade = model.get("shades")?.[at] ?? 0;
      const square = make("button", {
        type: "button",
        "data-head": name,
        "aria-label": name,
        title: `${name}: ${model.get("words")?.[at]}`,
        onclick: () => {
          model.set("head", name);
          model.save_changes();
        },
      });
      square.style.background = `rgb(${[...coloured([shade], 1, 1, el).slice(0, 3)].join(" ")})`;
      const row = layers.get(layer) ?? make("div", {}, make("span", {}, layer));
      layers.set(layer, row);
      row.append(square);
    });
    this.box.append(...layers.values());
  }

  draw() {
    for (const square of this.box.querySelectorAll("button"))
      square.setAttribute("aria-pressed", String(square.dataset.head === this.model.get("head")));
  }
}

/** @param {{model: Model, el: HTMLElement}} host */
export function render({ model, el: host }) {
  const el = make("div", { class: "headwise" });
  host.append(el);
  const picker = model.get("names")?.length ? new Picker(model, el) : null;
  const title = make("h3", {}, model.get("head"));
  const facts = make("div", { class: "facts" });
  el.append(title, facts);
  const map = new HeadMap(model, el),
    sentence = new Sentence(model, el);
  const drawings = {
    "change:cells": () => {
      map.renew();
      sentence.lay();
    },
    "change:links": () => sentence.draw(),
    "change:token": () => sentence.choose(),
    "change:head": () => {
      title.textContent = model.get("head");
      picker?.draw();
    },
    "change:facts": () =>
      facts.replaceChildren(...(model.get("facts") ?? []).map((line) => make("div", {}, line))),
  };
  for (const [name, draw] of Object.entries(drawings)) {
    model.on(name, draw);
    draw();
  }
  return () => {
    for (const [name, draw] of Object.entries(drawings)) model.off(name, draw);
    map.end();
    sentence.end();
    el.remove();
  };
}

export default { render };
