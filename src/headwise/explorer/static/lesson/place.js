// @ts-check
/** The page stays where the learner has tapped, although a figure above grows. */

import { isStill } from "../stage/motion.js";

/** Frames until a grown figure has its size. */
const FRAMES = 20;

/**
 * Remember where an element is. The function that is returned scrolls it back there, then brings
 * what was remark into view.
 * @param {HTMLElement} held
 * @param {HTMLElement} remark
 */
export function holdPlace(held, remark) {
  const top = held.getBoundingClientRect().top;
  let left = FRAMES;
  let isMoved = false;
  const stop = () => (isMoved = true);
  const back = () => {
    const by = held.getBoundingClientRect().top - top;
    if (Math.abs(by) > 1) scrollBy({ top: by, behavior: "instant" });
  };
  function frame() {
    if (isMoved || !held.isConnected) return end();
    back();
    left -= 1;
    if (left > 0) return void requestAnimationFrame(frame);
    end();
    remark.scrollIntoView({ block: "nearest", behavior: isStill() ? "instant" : "smooth" });
  }
  function end() {
    for (const name of ["wheel", "touchmove", "keydown"]) removeEventListener(name, stop);
  }
  return () => {
    for (const name of ["wheel", "touchmove", "keydown"])
      addEventListener(name, stop, { passive: true });
    frame();
  };
}
