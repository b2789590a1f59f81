// The proxies' queue of flow control: how many requests of each priority and tenant wait, and for how long.

import { panel } from "/page/charts.js";
import { formatCount, formatShare, formatTime, formatWhole, MISSING } from "/page/formats.js";
import { showRows } from "/page/lists.js";

/** @import { Band, Status, Tenant, Timeline, Waits } from "/page/agent.js" */
/** @import { Chart } from "/page/charts.js" */

/** The end of most waits; the others are listed. */
const DISPATCHED = "Dispatched";

/** Priorities that the chart shows: the priorities with the most requests now. */
const MAX_LINES = 6;

const HEAD = ["Priority", "Queued", "Full", "Wait p50", "p90", "p99", "Dispatched", "Other ends"];

/** @param {Waits | null} waits */
const formatWaits = (waits) =>
  waits ? [waits.p50, waits.p90, waits.p99].map(formatTime) : [MISSING, MISSING, MISSING];

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

export class QueueView {
  #section;
  #list = document.createElement("div");
  #place = document.createElement("div");
  /** @type {{ chart: Chart, priorities: number[] } | null} */
  #chart = null;

  /** @param {HTMLElement} section */
  constructor(section) {
    this.#section = section;
    const heading = document.createElement("h2");
    heading.textContent = "Queue of the proxies";
    const columns = document.createElement("div");
    columns.className = "columns";
    columns.append(this.#list, this.#place);
    section.append(heading, columns);
  }

  /**
   * @param {Status} status
   * @param {Timeline} timeline
   */
  show({ queue }, timeline) {
    this.#section.hidden = !queue;
    if (!queue) return;
    const rows = queue.bands.flatMap((band) => [
      { texts: cells(band) },
      ...(band.tenants ?? []).map((tenant) => ({ texts: tenantCells(tenant), className: "tenant", title: tenant.fairness_id })),
    ]);
    showRows(this.#list, HEAD, rows);
    this.#draw(queue.bands, timeline);
  }

  /**
   * @param {Band[]} bands
   * @param {Timeline} timeline
   */
  #draw(bands, timeline) {
    const fullest = [...bands].sort((a, b) => b.requests - a.requests).slice(0, MAX_LINES).map(({ priority }) => priority);
    const isDrawn = (/** @type {Band} */ { priority }) => fullest.includes(priority);
    // While all have room, the lines keep their colours.
    const priorities = bands.filter(isDrawn).map(({ priority }) => priority);
    if (this.#chart?.priorities.join() !== priorities.join()) {
      this.#chart?.chart.remove();
      const lines = priorities.map((priority) => `priority ${priority}`);
      this.#place.replaceChildren();
      this.#chart = { chart: panel(this.#place, { title: "Queued by priority", lines, format: formatCount, minimum: 5 }), priorities };
    }
    this.#chart.chart.show([timeline.times, ...priorities.map((priority) => timeline.queued(priority))]);
  }
}
