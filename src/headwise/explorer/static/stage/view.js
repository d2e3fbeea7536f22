// @ts-check
/**
 * The view of heads: headline, stage, map, grid and findings, all showing the same frame.
 *
 * `mount(host, el)` is called by the explorer's page, by the notebook and by an exported file.
 */

/** @import {Switches} from "./data.js" */
/** @import {Hover} from "./frame.js" */
/** @import {Host} from "./host.js" */
/** @import {Frame} from "./view_pictures.js" */

import { TextData } from "./data.js";
import { Editing } from "./editing.js";
import { chosenHeads, lockedWord, MOST_HEADS, translate } from "./frame.js";
import { stackOf } from "./host.js";
import { Jobs } from "./jobs.js";
import { PairData } from "./pair_data.js";
import { Parts } from "./parts.js";
import { saves } from "./saves.js";
import { showNotes, showParts } from "./show_parts.js";
import { viewKey } from "./view_keys.js";
import { mapPicture } from "./view_pictures.js";

const NO_HOVER = /** @type {Hover} */ ({ word: null, target: null, head: null });

export class View {
  /** @param {Host} host @param {HTMLElement} el */
  constructor(host, el) {
    this.host = host;
    this.el = el;
    /** @type {TextData | null} */
    this.data = null;
    /** Weights that replace `data` once they have come. @type {TextData | null} */
    this.next = null;
    this.hover = NO_HOVER;
    /** Text and switches of the newest weights. */
    this.key = "";
    /** The head whose map is shown. */
    this.tab = "";
    /** Words of a long text that the stage shows. @type {[number, number] | null} */
    this.window = null;
    this.error = "";
    this.remark = "";
    /** Timers. @type {Record<string, ReturnType<typeof setTimeout> | undefined>} */
    this.timers = {};
    this.jobs = new Jobs(
      host,
      () => this.show(),
      (error) => this.fail(error),
    );
    this.pair = new PairData(
      host,
      () => this.show(),
      (error) => this.fail(error),
    );
    this.parts = new Parts(this);
    this.editing = new Editing(this);
    this.saves = saves(this);
    this.stop = host.on((changed) => this.change(changed));
    this.pressed = (/** @type {Event} */ event) =>
      viewKey(this, /** @type {KeyboardEvent} */ (event));
    this.keys = host.hasKeys ? document : el;
    this.keys.addEventListener("keydown", this.pressed);
    this.change(new Set(["text"]));
  }

  destroy() {
    this.stop();
    for (const timer of Object.values(this.timers)) clearTimeout(timer);
    for (const data of [this.data, this.next]) data?.end();
    this.jobs.destroy();
    this.parts.destroy();
    this.keys.removeEventListener("keydown", this.pressed);
    this.el.replaceChildren();
  }

  /** @param {Set<string>} changed */
  change(changed) {
    const pointed = ["head", "word", "text", "swap", "words"].some((key) => changed.has(key));
    if (pointed) this.hover = NO_HOVER;
    if (changed.has("text")) this.editing.end();
    if (["text", "head", "word"].some((key) => changed.has(key))) this.error = "";
    this.load();
    this.show();
  }

  /** @param {unknown} error */
  fail(error) {
    this.error = this.host.sentence(error);
    this.show();
  }

  /** @returns {Switches} */
  switches() {
    const { host } = this;
    return {
      words: host.get("words") === "1",
      first: host.get("first") === "1",
      values: host.get("values") === "1",
    };
  }

  /** Fetch what the state needs; until it has come, the last picture stays. */
  load() {
    const text = this.host.text();
    if (!text) return;
    const switches = this.switches();
    const key = JSON.stringify([text.name, switches]);
    if (key !== this.key) {
      this.key = key;
      this.next?.end();
      const [show, fail] = [() => this.show(), (/** @type {unknown} */ error) => this.fail(error)];
      this.next = new TextData(this.host, text, switches, show, fail);
    }
    const data = this.next ?? this.data;
    const heads = chosenHeads(this.host);
    const dots = this.parts.grid.dots();
    data?.load(heads, dots);
    this.pair.load(text, switches, heads, dots);
  }

  /** Show weights that have come, if they are what the view waits for. */
  settle() {
    const { next } = this;
    if (!next) return;
    const isOther = this.data?.text.name !== next.text.name;
    const [head] = chosenHeads(this.host);
    if (!next.hasHead(head) && ((this.data && !isOther) || next.text.is_small)) return;
    this.data?.end();
    this.data = next;
    this.next = null;
  }

  show() {
    this.settle();
    if (!this.data) return;
    if (!this.parts.isAttached) this.parts.attach();
    const frame = this.frame();
    this.loadLines(frame);
    showParts(this.parts, frame);
    clearTimeout(this.timers.drawn);
    if (!frame.data.isReady(frame.chosen) || this.next) return;
    const name = frame.data.text.name;
    // After the stage has named its words, which takes a turn of its own.
    this.timers.drawn = setTimeout(() => this.host.drawn?.(name, frame.chosen));
  }

  /** Rows that a long text's picture needs. @param {Frame} frame */
  loadLines({ data, heads, word, isLookedAt }) {
    if (data.text.is_small || word === null) return;
    for (const head of heads) {
      data.loadLine(head, word, isLookedAt);
      if (!isLookedAt) data.loadLine(head, word, true);
    }
    if (this.host.get("grid") === "word") data.long?.loadBars(word, heads[0], isLookedAt);
  }

  /** @returns {Frame} */
  frame() {
    const { host, hover } = this;
    const chosen = chosenHeads(host);
    const first = /** @type {TextData} */ (this.data);
    const pair = this.pair.frame();
    const isSecond = pair?.side === "second";
    const data = isSecond ? pair.data : first;
    const shown = hover.head ? [hover.head] : chosen;
    const stack = stackOf(shown[0]);
    const heads = shown.filter((head) => stackOf(head) === stack);
    const lock = stackOf(chosen[0]) === stack ? lockedWord(host, first, heads[0]) : null;
    const locked = isSecond ? pair.partner(lock) : lock;
    const word = hover.word ?? locked;
    const isLookedAt = host.get("by") === "1";
    const count = (isLookedAt ? data.columns(heads[0]) : data.rows(heads[0])).length;
    const isInside = word !== null && word < count;
    const tab = host.get("tab");
    this.tab = heads.includes(tab) ? tab : heads[heads.length - 1];
    return {
      host,
      data,
      heads,
      chosen,
      word: isInside ? word : null,
      locked,
      target: hover.target,
      isHovered: hover.word !== null || hover.head !== null,
      isPointed: hover.word !== null && hover.target === null && hover.head === null,
      isLookedAt,
      hidesSpecial: host.get("special") === "0",
      pair: pair && { ...pair, side: host.get("side") },
      tab: this.tab,
      isNarrow: this.parts.size === "narrow",
      isWrapped: false,
      window: this.window,
    };
  }

  /** Show what the pointer is on, without changing the address. @param {Partial<Hover>} hover */
  point(hover) {
    const next = { ...NO_HOVER, ...hover };
    const { word, target, head } = this.hover;
    if (next.word === word && next.target === target && next.head === head) return;
    this.hover = next;
    this.show();
  }

  /** Lock a word, or unlock it if it is locked. @param {number | null} at */
  lock(at) {
    const { data } = this;
    if (!data) return;
    const pair = this.pair.frame();
    const isSecond = pair?.side === "second";
    const word = isSecond ? pair.origin(at) : at;
    const before = lockedWord(this.host, data, chosenHeads(this.host)[0]);
    this.hover = NO_HOVER;
    const next = word === null || word === before ? "-" : String(word);
    if (next === this.host.get("word")) this.show();
    else this.host.set({ word: next }, "push");
  }

  /** Lock the word that a key has gone to: a walk over words is one entry. @param {number} at */
  go(at) {
    const pair = this.pair.frame();
    const word = pair?.side === "second" ? pair.origin(at) : at;
    this.hover = NO_HOVER;
    this.host.set({ word: word === null ? "-" : String(word) }, "replace");
  }

  /** The stage shows other words of a long text. @param {[number, number] | null} words */
  scroll(words) {
    if (JSON.stringify(words) === JSON.stringify(this.window)) return;
    this.window = words;
    if (!this.data) return;
    const frame = this.frame();
    this.parts.map.show(mapPicture(frame));
    showNotes(this.parts, frame);
  }

  /**
   * Choose a head, or with `isAdded` add or remove it.
   * @param {string} name @param {boolean} [isAdded]
   */
  choose(name, isAdded = false) {
    const chosen = chosenHeads(this.host);
    let heads = [name];
    if (isAdded) {
      heads = chosen.includes(name) ? chosen.filter((head) => head !== name) : [...chosen, name];
      const isMixed = heads.some((head) => stackOf(head) !== stackOf(name));
      if (isMixed) return this.showRemark("Heads of different stacks read different words.");
      if (heads.length > MOST_HEADS)
        return this.showRemark("Four heads are the most on one stage.");
      if (!heads.length) return undefined;
    }
    this.hover = NO_HOVER;
    const isOther = stackOf(heads[0]) !== stackOf(chosen[0]);
    const word = isOther ? { word: "-" } : this.keepWord();
    return this.host.set({ head: heads.join(","), role: "", tab: "", ...word }, "push");
  }

  /** The start's word stays chosen when its head is left. @returns {Record<string, string>} */
  keepWord() {
    if (this.host.get("word") !== "" || !this.data) return {};
    const at = lockedWord(this.host, this.data, chosenHeads(this.host)[0]);
    return { word: at === null ? "-" : String(at) };
  }

  /** Turn a switch of the View menu. @param {string} key @param {string} value */
  turn(key, value) {
    const { data, host } = this;
    /** @type {Record<string, string>} */
    const values = { [key]: value };
    if (key === "words" && data) {
      const [head] = chosenHeads(host);
      const at = lockedWord(host, data, head);
      const to = at === null ? null : translate(data.text, stackOf(head), at, value === "1");
      if (host.get("word") !== "") values.word = to === null ? "-" : String(to);
    }
    host.set(values, "push");
  }

  /** Say something beside the head's name for a while. @param {string} words */
  showRemark(words) {
    this.remark = words;
    clearTimeout(this.timers.remark);
    this.timers.remark = setTimeout(() => {
      this.remark = "";
      this.show();
    }, 4000);
    this.show();
  }
}

/**
 * Show the heads of the host's text inside an element; returns a function that removes the view.
 * @param {Host} host @param {HTMLElement} el
 */
export function mount(host, el) {
  const view = new View(host, el);
  return () => view.destroy();
}
