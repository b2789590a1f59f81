// Numbers and times as texts.

/** Shown in place of a missing value. */
export const MISSING = "–";

/** @param {string} words */
export const capitalize = (words) => words.charAt(0).toUpperCase() + words.slice(1);
/** @param {number} value */
export const formatWhole = (value) => value.toLocaleString("en");
/** @param {number} value */
export const formatCount = (value) => (value >= 100 || Number.isInteger(value) ? formatWhole(Math.round(value)) : value.toFixed(1));
/** @param {number} value */
export const formatRate = (value) => (value > 0 && value < 10 ? value.toFixed(1) : formatCount(Math.round(value)));
/** @param {number} value 0 to 1 */
export const formatShare = (value) => `${Math.round(value * 100)} %`;
/** @param {number} ms of an age */
export const formatAge = (ms) =>
  ms < 1000 ? `${Math.round(ms)} ms` : ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : ms < 120_000 ? `${Math.floor(ms / 1000)} s` : formatMinutes(Math.floor(ms / 60_000));
/** @param {number} ms of a measured time */
export const formatTime = (ms) => (ms < 10 ? `${ms.toFixed(1)} ms` : ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

/** @param {number} minutes */
const formatMinutes = (minutes) => (minutes < 120 ? `${minutes} min` : `${formatWhole(Math.floor(minutes / 60))} h`);
