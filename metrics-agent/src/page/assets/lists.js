// The small tables below the endpoints: proxies, what they share, and what is refused.

import { formatAge, formatWhole, MISSING } from "/page/formats.js";

/** @import { Proxy, Refused, Sharing, Status } from "/page/agent.js" */

/** @typedef {{ texts: string[], className?: string, title?: string }} TextRow */

/**
 * A table of texts, in a frame that scrolls sideways.
 * @param {string[]} names of the columns
 * @param {TextRow[]} rows
 */
export function table(names, rows) {
  const list = document.createElement("table");
  const head = list.createTHead().insertRow();
  for (const name of names) head.append(Object.assign(document.createElement("th"), { textContent: name, scope: "col" }));
  const body = list.createTBody();
  for (const { texts, className = "", title = "" } of rows) {
    const row = body.insertRow();
    row.className = className;
    row.title = title;
    for (const text of texts) row.insertCell().textContent = text;
  }
  const frame = document.createElement("div");
  frame.className = "frame";
  frame.append(list);
  return frame;
}

/**
 * @param {HTMLElement} place
 * @param {string} title
 * @param {string[]} names of the columns
 * @param {string[][]} rows
 */
function showTable(place, title, names, rows) {
  const heading = Object.assign(document.createElement("h2"), { textContent: title });
  place.replaceChildren(heading, table(names, rows.map((texts) => ({ texts }))));
}

/** @param {string} proxy */
const proxyName = (proxy) => proxy || "(no node.id)";

/**
 * The filter of a proxy: `wasm 0.1.0`.
 * @param {Proxy} proxy
 */
export const filterName = ({ form, version }) => [form, version].filter(Boolean).join(" ") || "unknown";

/**
 * @param {HTMLElement} place
 * @param {Proxy[]} proxies
 */
export function showProxies(place, proxies) {
  place.hidden = proxies.length === 0;
  const names = ["Proxy", "Filter", "Routed", "Served elsewhere", "Left to Envoy", "Rejected", "Last report"];
  showTable(place, "Proxies", names, proxies.map((it) => {
    const rejected = Object.entries(it.rejected).map(([status, count]) => `${formatWhole(count)} × ${status}`);
    return [
      proxyName(it.proxy), filterName(it), formatWhole(it.routed), it.served_elsewhere === undefined ? MISSING : formatWhole(it.served_elsewhere),
      formatWhole(it.abstained), rejected.join(", ") || "0", formatAge(it.age_ms),
    ];
  }));
}

/**
 * @param {HTMLElement} place
 * @param {Status} status
 */
export function showUnresolved(place, { unresolved = [] }) {
  place.hidden = unresolved.length === 0;
  const inUse = (/** @type {number} */ addresses) => (addresses === 0 ? "nothing: never resolved" : `its last addresses (${addresses})`);
  showTable(place, "Host names without an answer", ["Host name", "Servers", "In use", "Problem"], unresolved.map((it) => [it.host, it.name, inUse(it.addresses), it.problem]));
}

/**
 * How far behind each proxy is with the changes of others, and the agent with those of other agents.
 * @param {HTMLElement} place
 * @param {Sharing | undefined} sharing
 */
export function showSharing(place, sharing) {
  const rows = (sharing?.proxies ?? []).map((it) => [proxyName(it.proxy), formatAge(it.behind_ms), formatWhole(it.unread), formatWhole(it.missed)]);
  const store = sharing?.store;
  if (store) {
    const name = store.connected ? "this agent, from the store" : "this agent, from the store (not connected)";
    rows.push([name, formatAge(store.read_behind_ms), MISSING, MISSING]);
    rows.push(["the store, from this agent", formatAge(store.write_behind_ms), formatWhole(store.unwritten), MISSING]);
  }
  place.hidden = rows.length === 0;
  showTable(place, "Shared changes", ["Reader", "Behind", "Unread messages", "Missed"], rows);
}

/**
 * @param {HTMLElement} place
 * @param {Refused} refused
 */
export function showRefused(place, { count, objects }) {
  place.hidden = count === 0;
  const title = objects.length === count ? "Refused objects and files" : `Refused objects and files, the first ${objects.length} of ${formatWhole(count)}`;
  showTable(place, title, ["Object or file", "In force", "Reasons"], objects.map((it) => [it.object, it.earlier_in_force ? "its last valid version" : "nothing", it.reasons.join("; ")]));
}
