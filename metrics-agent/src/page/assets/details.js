// One endpoint with larger charts and all that is known of it.

import { asCount, asShare, panel } from "/page/charts.js";
import { asAdapters, asAge, asRate, NOTHING, STATES } from "/page/table.js";

const STATE_NAMES = Object.fromEntries(STATES);

const CHARTS = [
  { title: "Picks per second", lines: [""], series: ["picks_per_second"], say: asRate },
  { title: "Requests", lines: ["waiting", "running"], series: ["waiting", "running"], say: asCount, least: 5 },
  { title: "In flight, by proxies", lines: [""], series: ["in_flight"], say: asCount },
  { title: "KV cache", lines: [""], series: ["kv_usage"], say: asShare },
];

export class Details {
  #element;
  #close;
  #charts = [];
  #facts;
  #state;
  name = null;

  constructor(element, close) {
    this.#element = element;
    this.#close = close;
  }

  open(name) {
    this.close();
    this.name = name;
    const heading = document.createElement("header");
    heading.append(Object.assign(document.createElement("h2"), { textContent: name }));
    this.#state = heading.appendChild(Object.assign(document.createElement("span"), { className: "state" }));
    const button = Object.assign(document.createElement("button"), { className: "close", textContent: "×", title: "Close (Esc)" });
    button.setAttribute("aria-label", "Close");
    button.addEventListener("click", () => this.#close());
    this.#element.append(heading, button);
    this.#element.hidden = false;
    this.#charts = CHARTS.map((chart) => panel(this.#element, { ...chart, height: 104 }));
    this.#facts = this.#element.appendChild(document.createElement("dl"));
  }

  show(status, lines) {
    const endpoint = status.endpoints.find((it) => it.name === this.name);
    if (!endpoint) {
      if (this.name !== null) this.#close();
      return;
    }
    this.#state.dataset.state = endpoint.state;
    this.#state.textContent = STATE_NAMES[endpoint.state];
    for (const [index, { series }] of CHARTS.entries()) {
      const columns = series.map((it) => lines.of(this.name, it)[1]);
      this.#charts[index].show([lines.at, ...columns]);
    }
    const facts = {
      Address: endpoint.address,
      "Age of the values": endpoint.age_ms === null ? "never scraped" : asAge(endpoint.age_ms),
      "Picks seen": endpoint.sent ? endpoint.sent.picks.toLocaleString("en") : "no proxy reports",
      "Tokens in flight": endpoint.sent ? endpoint.sent.tokens.toLocaleString("en") : NOTHING,
      "KV cache": endpoint.num_blocks ? `${endpoint.num_blocks.toLocaleString("en")} blocks of ${endpoint.block_size ?? "?"} tokens` : NOTHING,
      "LoRA adapters": endpoint.lora ? `${asAdapters(endpoint.lora)} (${endpoint.lora.running.length} of ${endpoint.lora.max})` : NOTHING,
      ...endpoint.attributes,
      ...endpoint.labels,
    };
    this.#facts.replaceChildren(...Object.entries(facts).flatMap(([name, value]) => [
      Object.assign(document.createElement("dt"), { textContent: name }),
      Object.assign(document.createElement("dd"), { textContent: value }),
    ]));
  }

  close() {
    for (const chart of this.#charts) chart.remove();
    this.#charts = [];
    this.name = null;
    this.#element.hidden = true;
    this.#element.replaceChildren();
  }
}
