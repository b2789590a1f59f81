// The page: polls the agent, and shows the pool that the address names.

import { listPools, maximum, mean, poll, sleep, sum } from "/page/agent.js";
import { formatCount, formatShare, panel } from "/page/charts.js";
import { Details } from "/page/details.js";
import { queueFacts, showQueue } from "/page/queue.js";
import { formatAge, formatRate, MISSING, STATES, Table } from "/page/table.js";

/** @import { Endpoint, Proxy, Refused, Sharing, Status, Timeline } from "/page/agent.js" */
/** @import { PanelOptions } from "/page/charts.js" */

/**
 * An element of index.html.
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
function element(id, type) {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`index.html has no ${type.name} #${id}`);
  return found;
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Partial<HTMLElementTagNameMap[K]>} [properties]
 */
const create = (tag, properties = {}) => Object.assign(document.createElement(tag), properties);

const page = {
  pools: element("pools", HTMLElement),
  connection: element("connection", HTMLElement),
  summary: element("summary", HTMLElement),
  charts: element("charts", HTMLElement),
  filter: element("filter", HTMLInputElement),
  states: element("states", HTMLElement),
  count: element("count", HTMLElement),
  endpoints: element("endpoints", HTMLTableElement),
  empty: element("empty", HTMLElement),
  queue: element("queue", HTMLElement),
  unresolved: element("unresolved", HTMLElement),
  proxies: element("proxies", HTMLElement),
  sharing: element("sharing", HTMLElement),
  refused: element("refused", HTMLElement),
  details: element("details", HTMLElement),
  version: element("version", HTMLElement),
};

// The address contains the pool and the open endpoint, so that it can be shared as a link.
const addressParameters = () => new URLSearchParams(location.hash.slice(1));

/** @param {Record<string, string | null>} changes null removes a parameter */
function updateAddress(changes) {
  const parameters = addressParameters();
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) parameters.delete(key);
    else parameters.set(key, value);
  }
  history.replaceState(null, "", `#${parameters}`);
}

const details = new Details(page.details, closeDetails);
const table = new Table(page.endpoints, openDetails);
/**
 * The latest status of the selected pool.
 * @type {{status: Status, timeline: Timeline} | null}
 */
let latest = null;
let polling = new AbortController();

/** @param {string} name */
function openDetails(name) {
  details.open(name);
  document.body.classList.add("with-details");
  table.mark(name);
  updateAddress({ endpoint: name });
  if (latest) details.show(latest.status, latest.timeline);
}

function closeDetails() {
  if (details.name === null) return;
  details.close();
  document.body.classList.remove("with-details");
  table.mark(null);
  updateAddress({ endpoint: null });
  table.focus();
}

/** @type {(PanelOptions & { columns: (timeline: Timeline) => (number | null)[][] })[]} */
const CHARTS = [
  {
    title: "Picks per second", lines: ["all"], format: formatRate,
    columns: (timeline) => [timeline.all("picks_per_second", sum)],
  },
  {
    title: "Waiting", lines: ["mean", "most"], format: formatCount, minimum: 5,
    columns: (timeline) => [timeline.all("waiting", mean), timeline.all("waiting", maximum)],
  },
  {
    title: "Requests", lines: ["running", "in flight"], format: formatCount, minimum: 5,
    columns: (timeline) => [timeline.all("running", sum), timeline.all("in_flight", sum)],
  },
  {
    title: "KV cache", lines: ["mean", "most"], format: formatShare,
    columns: (timeline) => [timeline.all("kv_usage", mean), timeline.all("kv_usage", maximum)],
  },
];
const charts = CHARTS.map((chart) => ({ columns: chart.columns, panel: panel(page.charts, chart) }));

/** @typedef {[name: string, value: string, note?: string]} Fact */

/**
 * How often the shadow configuration agrees; nothing without a shadow.
 * @param {Proxy[]} proxies
 * @returns {Fact[]}
 */
function agreement(proxies) {
  const shadows = proxies.flatMap((it) => it.shadow ?? []);
  if (shadows.length === 0) return [];
  const agreed = sum(shadows.map((it) => it.agreed));
  const all = agreed + sum(shadows.map((it) => it.disagreed));
  // Rounded down, so that 100 % means all.
  const share = all > 0 ? `${(Math.floor((agreed * 1000) / all) / 10).toFixed(1)} %` : MISSING;
  return [["Shadow agrees", share, `of ${all.toLocaleString("en")}`]];
}

/** @param {Endpoint} endpoint */
const isFresh = ({ state }) => state === "ready" || state === "saturated";

/** @param {(number | null | undefined)[]} values */
const numbers = (values) => values.filter((value) => typeof value === "number");

/** @param {Status} status */
function showSummary(status) {
  const { endpoints, proxies } = status;
  const fresh = endpoints.filter(isFresh);
  // An endpoint that is not ready keeps its last values, which no longer count; the requests that proxies sent there are still in flight.
  const read = endpoints.filter(({ state }) => state !== "not_ready");
  const total = (/** @type {(number | null | undefined)[]} */ values, /** @type {(value: number) => string} */ format) => {
    const present = numbers(values);
    return present.length > 0 ? format(sum(present)) : MISSING;
  };
  const usages = numbers(fresh.map((it) => it.kv_usage));
  const ages = numbers(read.map((it) => it.age_ms));
  /** @type {Fact[]} */
  const facts = [
    ["Endpoints ready", String(fresh.length), `of ${endpoints.length}`],
    ["Picks per second", total(endpoints.map((it) => it.sent?.picks_per_second), formatRate)],
    ["Waiting", total(read.map((it) => it.waiting), formatCount)],
    ["Running", total(read.map((it) => it.running), formatCount)],
    ["In flight", total(endpoints.map((it) => it.sent?.requests), formatCount)],
    ["KV cache", usages.length > 0 ? formatShare(mean(usages)) : MISSING, "mean"],
    ["Oldest reading", ages.length > 0 ? formatAge(maximum(ages)) : MISSING],
    ...queueFacts(status),
    ...agreement(proxies),
  ];
  page.summary.replaceChildren(...facts.map(([name, value, note]) => {
    const number = create("dd", { textContent: value });
    if (note) number.append(" ", create("small", { textContent: note }));
    const fact = create("div");
    fact.append(create("dt", { textContent: name }), number);
    return fact;
  }));
}

const stateButtons = STATES.map(([state, name]) => {
  const button = create("button", { className: "state", type: "button" });
  button.dataset.state = state;
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => filterState(isPressed(button) ? null : button));
  page.states.append(button);
  return { button, state, name };
});

/** @param {HTMLButtonElement} button */
const isPressed = (button) => button.getAttribute("aria-pressed") === "true";

/**
 * Shows only endpoints in the state of this button; all with null.
 * @param {HTMLButtonElement | null} selected
 */
function filterState(selected) {
  for (const { button } of stateButtons) button.setAttribute("aria-pressed", String(button === selected));
  table.filterState(stateButtons.find(({ button }) => button === selected)?.state ?? null);
  showCount();
}

/** @param {Status} status */
function showStates({ endpoints }) {
  for (const { button, state, name } of stateButtons) {
    const count = endpoints.filter((it) => it.state === state).length;
    button.textContent = `${count} ${name}`;
    button.hidden = count === 0 && !isPressed(button);
  }
}

function showCount() {
  const { shown, all } = table.counts();
  page.count.textContent = shown === all ? "" : `${shown} of ${all} shown`;
  page.empty.hidden = shown > 0;
  page.empty.textContent = all === 0 ? "The pool has no endpoints." : "No endpoint matches. Esc shows all.";
}

/**
 * A table under a title.
 * @param {HTMLElement} place
 * @param {string} title
 * @param {string[]} names of the columns
 * @param {string[][]} rows
 */
function showTable(place, title, names, rows) {
  const list = create("table");
  const head = list.createTHead().insertRow();
  for (const name of names) head.append(create("th", { textContent: name, scope: "col" }));
  const body = list.createTBody();
  for (const texts of rows) {
    const row = body.insertRow();
    for (const text of texts) row.insertCell().textContent = text;
  }
  const frame = create("div", { className: "frame" });
  frame.append(list);
  place.replaceChildren(create("h2", { textContent: title }), frame);
}

/** @param {string} proxy */
const proxyName = (proxy) => proxy || "(no node.id)";

/** @param {Status} status */
function showProxies({ proxies }) {
  if (proxies.length === 0) {
    const text = "No proxy reports on this pool: picks and requests in flight are unknown.";
    page.proxies.replaceChildren(create("p", { textContent: text }));
    return;
  }
  showTable(page.proxies, "Proxies", ["Proxy", "Routed", "Left to Envoy", "Rejected", "Last report"], proxies.map((it) => {
    const rejected = Object.entries(it.rejected).map(([status, count]) => `${count.toLocaleString("en")} × ${status}`);
    return [proxyName(it.proxy), it.routed.toLocaleString("en"), it.abstained.toLocaleString("en"), rejected.join(", ") || "0", formatAge(it.age_ms)];
  }));
}

/** @param {Status} status */
function showUnresolved({ unresolved = [] }) {
  page.unresolved.hidden = unresolved.length === 0;
  const inUse = (/** @type {number} */ addresses) => (addresses === 0 ? "nothing: never resolved" : `its last addresses (${addresses})`);
  showTable(page.unresolved, "Host names without an answer", ["Host name", "Servers", "In use", "Problem"], unresolved.map((it) => [it.host, it.name, inUse(it.addresses), it.problem]));
}

/**
 * How far behind each proxy is with the changes of others, and the agent with those of other agents.
 * @param {Sharing | undefined} sharing
 */
function showSharing(sharing) {
  const rows = (sharing?.proxies ?? []).map((it) => [proxyName(it.proxy), formatAge(it.behind_ms), it.unread.toLocaleString("en"), it.missed.toLocaleString("en")]);
  const store = sharing?.store;
  if (store) {
    const name = store.connected ? "this agent, from the store" : "this agent, from the store (not connected)";
    rows.push([name, formatAge(store.read_behind_ms), MISSING, MISSING]);
    rows.push(["the store, from this agent", formatAge(store.write_behind_ms), store.unwritten.toLocaleString("en"), MISSING]);
  }
  page.sharing.hidden = rows.length === 0;
  showTable(page.sharing, "Shared changes", ["Reader", "Behind", "Unread messages", "Missed"], rows);
}

/** @param {Refused} refused */
function showRefused({ count, objects }) {
  page.refused.hidden = count === 0;
  const title = objects.length === count ? "Refused objects" : `Refused objects, the first ${objects.length} of ${count.toLocaleString("en")}`;
  showTable(page.refused, title, ["Object", "In force", "Reasons"], objects.map((it) => [it.object, it.earlier_in_force ? "its last valid version" : "nothing", it.reasons.join("; ")]));
}

/**
 * @param {Status} status
 * @param {Timeline} timeline
 */
function show(status, timeline) {
  latest = { status, timeline };
  showConnection("live", "live");
  showSummary(status);
  showStates(status);
  for (const chart of charts) chart.panel.show([timeline.times, ...chart.columns(timeline)]);
  table.show(status, timeline);
  showCount();
  showQueue(page.queue, status);
  showUnresolved(status);
  showProxies(status);
  showSharing(status.sharing);
  details.show(status, timeline);
}

/**
 * @param {"live" | "lost"} state
 * @param {string} text
 */
function showConnection(state, text) {
  if (page.connection.textContent === text) return;
  page.connection.dataset.state = state;
  page.connection.textContent = text;
}

let lostAt = new Date();
/** @param {unknown} error */
function showLoss(error) {
  if (page.connection.dataset.state !== "lost") lostAt = new Date();
  const reason = error instanceof Error ? error.message : String(error);
  showConnection("lost", `connection lost at ${lostAt.toLocaleTimeString()}: ${reason}`);
}

/** @param {string} pool */
function selectPool(pool) {
  polling.abort();
  polling = new AbortController();
  latest = null;
  table.clear();
  const endpoint = addressParameters().get("endpoint");
  details.close();
  document.body.classList.toggle("with-details", endpoint !== null);
  for (const button of page.pools.children) button.setAttribute("aria-pressed", String(button.textContent === pool));
  document.title = `${pool} – endpoint picker`;
  if (endpoint) {
    details.open(endpoint);
    table.mark(endpoint);
  }
  poll(pool, polling.signal, show, showLoss);
}

// The list of pools changes with the manifests.
async function pollPools() {
  /** @type {string[]} */
  let names = [];
  for (;;) {
    try {
      const { version, pools, refused } = await listPools();
      page.version.textContent = `metrics-agent ${version}`;
      showRefused(refused);
      if (pools.join("\n") !== names.join("\n")) {
        names = pools;
        showPools(pools);
      }
    } catch (error) {
      showLoss(error);
    }
    await sleep(names.length > 0 ? 5000 : 1000);
  }
}

/** @param {string[]} pools */
function showPools(pools) {
  page.pools.replaceChildren(...pools.map((pool) => {
    const button = create("button", { textContent: pool, type: "button" });
    button.addEventListener("click", () => {
      updateAddress({ pool, endpoint: null });
      selectPool(pool);
    });
    return button;
  }));
  const named = addressParameters().get("pool");
  const pool = pools.find((it) => it === named) ?? pools[0];
  if (pool !== undefined) selectPool(pool);
}

page.filter.addEventListener("input", () => {
  table.filter(page.filter.value);
  showCount();
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target === page.filter;
  if (event.key === "Escape") {
    if (details.name !== null) {
      closeDetails();
    } else {
      page.filter.value = "";
      table.filter("");
      filterState(null);
      table.focus();
    }
  } else if (isTyping) {
    if (event.key !== "ArrowDown" && event.key !== "Enter") return;
    table.focus();
  } else if (event.key === "/") {
    page.filter.focus();
  } else if (event.key >= "0" && event.key <= "9") {
    table.sortBy((Number(event.key) + 9) % 10);
  } else if (event.key === "ArrowDown" && event.target === document.body) {
    table.focus();
  } else {
    return;
  }
  event.preventDefault();
});

pollPools();
