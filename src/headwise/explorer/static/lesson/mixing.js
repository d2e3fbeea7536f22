// @ts-check
/** Step 4: values as arrows: whole, shortened to their shares, and put tip to tail. */

/** @import {MixingFigure} from "../types.js" */
/** @import {Lesson} from "./parts.js" */

import { GROUNDS, ink, mix } from "../stage/colours.js";
import { make } from "../stage/dom.js";
import { percent } from "../stage/numbers.js";
import { Arrows } from "./arrows.js";
import { Columns } from "./columns.js";
import { look, pause, segments, signed, vars } from "./parts.js";

/** Views of the arrows, in the order in which they are shown. */
const VIEWS = ["Whole values", "Shortened", "Tip to tail"];
/** Milliseconds that a view stays before the next follows by itself. */
const STAYS = 1300;

/** @param {MixingFigure} f @param {Lesson} lesson */
export function mixing(f, lesson) {
  const { place } = f;
  let isOver = false;
  const byPiece = new Map(f.parts.map((part) => [part.piece, part]));
  const strong = (/** @type {string} */ text) => make("strong", {}, text);
  const quiet = (/** @type {string} */ text) => make("span", { class: "lesson-quiet" }, text);
  const cell = (/** @type {string} */ name) => () => make("div", { class: name });
  const lines = [
    { name: "word", item: null },
    { name: "share", item: cell("lesson-share"), title: [strong("Share"), quiet("from step 3")] },
    { name: "length", item: cell("lesson-number"), title: [strong("Length of the value")] },
    {
      name: "adds",
      item: cell("lesson-number is-strong"),
      title: [strong("Adds"), quiet("share \u00d7 length")],
    },
  ];
  const point = (/** @type {number | null} */ at) => arrows.point(at);
  const columns = new Columns(place, lines, { follow: lesson.follow, point });
  const arrows = new Arrows(f, lesson);
  const views = segments("Arrows", VIEWS, (at) => {
    isPlaying = false;
    arrows.show(at);
  });
  let isPlaying = false;
  const note = make(
    "p",
    { class: "lesson-note" },
    `A flat picture of ${f.d_value} dimensions. The sum and the longest arrow have their true ` +
      "length; the others point partly out of the picture and look shorter. It keeps " +
      `${percent(f.kept)} of the arrows' squared lengths.`,
  );
  const below = make("div", { class: "lesson-arrow-box" }, views.el, arrows.el, note);
  const el = make("div", { class: "lesson-mixing" }, columns.el, below);
  el.addEventListener("focusin", (event) => {
    const item = /** @type {HTMLButtonElement} */ (event.target);
    const at = columns.words.indexOf(item);
    if (at >= 0) point(at);
  });

  function draw() {
    const theme = lesson.theme(),
      { colour, tone } = look(place, lesson);
    vars(el, { tone });
    f.weights.forEach((weight, at) => {
      const part = byPiece.get(at);
      const share = columns.items.share[at];
      const isRest = place.pieces[at].kind === "special" || (place.rests_on_first && at === 0);
      const fill = mix(theme, isRest ? GROUNDS[theme].rest : colour, weight);
      share.textContent = part ? percent(weight) : "";
      vars(share, { fill, ink: ink(fill, theme, weight) });
      const isKnown = isOver && part;
      columns.items.length[at].textContent = isKnown
        ? signed(part.value_length, 1)
        : isOver
          ? ""
          : "?";
      columns.items.adds[at].textContent = isKnown ? signed(part.length, 2) : isOver ? "" : "?";
    });
    arrows.draw();
  }

  /** The three views, one after the other. */
  async function play() {
    isPlaying = true;
    for (let at = 0; at < VIEWS.length; at++) {
      if (!isPlaying || !el.isConnected) return;
      views.press(at);
      arrows.show(at);
      if (at < VIEWS.length - 1) await pause(STAYS);
    }
    isPlaying = false;
  }

  below.hidden = true;
  draw();
  return {
    el,
    reveal: (/** @type {boolean} */ moves) => {
      if (isOver) return;
      isOver = true;
      below.hidden = false;
      draw();
      if (moves) play();
      else {
        views.press(VIEWS.length - 1);
        arrows.show(VIEWS.length - 1, false);
      }
    },
    shown: () => columns.fit(),
    light: draw,
    destroy: () => {
      columns.destroy();
      arrows.room.destroy();
    },
  };
}
