// The agent's API: the pools, the status of one pool, and its last minutes.

/** @typedef {"not_ready" | "failing" | "no_reading" | "stale" | "saturated" | "ready"} State */

/**
 * The adapters of a server.
 * @typedef {object} Lora
 * @property {string[]} running
 * @property {string[]} waiting
 * @property {number} max
 */

/**
 * Requests that the proxies sent to an endpoint.
 * @typedef {object} Sent
 * @property {number} picks
 * @property {number | null} picks_per_second
 * @property {number} requests in flight
 * @property {number} tokens in flight
 * @property {boolean} failing
 */

/**
 * @typedef {object} Endpoint
 * @property {string} name
 * @property {string} address
 * @property {Record<string, string>} [labels]
 * @property {State} state
 * @property {number | null} age_ms null: never scraped
 * @property {number | null} waiting
 * @property {number | null} running
 * @property {number | null} kv_usage 0 to 1
 * @property {Lora | null} lora
 * @property {number | null} block_size
 * @property {number | null} num_blocks
 * @property {Record<string, number>} [attributes]
 * @property {Sent | null} sent null: no proxy reports
 */

/**
 * @typedef {object} Proxy
 * @property {string} proxy its `node.id`
 * @property {number} age_ms of its last report
 * @property {number} routed
 * @property {number} abstained
 * @property {Record<string, number>} rejected by status
 * @property {{agreed: number, disagreed: number}} [shadow]
 */

/**
 * How far behind the proxies and the agent are with shared changes.
 * @typedef {object} Sharing
 * @property {{proxy: string, unread: number, behind_ms: number, missed: number}[]} proxies
 * @property {{connected: boolean, read_behind_ms: number, unwritten: number, write_behind_ms: number}} [store]
 */

/** @typedef {{p50: number, p90: number, p99: number}} Waits of the last minute, in milliseconds */

/**
 * The waiting requests of one tenant in a band.
 * @typedef {object} Tenant
 * @property {string} fairness_id clients choose it; `other`: all tenants that proxies do not count one by one
 * @property {number} requests
 * @property {number} bytes
 * @property {Waits | null} wait_ms null: none was dispatched
 */

/**
 * The waiting requests of one priority.
 * @typedef {object} Band
 * @property {number} priority
 * @property {number} requests
 * @property {number} bytes
 * @property {number} max_requests
 * @property {number} max_bytes
 * @property {Waits | null} wait_ms null: none was dispatched
 * @property {Record<string, number>} outcomes requests by the end of their wait
 * @property {Tenant[]} [tenants] those of which most wait; absent: requests name none
 */

/**
 * The queues of all proxies.
 * @typedef {object} Queue
 * @property {number | null} saturation from 1 on requests wait; null: unknown
 * @property {number} in_flight
 * @property {number} evicted
 * @property {Band[]} bands the highest priority first
 */

/**
 * Servers whose host name was not resolved by its last lookup.
 * @typedef {object} Unresolved
 * @property {string} name
 * @property {string} host
 * @property {number} addresses those of the last answer, which stay in use
 * @property {string} problem
 */

/**
 * Answer of `/v1/pools/{pool}`.
 * @typedef {object} Status
 * @property {string} pool
 * @property {Endpoint[]} endpoints
 * @property {Unresolved[]} [unresolved] absent: there are none
 * @property {Proxy[]} proxies
 * @property {Sharing} [sharing]
 * @property {Queue} [queue] absent: no proxy has one
 */

/** @typedef {"waiting" | "running" | "kv_usage" | "in_flight" | "picks_per_second"} Series */

/**
 * The values of one endpoint, one for each time; null: unknown.
 * @typedef {Record<Series, (number | null)[]>} Values
 */

/**
 * Answer of `/v1/pools/{pool}/history`.
 * @typedef {object} History
 * @property {number[]} ages_ms
 * @property {Record<string, Values>} endpoints
 */

// Milliseconds between two requests; the agent itself reads servers and reports about as often.
const INTERVAL = 1000;
const TIMEOUT = 4000;

/** Seconds that charts show. */
export const SPAN = 300;

/** @type {Series[]} */
const SERIES = ["waiting", "running", "kv_usage", "in_flight", "picks_per_second"];

/**
 * Objects of the cluster that are refused.
 * @typedef {object} Refused
 * @property {number} count all of them
 * @property {{object: string, reasons: string[], earlier_in_force: boolean}[]} objects the first ones
 */

/** @returns {Promise<{version: string, pools: string[], refused: Refused}>} */
export const listPools = () => request("/v1/pools");

/**
 * @param {string} path
 * @returns {Promise<any>}
 */
async function request(path) {
  const response = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT) });
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ?? `status ${response.status}`);
  return body;
}

/** @param {number} ms */
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Polls a pool until `signal` is aborted: passes each status to `show`, and each error to `fail`.
 * @param {string} pool
 * @param {AbortSignal} signal
 * @param {(status: Status, timeline: Timeline) => void} show
 * @param {(error: unknown) => void} fail
 */
export async function poll(pool, signal, show, fail) {
  const path = `/v1/pools/${encodeURIComponent(pool)}`;
  /** @type {Timeline | null} */
  let timeline = null;
  while (!signal.aborted) {
    const begin = performance.now();
    try {
      timeline ??= new Timeline(await request(`${path}/history`));
      /** @type {Status} */
      const status = await request(path);
      if (signal.aborted) return;
      timeline.add(status, Date.now() / 1000);
      show(status, timeline);
    } catch (error) {
      if (signal.aborted) return;
      fail(error);
      // The agent's history fills the gap, unless the agent was restarted.
      timeline = null;
    }
    await sleep(Math.max(100, INTERVAL - (performance.now() - begin)));
  }
}

/** The last minutes of all endpoints: columns of values over common times. */
export class Timeline {
  /** @param {History} history */
  constructor(history) {
    const now = Date.now() / 1000;
    /** Seconds since 1970. */
    this.times = history.ages_ms.map((age) => now - age / 1000);
    this.endpoints = new Map(Object.entries(history.endpoints));
  }

  /**
   * @param {Status} status
   * @param {number} now
   */
  add(status, now) {
    const before = this.times.length;
    this.times.push(now);
    const outdated = this.times.findIndex((time) => time >= now - SPAN);
    this.times.splice(0, outdated);
    const endpoints = new Map();
    for (const endpoint of status.endpoints) {
      const values = this.endpoints.get(endpoint.name) ?? unknown(before);
      // An endpoint that is not ready keeps its last values, which are not those of this moment.
      const isRead = endpoint.state !== "not_ready";
      const latest = {
        waiting: isRead ? endpoint.waiting : null,
        running: isRead ? endpoint.running : null,
        kv_usage: isRead ? endpoint.kv_usage : null,
        in_flight: endpoint.sent?.requests ?? null,
        picks_per_second: endpoint.sent?.picks_per_second ?? null,
      };
      for (const series of SERIES) {
        values[series].push(latest[series]);
        values[series].splice(0, outdated);
      }
      endpoints.set(endpoint.name, values);
    }
    this.endpoints = endpoints;
  }

  /**
   * The values of one series of one endpoint.
   * @param {string} name
   * @param {Series} series
   */
  of(name, series) {
    return this.endpoints.get(name)?.[series] ?? this.times.map(() => null);
  }

  /**
   * One number for each time, combined from the endpoints with a value.
   * @param {Series} series
   * @param {(values: number[]) => number} combine
   */
  all(series, combine) {
    const columns = [...this.endpoints.values()].map((values) => values[series]);
    return this.times.map((_, index) => {
      const values = columns.map((column) => column[index] ?? null).filter((value) => value !== null);
      return values.length > 0 ? combine(values) : null;
    });
  }
}

/**
 * @param {number} length
 * @returns {Values}
 */
function unknown(length) {
  const column = () => Array(length).fill(null);
  return { waiting: column(), running: column(), kv_usage: column(), in_flight: column(), picks_per_second: column() };
}

/** @param {number[]} values */
export const sum = (values) => values.reduce((a, b) => a + b, 0);
/** @param {number[]} values */
export const mean = (values) => sum(values) / values.length;
/** @param {number[]} values */
export const maximum = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
