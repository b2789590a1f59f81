// The first line of the page: effects on clients, and mistakes.

import { figureOf, STATISTICS, sum, total } from "/page/agent.js";
import { setText } from "/page/columns.js";
import { capitalize, formatAge, formatRate, formatTime, formatWhole, MISSING } from "/page/formats.js";
import { filterName } from "/page/lists.js";

/** @import { Proxy, Refused, Statistic, Status } from "/page/agent.js" */

/**
 * @typedef {object} Tile
 * @property {string} name
 * @property {string} value
 * @property {string} [note]
 * @property {"bad" | "warning"} [level]
 * @property {string} [title] meaning of the number
 */

/** @param {number | null | undefined} rate */
const perSecond = (rate) => (typeof rate === "number" ? `${formatRate(rate)}/s` : MISSING);

/** @param {number} share 0 to 1; rounded down, so that 100 % means all */
const formatExactShare = (share) => `${(Math.floor(share * 1000) / 10).toFixed(1)} %`;

/**
 * The rate of requests. A mistake has no tile until there is one.
 * @param {Statistic} statistic
 * @param {Status} status
 * @returns {Tile[]}
 */
function requestTile({ name, words, help, level }, { traffic, proxies }) {
  const figure = figureOf(traffic, `${name}_per_second`);
  const rate = total(figure);
  const tile = { name: capitalize(words), value: perSecond(rate), title: `${help}; per second, in the last 5 to 10` };
  if (level === "bad") {
    const all = sum(proxies.map((it) => total(figureOf(it, name)) ?? 0));
    return all === 0 ? [] : [{ ...tile, note: `of ${formatWhole(all)} in all`, level: rate ? "bad" : "warning" }];
  }
  const values = typeof figure === "object" ? Object.entries(figure ?? {}).filter(([, it]) => it > 0) : [];
  const note = values.map(([value, it]) => `${formatRate(it)} × ${value}`).join(", ");
  return [{ ...tile, note, level: level === "warning" && rate ? "warning" : undefined }];
}

/**
 * @param {Proxy[]} proxies
 * @returns {Tile}
 */
function proxyTile(proxies) {
  const title = "Proxies whose filter reports on this pool";
  if (proxies.length === 0) return { name: "Proxies", value: "0", note: "no filter reports", level: "bad", title };
  const filters = [...new Set(proxies.map(filterName))];
  const note = filters.length === 1 ? filters[0] : `${filters.length} versions`;
  return { name: "Proxies", value: formatWhole(proxies.length), note, level: filters.length === 1 ? undefined : "warning", title };
}

/**
 * @param {Status} status
 * @returns {Tile[]}
 */
function responseTiles({ traffic }) {
  const times = traffic?.first_token_ms;
  const hits = traffic?.prefix_hits;
  return [
    {
      name: "First token, p50", value: times ? formatTime(times.p50) : MISSING, note: times ? `p95 ${formatTime(times.p95)}` : "",
      title: "Streamed responses in the last minute, from the choice of the endpoint on",
    },
    {
      name: "Prefix hits", value: typeof hits === "number" ? formatExactShare(hits) : MISSING,
      title: "Share of the prompts' blocks that their endpoint had been sent before, in the last minute",
    },
  ];
}

/**
 * @param {Status} status
 * @returns {Tile}
 */
function endpointTile({ endpoints }) {
  const fresh = endpoints.filter(({ state }) => state === "ready" || state === "saturated").length;
  const level = fresh === 0 ? "bad" : fresh < endpoints.length ? "warning" : undefined;
  return { name: "Endpoints ready", value: formatWhole(fresh), note: `of ${formatWhole(endpoints.length)}`, level };
}

/**
 * @param {Status} status
 * @returns {Tile[]}
 */
function queueTile({ queue }) {
  if (!queue) return [];
  const saturation = queue.saturation === null ? MISSING : queue.saturation.toFixed(2);
  const title = "Requests that wait in the proxies' queue; from a saturation of 1 on they do";
  return [{ name: "Queued", value: formatWhole(sum(queue.bands.map((it) => it.requests))), note: `saturation ${saturation}`, title }];
}

/**
 * How often the shadow configuration agrees; nothing without a shadow.
 * @param {Proxy[]} proxies
 * @returns {Tile[]}
 */
function shadowTile(proxies) {
  const shadows = proxies.flatMap((it) => it.shadow ?? []);
  if (shadows.length === 0) return [];
  const agreed = sum(shadows.map((it) => it.agreed));
  const all = agreed + sum(shadows.map((it) => it.disagreed));
  return [{ name: "Shadow agrees", value: all > 0 ? formatExactShare(agreed / all) : MISSING, note: `of ${formatWhole(all)}` }];
}

/**
 * Streams that another server has continued; nothing where none is resumed.
 * @param {Proxy[]} proxies
 * @returns {Tile[]}
 */
function resumptionTile(proxies) {
  const counts = proxies.flatMap((it) => it.resumptions ?? []);
  if (counts.length === 0) return [];
  const cut = sum(counts.flatMap((it) => Object.values(it.cut)));
  const all = formatWhole(sum(counts.map((it) => it.resumable)));
  return [{
    name: "Streams resumed", value: formatWhole(sum(counts.map((it) => it.resumed))), level: cut > 0 ? "warning" : undefined,
    note: cut > 0 ? `${formatWhole(cut)} of ${all} cut` : `of ${all}`, title: "How often another server has continued a stream, since the proxies started",
  }];
}

/**
 * The reuse of what the turns of sessions have sent before; nothing before the first turn.
 * @param {Proxy[]} proxies
 * @returns {Tile[]}
 */
function sessionTile(proxies) {
  const counts = proxies.flatMap((it) => it.sessions ?? []);
  const turns = sum(counts.flatMap((it) => Object.values(it.turns)));
  if (turns === 0) return [];
  const begun = formatWhole(sum(counts.flatMap((it) => Object.values(it.begun))));
  const blocks = sum(counts.map((it) => it.blocks));
  const reused = sum(counts.map((it) => it.blocks_matched));
  return [{
    name: "Session reuse", value: blocks > 0 ? formatExactShare(reused / blocks) : MISSING, note: `${formatWhole(turns)} turns after ${begun} first`,
    title: "Share of the prompts' blocks that their endpoint had been sent before, of requests that continue a session, since the proxies started",
  }];
}

/**
 * Mistakes that leave all else green: nothing while there are none.
 * @param {Status} status
 * @param {Refused} refused
 * @returns {Tile[]}
 */
function faultTiles({ unknown_pools = [] }, refused) {
  /** @type {Tile[]} */
  const unknown = unknown_pools.map(({ pool, requests, age_ms }) => ({
    name: "Unknown pool", value: formatWhole(requests), note: `polls of ${pool}, ${formatAge(age_ms)} ago`, level: "bad",
    title: "The pool in the configuration of a filter is not one of this agent",
  }));
  /** @type {Tile[]} */
  const files = refused.count === 0 ? [] : [{ name: "Refused", value: formatWhole(refused.count), note: "see below", level: "warning" }];
  return [...unknown, ...files];
}

/**
 * @param {HTMLElement} place a list of terms
 * @param {Status} status
 * @param {Refused} refused
 */
export function showTiles(place, status, refused) {
  const tilesOf = (/** @type {boolean} */ isMistake) =>
    STATISTICS.filter(({ level }) => (level === "bad") === isMistake).flatMap((it) => requestTile(it, status));
  const tiles = [
    ...tilesOf(true), ...faultTiles(status, refused), ...tilesOf(false), proxyTile(status.proxies), ...responseTiles(status),
    endpointTile(status), ...queueTile(status), ...shadowTile(status.proxies), ...sessionTile(status.proxies),
    ...resumptionTile(status.proxies),
  ];
  // The elements stay, because a browser closes the tooltip of a removed one.
  while (place.children.length > tiles.length) place.lastElementChild?.remove();
  for (const [index, { name, value, note = "", level = "", title = "" }] of tiles.entries()) {
    const tile = /** @type {HTMLElement} */ (place.children[index] ?? place.appendChild(emptyTile()));
    tile.dataset.level = level;
    tile.title = title;
    for (const [line, text] of [name, value, note].entries()) setText(/** @type {Element} */ (tile.children[line]), text);
  }
}

/** A name, its value and a note. */
function emptyTile() {
  const tile = document.createElement("div");
  const note = Object.assign(document.createElement("dd"), { className: "note" });
  tile.append(document.createElement("dt"), document.createElement("dd"), note);
  return tile;
}
