// Puts the page together: asks the agent, and shows what it says.

import { follow, listPools, mean, most, sum } from "/page/agent.js";
import { asCount, asShare, panel } from "/page/charts.js";
import { Details } from "/page/details.js";
import { asAge, asRate, NOTHING, STATES, Table } from "/page/table.js";

const at = (id) => document.getElementById(id);
const make = (tag, properties = {}) => Object.assign(document.createElement(tag), properties);

// The pool and the endpoint that are looked at stand in the address, so that they can be sent to somebody.
const wanted = () => new URLSearchParams(location.hash.slice(1));
function remember(changes) {
  const now = wanted();
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) now.delete(key);
    else now.set(key, value);
  }
  history.replaceState(null, "", `#${now}`);
}

const details = new Details(at("details"), closeDetails);
const table = new Table(at("endpoints"), openDetails);
let shown = null;
let following = new AbortController();

function openDetails(name) {
  details.open(name);
  document.body.classList.add("beside");
  table.mark(name);
  remember({ endpoint: name });
  if (shown) details.show(...shown);
}

function closeDetails() {
  if (details.name === null) return;
  details.close();
  document.body.classList.remove("beside");
  table.mark(null);
  remember({ endpoint: null });
  table.focus();
}

const charts = [
  { title: "Picks per second", lines: ["all"], say: asRate, data: (lines) => [lines.all("picks_per_second", sum)] },
  { title: "Waiting", lines: ["mean", "most"], say: asCount, least: 5, data: (lines) => [lines.all("waiting", mean), lines.all("waiting", most)] },
  { title: "Requests", lines: ["running", "in flight"], say: asCount, least: 5, data: (lines) => [lines.all("running", sum), lines.all("in_flight", sum)] },
  { title: "KV cache", lines: ["mean", "most"], say: asShare, data: (lines) => [lines.all("kv_usage", mean), lines.all("kv_usage", most)] },
].map((chart) => ({ ...chart, panel: panel(at("charts"), chart) }));

// What a shadow configuration would have done, if some proxy tries one.
function agreement(proxies) {
  const shadows = proxies.flatMap((it) => it.shadow ?? []);
  if (shadows.length === 0) return [];
  const agreed = sum(shadows.map((it) => it.agreed));
  const all = agreed + sum(shadows.map((it) => it.disagreed));
  // Rounded down: 100 % means all.
  const share = all > 0 ? `${(Math.floor((agreed * 1000) / all) / 10).toFixed(1)} %` : NOTHING;
  return [["Shadow agrees", share, `of ${all.toLocaleString("en")}`]];
}

function showSummary(status) {
  const known = (endpoints, value) => endpoints.map(value).filter((it) => it !== null && it !== undefined);
  // An endpoint that is not ready keeps its last values, which count for nothing; what proxies sent there is still in flight.
  const reported = (value) => known(status.endpoints.filter(({ state }) => state !== "not_ready"), value);
  const sent = (value) => known(status.endpoints.flatMap((it) => it.sent ?? []), value);
  const total = (values, say) => (values.length > 0 ? say(sum(values)) : NOTHING);
  const isFresh = ({ state }) => state === "ready" || state === "saturated";
  const usages = status.endpoints.filter(isFresh).map((it) => it.kv_usage).filter((it) => it !== null);
  const ages = reported((it) => it.age_ms);
  const facts = [
    ["Endpoints ready", status.endpoints.filter(isFresh).length, `of ${status.endpoints.length}`],
    ["Picks per second", total(sent((it) => it.picks_per_second), asRate)],
    ["Waiting", total(reported((it) => it.waiting), asCount)],
    ["Running", total(reported((it) => it.running), asCount)],
    ["In flight", total(sent((it) => it.requests), asCount)],
    ["KV cache", usages.length > 0 ? asShare(mean(usages)) : NOTHING, "mean"],
    ["Oldest reading", ages.length > 0 ? asAge(most(ages)) : NOTHING],
    ...agreement(status.proxies),
  ];
  at("summary").replaceChildren(...facts.map(([name, value, note]) => {
    const fact = make("div");
    const number = make("dd", { textContent: value });
    if (note) number.append(" ", make("small", { textContent: note }));
    fact.append(make("dt", { textContent: name }), number);
    return fact;
  }));
}

const stateButtons = STATES.map(([state, name]) => {
  const button = make("button", { className: "state", type: "button" });
  button.dataset.state = state;
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    const isOn = button.getAttribute("aria-pressed") !== "true";
    for (const [other] of stateButtons) other.setAttribute("aria-pressed", String(other === button && isOn));
    table.only(isOn ? state : null);
    showCount();
  });
  at("states").append(button);
  return [button, state, name];
});

function showStates(status) {
  for (const [button, state, name] of stateButtons) {
    const count = status.endpoints.filter((it) => it.state === state).length;
    button.textContent = `${count} ${name}`;
    button.hidden = count === 0 && button.getAttribute("aria-pressed") !== "true";
  }
}

function showCount() {
  const { shown: some, all } = table.counts();
  at("count").textContent = some === all ? "" : `${some} of ${all} shown`;
  at("empty").hidden = some > 0;
  at("empty").textContent = all === 0 ? "The pool has no endpoints." : "No endpoint is like this. Esc shows all again.";
}

function showProxies({ proxies }) {
  if (proxies.length === 0) {
    at("proxies").replaceChildren(make("p", { textContent: "No proxy reports on this pool: picks and requests in flight are not known." }));
    return;
  }
  const list = make("table");
  const head = list.createTHead().insertRow();
  for (const name of ["Proxy", "Routed", "Left to Envoy", "Rejected", "Last report"]) head.append(make("th", { textContent: name, scope: "col" }));
  const body = list.createTBody();
  for (const it of proxies) {
    const rejected = Object.entries(it.rejected).map(([status, count]) => `${count.toLocaleString("en")} × ${status}`);
    const row = body.insertRow();
    const texts = [it.proxy || "(no node.id)", it.routed.toLocaleString("en"), it.abstained.toLocaleString("en"), rejected.join(", ") || "0", asAge(it.age_ms)];
    for (const text of texts) row.insertCell().textContent = text;
  }
  const frame = make("div", { className: "frame" });
  frame.append(list);
  at("proxies").replaceChildren(make("h2", { textContent: "Proxies" }), frame);
}

function show(status, lines) {
  shown = [status, lines];
  tellLink("live", "live");
  showSummary(status);
  showStates(status);
  for (const chart of charts) chart.panel.show([lines.at, ...chart.data(lines)]);
  table.show(status, lines);
  showCount();
  showProxies(status);
  details.show(status, lines);
}

function tellLink(state, text) {
  if (at("link").textContent === text) return;
  at("link").dataset.state = state;
  at("link").textContent = text;
}

let lostAt = null;
function fail(reason) {
  lostAt = at("link").dataset.state === "lost" ? lostAt : new Date();
  tellLink("lost", `no news since ${lostAt.toLocaleTimeString()}: ${reason.message}`);
}

function choose(pool) {
  following.abort();
  following = new AbortController();
  shown = null;
  table.clear();
  const endpoint = wanted().get("endpoint");
  details.close();
  document.body.classList.toggle("beside", endpoint !== null);
  for (const button of at("pools").children) button.setAttribute("aria-pressed", String(button.textContent === pool));
  document.title = `${pool} – endpoint picker`;
  if (endpoint) {
    details.open(endpoint);
    table.mark(endpoint);
  }
  follow(pool, following.signal, show, fail);
}

// Pools come and go with the manifests.
async function keepPools() {
  let names = [];
  for (;;) {
    try {
      const { version, pools } = await listPools();
      at("version").textContent = `metrics-agent ${version}`;
      if (pools.join("\n") !== names.join("\n")) {
        names = pools;
        showPools(pools);
      }
    } catch (reason) {
      fail(reason);
    }
    await new Promise((go) => setTimeout(go, names.length > 0 ? 5000 : 1000));
  }
}

function showPools(pools) {
  at("pools").replaceChildren(...pools.map((pool) => {
    const button = make("button", { textContent: pool, type: "button" });
    button.addEventListener("click", () => {
      remember({ pool, endpoint: null });
      choose(pool);
    });
    return button;
  }));
  const pool = pools.includes(wanted().get("pool")) ? wanted().get("pool") : pools[0];
  if (pool !== undefined) choose(pool);
}

at("filter").addEventListener("input", ({ target }) => {
  table.filter(target.value);
  showCount();
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target === at("filter");
  if (event.key === "Escape") {
    if (details.name !== null) closeDetails();
    else {
      at("filter").value = "";
      table.filter("");
      stateButtons.find(([button]) => button.getAttribute("aria-pressed") === "true")?.[0].click();
      showCount();
      table.focus();
    }
  } else if (isTyping) {
    if (event.key !== "ArrowDown" && event.key !== "Enter") return;
    table.focus();
  } else if (event.key === "/") {
    at("filter").focus();
  } else if (event.key >= "0" && event.key <= "9") {
    table.sortBy((Number(event.key) + 9) % 10);
  } else if (event.key === "ArrowDown" && event.target === document.body) {
    table.focus();
  } else {
    return;
  }
  event.preventDefault();
});

keepPools();
