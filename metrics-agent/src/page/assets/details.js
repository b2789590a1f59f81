// One endpoint in detail: larger charts, and all its facts.

import { panel } from "/page/charts.js";
import { formatAdapters, formatReason, STATE_NAMES } from "/page/columns.js";
import { formatAge, formatCount, formatRate, formatShare, formatTime, formatWhole, MISSING } from "/page/formats.js";

/** @import { Endpoint, KvEvents, PredictionQuality, Series, Status, Timeline, UnseenQueue } from "/page/agent.js" */
/** @import { Chart, PanelOptions } from "/page/charts.js" */

/**
 * The cached tokens, and the extent to which they are known: `complete: 12 345 tokens in gpu, 96 in cpu; 3 blocks without their parent`.
 * @param {KvEvents} events
 */
function formatKvEvents({ state, problem, text_problem, tokens, orphans }) {
  const cached = Object.entries(tokens).map(([tier, count]) => `${formatWhole(count)} tokens in ${tier}`).join(", ");
  const facts = [cached || "nothing cached", orphans ? `${formatWhole(orphans)} blocks without their parent` : "", problem, text_problem];
  return `${state}: ${facts.filter(Boolean).join("; ")}`;
}

/**
 * The size of the KV cache: `27 120 blocks of 16 tokens`, `1 009 661 tokens`.
 * @param {Endpoint} endpoint
 */
function formatCache({ num_blocks, block_size, cache_tokens }) {
  if (cache_tokens) return `${formatWhole(cache_tokens)} tokens`;
  return num_blocks ? `${formatWhole(num_blocks)} blocks of ${block_size ?? "?"} tokens` : MISSING;
}

/**
 * The quality of predicted cached tokens: `median error 16 tokens, 2 % off by more than a block`.
 * @param {PredictionQuality} quality
 */
function formatPredictions({ median_error_tokens, wrong }) {
  return `median error ${formatWhole(Math.round(median_error_tokens))} tokens, ${formatShare(wrong)} off by more than a block`;
}

/**
 * A queue that was never seen, and what that means: `none waited in 240 busy readings with up to 15 running; queue-scorer takes it for idle`.
 * @param {UnseenQueue} queue
 */
function formatUnseenQueue({ busy_readings, most_running, is_reported, scorers }) {
  const seen = `${is_reported ? "none waited" : "not reported"} in ${formatWhole(busy_readings)} busy readings with up to ${formatWhole(most_running)} running`;
  if (scorers.length === 0) return `${seen}; no scorer of the pool goes by it alone`;
  return `${seen}; ${scorers.join(" and ")} ${scorers.length > 1 ? "take" : "takes"} it for idle`;
}

/** @type {(PanelOptions & { series: Series[] })[]} */
const CHARTS = [
  { title: "Picks per second", lines: [""], series: ["picks_per_second"], format: formatRate },
  { title: "Requests", lines: ["waiting", "running"], series: ["waiting", "running"], format: formatCount, minimum: 5 },
  { title: "In flight, by proxies", lines: [""], series: ["in_flight"], format: formatCount },
  { title: "KV cache", lines: [""], series: ["kv_usage"], format: formatShare },
];

export class Details {
  #element;
  #close;
  /** @type {Chart[]} */
  #charts = [];
  #state = document.createElement("span");
  #facts = document.createElement("dl");
  /**
   * The endpoint that is open.
   * @type {string | null}
   */
  name = null;

  /**
   * @param {HTMLElement} element
   * @param {() => void} close called when the user closes the details, or the endpoint leaves the pool
   */
  constructor(element, close) {
    this.#element = element;
    this.#close = close;
    this.#state.className = "state";
  }

  /** @param {string} name */
  open(name) {
    this.close();
    this.name = name;
    const heading = document.createElement("header");
    heading.append(Object.assign(document.createElement("h2"), { textContent: name }), this.#state);
    const button = Object.assign(document.createElement("button"), { className: "close", textContent: "×", title: "Close (Esc)" });
    button.setAttribute("aria-label", "Close");
    button.addEventListener("click", () => this.#close());
    this.#element.append(heading, button);
    this.#element.hidden = false;
    this.#charts = CHARTS.map((chart) => panel(this.#element, { ...chart, height: 104 }));
    this.#element.append(this.#facts);
  }

  /**
   * @param {Status} status
   * @param {Timeline} timeline
   */
  show(status, timeline) {
    const { name } = this;
    if (name === null) return;
    const endpoint = status.endpoints.find((it) => it.name === name);
    if (!endpoint) {
      this.#close();
      return;
    }
    this.#state.dataset.state = endpoint.state;
    this.#state.textContent = STATE_NAMES[endpoint.state];
    for (const [index, { series }] of CHARTS.entries()) {
      this.#charts[index]?.show([timeline.times, ...series.map((it) => timeline.of(name, it))]);
    }
    const { sent, lora } = endpoint;
    const times = sent?.first_byte_ms;
    const facts = {
      State: [STATE_NAMES[endpoint.state], formatReason(endpoint)].filter(Boolean).join(": "),
      Address: endpoint.address,
      ...endpoint.engine && { Engine: endpoint.engine },
      "Age of the values": endpoint.age_ms === null ? "never scraped" : formatAge(endpoint.age_ms),
      ...endpoint.unseen_queue && { Queue: formatUnseenQueue(endpoint.unseen_queue) },
      "Picks reported": sent ? formatWhole(sent.picks) : "no proxy reports",
      "Tokens in flight": sent ? formatWhole(sent.tokens) : MISSING,
      "Errors per second": sent?.errors_per_second === undefined ? MISSING : formatRate(sent.errors_per_second),
      "Time to first byte": times ? `p50 ${formatTime(times.p50)}, p95 ${formatTime(times.p95)}` : MISSING,
      "Cached tokens": sent?.cached_of_predicted === undefined ? MISSING : `${formatShare(sent.cached_of_predicted)} of those predicted`,
      ...sent?.predictions_by_events && { "Predicted by events": formatPredictions(sent.predictions_by_events) },
      ...sent?.predictions_by_prompts && { "Predicted by prompts": formatPredictions(sent.predictions_by_prompts) },
      "KV cache": formatCache(endpoint),
      ...endpoint.kv_events && { "KV-cache events": formatKvEvents(endpoint.kv_events) },
      "LoRA adapters": lora ? `${formatAdapters(lora)} (${lora.running.length} of ${lora.max})` : MISSING,
      ...endpoint.attributes,
      ...endpoint.labels,
    };
    this.#facts.replaceChildren(...Object.entries(facts).flatMap(([term, value]) => [
      Object.assign(document.createElement("dt"), { textContent: term }),
      Object.assign(document.createElement("dd"), { textContent: String(value) }),
    ]));
  }

  close() {
    for (const chart of this.#charts) chart.remove();
    this.#charts = [];
    this.name = null;
    this.#element.hidden = true;
    this.#state.textContent = "";
    this.#facts.replaceChildren();
    this.#element.replaceChildren();
  }
}
