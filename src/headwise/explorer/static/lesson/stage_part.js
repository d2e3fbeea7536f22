// @ts-check
/**
 * The stage inside a step of the lesson: whole words, arcs from the followed word, and the notes.
 */

/** @import {LessonHead, Place, StageWord} from "../types.js" */
/** @import {Lesson} from "./parts.js" */
/** @import {Picture, PictureHead, PictureSecond} from "../stage/picture.js" */

import { make } from "../stage/dom.js";
import { Stage } from "../stage/stage.js";
import { look } from "./parts.js";

/** Smallest size of words on one line: a sentence breaks only if it needs smaller ones. */
const LEAST = 15;

/**
 * What changes from picture to picture.
 * @typedef {object} Shown
 * @property {PictureHead[]} heads
 * @property {PictureSecond | null} [pair]
 * @property {{text: string, before: string | null} | null} [next]
 * @property {boolean} [isBare] no arcs yet
 * @property {boolean} [isStill] pointing at other words changes nothing
 * @property {StageWord[]} [words] other words than those of the place
 * @property {number} [word] index of the word that looks, if it is another
 */

export class LessonStage {
  /** @param {Place} place @param {Lesson} lesson */
  constructor(place, lesson) {
    this.place = place;
    this.lesson = lesson;
    this.el = make("div", { class: "lesson-stage" });
    this.el.setAttribute("aria-label", "The sentence, and where its words look");
    /** @type {number | null} */
    this.hovered = null;
    /** @type {Shown} */
    this.shown = { heads: [] };
    this.stage = new Stage(this.el, {
      hover: (word) => {
        if (this.shown.isStill || this.shown.isBare) return;
        this.hovered = word;
        this.draw();
      },
      lock: (word) => {
        const isOther = this.shown.word !== undefined;
        if (word !== null && word !== place.word && !isOther) this.follow(word);
      },
      go: (word) => {
        if (this.shown.isStill || this.shown.isBare) return;
        this.hovered = word;
        this.draw();
      },
    });
  }

  /** Follow the first piece of a word. @param {number} word */
  follow(word) {
    this.lesson.follow(this.place.word_of.indexOf(word));
  }

  /**
   * A head for the stage.
   * @param {LessonHead} head @param {(at: number) => ArrayLike<number> | null} row
   * @returns {PictureHead}
   */
  head(head, row) {
    const { role, colour } = look(head, this.lesson);
    return { name: head.name, role, letter: head.name, colour, mark: "", row, isOff: false };
  }

  /** @param {Shown} shown */
  show(shown) {
    const layers = new Set(shown.heads.map(({ name }) => name.slice(0, name.lastIndexOf("H"))));
    const heads = shown.heads.map((head) => ({
      ...head,
      letter: layers.size > 1 ? head.name : head.name.slice(head.name.lastIndexOf("H")),
    }));
    this.shown = { ...shown, heads };
    this.hovered = null;
    this.draw();
  }

  draw() {
    const { place, shown } = this;
    const words = shown.words ?? place.words;
    const here = shown.word ?? place.word;
    const word = this.hovered ?? here;
    const heads = shown.isBare
      ? shown.heads.map((head) => ({ ...head, row: () => null }))
      : shown.heads;
    /** @type {Picture} */
    const picture = {
      words,
      columns: null,
      heads,
      word,
      locked: here,
      target: null,
      restsOnFirst: place.rests_on_first,
      least: LEAST,
      hidesSpecial: false,
      isLookedAt: false,
      theme: this.lesson.theme(),
      pair: shown.pair ?? null,
      next: shown.next ?? null,
    };
    this.stage.show(picture);
  }

  destroy() {
    this.stage.destroy();
  }
}
