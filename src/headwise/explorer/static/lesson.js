// @ts-check
/** The lesson. */
export class LessonPanel {
  /** @param {any} about @param {any} page */
  constructor(about, page) { this.page = page; }
  show() {}
}
