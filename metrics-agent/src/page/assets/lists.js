// The small tables below the endpoints: proxies, shared changes, refused objects.

import { figureOf, STATISTICS } from "/page/agent.js";
import { child, setText } from "/page/columns.js";
import { capitalize, formatAge, formatWhole, MISSING } from "/page/formats.js";

/** @import { Figure, Proxy, Refused, Sharing, Status } from "/page/agent.js" */

/** @typedef {{ texts: string[], className?: string, title?: string }} TextRow */

/**
 * Shows a table of texts, in a frame that scrolls sideways. Elements stay, so that scrolling and the selection stay too.
 * @param {HTMLElement} place
 * @param {string[]} names of the columns
 * @param {TextRow[]} rows
 */
export function showRows(place, names, rows) {
  const body = place.querySelector("tbody") ?? emptyTable(place, names);
  while (body.rows.length > rows.length) body.deleteRow(-1);
  for (const [index, { texts, className = "", title = "" }] of rows.entries()) {
    const row = body.rows[index] ?? body.insertRow();
    row.className = className;
    row.title = title;
    for (const [column, text] of texts.entries()) setText(row.cells[column] ?? row.insertCell(), text);
  }
}

/**
 * @param {HTMLElement} place
 * @param {string[]} names of the columns
 */
function emptyTable(place, names) {
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const name of names) head.append(Object.assign(document.createElement("th"), { textContent: name, scope: "col" }));
  const frame = Object.assign(document.createElement("div"), { className: "frame" });
  frame.append(table);
  place.append(frame);
  return table.createTBody();
}

/**
 * @param {HTMLElement} place
 * @param {string} title
 * @param {string[]} names of the columns
 * @param {string[][]} rows
 */
function showTable(place, title, names, rows) {
  setText(child(place, "h2"), title);
  showRows(place, names, rows.map((texts) => ({ texts })));
}

/** @param {string} proxy */
const proxyName = (proxy) => proxy || "(no node.id)";

/**
 * The filter of a proxy: `wasm 0.1.0`.
 * @param {Proxy} proxy
 */
export const filterName = ({ form, version }) => [form, version].filter(Boolean).join(" ") || "unknown";

/** @param {Figure} figure */
function formatFigure(figure) {
  if (typeof figure === "number") return formatWhole(figure);
  return figure ? Object.entries(figure).map(([value, count]) => `${formatWhole(count)} × ${value}`).join(", ") || "0" : MISSING;
}

/**
 * @param {HTMLElement} place
 * @param {Proxy[]} proxies
 */
export function showProxies(place, proxies) {
  place.hidden = proxies.length === 0;
  const names = ["Proxy", "Filter", ...STATISTICS.map(({ words }) => capitalize(words)), "Last report"];
  showTable(place, "Proxies", names, proxies.map((it) => [
    proxyName(it.proxy), filterName(it), ...STATISTICS.map(({ name }) => formatFigure(figureOf(it, name))), formatAge(it.age_ms),
  ]));
}

/**
 * @param {HTMLElement} place
 * @param {Status} status
 */
export function showUnresolved(place, { unresolved = [] }) {
  place.hidden = unresolved.length === 0;
  const inUse = (/** @type {number} */ addresses, denied = false) => {
    if (addresses === 0) {
      return "nothing: never resolved";
    }
    return denied ? `its last addresses (${addresses}), only while no other endpoint is ready` : `its last addresses (${addresses})`;
  };
  showTable(place, "Host names without an answer", ["Host name", "Servers", "In use", "Problem"], unresolved.map((it) => [it.host, it.name, inUse(it.addresses, it.denied), it.problem]));
}

/**
 * How far behind each proxy is with the changes of others, and the agent with the changes of other agents.
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
