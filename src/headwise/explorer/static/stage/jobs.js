// @ts-check
/** Long work in the background: find roles, measure importance; its progress and results. */

/** @import {HeadGrid, JobAnswer} from "../types.js" */
/** @import {Host} from "./host.js" */

/** Milliseconds between questions about a running job. */
const ASK = 400;

export class Jobs {
  /** @param {Host} host @param {() => void} changed @param {(error: unknown) => void} failed */
  constructor(host, changed, failed) {
    this.host = host;
    this.changed = changed;
    this.failed = failed;
    this.isOver = false;
    /** Columns that finished jobs have added. @type {Record<string, HeadGrid>} */
    this.grids = {};
    /** Progress of running jobs, in words. @type {Record<string, string>} */
    this.running = {};
    for (const job of host.about.jobs) {
      if (job.found) this.grids[job.name] = job.found;
      if (job.state === "running") this.follow(job.name);
      else if (job.state === "done" && !job.found) this.follow(job.name);
    }
  }

  destroy() {
    this.isOver = true;
  }

  /** Start a job, or stop it if it runs. @param {string} name */
  async toggle(name) {
    try {
      const isRunning = name in this.running;
      await this.host.job?.(name, isRunning ? "stop" : "start");
      if (!isRunning) await this.follow(name);
    } catch (error) {
      this.failed(error);
    }
  }

  /** Ask for a job's state until it has ended. @param {string} name */
  async follow(name) {
    const { host } = this;
    if (name in this.running || !host.job) return;
    const ask = () => /** @type {Promise<JobAnswer>} */ (host.job?.(name, "state"));
    this.running[name] = "Stop";
    this.changed();
    try {
      let job = await ask();
      while (job.state === "running" && !this.isOver) {
        this.running[name] = progress(job);
        this.changed();
        await new Promise((done) => setTimeout(done, ASK));
        job = await ask();
      }
      if (job.state === "failed") throw new Error(job.error);
      if (job.found) this.grids[name] = job.found;
      if (job.found && name === "scan") await this.host.refresh?.();
    } catch (error) {
      this.failed(error);
    } finally {
      delete this.running[name];
      if (!this.isOver) this.changed();
    }
  }
}

/** @param {JobAnswer} job */
function progress({ stage, done, total }) {
  const share = total ? `, ${Math.round((100 * done) / total)}%` : "";
  return `Stop (${stage || "starting"}${share})`;
}
