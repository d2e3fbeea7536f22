// @ts-check
/** Saving what is on the stage: SVG, PNG, or the whole page as one file. */

/** @import {View} from "./view.js" */

import { NOT_SAVED } from "./sentences.js";
import { stageSvg, toPng } from "./svg_file.js";
import { savedPicture } from "./saved_picture.js";

/** What can be saved, by its words. @param {View} view @returns {Record<string, () => void>} */
export function saves(view) {
  const { host } = view;
  const { save, savePage } = host;
  if (!save) return {};
  const make = (/** @type {"svg" | "png"} */ kind) => async () => {
    try {
      const { picture, texts, name } = savedPicture(view);
      const text = stageSvg(picture, texts);
      const svg = new Blob([text], { type: "image/svg+xml" });
      save(kind === "svg" ? svg : await toPng(text), `${name}.${kind}`);
    } catch (error) {
      view.fail(error instanceof Error ? error : new Error(NOT_SAVED));
    }
  };
  /** @type {Record<string, () => void>} */
  const all = { "Picture as SVG": make("svg"), "Picture as PNG": make("png") };
  if (savePage) all["Page as HTML"] = () => void savePage().catch((error) => view.fail(error));
  return all;
}
