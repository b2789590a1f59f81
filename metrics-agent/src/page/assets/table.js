// The table of endpoints: one row each, sorted, filtered, and walked through with the keyboard.

import { asCount, asShare, spark } from "/page/charts.js";

export const STATES = [
  ["not_ready", "not ready"],
  ["failing", "failing"],
  ["no_reading", "no reading"],
  ["stale", "stale"],
  ["saturated", "saturated"],
  ["ready", "ready"],
];
const STATE_NAMES = Object.fromEntries(STATES);
const STATE_RANKS = Object.fromEntries(STATES.map(([state], rank) => [state, rank]));

export const NOTHING = "–";
const or = (value, say) => (value === null || value === undefined ? NOTHING : say(value));

export const asAge = (ms) => (ms < 1000 ? `${ms} ms` : ms < 120_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 60_000)} min`);
export const asRate = (value) => (value > 0 && value < 10 ? value.toFixed(1) : asCount(Math.round(value)));

export function asAdapters(lora) {
  const names = [...lora.running, ...lora.waiting.map((name) => `${name} (waiting)`)];
  return names.length > 0 ? names.join(", ") : `none of ${lora.max}`;
}

// `value` sorts, `text` shows; a series is charted beside it, up to `least` at least. The one column without a
// width, in pixels, takes what is left.
const COLUMNS = [
  { label: "State", value: (it) => STATE_RANKS[it.state], fill: fillState, width: 112 },
  { label: "Endpoint", value: (it) => it.name, fill: fillName, width: 194 },
  { label: "Queue", value: (it) => it.waiting, text: asCount, series: "waiting", least: 5, width: 62 },
  { label: "Running", value: (it) => it.running, text: asCount, width: 82 },
  { label: "KV cache", value: (it) => it.kv_usage, text: asShare, series: "kv_usage", least: 1, width: 74 },
  { label: "In flight", value: (it) => it.sent?.requests, text: asCount, width: 82 },
  { label: "Tokens", value: (it) => it.sent?.tokens, text: asCount, width: 82 },
  { label: "Picks/s", value: (it) => it.sent?.picks_per_second, text: asRate, series: "picks_per_second", least: 1, width: 68 },
  { label: "LoRA adapters", value: (it) => it.lora?.running.length, fill: fillAdapters },
  { label: "Age", value: (it) => it.age_ms, text: asAge, width: 86 },
];
const CHART_WIDTH = 96;

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function fillState(cell, endpoint) {
  const mark = cell.firstChild ?? cell.appendChild(document.createElement("span"));
  mark.className = "state";
  mark.dataset.state = endpoint.state;
  setText(mark, STATE_NAMES[endpoint.state]);
}

function fillName(cell, endpoint) {
  if (!cell.firstChild) {
    cell.className = "name";
    cell.append(document.createElement("b"), document.createElement("span"));
  }
  // `default/10.0.0.1:8000` is what the agent calls an endpoint that has no other name than its address.
  const isOnlyAddress = endpoint.name === `default/${endpoint.address}`;
  setText(cell.children[0], isOnlyAddress ? endpoint.address : endpoint.name);
  setText(cell.children[1], isOnlyAddress ? "" : endpoint.address);
  cell.title = endpoint.name;
}

function fillAdapters(cell, endpoint) {
  cell.className = endpoint.lora?.running.length > 0 ? "lora" : "lora muted";
  setText(cell, or(endpoint.lora, asAdapters));
  cell.title = endpoint.lora ? `${endpoint.lora.running.length} of ${endpoint.lora.max} loaded` : "";
}

function fillNumber(cell, column, endpoint) {
  const value = column.value(endpoint);
  cell.classList.toggle("muted", value === null || value === undefined || value === 0);
  setText(cell, or(value, column.text));
}

// One endpoint's row. Its charts are drawn only while it can be seen.
class Row {
  #cells = [];
  #charts = [];
  #state = null;
  isSeen = false;

  constructor(name) {
    this.name = name;
    this.element = document.createElement("tr");
    this.element.tabIndex = -1;
    this.element.dataset.endpoint = name;
    for (const column of COLUMNS) {
      const cell = this.element.insertCell();
      if (column.text) cell.className = "number";
      this.#cells.push(cell);
      if (column.series) {
        const place = this.element.insertCell();
        place.className = "spark";
        this.#charts.push({ column, place: place.appendChild(document.createElement("div")), chart: null });
      }
    }
  }

  show(endpoint, lines) {
    this.endpoint = endpoint;
    this.lines = lines;
    this.element.dataset.state = endpoint.state;
    if (this.#state !== null && this.#state !== endpoint.state) {
      this.element.classList.remove("changed");
      // Read, so that the animation begins anew.
      void this.element.offsetWidth;
      this.element.classList.add("changed");
    }
    this.#state = endpoint.state;
    for (const [index, column] of COLUMNS.entries()) {
      if (column.fill) column.fill(this.#cells[index], endpoint);
      else fillNumber(this.#cells[index], column, endpoint);
    }
    this.draw();
  }

  draw() {
    if (!this.isSeen || !this.lines) return;
    for (const it of this.#charts) {
      it.chart ??= spark(it.place, it.column.least);
      it.chart.show(this.lines.of(this.name, it.column.series));
    }
  }

  hide() {
    for (const it of this.#charts) {
      it.chart?.remove();
      it.chart = null;
    }
  }

  text() {
    const { name, address, state, labels = {}, lora } = this.endpoint;
    const labelTexts = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
    return [name, address, STATE_NAMES[state], ...labelTexts, ...(lora ? [...lora.running, ...lora.waiting] : [])].join("\n").toLowerCase();
  }
}

export class Table {
  #head;
  #body;
  #rows = new Map();
  #shown = [];
  #sort = { column: 1, isDescending: false };
  #words = [];
  #state = null;
  #seen;
  #open;

  // `open` is called with the name of an endpoint that the user wants to see in detail.
  constructor(table, open) {
    this.#head = table.tHead.rows[0];
    this.#body = table.tBodies[0];
    this.#open = open;
    this.#seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const row = this.#rows.get(target.dataset.endpoint);
        if (!row) continue;
        row.isSeen = isIntersecting;
        if (isIntersecting) row.draw();
        else row.hide();
      }
    }, { rootMargin: "200px" });
    const widths = COLUMNS.flatMap(({ width, series }) => (series ? [width, CHART_WIDTH] : [width ?? null]));
    for (const width of widths) {
      const column = table.querySelector("colgroup").appendChild(document.createElement("col"));
      if (width !== null) column.style.width = `${width}px`;
    }
    for (const [index, column] of COLUMNS.entries()) this.#addHead(column, index);
    this.#body.addEventListener("click", ({ target }) => this.#choose(target.closest("tr")));
    this.#body.addEventListener("keydown", (event) => this.#walk(event));
  }

  #addHead(column, index) {
    const cell = document.createElement("th");
    cell.scope = "col";
    if (column.series) cell.colSpan = 2;
    if (column.text) cell.className = column.series ? "charted" : "number";
    const button = cell.appendChild(document.createElement("button"));
    button.textContent = column.label;
    button.title = `Sort (key ${(index + 1) % 10})`;
    button.addEventListener("click", () => this.sortBy(index));
    this.#head.append(cell);
  }

  // Sorts by a column; once more, the other way round. Numbers begin with the greatest, and what is unknown is always last.
  sortBy(index) {
    const column = COLUMNS[index];
    if (!column) return;
    const isSame = this.#sort.column === index;
    this.#sort = { column: index, isDescending: isSame ? !this.#sort.isDescending : Boolean(column.text) };
    this.#arrange();
  }

  filter(text) {
    this.#words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.#arrange();
  }

  only(state) {
    this.#state = state;
    this.#arrange();
  }

  focus() {
    (this.#shown.find((row) => row.element.tabIndex === 0) ?? this.#shown[0])?.element.focus();
  }

  mark(name) {
    for (const row of this.#rows.values()) {
      if (row.name === name) row.element.setAttribute("aria-current", "true");
      else row.element.removeAttribute("aria-current");
    }
  }

  show(status, lines) {
    const gone = new Set(this.#rows.keys());
    for (const endpoint of status.endpoints) {
      gone.delete(endpoint.name);
      let row = this.#rows.get(endpoint.name);
      if (!row) {
        row = new Row(endpoint.name);
        this.#rows.set(endpoint.name, row);
        this.#seen.observe(row.element);
      }
      row.show(endpoint, lines);
    }
    for (const name of gone) this.#drop(name);
    this.#arrange();
  }

  clear() {
    for (const name of [...this.#rows.keys()]) this.#drop(name);
  }

  #drop(name) {
    const row = this.#rows.get(name);
    this.#seen.unobserve(row.element);
    row.hide();
    row.element.remove();
    this.#rows.delete(name);
  }

  counts() {
    return { shown: this.#shown.length, all: this.#rows.size };
  }

  #arrange() {
    const { column, isDescending } = this.#sort;
    for (const [index, cell] of [...this.#head.cells].entries()) {
      if (index === column) cell.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    const value = (row) => COLUMNS[column].value(row.endpoint) ?? null;
    const rows = [...this.#rows.values()].filter((row) => {
      if (this.#state !== null && row.endpoint.state !== this.#state) return false;
      const text = this.#words.length > 0 ? row.text() : "";
      return this.#words.every((word) => text.includes(word));
    });
    rows.sort((a, b) => {
      const [left, right] = [value(a), value(b)];
      if ((left === null) !== (right === null)) return left === null ? 1 : -1;
      const order = left === right ? 0 : compare(left, right) * (isDescending ? -1 : 1);
      return order || compare(a.name, b.name);
    });
    this.#place(rows);
  }

  // Moves as little as possible, so that focus and scrolling stay where they are.
  #place(rows) {
    const active = document.activeElement?.closest?.("tr[data-endpoint]");
    const shown = new Set(rows);
    for (const row of this.#rows.values()) {
      if (!shown.has(row)) row.element.remove();
    }
    let next = this.#body.firstChild;
    for (const row of rows) {
      if (row.element === next) next = next.nextSibling;
      else this.#body.insertBefore(row.element, next);
    }
    if (active?.isConnected && active !== document.activeElement) active.focus({ preventScroll: true });
    this.#shown = rows;
    if (!rows.some((row) => row.element.tabIndex === 0) && rows[0]) rows[0].element.tabIndex = 0;
  }

  #walk(event) {
    const at = this.#shown.findIndex((row) => row.element === event.target);
    if (at < 0) return;
    const last = this.#shown.length - 1;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: last, PageDown: at + 10, PageUp: at - 10 }[event.key];
    if (to !== undefined) {
      const next = this.#shown[Math.max(0, Math.min(last, to))].element;
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    } else if (event.key === "Enter") {
      this.#choose(event.target);
    } else {
      return;
    }
    event.preventDefault();
  }

  #choose(element) {
    if (!element) return;
    for (const row of this.#rows.values()) row.element.tabIndex = row.element === element ? 0 : -1;
    this.#open(element.dataset.endpoint);
  }
}

function compare(left, right) {
  if (typeof left === "string") return left.localeCompare(right, "en", { numeric: true });
  return left - right;
}
