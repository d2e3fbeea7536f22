// @ts-check
/**
 * The stage's SVG element: arcs, rings, cells, shares and letters, changed in place.
 *
 * In: scenes, one after the other. Cells keep their elements, so that colours fade; arcs grow, and
 * an arc that joins the same words as before changes its width.
 */
import { setAttributes, svg, toNode } from "./dom.js";
import {
  arcPaths,
  arcShape,
  cellShape,
  labelShape,
  nextShape,
  noteShape,
  ringShape,
} from "./draw.js";
import { Clock, TIMES, isStill } from "./motion.js";

/** @import {Arc} from "./arcs.js" */
/** @import {Cell} from "./cells.js" */
/** @import {Shape} from "./dom.js" */
/** @import {Layout} from "./layout.js" */
/** @import {Picture} from "./picture.js" */
/** @import {Scene} from "./scene.js" */

let count = 0;

/** @param {number} from @param {number} to @param {number} part */
const between = (from, to, part) => from + (to - from) * part;

/**
 * An arc on its way from an earlier shape to its own.
 * @param {Arc} from
 * @param {Arc} to
 * @param {number} part
 * @returns {Arc}
 */
function arcBetween(from, to, part) {
  /** @param {"start" | "one" | "two" | "end" | "tip"} point */
  const at = (point) => ({
    x: between(from.curve[point].x, to.curve[point].x, part),
    y: between(from.curve[point].y, to.curve[point].y, part),
  });
  return {
    ...to,
    curve: {
      ...to.curve,
      start: at("start"),
      one: at("one"),
      two: at("two"),
      end: at("end"),
      tip: at("tip"),
    },
    widths: {
      landing: between(from.widths.landing, to.widths.landing, part),
      start: between(from.widths.start, to.widths.start, part),
    },
    arrow: {
      length: between(from.arrow.length, to.arrow.length, part),
      width: between(from.arrow.width, to.arrow.width, part),
    },
  };
}

/**
 * Set an arc's paths.
 * @param {Element} group
 * @param {Arc} arc
 * @param {number} until
 */
function setArc(group, arc, until) {
  const { shaft, head } = arcPaths(arc, until);
  for (const body of group.querySelectorAll(".hw-body")) body.setAttribute("d", shaft);
  group.querySelector(".hw-head")?.setAttribute("d", head);
}

export class Drawing {
  constructor() {
    this.id = `hw${(count += 1)}`;
    this.arcLayer = svg("g");
    this.ringLayer = svg("g");
    this.cellLayer = svg("g");
    this.noteLayer = svg("g");
    this.labelLayer = svg("g");
    const layers = [this.cellLayer, this.arcLayer, this.ringLayer, this.noteLayer, this.labelLayer];
    this.element = svg(
      "svg",
      { class: "hw-drawing", "aria-hidden": "true", focusable: "false" },
      ...layers,
    );
    this.clock = new Clock();
    /** @type {Map<string, {arc: Arc, group: Element}>} */
    this.arcs = new Map();
    /** @type {Map<string, {look: string, group: Element}>} */
    this.cells = new Map();
  }

  /**
   * Draw a scene.
   * @param {Scene} scene
   * @param {Picture} picture
   * @param {Layout} layout
   * @param {{moves: boolean, isPairNew: boolean}} how whether arcs may grow and change, and whether
   *   a second sentence has just come
   */
  show(scene, picture, layout, { moves, isPairNew }) {
    setAttributes(this.element, { viewBox: `0 0 ${layout.width} ${Math.max(1, layout.height)}` });
    this.#showCells(scene.cells);
    this.#showArcs(scene.arcs, picture, moves && !isStill(), isPairNew);
    this.#showWords(scene, layout);
    const next = nextShape(picture, layout);
    this.noteLayer.replaceChildren(
      ...scene.notes.map((note) => toNode(noteShape(note))),
      ...(next ? [toNode(next)] : []),
    );
    const labels = scene.labels.map((label) => toNode(labelShape(label, picture)));
    this.labelLayer.replaceChildren(...labels);
  }

  /** Forget the arcs of an earlier text: the next ones grow. */
  forget() {
    this.clock.finish();
    this.arcs.clear();
    this.arcLayer.replaceChildren();
  }

  /** @param {Cell[]} cells */
  #showCells(cells) {
    const gone = new Set(this.cells.keys());
    for (const cell of cells) {
      gone.delete(cell.key);
      const described = cellShape(cell);
      const look = JSON.stringify(described);
      const known = this.cells.get(cell.key);
      if (known?.look === look) continue;
      if (known) {
        known.look = look;
        this.#update(known.group, described);
      } else {
        const group = /** @type {Element} */ (toNode(described));
        this.cells.set(cell.key, { look, group });
        this.cellLayer.append(group);
      }
    }
    for (const key of gone) {
      this.cells.get(key)?.group.remove();
      this.cells.delete(key);
    }
  }

  /** @param {Element} group @param {Shape} described */
  #update(group, described) {
    described.children.forEach((child, index) => {
      if (typeof child === "string") return;
      setAttributes(group.children[index], child.attributes);
      if (child.tag === "text") group.children[index].textContent = child.children.join("");
    });
  }

  /**
   * @param {Arc[]} arcs
   * @param {Picture} picture
   * @param {boolean} moves
   * @param {boolean} isPairNew
   */
  #showArcs(arcs, picture, moves, isPairNew) {
    this.clock.finish();
    const before = this.arcs;
    this.arcs = new Map();
    /** @type {Element[]} */
    const groups = [];
    const growing = arcs.filter((arc) => !before.has(arc.key)).reverse();
    const places = new Map(growing.map((arc, place) => [arc.key, place]));
    arcs.forEach((arc, index) => {
      const described = arcShape(arc, picture, `${this.id}-${index}`);
      const group = /** @type {Element} */ (toNode(described));
      const old = before.get(arc.key);
      this.arcs.set(arc.key, { arc, group });
      groups.push(group);
      if (!moves) return;
      if (old && old.arc.kind === arc.kind) {
        const isSame = JSON.stringify(old.arc.curve) === JSON.stringify(arc.curve);
        if (isSame && old.arc.share === arc.share) return;
        this.clock.add(0, TIMES.morph, (part) => setArc(group, arcBetween(old.arc, arc, part), 1));
      } else {
        const wait = isPairNew && arc.deck === 1 ? TIMES.slide : 0;
        const delay = wait + TIMES.apart * (places.get(arc.key) ?? 0);
        this.clock.add(delay, TIMES.grow, (part) => setArc(group, arc, part));
      }
    });
    const faded = moves ? [...before].filter(([key]) => !this.arcs.has(key)) : [];
    for (const [, { group }] of faded) {
      this.clock.add(0, TIMES.fade, (part) => {
        if (part >= 1) group.remove();
        else setAttributes(group, { opacity: 1 - part });
      });
    }
    this.arcLayer.replaceChildren(...faded.map(([, { group }]) => group), ...groups);
    if (moves && growing.length) {
      const { labelLayer } = this;
      this.clock.add(TIMES.grow / 2, TIMES.fade, (part) =>
        setAttributes(labelLayer, { opacity: part }),
      );
    } else {
      setAttributes(this.labelLayer, { opacity: null });
    }
  }

  /** @param {Scene} scene @param {Layout} layout */
  #showWords(scene, layout) {
    const rings = scene.words.flatMap((states, index) =>
      states.map((state, at) => {
        const box = layout.decks[index].rows[at];
        return box ? ringShape(box, state) : null;
      }),
    );
    const shapes = rings.filter((ring) => ring !== null);
    this.ringLayer.replaceChildren(...shapes.map((ring) => toNode(ring)));
  }

  /** End all motion. */
  destroy() {
    this.clock.stop();
    this.element.remove();
  }
}
