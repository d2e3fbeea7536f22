// @ts-check
/** The bar under the header while the model reads a text. */

/** @import {ProgressAnswer} from "./types.js" */

import * as api from "./api.js";
import { byId } from "./page.js";

/** Milliseconds before the bar appears, and between questions. */
const REST = 300;

/**
 * Show the progress of reading until the returned function is called.
 * @param {(words: string) => void} say
 */
export function watchReading(say) {
  const bar = byId("progress", HTMLProgressElement);
  let isOver = false;
  const timer = setInterval(async () => {
    const answer = await api.get("/api/progress").catch(() => null);
    if (isOver) return;
    const { stage, done, total } = /** @type {Partial<ProgressAnswer>} */ (answer ?? {});
    bar.hidden = false;
    if (total) bar.value = (done ?? 0) / total;
    say(stage || "Reading");
  }, REST);
  return () => {
    isOver = true;
    clearInterval(timer);
    bar.hidden = true;
    bar.value = 0;
  };
}
