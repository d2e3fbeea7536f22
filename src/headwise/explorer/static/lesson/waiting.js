// @ts-check
/** Step 7 while heads are silenced one by one: the stage, and how many runs are done. */

/** @import {ProgressAnswer, WaitingFigure} from "../types.js" */
/** @import {Lesson} from "./parts.js" */

import * as api from "../api.js";
import { make } from "../stage/dom.js";
import { pause } from "./parts.js";
import { LessonStage } from "./stage_part.js";

/** Milliseconds between two looks at the progress. */
const BETWEEN = 400;

/** @param {WaitingFigure} figure @param {Lesson} lesson */
export function waiting({ place, head, row }, lesson) {
  const stage = new LessonStage(place, lesson);
  const bar = make("progress", { "aria-label": "Heads silenced" });
  const remark = make(
    "p",
    { class: "lesson-remark" },
    "The model runs once for every silent head.",
  );
  const el = make("div", { class: "lesson-spare" }, stage.el, remark, bar);
  const draw = () =>
    stage.show({
      heads: [stage.head(head, (word) => (word === place.word ? row : null))],
      isStill: true,
    });
  let isOver = false;

  async function count() {
    while (!isOver) {
      const answer = await api.get("/api/progress").catch(() => ({}));
      const { stage, done = 0, total } = /** @type {Partial<ProgressAnswer>} */ (answer);
      if (total) {
        remark.textContent = `${stage}: run ${done} of ${total}. You can answer already.`;
        Object.assign(bar, { max: total, value: done });
      }
      await pause(BETWEEN);
    }
  }

  draw();
  count();
  return {
    el,
    reveal: () => {},
    light: draw,
    destroy: () => {
      isOver = true;
      stage.destroy();
    },
  };
}
