// @ts-check
/** Saving what is on the stage: SVG, PNG, or the whole page as one file. */

/** @import {View} from "./view.js" */

import { caption, NOT_SAVED } from "./sentences.js";
import { SWITCHES } from "./tools.js";
import { stageSvg, toPng } from "./svg_file.js";
import { headlinePicture } from "./view_headline.js";
import { stagePicture } from "./view_pictures.js";

/** What can be saved, by its words. @param {View} view @returns {Record<string, () => void>} */
export function saves(view) {
  const { host } = view;
  if (!host.save) return {};
  const make = (/** @type {"svg" | "png"} */ kind) => async () => {
    try {
      const { picture, texts, name } = saved(view);
      const text = stageSvg(picture, texts);
      const svg = new Blob([text], { type: "image/svg+xml" });
      host.save?.(kind === "svg" ? svg : await toPng(text), `${name}.${kind}`);
    } catch (error) {
      view.fail(error instanceof Error ? error : new Error(NOT_SAVED));
    }
  };
  /** @type {Record<string, () => void>} */
  const all = { "Picture as SVG": make("svg"), "Picture as PNG": make("png") };
  if (host.savePage)
    all["Page as HTML"] = () => void host.savePage?.().catch((error) => view.fail(error));
  return all;
}

/** What is on the stage without the pointer, with its headline and caption. @param {View} view */
function saved(view) {
  const { host } = view;
  view.hover = { word: null, target: null, head: null };
  const frame = view.frame();
  const picture = { ...stagePicture(frame), target: null };
  const { headline, sub } = headlinePicture(frame, "", "");
  const switches = SWITCHES.filter(({ key, usual }) => key !== "words" && host.get(key) !== usual);
  const texts = {
    headline,
    sub,
    caption: caption({
      model: host.about.title,
      heads: frame.heads,
      isByWord: frame.data.options("").words,
      switches: switches.map(({ off }) => off).join("; "),
      version: host.version,
    }),
  };
  return { picture, texts, name: frame.heads.join("-") };
}
