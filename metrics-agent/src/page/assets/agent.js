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
 * @property {number} [errors_per_second] failed requests
 * @property {ResponseTimes} [first_byte_ms] absent: no response lately
 * @property {number} [cached_of_predicted] tokens that the endpoint had cached over the predicted ones, in the last minute
 * @property {PredictionQuality} [predictions_by_events] of cached tokens, in the last minute; absent: there were none
 * @property {PredictionQuality} [predictions_by_prompts]
 */

/**
 * The quality of predicted cached tokens.
 * @typedef {object} PredictionQuality
 * @property {number} responses that report their cached tokens
 * @property {number} median_error_tokens
 * @property {number} wrong the share of responses that are off by more than a block, 0 to 1
 */

/**
 * The contents of an endpoint's KV caches, by their events.
 * @typedef {object} KvEvents
 * @property {"disconnected" | "partial" | "complete"} state the extent to which they are known
 * @property {string} [problem]
 * @property {string} [text_problem] why cached prefixes are not known by their text
 * @property {number} caches one for each data-parallel rank
 * @property {number} [age_ms] of the last message
 * @property {number} blocks
 * @property {number} orphans blocks whose parent is not known
 * @property {Record<string, number>} tokens by tier
 */

/**
 * A server that has shown no waiting request although it had work.
 * @typedef {object} UnseenQueue
 * @property {number} busy_readings readings with several requests running
 * @property {number} most_running
 * @property {boolean} is_reported whether it reports a number, which was always 0
 * @property {string[]} scorers of the pool, which score by waiting requests alone
 */

/** @typedef {{p50: number, p95: number}} ResponseTimes of the last minute, in milliseconds */

/**
 * @typedef {object} Endpoint
 * @property {string} name
 * @property {string} address
 * @property {Record<string, string>} [labels]
 * @property {State} state
 * @property {string} [reason] why it is in this state
 * @property {number} [since_ms] how long it has been in this state
 * @property {number | null} age_ms null: never scraped
 * @property {number | null} waiting
 * @property {number | null} running
 * @property {UnseenQueue} [unseen_queue] absent: a request has waited there, or the server has had little work
 * @property {string} [engine] whose metrics are read
 * @property {number | null} kv_usage 0 to 1
 * @property {Lora | null} lora
 * @property {number | null} block_size
 * @property {number | null} num_blocks
 * @property {number} [cache_tokens] the server's own count of the tokens that its KV cache holds
 * @property {Record<string, number>} [attributes]
 * @property {Sent | null} sent null: no proxy reports
 * @property {KvEvents} [kv_events] absent: its events are not followed
 */

/**
 * Requests that proxies count, from the table of statistics: a field of each proxy.
 * @typedef {object} Statistic
 * @property {string} name of the field; the field of the traffic with the rate ends with `_per_second`
 * @property {string} words
 * @property {string} help
 * @property {"good" | "warning" | "bad"} level bad: a mistake, which is shown only while there is one
 */

/** @typedef {number | Record<string, number> | null | undefined} Figure a number, or numbers by the value of a label */

/**
 * @typedef {object} ProxyFacts
 * @property {string} proxy its `node.id`
 * @property {number} age_ms of its last report
 * @property {string} [version] of the filter
 * @property {"wasm" | "native"} [form] of the filter
 * @property {{agreed: number, disagreed: number}} [shadow]
 * @property {Resumptions} [resumptions] absent: it resumes no streams
 * @property {Sessions} [sessions] absent: an older filter
 */

/** @typedef {ProxyFacts & Record<string, unknown>} Proxy with a figure of each statistic */

/**
 * Streams of a proxy since its start.
 * @typedef {object} Resumptions
 * @property {number} resumable streams that another server could continue
 * @property {number} resumed how often another server has continued one
 * @property {Record<string, number>} cut streams of them that the client got cut, by reason
 * @property {Record<string, number>} unresumable other streams, by reason
 */

/**
 * Sessions of a proxy since its start.
 * @typedef {object} Sessions
 * @property {Record<string, number>} begun sessions that began, by the source of their names
 * @property {Record<string, number>} turns requests that continued one, by the same
 * @property {number} blocks blocks of the prompts of these turns
 * @property {number} blocks_matched blocks of these that the endpoint had been sent before
 */

/**
 * The recent traffic of all proxies.
 * @typedef {object} TrafficFacts
 * @property {ResponseTimes | null} first_token_ms null: no streamed response
 * @property {number | null} prefix_hits 0 to 1; null: no prompt
 */

/** @typedef {TrafficFacts & Record<string, unknown>} Traffic with a rate of each statistic */

/** @typedef {{pool: string, requests: number, age_ms: number}} UnknownPool that proxies ask for and the agent does not have */

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
 * @property {Tenant[]} [tenants] the tenants with the most waiting requests; absent: requests name none
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
 * @property {number} addresses of the last successful lookup, which stay in use
 * @property {boolean} [denied] whether they serve only while no other endpoint is ready
 * @property {string} problem
 */

/**
 * Response of `/v1/pools/{pool}`.
 * @typedef {object} Status
 * @property {string} pool
 * @property {Endpoint[]} endpoints
 * @property {Unresolved[]} [unresolved] absent: there are none
 * @property {Proxy[]} proxies
 * @property {Traffic} [traffic] absent: no proxy reports
 * @property {UnknownPool[]} [unknown_pools]
 * @property {Sharing} [sharing]
 * @property {Queue} [queue] absent: no proxy has one
 */

/** @typedef {"waiting" | "running" | "kv_usage" | "in_flight" | "picks_per_second"} Series */

/**
 * The values of one endpoint, one for each time; null: unknown.
 * @typedef {Record<Series, (number | null)[]>} Values
 */

/**
 * Response of `/v1/pools/{pool}/history`.
 * @typedef {object} History
 * @property {number[]} ages_ms
 * @property {Record<string, Values>} endpoints
 * @property {Record<string, (number | null)[]>} [queued] requests in the proxies' queues, by priority
 */

/**
 * Values of all endpoints together, one for each time; null: unknown.
 * @typedef {{ sum: (number | null)[], mean: (number | null)[], most: (number | null)[] }} Totals
 */

// Milliseconds between two requests; the agent itself reads servers and reports about as often.
const INTERVAL = 1000;
const TIMEOUT = 4000;

/** Seconds that charts show. */
export const SPAN = 300;

/** Outdated values that are removed at once. */
const TRIMMED = 30;

/** @type {Series[]} */
const SERIES = ["waiting", "running", "kv_usage", "in_flight", "picks_per_second"];

/**
 * Objects of the cluster and files that are refused.
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

/** The last minutes of all endpoints: columns of values over common times. Totals are kept, because all endpoints are many. */
export class Timeline {
  /** @type {Map<string, Values>} */
  #endpoints;
  /** @type {Record<Series, Totals>} */
  #totals;
  /** @type {Map<number, (number | null)[]>} */
  #queued;

  /** @param {History} history */
  constructor({ ages_ms, endpoints, queued = {} }) {
    const now = Date.now() / 1000;
    /** Seconds since 1970. */
    this.times = ages_ms.map((age) => now - age / 1000);
    this.#endpoints = new Map(Object.entries(endpoints));
    this.#queued = new Map(Object.entries(queued).map(([priority, column]) => [Number(priority), column]));
    const columns = [...this.#endpoints.values()];
    this.#totals = ofEach((series) => {
      const totals = { sum: [], mean: [], most: [] };
      for (const index of this.times.keys()) addTotal(totals, columns, (values) => values[series][index] ?? null);
      return totals;
    });
  }

  /**
   * @param {Status} status
   * @param {number} now
   */
  add(status, now) {
    const before = this.times.length;
    this.times.push(now);
    const endpoints = new Map();
    for (const endpoint of status.endpoints) {
      const values = this.#endpoints.get(endpoint.name) ?? ofEach(() => Array(before).fill(null));
      for (const series of SERIES) values[series].push(LATEST[series](endpoint));
      endpoints.set(endpoint.name, values);
    }
    this.#endpoints = endpoints;
    for (const series of SERIES) addTotal(this.#totals[series], status.endpoints, LATEST[series]);
    const bands = status.queue?.bands ?? [];
    this.#queued = new Map(bands.map(({ priority, requests }) => {
      const column = this.#queued.get(priority) ?? Array(before).fill(null);
      column.push(requests);
      return [priority, column];
    }));
    this.#trim(now);
  }

  /**
   * Removes values that no chart shows, many at once.
   * @param {number} now
   */
  #trim(now) {
    const outdated = this.times.findIndex((time) => time >= now - SPAN);
    if (outdated < TRIMMED) return;
    const totals = Object.values(this.#totals).flatMap((it) => [it.sum, it.mean, it.most]);
    const values = [...this.#endpoints.values()].flatMap((it) => Object.values(it));
    for (const column of [this.times, ...totals, ...values, ...this.#queued.values()]) column.splice(0, outdated);
  }

  /**
   * The values of one series of one endpoint.
   * @param {string} name
   * @param {Series} series
   */
  of(name, series) {
    return this.#endpoints.get(name)?.[series] ?? this.times.map(() => null);
  }

  /**
   * The values of one series of all endpoints together.
   * @param {Series} series
   */
  total(series) {
    return this.#totals[series];
  }

  /**
   * The requests that wait in the proxies' queues.
   * @param {number} priority
   */
  queued(priority) {
    return this.#queued.get(priority) ?? this.times.map(() => null);
  }
}

// An endpoint that is not ready keeps its last values, which are out of date.
const isRead = (/** @type {Endpoint} */ { state }) => state !== "not_ready";

/**
 * The present values of an endpoint.
 * @type {Record<Series, (endpoint: Endpoint) => number | null>}
 */
const LATEST = {
  waiting: (it) => (isRead(it) ? it.waiting : null),
  running: (it) => (isRead(it) ? it.running : null),
  kv_usage: (it) => (isRead(it) ? it.kv_usage : null),
  in_flight: (it) => it.sent?.requests ?? null,
  picks_per_second: (it) => it.sent?.picks_per_second ?? null,
};

/**
 * A record with one value for each series.
 * @template T
 * @param {(series: Series) => T} make
 * @returns {Record<Series, T>}
 */
const ofEach = (make) => ({
  waiting: make("waiting"), running: make("running"), kv_usage: make("kv_usage"), in_flight: make("in_flight"), picks_per_second: make("picks_per_second"),
});

/**
 * Adds the totals of one time.
 * @template T
 * @param {Totals} totals
 * @param {T[]} endpoints
 * @param {(endpoint: T) => number | null} value
 */
function addTotal(totals, endpoints, value) {
  let [count, sum, most] = [0, 0, -Infinity];
  for (const endpoint of endpoints) {
    const number = value(endpoint);
    if (number === null) continue;
    count += 1;
    sum += number;
    if (number > most) most = number;
  }
  totals.sum.push(count > 0 ? sum : null);
  totals.mean.push(count > 0 ? sum / count : null);
  totals.most.push(count > 0 ? most : null);
}

/** @type {Statistic[]} */
export const STATISTICS = JSON.parse(document.getElementById("statistics")?.textContent ?? "[]");

/**
 * The figure of this name.
 * @param {Record<string, unknown> | undefined} facts
 * @param {string} name
 */
export const figureOf = (facts, name) => /** @type {Figure} */ (facts?.[name]);

/**
 * The sum of a figure; null: unknown.
 * @param {Figure} figure
 */
export const total = (figure) => (typeof figure === "number" ? figure : figure ? sum(Object.values(figure)) : null);

/** @param {number[]} values */
export const sum = (values) => values.reduce((a, b) => a + b, 0);
/** @param {number[]} values */
export const mean = (values) => sum(values) / values.length;
