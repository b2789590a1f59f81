// What the agent says: the pools, one pool now, and its last minutes.

// Time between two questions, in ms; the agent itself reads servers and hears proxies more or less as often.
const EVERY = 1000;
const TIMEOUT = 4000;

// Charts show so much, in seconds.
export const SPAN = 300;

// Series of an endpoint that are charted, by the names the agent gives them.
const SERIES = ["waiting", "running", "kv_usage", "in_flight", "picks_per_second"];

export const listPools = () => ask("/v1/pools");

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT) });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error ?? `status ${answer.status}`);
  return body;
}

const pathOf = (pool) => `/v1/pools/${encodeURIComponent(pool)}`;

// Asks for a pool until `signal` is aborted: hands each status to `show`, or the reason why there is none to `fail`.
export async function follow(pool, signal, show, fail) {
  let lines = null;
  while (!signal.aborted) {
    const begin = performance.now();
    try {
      if (lines === null) lines = new Lines(await ask(`${pathOf(pool)}/history`));
      const status = await ask(pathOf(pool));
      if (signal.aborted) return;
      lines.add(status, Date.now() / 1000);
      show(status, lines);
    } catch (reason) {
      if (signal.aborted) return;
      fail(reason);
      // What was missed meanwhile is in the agent's history, if it is the same agent.
      lines = null;
    }
    await new Promise((go) => setTimeout(go, Math.max(100, EVERY - (performance.now() - begin))));
  }
}

// The last minutes of each endpoint, as columns over common moments.
export class Lines {
  constructor(history) {
    const now = Date.now() / 1000;
    this.at = history.ages_ms.map((age) => now - age / 1000);
    this.endpoints = new Map(Object.entries(history.endpoints));
  }

  add(status, now) {
    const before = this.at.length;
    this.at.push(now);
    const old = this.at.findIndex((at) => at >= now - SPAN);
    this.at.splice(0, old);
    const endpoints = new Map();
    for (const endpoint of status.endpoints) {
      const line = this.endpoints.get(endpoint.name) ?? unknown(before);
      // The last values of an endpoint that is not ready are not those of this moment.
      const values = endpoint.state === "not_ready" ? {} : endpoint;
      const now = {
        ...values,
        in_flight: endpoint.sent?.requests,
        picks_per_second: endpoint.sent?.picks_per_second,
      };
      for (const series of SERIES) {
        line[series].push(now[series] ?? null);
        line[series].splice(0, old);
      }
      endpoints.set(endpoint.name, line);
    }
    this.endpoints = endpoints;
  }

  // The columns of one series of one endpoint.
  of(name, series) {
    return [this.at, this.endpoints.get(name)?.[series] ?? this.at.map(() => null)];
  }

  // One number for each moment, made of what the endpoints that say something say.
  all(series, make) {
    const lines = [...this.endpoints.values()].map((line) => line[series]);
    return this.at.map((_, index) => {
      const said = lines.map((line) => line[index]).filter((value) => value !== null);
      return said.length > 0 ? make(said) : null;
    });
  }
}

const unknown = (points) => Object.fromEntries(SERIES.map((series) => [series, Array(points).fill(null)]));

export const sum = (values) => values.reduce((a, b) => a + b, 0);
export const mean = (values) => sum(values) / values.length;
export const most = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
