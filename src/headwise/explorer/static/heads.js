// @ts-check
/** The panel of heads: the grid on the left, the chosen heads on the right. */

/** @import {HeadGrid, JobAnswer, ModelAnswer, TextAnswer} from "./types.js" */
/** @import {Page} from "./page.js" */

import * as api from "./api.js";
import { Grid } from "./grid.js";
import { HeadCard } from "./head_card.js";
import { byId } from "./page.js";
import * as state from "./state.js";

const MOST_BESIDE = 3;
const BUTTONS = /** @type {Record<string, string>} */ ({
  scan: "Find roles",
  importance: "Measure importance",
});

export class HeadsPanel {
  /** @param {ModelAnswer} about @param {Page} page */
  constructor(about, page) {
    this.about = about;
    this.page = page;
    this.side = byId("one", HTMLElement);
    this.grid = new Grid(byId("grid", HTMLElement), about.layers, {
      press: (name) => this.press(name),
      point: (name) => this.point(name),
      isNumbered: true,
    });
    /** Columns that finished jobs have added. */
    this.jobGrids = /** @type {Record<string, HeadGrid>} */ ({});
    this.text = /** @type {TextAnswer} */ (/** @type {unknown} */ (null)); // until a text is read
    /** The text whose thumbnail maps are drawn. */
    this.drawing = "";
    /** @type {HeadCard[]} */
    this.cards = [];
    this.options();
    for (const name of ["colour", "order", "role"]) {
      const select = byId(name, HTMLSelectElement);
      select.addEventListener("change", () => state.set({ [name]: select.value }));
    }
    for (const name of ["scan", "importance"])
      byId(name, HTMLButtonElement).addEventListener("click", () => this.job(name));
    for (const job of about.jobs) if (job.state !== "idle") this.follow(job.name);
  }

  options() {
    const measures = { ...(this.text?.heads.words ?? this.about.measures) };
    for (const grid of Object.values(this.jobGrids)) Object.assign(measures, grid.words);
    const fill = (/** @type {string} */ id, /** @type {[string, string][]} */ pairs) => {
      const chosen = state.get(id);
      byId(id, HTMLSelectElement).replaceChildren(
        ...pairs.map(([value, words]) => new Option(words, value, false, value === chosen)),
      );
    };
    const names = Object.entries(measures);
    fill("colour", [["maps", "Small maps"], ["role", "Roles"], ...names]);
    fill("order", [["layer", "By layer"], ...names]);
    const roles = Object.keys(this.about.roles);
    fill("role", [
      ["", "All"],
      ...roles.map((role) => /** @type {[string, string]} */ ([role, role])),
    ]);
  }

  /** A new text was read. @param {TextAnswer} text */
  read(text) {
    this.text = text;
    this.drawing = "";
    for (const card of this.cards) card.shown = ""; // the same text may have been read again
    this.options();
    this.show(new Set(["order"]));
  }

  /** @param {Set<string>} changed */
  show(changed) {
    if (!this.text) return;
    if (changed.has("order"))
      this.grid.arrange(this.isKnown(state.get("order")) ? this.values(state.get("order")) : null);
    this.colour();
    const held = this.held(),
      isAll = !held?.size;
    this.grid.filter((name) => isAll || held.has(name));
    const names = this.chosen();
    this.grid.choose(names[0] ?? "");
    this.heads(names);
  }

  chosen() {
    const names = [
      state.get("head") || this.text.default_head,
      ...state.get("beside").split(","),
    ].filter((name) => this.grid.squares.has(name));
    return [...new Set(names)].slice(0, MOST_BESIDE + 1);
  }

  /** @param {string[]} names */
  heads(names) {
    this.cards.filter((card) => !names.includes(card.name)).forEach((card) => card.end());
    this.cards = names.map(
      (name) => this.cards.find((card) => card.name === name) ?? new HeadCard(name, this),
    );
    const shown = this.cards.map((card) => card.el),
      before = [...this.side.childNodes];
    if (shown.length !== before.length || shown.some((el, at) => el !== before[at]))
      this.side.replaceChildren(...shown); // only if needed: a moved button loses the focus
    const missing = state.get("head") && `There is no head ${state.get("head")} in this model. `;
    if (!names.length)
      this.side.textContent =
        missing +
        "Choose a head in the grid: click it, or walk there with the arrow keys and press Enter.";
    for (const card of this.cards) card.show();
  }

  /** @param {string} column @returns {Record<string, number | null>} */
  values(column) {
    const grids = [...Object.values(this.jobGrids), this.text.heads]; // they share no columns
    const grid = grids.find(({ measures }) => column in measures);
    return Object.fromEntries(
      (grid?.names ?? []).map((name, at) => [name, grid?.measures[column][at] ?? null]),
    );
  }

  /** Whether a measure has values. @param {string} column */
  isKnown(column) {
    const grids = [this.text.heads, ...Object.values(this.jobGrids)];
    return grids.some(({ measures }) => column in measures);
  }

  /** Heads with the chosen role; null if no role is chosen. @returns {Set<string> | null} */
  held() {
    const role = state.get("role");
    return role
      ? new Set(
          Object.entries(this.roles())
            .filter(([, roles]) => roles.includes(role))
            .map(([name]) => name),
        )
      : null;
  }

  /** Describe what the grid shows and what it cannot show yet. @param {...(Node | string)} words */
  legend(...words) {
    const colour = state.get("colour"),
      jobs = this.about.job_measures,
      job = Object.keys(jobs).find((name) => colour in jobs[name] && !this.jobGrids[name]);
    if (job)
      words.push(` Not measured yet: ${jobs[job][colour]}. Press ${BUTTONS[job]} to see it.`);
    if (this.held()?.size === 0) {
      const more = " on this text alone. Press Find roles to look further.";
      const end = this.jobGrids.scan ? "." : more;
      words.push(` No head has the role ${state.get("role")}${end}`);
    }
    byId("legend", HTMLElement).replaceChildren(...words);
  }

  /** @returns {Record<string, string[]>} */
  roles() {
    const grid = this.jobGrids.scan ?? this.text.heads;
    return Object.fromEntries(grid.names.map((name, at) => [name, grid.roles[at]]));
  }

  colour() {
    const colour = state.get("colour");
    if (colour !== "role" && !this.isKnown(colour)) return this.maps();
    this.thumbs?.abort();
    if (colour !== "role") {
      const { scan, importance } = this.jobGrids;
      const words = { ...this.about.measures, ...scan?.words, ...importance?.words };
      return this.legend(this.grid.colour(this.values(colour), words[colour] ?? colour));
    }
    const roles = this.roles();
    this.grid.roles(roles, this.about.roles);
    const held = Object.values(roles).flat();
    const shown = Object.keys(this.about.roles).filter((role) => held.includes(role));
    const without = Object.values(roles).filter((names) => !names.length).length;
    const source = this.jobGrids.scan
      ? "From built-in text and sentences."
      : "From this text alone; Find roles reads more.";
    this.legend(
      ...shown.map((role) => this.swatch(role, held.filter((name) => name === role).length)),
      ...(without ? [this.swatch("no role", without)] : []),
      ` ${this.held()?.size === 0 ? "" : source}`,
    );
  }

  /** A role's colour and number of heads. @param {string} role @param {number} count */
  swatch(role, count) {
    const chip = document.createElement("span");
    chip.className = "chip role";
    chip.style.borderLeftColor = this.about.roles[role]?.colour ?? "var(--raised)";
    chip.textContent = `${this.about.roles[role]?.letter ?? ""} ${role} ${count}`.trim();
    chip.title = this.about.roles[role]?.meaning ?? "Plain squares: no role was found";
    return chip;
  }

  async maps() {
    const { name } = this.text;
    this.legend(
      "Each small map: rows look at columns, stronger colour is more; the top left is the start " +
        "of the text.",
    );
    if (this.drawing === name && !this.thumbs?.signal.aborted) return;
    this.thumbs?.abort();
    const mine = (this.thumbs = new AbortController());
    this.drawing = name;
    try {
      for (const layer of this.about.layers) {
        if (!layer.heads) continue;
        const query = api.query({ layer: layer.name, size: 32 });
        const thumbs = await api.numbers(`/api/readings/${name}/thumbs?${query}`, mine.signal);
        if (mine.signal.aborted) return;
        this.grid.maps(layer.name, thumbs);
      }
      document.body.dataset.drawn = name;
    } catch (error) {
      if (mine.signal.aborted) return;
      this.drawing = "";
      this.page.fail(error);
    }
  }

  /** Draw again after the theme has changed. */
  light() {
    this.drawing = "";
    if (this.text) this.colour();
    for (const card of this.cards) card.light();
  }

  /** @param {string} name */
  press(name) {
    state.set({
      head: name,
      beside: state
        .get("beside")
        .split(",")
        .filter((pinned) => pinned && pinned !== name)
        .join(","),
    });
    const { top } = this.side.getBoundingClientRect();
    const isBelow = top >= this.grid.el.getBoundingClientRect().bottom;
    if (isBelow) this.side.scrollIntoView({ block: "start" });
  }

  /** @param {string} name */
  point(name) {
    if (!this.text) return;
    const at = this.text.heads.names.indexOf(name),
      measures = this.text.heads.measures;
    const figures = ["normalised_entropy", "distance", "previous", "first", "special"]
      .filter((measure) => measures[measure]?.[at] != null)
      .map((measure) => `${measure.replace("_", " ")} ${Number(measures[measure][at]).toFixed(2)}`);
    const roles = (this.roles()[name] ?? []).join(", ");
    const source = this.jobGrids.scan ? "" : ", from this text alone";
    byId("figures", HTMLElement).textContent =
      `${name}${roles ? ` (${roles}${source})` : ""}: ${figures.join(", ")}`;
  }

  /** Add the columns that a job has measured. @param {string} name @param {HeadGrid} grid */
  add(name, grid) {
    this.jobGrids[name] = grid;
    this.page.isScanned = Boolean(this.jobGrids.scan);
    this.options();
    this.show(new Set(["order"]));
  }

  /** Start or stop a job. @param {string} name */
  async job(name) {
    try {
      if (byId(name, HTMLButtonElement).dataset.running) await api.stop(`/api/jobs/${name}`);
      else await api.post(`/api/jobs/${name}`, {});
      await this.follow(name, true);
    } catch (error) {
      this.page.fail(error);
    }
  }

  /**
   * Wait for a job; if `isAsked`, show its result as soon as it has finished.
   * @param {string} name @param {boolean} [isAsked]
   */
  async follow(name, isAsked = false) {
    const button = byId(name, HTMLButtonElement);
    let words = BUTTONS[name];
    if (button.dataset.followed) return;
    button.dataset.followed = "1";
    const colour = state.get("colour"); // a colour chosen meanwhile is kept
    const ask = async () => /** @type {JobAnswer} */ (await api.get(`/api/jobs/${name}`));
    try {
      let job = await ask();
      while (job.state === "running") {
        // Show the last result while the job runs again.
        if (job.found && !this.jobGrids[name]) this.add(name, job.found);
        const share = job.total ? ` ${Math.round((100 * job.done) / job.total)}%` : "";
        button.dataset.running = "1";
        button.textContent = `Stop (${job.stage || "starting"}${share})`;
        await new Promise((done) => setTimeout(done, 400));
        job = await ask();
      }
      if (job.state === "failed") this.page.fail(new Error(job.error));
      if (job.found) {
        words += " \u2713";
        this.add(name, job.found);
        if (isAsked && state.get("colour") === colour)
          state.set({ colour: name === "scan" ? "role" : "zero" });
        this.options();
      }
    } catch (error) {
      this.page.fail(error);
    } finally {
      button.textContent = words;
      button.dataset.running = "";
      delete button.dataset.followed;
    }
  }
}
