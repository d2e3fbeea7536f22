// @ts-check
/** The second sentence of a pair: its weights, and which of its words correspond. */

/** @import {PairAnswer, StageWord, TextAnswer} from "../types.js" */
/** @import {Switches} from "./data.js" */
/** @import {Host} from "./host.js" */
/** @import {Match} from "./pair.js" */

import { TextData } from "./data.js";
import { axisOf, stackOf } from "./host.js";

export class PairData {
  /** @param {Host} host @param {() => void} changed @param {(error: unknown) => void} failed */
  constructor(host, changed, failed) {
    this.host = host;
    this.changed = changed;
    this.failed = failed;
    this.key = this.switches = "";
    /** @type {PairAnswer | null} */
    this.answer = null;
    /** @type {TextData | null} */
    this.data = null;
    this.head = "";
  }

  /** Read the other sentence of the address, if it has one. @param {TextAnswer} text
   * @param {Switches} switches @param {string[]} heads @param {number} dots */
  load(text, switches, heads, dots) {
    const other = this.host.get("swap");
    [this.head] = heads;
    if (!other || !this.host.pair) return this.end();
    const key = JSON.stringify([text.name, other]);
    if (key !== this.key) {
      this.end();
      this.key = key;
      this.host.pair(text.text, other).then(
        (answer) => {
          if (key !== this.key) return;
          this.answer = answer;
          this.load(text, switches, heads, dots);
          this.changed();
        },
        (error) => {
          if (key === this.key) this.failed(error);
        },
      );
    }
    if (!this.answer) return undefined;
    const wanted = JSON.stringify(switches);
    if (wanted !== this.switches) {
      this.switches = wanted;
      this.data?.end();
      this.data = new TextData(
        this.host,
        this.answer.second,
        switches,
        () => this.changed(),
        this.failed,
      );
    }
    return void this.data?.load(heads, dots);
  }

  end() {
    this.key = "";
    this.switches = "";
    this.answer = null;
    this.data?.end();
    this.data = null;
  }

  /** The pair as the frame needs it; null until the second sentence's weights have come. */
  frame() {
    const { answer, data, head } = this;
    if (!answer || !data || !data.isReady([head])) return null;
    const { axis, isByWord } = axisOf(answer.second, stackOf(head), data.switches.words);
    const first = axisOf(answer.first, stackOf(head), data.switches.words).axis;
    const aligned = /** @type {Match[]} */ (
      isByWord ? answer.aligned.words : answer.aligned.pieces
    );
    const find = (/** @type {0 | 1} */ from, /** @type {number | null} */ at) =>
      at === null ? null : (aligned.find((pair) => pair[from] === at)?.[1 - from] ?? null);
    return {
      data,
      aligned,
      carries: answer.carries,
      whyNoCarries: answer.why_no_carries,
      words: pairWords(first.rows, axis.rows, aligned),
      side: this.host.get("side"),
      partner: (/** @type {number | null} */ at) => find(0, at),
      origin: (/** @type {number | null} */ at) => find(1, at),
    };
  }
}

/**
 * The word that differs, in both sentences; "First" and "Second" if it is not one word.
 * @param {StageWord[]} first @param {StageWord[]} second @param {(number | null)[][]} aligned
 * @returns {[string, string]}
 */
function pairWords(first, second, aligned) {
  const changed = aligned.filter(
    ([from, to]) => from === null || to === null || first[from].text !== second[to].text,
  );
  const [from, to] = changed[0] ?? [null, null];
  if (changed.length !== 1 || from === null || to === null) return ["First", "Second"];
  return [first[from].text, second[to].text];
}
