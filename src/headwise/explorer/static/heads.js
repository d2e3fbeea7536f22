// @ts-check
/** The panel of heads: the grid on the left, the chosen heads on the right. */

/** @import {HeadGrid, ModelAnswer, TextAnswer} from "./types.js" */

import * as api from "./api.js";
import { Grid } from "./grid.js";
import { HeadCard } from "./head_card.js";
import * as state from "./state.js";

const $ = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
const MOST_BESIDE = 3;
const BUTTONS = /** @type {Record<string, string>} */ ({
  scan: "Find roles",
  importance: "Measure importance",
});

export class HeadsPanel {
  /** @param {ModelAnswer} about @param {{fail: (error: any) => void}} page */
  constructor(about, page) {
    this.about = about;
    this.page = page;
    this.grid = new Grid($("grid"), about.layers, {
      press: (name) => this.press(name),
      point: (name) => this.point(name),
      isNumbered: true,
    });
    this.found = /** @type {Record<string, HeadGrid>} */ ({});
    this.text = /** @type {TextAnswer} */ (/** @type {unknown} */ (null)); // until one is read
    /** The text whose small maps are drawn. */
    this.drawing = "";
    /** @type {HeadCard[]} */
    this.cards = [];
    this.options();
    for (const name of ["colour", "order", "role"]) {
      $(name).addEventListener("change", () => state.set({ [name]: $(name).value }));
    }
    for (const name of ["scan", "importance"])
      $(name).addEventListener("click", () => this.job(name));
    for (const job of about.jobs) if (job.state !== "idle") this.follow(job.name);
  }

  options() {
    const measures = { ...(this.text?.heads.words ?? this.about.measures) };
    for (const found of Object.values(this.found)) Object.assign(measures, found.words);
    const fill = (/** @type {string} */ id, /** @type {[string, string][]} */ pairs) => {
      const chosen = state.get(id);
      $(id).replaceChildren(
        ...pairs.map(([value, words]) => new Option(words, value, false, value === chosen)),
      );
    };
    const names = /** @type {[string, string][]} */ (Object.entries(measures));
    fill("colour", [["maps", "Small maps"], ["role", "Roles"], ...names]);
    fill("order", [["layer", "By layer"], ...names]);
    fill("role", [
      ["", "All"],
      .../** @type {[string, string][]} */ (
        Object.keys(this.about.roles).map((role) => [role, role])
      ),
    ]);
  }

  /** A new text was read. @param {TextAnswer} text */
  read(text) {
    this.text = text;
    this.drawing = "";
    for (const card of this.cards) card.shown = ""; // it may be the same text, which was not kept
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
      before = [...$("one").childNodes];
    if (shown.length !== before.length || shown.some((el, at) => el !== before[at]))
      $("one").replaceChildren(...shown); // a moved button loses the focus
    const missing = state.get("head") && `There is no head ${state.get("head")} in this model. `;
    if (!names.length)
      $("one").textContent =
        missing +
        "Choose a head in the grid: click it, or walk there with the arrow keys and press Enter.";
    for (const card of this.cards) card.show();
  }

  /** @param {string} column @returns {Record<string, number | null>} */
  values(column) {
    const found =
      Object.values(this.found).find((one) => column in one.measures) ?? this.text.heads; // no column is in both
    const values = found.measures[column] ?? [];
    return Object.fromEntries(
      found.names.map((/** @type {string} */ name, /** @type {number} */ at) => [
        name,
        values[at] ?? null,
      ]),
    );
  }

  /** Whether there are numbers of this name. @param {string} column */
  isKnown(column) {
    return [this.text.heads, ...Object.values(this.found)].some((one) => column in one.measures);
  }

  /** Heads of the chosen role; null if all roles are. @returns {Set<string> | null} */
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

  /** Say what the grid shows, and what it cannot show. @param {...(Node | string)} words */
  legend(...words) {
    const colour = state.get("colour"),
      jobs = this.about.job_measures,
      job = Object.keys(jobs).find((one) => colour in jobs[one] && !this.found[one]);
    if (job)
      words.push(` Not measured yet: ${jobs[job][colour]}. Press ${BUTTONS[job]} to see it.`);
    if (this.held()?.size === 0)
      words.push(
        ` No head has the role ${state.get("role")}${this.found.scan ? "." : " on this text alone. Press Find roles to look further."}`,
      );
    $("legend").replaceChildren(...words);
  }

  /** @returns {Record<string, string[]>} */
  roles() {
    const found = this.found.scan ?? this.text.heads;
    return Object.fromEntries(
      found.names.map((/** @type {string} */ name, /** @type {number} */ at) => [
        name,
        found.roles[at],
      ]),
    );
  }

  colour() {
    const colour = state.get("colour");
    if (colour !== "role" && !this.isKnown(colour)) return this.maps();
    this.thumbs?.abort();
    if (colour === "role") {
      this.grid.roles(this.roles(), this.about.roles);
      const held = Object.values(this.roles()).flat();
      const on =
        this.held()?.size === 0
          ? ""
          : this.found.scan
            ? "From built-in text and sentences."
            : "From this text alone; Find roles reads more.";
      const shown = Object.keys(this.about.roles).filter((role) => held.includes(role));
      const without = Object.values(this.roles()).filter((roles) => !roles.length).length;
      this.legend(
        ...shown.map((role) => this.swatch(role, held.filter((one) => one === role).length)),
        ...(without ? [this.swatch("no role", without)] : []),
        ` ${on}`,
      );
    } else {
      this.legend(
        this.grid.colour(
          this.values(colour),
          { ...this.about.measures, ...this.found.scan?.words, ...this.found.importance?.words }[
            colour
          ] ?? colour,
        ),
      );
    }
  }

  /** A role with its colour and how many heads have it. @param {string} role @param {number} count */
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
      "Each small map: rows look at columns, stronger colour is more; the top left is the start of the text.",
    );
    if (this.drawing === name && !this.thumbs?.signal.aborted) return;
    this.thumbs?.abort();
    const mine = (this.thumbs = new AbortController());
    this.drawing = name;
    try {
      for (const layer of this.about.layers) {
        if (!layer.heads) continue;
        const found = await api.numbers(
          `/api/readings/${name}/thumbs?${api.query({ layer: layer.name, size: 32 })}`,
          mine.signal,
        );
        if (mine.signal.aborted) return;
        this.grid.maps(layer.name, found);
      }
      document.body.dataset.drawn = name;
    } catch (error) {
      if (mine.signal.aborted) return;
      this.drawing = "";
      this.page.fail(error);
    }
  }

  /** Other colours. */
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
        .filter((one) => one && one !== name)
        .join(","),
    });
    const isBelow =
      $("one").getBoundingClientRect().top >= $("grid").getBoundingClientRect().bottom;
    if (isBelow) $("one").scrollIntoView({ block: "start" });
  }

  /** @param {string} name */
  point(name) {
    if (!this.text) return;
    const at = this.text.heads.names.indexOf(name),
      measures = this.text.heads.measures;
    const shown = ["normalised_entropy", "distance", "previous", "first", "special"].filter(
      (one) => measures[one]?.[at] != null,
    );
    const roles = (this.roles()[name] ?? []).join(", ");
    $("figures").textContent =
      `${name}${roles ? ` (${roles}${this.found.scan ? "" : ", from this text alone"})` : ""}: ${shown.map((one) => `${one.replace("_", " ")} ${Number(measures[one][at]).toFixed(2)}`).join(", ")}`;
  }

  /** What long work has found. @param {string} name @param {HeadGrid} found */
  add(name, found) {
    this.found[name] = found;
    this.options();
    this.show(new Set(["order"]));
  }

  /** Begin long work, or stop it. @param {string} name */
  async job(name) {
    try {
      if ($(name).dataset.running) await api.stop(`/api/jobs/${name}`);
      else await api.post(`/api/jobs/${name}`, {});
      await this.follow(name, true);
    } catch (error) {
      this.page.fail(error);
    }
  }

  /** Wait for long work; what was asked for here is shown at once. @param {string} name @param {boolean} [isAsked] */
  async follow(name, isAsked = false) {
    const button = $(name);
    let words = BUTTONS[name];
    if (button.dataset.followed) return;
    button.dataset.followed = "1";
    const colour = state.get("colour"); // who chooses another meanwhile keeps it
    try {
      let job = await api.get(`/api/jobs/${name}`);
      while (job.state === "running") {
        if (job.found && !this.found[name]) this.add(name, job.found); // it was found before, and is sought again
        button.dataset.running = "1";
        button.textContent = `Stop (${job.stage || "starting"}${job.total ? ` ${Math.round((100 * job.done) / job.total)}%` : ""})`;
        await new Promise((done) => setTimeout(done, 400));
        job = await api.get(`/api/jobs/${name}`);
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
