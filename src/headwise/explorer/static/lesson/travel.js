// @ts-check
/** The query travels from key to key; then the powers appear, then the shares. */

/** @import {Scores} from "./scores.js" */

import { isStill } from "../stage/motion.js";
import { pause } from "./parts.js";

/** Milliseconds per key of the query's way, and for each of the two rows below. */
const TIMES = { key: 220, row: 400 };

/** @param {Scores} row */
export async function travel(row) {
  if (isStill()) return;
  row.el.classList.add("before-power", "before-share");
  for (let at = 0; at < row.words.length; at++) {
    if (!row.el.isConnected || row.isOpen) break;
    row.met = at + 1;
    row.query.at = at;
    row.draw();
    await pause(TIMES.key);
  }
  row.met = row.words.length;
  row.query.at = row.f.leader;
  row.draw();
  row.el.classList.remove("before-power");
  await pause(TIMES.row);
  row.el.classList.remove("before-share");
}
