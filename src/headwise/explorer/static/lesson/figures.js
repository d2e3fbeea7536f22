// @ts-check
/** The figure of every step of the lesson. */

/** @import {StepAnswer} from "../types.js" */
/** @import {Figure, Lesson} from "./parts.js" */

import { byHand } from "./by_hand.js";
import { heads } from "./heads.js";
import { mixing } from "./mixing.js";
import { output } from "./output.js";
import { scores } from "./scores.js";
import { spare } from "./spare.js";
import { vectors } from "./vectors.js";
import { waiting } from "./waiting.js";
import { whyMany } from "./why_many.js";

/** @type {Record<string, (figures: never, lesson: Lesson) => Figure>} */
const FIGURES = {
  ...{ "why-many": whyMany, vectors, scores, mixing, heads, output, spare },
  "by-hand": byHand,
};

/** Whether the step's figure has still to be measured. @param {StepAnswer | undefined} step */
export const isWaiting = (step) =>
  step !== undefined && "row" in step.figures && "head" in step.figures;

/** @param {StepAnswer} step @param {Lesson} lesson */
export const makeFigure = (step, lesson) =>
  (isWaiting(step) ? waiting : FIGURES[step.name])(/** @type {never} */ (step.figures), lesson);
