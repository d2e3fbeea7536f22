// @ts-check
/** Large numbers and sizes in bytes, as `headwise plan` writes them. */

/** @type {[number, string][]} */
const UNITS = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];
/** @type {[number, string][]} */
const BYTES = [
  [40, "TiB"],
  [30, "GiB"],
  [20, "MiB"],
  [10, "KiB"],
];

/** "3.55M". @param {number} value */
export function short(value) {
  for (const [size, unit] of UNITS)
    if (value >= size) return `${Number((value / size).toPrecision(3))}${unit}`;
  return String(Math.round(value));
}

/** "36 MiB". @param {number} bytes */
export function inBytes(bytes) {
  for (const [power, unit] of BYTES)
    if (bytes >= 2 ** power)
      return `${Number((bytes / 2 ** power).toPrecision(3)).toLocaleString("en")} ${unit}`;
  return bytes ? `${bytes} B` : "none";
}

/** "8.1 times", "0.25 times". @param {number} ratio */
export function timesAs(ratio) {
  const text = ratio >= 10 ? Math.round(ratio).toLocaleString("en") : ratio.toPrecision(2);
  return `${Number(text.replace(/,/g, "")).toLocaleString("en")} times`;
}
