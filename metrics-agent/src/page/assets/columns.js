// The columns of the table of endpoints.

import { formatCount, formatRate, formatShare, formatAge, formatTime, MISSING } from "/page/formats.js";

/** @import { Endpoint, Lora, Series, State } from "/page/agent.js" */

/**
 * All states, the worst first, with the names that the page shows.
 * @type {[State, string][]}
 */
export const STATES = [
  ["not_ready", "not ready"],
  ["failing", "failing"],
  ["no_reading", "no reading"],
  ["stale", "stale"],
  ["saturated", "saturated"],
  ["ready", "ready"],
];
export const STATE_NAMES = /** @type {Record<State, string>} */ (Object.fromEntries(STATES));
const STATE_RANKS = /** @type {Record<State, number>} */ (Object.fromEntries(STATES.map(([state], rank) => [state, rank])));

/** @param {Lora} lora */
export function formatAdapters(lora) {
  const names = [...lora.running, ...lora.waiting.map((name) => `${name} (waiting)`)];
  return names.length > 0 ? names.join(", ") : `none of ${lora.max}`;
}

/**
 * Why an endpoint is in its state, and since when; empty for a ready one, and with an older agent.
 * @param {Endpoint} endpoint
 */
export function formatReason({ state, reason, since_ms }) {
  if (state === "ready") return "";
  // A number and its unit stay on one line.
  return [reason ?? "", since_ms === undefined ? "" : formatAge(since_ms).replace(" ", "\u00a0")].filter(Boolean).join(", ");
}

/**
 * A column shows either a number, by `format`, or a content that `fill` makes.
 * @typedef {object} Column
 * @property {string} label
 * @property {string} [title] meaning of the column
 * @property {(endpoint: Endpoint) => string | number | null | undefined} value the sort key
 * @property {(value: number) => string} [format]
 * @property {(cell: HTMLTableCellElement, endpoint: Endpoint) => void} [fill]
 * @property {"sum" | "mean"} [total] how the numbers of a group are combined
 * @property {boolean} [isAlarm] any number above zero stands out
 * @property {Series} [series] drawn next to the number
 * @property {number} [minimum] of the drawing's upper end
 * @property {number} [width] in pixels; the one column without it takes the rest
 */

/** @type {Column[]} */
export const COLUMNS = [
  { label: "State", title: "The worst first", value: (it) => STATE_RANKS[it.state], fill: fillState, width: 184 },
  { label: "Endpoint", value: (it) => it.name, fill: fillName },
  {
    label: "Waiting", title: "Requests in the server's own queue", value: (it) => it.waiting, format: formatCount, total: "sum",
    series: "waiting", minimum: 5, width: 66,
  },
  { label: "Running", title: "Requests that the server processes", value: (it) => it.running, format: formatCount, total: "sum", width: 78 },
  { label: "KV cache", value: (it) => it.kv_usage, format: formatShare, total: "mean", series: "kv_usage", minimum: 1, width: 70 },
  { label: "In flight", title: "Requests of all proxies that have not ended", value: (it) => it.sent?.requests, format: formatCount, total: "sum", width: 78 },
  { label: "Picks/s", value: (it) => it.sent?.picks_per_second, format: formatRate, total: "sum", series: "picks_per_second", minimum: 1, width: 62 },
  {
    label: "Errors/s", title: "Failed requests in the last minute", value: (it) => it.sent?.errors_per_second, format: formatRate, total: "sum",
    isAlarm: true, width: 78,
  },
  {
    label: "First byte", title: "Median of the last minute, from the choice of the endpoint to the first byte of the body",
    value: (it) => it.sent?.first_byte_ms?.p50, format: formatTime, width: 88,
  },
  { label: "LoRA adapters", value: (it) => it.lora?.running.length, fill: fillAdapters, width: 136 },
];

/**
 * @param {Element} node
 * @param {string} text
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * The child of this tag, made if there is none.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {Element} cell
 * @param {K} tag
 * @returns {HTMLElementTagNameMap[K]}
 */
export const child = (cell, tag) => cell.querySelector(tag) ?? cell.appendChild(document.createElement(tag));

/**
 * @param {HTMLTableCellElement} cell
 * @param {Endpoint} endpoint
 */
function fillState(cell, endpoint) {
  const mark = child(cell, "span");
  if (mark.dataset.state !== endpoint.state) {
    mark.className = "state";
    mark.dataset.state = endpoint.state;
    setText(mark, STATE_NAMES[endpoint.state]);
  }
  const reason = formatReason(endpoint);
  setText(child(cell, "small"), reason);
  cell.title = reason;
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Endpoint} endpoint
 */
function fillName(cell, endpoint) {
  cell.className = "name";
  // The agent names an endpoint without a name of its own by its address: `default/10.0.0.1:8000`.
  const isOnlyAddress = endpoint.name === `default/${endpoint.address}`;
  setText(child(cell, "b"), isOnlyAddress ? endpoint.address : endpoint.name);
  setText(child(cell, "span"), isOnlyAddress ? "" : endpoint.address);
  cell.title = endpoint.name;
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Endpoint} endpoint
 */
function fillAdapters(cell, { lora }) {
  cell.className = lora && lora.running.length > 0 ? "lora" : "lora muted";
  setText(cell, lora ? formatAdapters(lora) : MISSING);
  cell.title = lora ? `${lora.running.length} of ${lora.max} loaded: ${formatAdapters(lora)}` : "";
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Column} column
 * @param {string | number | null | undefined} value
 */
export function fillNumber(cell, { format, isAlarm = false }, value) {
  const isNumber = typeof value === "number";
  cell.classList.toggle("muted", !isNumber || value === 0);
  if (isAlarm) cell.classList.toggle("alarm", isNumber && value > 0);
  setText(cell, isNumber && format ? format(value) : MISSING);
}

/**
 * The text of an endpoint that the filter searches.
 * @param {Endpoint} endpoint
 */
export function searchedText({ name, address, state, reason, labels = {}, lora }) {
  const labelTexts = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  const adapters = lora ? [...lora.running, ...lora.waiting] : [];
  return [name, address, STATE_NAMES[state], reason ?? "", ...labelTexts, ...adapters].join("\n").toLowerCase();
}
