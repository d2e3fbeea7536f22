// @ts-check
/** Requests to the page's own server, for JSON or for numbers with their shape. */

/** An error with the HTTP status of the answer, or 0 if the server did not answer. */
export class Refused extends Error {
  /** @param {number} status @param {string} sentence */
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/**
 * The error's message with a capital letter, unless it begins with a name such as d_model.
 * @param {Error} error
 */
export const sentence = (error) =>
  error.message.replace(/^[a-z](?=[a-z]*[ ,])/, (letter) => letter.toUpperCase());

/**
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Refused(0, "headwise does not answer: is it still running?");
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, body.error ?? `the server answered ${answer.status}`);
}

/** @param {Record<string, unknown>} values @returns {string} */
export const query = (values) =>
  new URLSearchParams(
    Object.entries(values).map(([name, value]) => [name, String(value)]),
  ).toString();

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<unknown>} */
export const get = async (path, signal) => (await ask(path, { signal })).json();

/** @param {string} path @returns {Promise<Blob>} */
export const file = async (path) => (await ask(path)).blob();

/**
 * @param {string} path @param {unknown} body @param {AbortSignal} [signal]
 * @returns {Promise<unknown>}
 */
export const post = async (path, body, signal) => (await posted(path, body, signal)).json();

/** @param {string} path @param {unknown} body @param {AbortSignal} [signal] */
export const posted = (path, body, signal) =>
  ask(path, {
    method: "POST",
    body: JSON.stringify(body),
    signal,
    headers: { "Content-Type": "application/json" },
  });

/** @param {string} path */
export const stop = async (path) => (await ask(path, { method: "DELETE" })).json();

/**
 * A body of bytes, with their shape from the response's X-Shape header.
 * @param {string} path
 * @param {AbortSignal} [signal]
 */
export async function bytes(path, signal) {
  const answer = await ask(path, { signal });
  const shape = (answer.headers.get("X-Shape") ?? "").split(",").map(Number);
  return { shape, buffer: await answer.arrayBuffer() };
}

/** @param {Blob} blob @param {string} name */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
