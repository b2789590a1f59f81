// The page: polls the agent, and shows the pool that the address names.

import { listPools, poll, sleep } from "/page/agent.js";
import { panel } from "/page/charts.js";
import { STATES } from "/page/columns.js";
import { Details } from "/page/details.js";
import { formatCount, formatRate, formatShare, formatWhole } from "/page/formats.js";
import { showProxies, showRefused, showSharing, showUnresolved } from "/page/lists.js";
import { QueueView } from "/page/queue.js";
import { Table } from "/page/table.js";
import { showTiles } from "/page/tiles.js";

/** @import { Refused, Status, Timeline } from "/page/agent.js" */
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
  grouping: element("grouping", HTMLElement),
  group: element("group", HTMLSelectElement),
  count: element("count", HTMLElement),
  hint: element("hint", HTMLElement),
  frame: element("frame", HTMLElement),
  pager: element("pager", HTMLElement),
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
const table = new Table(page.endpoints, page.pager, openDetails);
const queue = new QueueView(page.queue);
/** @type {Refused} */
let refused = { count: 0, objects: [] };
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
    columns: (timeline) => [timeline.total("picks_per_second").sum],
  },
  {
    title: "Waiting per server", lines: ["mean", "max"], format: formatCount, minimum: 5,
    columns: (timeline) => [timeline.total("waiting").mean, timeline.total("waiting").most],
  },
  {
    title: "Requests", lines: ["running", "in flight"], format: formatCount, minimum: 5,
    columns: (timeline) => [timeline.total("running").sum, timeline.total("in_flight").sum],
  },
  {
    title: "KV cache", lines: ["mean", "max"], format: formatShare,
    columns: (timeline) => [timeline.total("kv_usage").mean, timeline.total("kv_usage").most],
  },
];
const charts = CHARTS.map((chart) => ({ columns: chart.columns, panel: panel(page.charts, chart) }));

const stateButtons = STATES.map(([state, name]) => {
  const button = create("button", { className: "state", type: "button", hidden: true });
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
  page.count.textContent = shown === all ? "" : `${formatWhole(shown)} of ${formatWhole(all)} match`;
  page.empty.hidden = shown > 0;
  page.empty.textContent = all === 0 ? "The pool has no endpoints." : "No endpoint matches. Esc shows all.";
}

/**
 * The labels by which endpoints can be grouped.
 * @param {Status} status
 */
function showGroupings({ endpoints }) {
  const labels = new Set(endpoints.flatMap(({ labels = {} }) => Object.keys(labels)));
  const names = ["", ...[...labels].sort()];
  if (names.join("\n") === [...page.group.options].map(({ value }) => value).join("\n")) return;
  const selected = page.group.value;
  page.group.replaceChildren(...names.map((value) => create("option", { value, textContent: value || "no groups" })));
  page.group.value = names.includes(selected) ? selected : "";
  page.grouping.hidden = labels.size === 0;
  if (page.group.value !== selected) groupEndpoints();
}

function groupEndpoints() {
  table.groupBy(page.group.value || null);
}

/**
 * @param {Status} status
 * @param {Timeline} timeline
 */
function show(status, timeline) {
  latest = { status, timeline };
  showConnection("live", "live");
  showTiles(page.summary, status, refused);
  queue.show(status, timeline);
  showStates(status);
  showGroupings(status);
  for (const chart of charts) chart.panel.show([timeline.times, ...chart.columns(timeline)]);
  table.show(status, timeline);
  showCount();
  showUnresolved(page.unresolved, status);
  showProxies(page.proxies, status.proxies);
  showSharing(page.sharing, status.sharing);
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
  document.body.classList.toggle("lost", state === "lost");
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
      const { version, pools, ...list } = await listPools();
      refused = list.refused;
      page.version.textContent = `metrics-agent ${version}`;
      showRefused(page.refused, refused);
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

page.group.addEventListener("change", groupEndpoints);
for (const [index, button] of [...page.pager.querySelectorAll("button")].entries()) {
  button.addEventListener("click", () => table.turn(index === 0 ? -1 : 1));
}

// Tells the user of columns that are outside of the frame.
function showHint() {
  const { scrollLeft, scrollWidth, clientWidth } = page.frame;
  const isCut = scrollLeft + clientWidth < scrollWidth - 1;
  page.frame.classList.toggle("cut", isCut);
  page.hint.hidden = !isCut;
}
page.frame.addEventListener("scroll", showHint, { passive: true });
new ResizeObserver(showHint).observe(page.frame);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target === page.filter || event.target === page.group;
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
    if (event.target !== page.filter || (event.key !== "ArrowDown" && event.key !== "Enter")) return;
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
