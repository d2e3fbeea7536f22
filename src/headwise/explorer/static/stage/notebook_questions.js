// @ts-check
/**
 * Questions to Python, asked one at a time through two values of a notebook's model.
 *
 * `question` goes to Python; its `answer` has the same number.
 */

/** @import {Model} from "./notebook_host.js" */

/** Milliseconds after which Python is taken to be gone. */
const PATIENCE = 60000;
const GONE = "Python does not answer. Run the cell again.";

/**
 * @typedef {object} Answer
 * @property {number} number
 * @property {string} error  a sentence, "" if there is none
 * @property {unknown} [value]
 * @property {number[]} [shape]
 * @property {DataView | ArrayBuffer | Uint8Array} [bytes]
 */

/** Bytes in a buffer of their own. @param {Answer["bytes"]} bytes @returns {ArrayBuffer} */
export function copyBytes(bytes) {
  if (!bytes) return new ArrayBuffer(0);
  if (bytes instanceof ArrayBuffer) return bytes;
  const { buffer, byteOffset, byteLength } = bytes;
  return new Uint8Array(buffer, byteOffset, byteLength).slice().buffer;
}

export class Questions {
  /** @param {Model} model */
  constructor(model) {
    this.model = model;
    this.number = 0;
    /** Tells this view from others of the same widget. */
    this.sender = Math.random().toString(36).slice(2);
    /** @type {Promise<unknown>} */
    this.last = Promise.resolve();
  }

  /**
   * Ask Python once earlier questions are answered.
   * @param {string} kind @param {Record<string, unknown>} [facts] @returns {Promise<Answer>}
   */
  ask(kind, facts = {}) {
    const next = this.last.then(() => this.send(kind, facts));
    this.last = next.catch(() => {});
    return next;
  }

  /** @param {string} kind @param {Record<string, unknown>} facts @returns {Promise<Answer>} */
  send(kind, facts) {
    const { model, sender } = this;
    const number = ++this.number;
    return new Promise((resolve, reject) => {
      const end = () => {
        clearTimeout(timer);
        model.off("change:answer", listen);
      };
      const listen = () => {
        const answer = /** @type {Answer & {sender: string}} */ (model.get("answer"));
        if (answer?.number !== number || answer.sender !== sender) return;
        end();
        if (answer.error) reject(new Error(answer.error));
        else resolve(answer);
      };
      const timer = setTimeout(() => {
        end();
        reject(new Error(GONE));
      }, PATIENCE);
      model.on("change:answer", listen);
      model.set("question", { sender, number, kind, ...facts });
      model.save_changes();
    });
  }
}
