// The table of endpoints: one row each, sorted, filtered, and operated with mouse and keyboard.

import { formatCount, formatShare, sparkline } from "/page/charts.js";

/** @import { Endpoint, Lora, Series, State, Status, Timeline } from "/page/agent.js" */
/** @import { Chart } from "/page/charts.js" */

/**
 * All states, the worst first, with the names that the page shows.
 * @type {[State, string][]}
 */
export const STATES = [
  ["not_ready", "not ready"],
  ["failing", "failing"],
  ["no_reading", "no reading"],
  ["stale", "stale"],
  ["saturated", "saturated"],
  ["ready", "ready"],
];
export const STATE_NAMES = /** @type {Record<State, string>} */ (Object.fromEntries(STATES));
const STATE_RANKS = /** @type {Record<State, number>} */ (Object.fromEntries(STATES.map(([state], rank) => [state, rank])));

/** Shown in place of a missing value. */
export const MISSING = "–";

/** @param {number} ms */
export const formatAge = (ms) => (ms < 1000 ? `${ms} ms` : ms < 120_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 60_000)} min`);
/** @param {number} value */
export const formatRate = (value) => (value > 0 && value < 10 ? value.toFixed(1) : formatCount(Math.round(value)));

/** @param {Lora} lora */
export function formatAdapters(lora) {
  const names = [...lora.running, ...lora.waiting.map((name) => `${name} (waiting)`)];
  return names.length > 0 ? names.join(", ") : `none of ${lora.max}`;
}

/**
 * A column shows either a number, by `format`, or what `fill` puts into its cell.
 * @typedef {object} Column
 * @property {string} label
 * @property {(endpoint: Endpoint) => string | number | null | undefined} value what the column is sorted by
 * @property {(value: number) => string} [format]
 * @property {(cell: HTMLTableCellElement, endpoint: Endpoint) => void} [fill]
 * @property {Series} [series] drawn beside the number
 * @property {number} [minimum] of the drawing's upper end
 * @property {number} [width] in pixels; the one column without it takes the rest
 */

/** @type {Column[]} */
const COLUMNS = [
  { label: "State", value: (it) => STATE_RANKS[it.state], fill: fillState, width: 112 },
  { label: "Endpoint", value: (it) => it.name, fill: fillName, width: 194 },
  { label: "Queue", value: (it) => it.waiting, format: formatCount, series: "waiting", minimum: 5, width: 62 },
  { label: "Running", value: (it) => it.running, format: formatCount, width: 82 },
  { label: "KV cache", value: (it) => it.kv_usage, format: formatShare, series: "kv_usage", minimum: 1, width: 74 },
  { label: "In flight", value: (it) => it.sent?.requests, format: formatCount, width: 82 },
  { label: "Tokens", value: (it) => it.sent?.tokens, format: formatCount, width: 82 },
  { label: "Picks/s", value: (it) => it.sent?.picks_per_second, format: formatRate, series: "picks_per_second", minimum: 1, width: 68 },
  { label: "LoRA adapters", value: (it) => it.lora?.running.length, fill: fillAdapters },
  { label: "Age", value: (it) => it.age_ms, format: formatAge, width: 86 },
];
const BY_NAME = 1;
const CHART_WIDTH = 96;

/**
 * @param {Element} node
 * @param {string} text
 */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Endpoint} endpoint
 */
function fillState(cell, endpoint) {
  const mark = cell.querySelector("span") ?? cell.appendChild(document.createElement("span"));
  mark.className = "state";
  mark.dataset.state = endpoint.state;
  setText(mark, STATE_NAMES[endpoint.state]);
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Endpoint} endpoint
 */
function fillName(cell, endpoint) {
  cell.className = "name";
  const name = cell.querySelector("b") ?? cell.appendChild(document.createElement("b"));
  const address = cell.querySelector("span") ?? cell.appendChild(document.createElement("span"));
  // The agent names an endpoint without a name of its own by its address: `default/10.0.0.1:8000`.
  const isOnlyAddress = endpoint.name === `default/${endpoint.address}`;
  setText(name, isOnlyAddress ? endpoint.address : endpoint.name);
  setText(address, isOnlyAddress ? "" : endpoint.address);
  cell.title = endpoint.name;
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Endpoint} endpoint
 */
function fillAdapters(cell, { lora }) {
  cell.className = lora && lora.running.length > 0 ? "lora" : "lora muted";
  setText(cell, lora ? formatAdapters(lora) : MISSING);
  cell.title = lora ? `${lora.running.length} of ${lora.max} loaded` : "";
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {string | number | null | undefined} value
 * @param {(value: number) => string} format
 */
function fillNumber(cell, value, format) {
  cell.classList.toggle("muted", typeof value !== "number" || value === 0);
  setText(cell, typeof value === "number" ? format(value) : MISSING);
}

/**
 * @typedef {object} Sparkline
 * @property {Series} series
 * @property {number} minimum
 * @property {HTMLElement} place
 * @property {Chart | null} chart
 */

/** One endpoint's row. Its charts exist only while it is visible. */
class Row {
  /** @type {HTMLTableCellElement[]} */
  #cells = [];
  /** @type {Sparkline[]} */
  #sparklines = [];
  #timeline;
  endpoint;
  isVisible = false;

  /**
   * @param {Endpoint} endpoint
   * @param {Timeline} timeline
   */
  constructor(endpoint, timeline) {
    this.endpoint = endpoint;
    this.#timeline = timeline;
    this.name = endpoint.name;
    this.element = document.createElement("tr");
    this.element.tabIndex = -1;
    this.element.dataset.endpoint = endpoint.name;
    for (const { format, series, minimum = 1 } of COLUMNS) {
      const cell = this.element.insertCell();
      if (format) cell.className = "number";
      this.#cells.push(cell);
      if (series) {
        const place = this.element.insertCell();
        place.className = "spark";
        this.#sparklines.push({ series, minimum, place: place.appendChild(document.createElement("div")), chart: null });
      }
    }
  }

  /**
   * @param {Endpoint} endpoint
   * @param {Timeline} timeline
   */
  show(endpoint, timeline) {
    const hasChanged = this.endpoint.state !== endpoint.state;
    this.endpoint = endpoint;
    this.#timeline = timeline;
    this.element.dataset.state = endpoint.state;
    if (hasChanged) {
      this.element.classList.remove("changed");
      // Reading the width makes the browser restart the animation.
      void this.element.offsetWidth;
      this.element.classList.add("changed");
    }
    for (const [index, { value, format, fill }] of COLUMNS.entries()) {
      const cell = this.#cells[index];
      if (!cell) continue;
      if (fill) fill(cell, endpoint);
      else if (format) fillNumber(cell, value(endpoint), format);
    }
    this.draw();
  }

  draw() {
    if (!this.isVisible) return;
    for (const it of this.#sparklines) {
      it.chart ??= sparkline(it.place, it.minimum);
      it.chart.show([this.#timeline.times, this.#timeline.of(this.name, it.series)]);
    }
  }

  removeCharts() {
    for (const it of this.#sparklines) {
      it.chart?.remove();
      it.chart = null;
    }
  }

  /** The text that the filter searches. */
  text() {
    const { name, address, state, labels = {}, lora } = this.endpoint;
    const labelTexts = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
    return [name, address, STATE_NAMES[state], ...labelTexts, ...(lora ? [...lora.running, ...lora.waiting] : [])].join("\n").toLowerCase();
  }
}

export class Table {
  #head;
  #body;
  /** @type {Map<string, Row>} */
  #rows = new Map();
  /** @type {Row[]} */
  #shown = [];
  #sort = { column: BY_NAME, isDescending: false };
  /** @type {string[]} */
  #words = [];
  /** @type {State | null} */
  #state = null;
  #visibility;
  #open;

  /**
   * @param {HTMLTableElement} table
   * @param {(name: string) => void} open called with the endpoint whose details the user opens
   */
  constructor(table, open) {
    const head = table.tHead?.rows[0];
    const body = table.tBodies[0];
    const columns = table.querySelector("colgroup");
    if (!head || !body || !columns) throw new Error("the table needs a column group, a row of headings and a body");
    this.#head = head;
    this.#body = body;
    this.#open = open;
    this.#visibility = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const row = this.#rowOf(target);
        if (!row) continue;
        row.isVisible = isIntersecting;
        if (isIntersecting) row.draw();
        else row.removeCharts();
      }
    }, { rootMargin: "200px" });
    const widths = COLUMNS.flatMap(({ width, series }) => (series ? [width, CHART_WIDTH] : [width]));
    for (const width of widths) {
      const column = columns.appendChild(document.createElement("col"));
      if (width !== undefined) column.style.width = `${width}px`;
    }
    for (const [index, column] of COLUMNS.entries()) this.#addHeading(column, index);
    body.addEventListener("click", ({ target }) => this.#select(this.#rowOf(target)));
    body.addEventListener("keydown", (event) => this.#navigate(event));
  }

  /**
   * @param {Column} column
   * @param {number} index
   */
  #addHeading({ label, format, series }, index) {
    const cell = document.createElement("th");
    cell.scope = "col";
    if (series) cell.colSpan = 2;
    if (format) cell.className = series ? "charted" : "number";
    const button = cell.appendChild(document.createElement("button"));
    button.textContent = label;
    button.title = `Sort (key ${(index + 1) % 10})`;
    button.addEventListener("click", () => this.sortBy(index));
    this.#head.append(cell);
  }

  /**
   * The row that an element is in.
   * @param {EventTarget | null} target
   */
  #rowOf(target) {
    const element = target instanceof Element ? target.closest("tr") : null;
    return this.#rows.get(element?.dataset.endpoint ?? "");
  }

  /**
   * Sorts by a column, and in the opposite order the second time. Numbers begin with the greatest; unknown values are always last.
   * @param {number} index
   */
  sortBy(index) {
    const column = COLUMNS[index];
    if (!column) return;
    const isSame = this.#sort.column === index;
    this.#sort = { column: index, isDescending: isSame ? !this.#sort.isDescending : Boolean(column.format) };
    this.#arrange();
  }

  /**
   * Shows only rows that contain every word of the text.
   * @param {string} text
   */
  filter(text) {
    this.#words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.#arrange();
  }

  /**
   * Shows only endpoints in this state; all with null.
   * @param {State | null} state
   */
  filterState(state) {
    this.#state = state;
    this.#arrange();
  }

  focus() {
    (this.#shown.find((row) => row.element.tabIndex === 0) ?? this.#shown[0])?.element.focus();
  }

  /**
   * Marks the endpoint whose details are open.
   * @param {string | null} name
   */
  mark(name) {
    for (const row of this.#rows.values()) {
      if (row.name === name) row.element.setAttribute("aria-current", "true");
      else row.element.removeAttribute("aria-current");
    }
  }

  /**
   * @param {Status} status
   * @param {Timeline} timeline
   */
  show(status, timeline) {
    const removed = new Set(this.#rows.values());
    for (const endpoint of status.endpoints) {
      let row = this.#rows.get(endpoint.name);
      if (row) {
        removed.delete(row);
      } else {
        row = new Row(endpoint, timeline);
        this.#rows.set(endpoint.name, row);
        this.#visibility.observe(row.element);
      }
      row.show(endpoint, timeline);
    }
    for (const row of removed) this.#remove(row);
    this.#arrange();
  }

  clear() {
    for (const row of [...this.#rows.values()]) this.#remove(row);
  }

  /** @param {Row} row */
  #remove(row) {
    this.#visibility.unobserve(row.element);
    row.removeCharts();
    row.element.remove();
    this.#rows.delete(row.name);
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
    const value = (/** @type {Row} */ row) => COLUMNS[column]?.value(row.endpoint) ?? null;
    const rows = [...this.#rows.values()].filter((row) => {
      if (this.#state !== null && row.endpoint.state !== this.#state) return false;
      const text = this.#words.length > 0 ? row.text() : "";
      return this.#words.every((word) => text.includes(word));
    });
    rows.sort((a, b) => {
      const [left, right] = [value(a), value(b)];
      if (left === null || right === null) {
        if (left !== right) return left === null ? 1 : -1;
        return compare(a.name, b.name);
      }
      return compare(left, right) * (isDescending ? -1 : 1) || compare(a.name, b.name);
    });
    this.#place(rows);
  }

  /**
   * Moves as few rows as possible, so that focus and scrolling stay.
   * @param {Row[]} rows
   */
  #place(rows) {
    const focused = document.activeElement;
    const row = this.#rowOf(focused)?.element;
    const shown = new Set(rows);
    for (const row of this.#rows.values()) {
      if (!shown.has(row)) row.element.remove();
    }
    let next = this.#body.firstChild;
    for (const { element } of rows) {
      if (element === next) next = next.nextSibling;
      else this.#body.insertBefore(element, next);
    }
    if (row?.isConnected && row !== document.activeElement) row.focus({ preventScroll: true });
    this.#shown = rows;
    if (!rows.some((row) => row.element.tabIndex === 0) && rows[0]) rows[0].element.tabIndex = 0;
  }

  /** @param {KeyboardEvent} event */
  #navigate(event) {
    const index = this.#shown.findIndex((row) => row.element === event.target);
    const row = this.#shown[index];
    if (!row) return;
    const last = this.#shown.length - 1;
    /** @type {Record<string, number>} */
    const targets = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: last, PageDown: index + 10, PageUp: index - 10 };
    const target = targets[event.key];
    if (target !== undefined) {
      const next = this.#shown[Math.max(0, Math.min(last, target))] ?? row;
      row.element.tabIndex = -1;
      next.element.tabIndex = 0;
      next.element.focus();
    } else if (event.key === "Enter") {
      this.#select(row);
    } else {
      return;
    }
    event.preventDefault();
  }

  /** @param {Row | undefined} selected */
  #select(selected) {
    if (!selected) return;
    for (const row of this.#rows.values()) row.element.tabIndex = row === selected ? 0 : -1;
    this.#open(selected.name);
  }
}

/**
 * @param {string | number} left
 * @param {string | number} right
 */
function compare(left, right) {
  if (typeof left === "number" && typeof right === "number") return left - right;
  return String(left).localeCompare(String(right), "en", { numeric: true });
}
