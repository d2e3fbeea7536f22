// @ts-check
/**
 * Drawings that fill the width they have, in units of a sixteenth of a rem, so that text keeps its
 * size.
 */

import { svg } from "../stage/dom.js";

export class Room {
  /**
   * @param {string} look class of the drawing @param {string} label for screen readers
   * @param {number} height @param {(width: number) => void} draw called when the width has changed
   */
  constructor(look, label, height, draw) {
    this.width = 0;
    this.height = height;
    this.el = svg("svg", { class: look, role: "img", "aria-label": label });
    this.resizer = new ResizeObserver(() => {
      const unit = (parseFloat(getComputedStyle(document.documentElement).fontSize) || 16) / 16;
      const width = Math.round(this.el.clientWidth / unit);
      if (!width || width === this.width) return;
      this.width = width;
      this.el.setAttribute("viewBox", `0 0 ${width} ${height}`);
      draw(width);
    });
    this.resizer.observe(this.el);
    this.el.style.height = `${height / 16}rem`;
  }

  destroy() {
    this.resizer.disconnect();
  }
}
