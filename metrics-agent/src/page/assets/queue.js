// The queue of flow control: how many requests of each priority and tenant wait, and for how long.

import { sum } from "/page/agent.js";
import { formatShare } from "/page/charts.js";
import { formatAge, MISSING } from "/page/table.js";

/** @import { Band, Status, Tenant, Waits } from "/page/agent.js" */

/** The end of most waits; the others are listed. */
const DISPATCHED = "Dispatched";

const HEAD = ["Priority", "Waiting", "Full", "Wait p50", "p90", "p99", "Dispatched", "Other ends"];

/** @param {number} count */
const formatWhole = (count) => count.toLocaleString("en");

/** @param {number} ms */
const formatWait = (ms) => (ms < 10 ? `${ms.toFixed(1)} ms` : formatAge(Math.round(ms)));

/** @param {Waits | null} waits */
const formatWaits = (waits) =>
  waits ? [waits.p50, waits.p90, waits.p99].map(formatWait) : [MISSING, MISSING, MISSING];

/** @param {Band} band */
function cells({ priority, requests, bytes, max_requests, max_bytes, wait_ms, outcomes }) {
  const shares = [requests / max_requests, bytes / max_bytes].filter(Number.isFinite);
  const others = Object.entries(outcomes).filter(([outcome, count]) => outcome !== DISPATCHED && count > 0);
  return [
    String(priority), formatWhole(requests), shares.length > 0 ? formatShare(Math.max(...shares)) : MISSING, ...formatWaits(wait_ms),
    formatWhole(outcomes[DISPATCHED] ?? 0), others.map(([outcome, count]) => `${formatWhole(count)} × ${outcome}`).join(", ") || "0",
  ];
}

/** @param {Tenant} tenant */
const tenantCells = ({ fairness_id, requests, wait_ms }) =>
  [fairness_id, formatWhole(requests), "", ...formatWaits(wait_ms), "", ""];

/**
 * Requests that wait in the proxies, for the facts above the charts; nothing without a queue.
 * @param {Status} status
 * @returns {[name: string, value: string, note?: string][]}
 */
export function queueFacts({ queue }) {
  if (!queue) return [];
  const saturation = queue.saturation === null ? MISSING : queue.saturation.toFixed(2);
  return [["Queued", formatWhole(sum(queue.bands.map((it) => it.requests))), `saturation ${saturation}`]];
}

/**
 * @param {HTMLElement} place
 * @param {Status} status
 */
export function showQueue(place, { queue }) {
  place.hidden = !queue;
  if (!queue) return;
  const list = document.createElement("table");
  const head = list.createTHead().insertRow();
  for (const name of HEAD) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name;
    head.append(cell);
  }
  const body = list.createTBody();
  for (const band of queue.bands) {
    const row = body.insertRow();
    for (const text of cells(band)) row.insertCell().textContent = text;
    for (const tenant of band.tenants ?? []) {
      const row = body.insertRow();
      row.className = "tenant";
      row.title = tenant.fairness_id;
      for (const text of tenantCells(tenant)) row.insertCell().textContent = text;
    }
  }
  const frame = document.createElement("div");
  frame.className = "frame";
  frame.append(list);
  const heading = document.createElement("h2");
  heading.textContent = "Queue";
  place.replaceChildren(heading, frame);
}
