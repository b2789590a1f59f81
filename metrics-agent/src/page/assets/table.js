// The table of endpoints: sorted, filtered, grouped by a label, in pages.

import { COLUMNS, searchedText } from "/page/columns.js";
import { formatWhole } from "/page/formats.js";
import { EndpointRow, GroupRow } from "/page/rows.js";

/** @import { Column } from "/page/columns.js" */
/** @import { Endpoint, State, Status, Timeline } from "/page/agent.js" */

/** Rows of a page. Groups of a pool with more endpoints are folded at first. */
const PAGE = 50;
const BY_STATE = 0;
const CHART_WIDTH = 84;

const collator = new Intl.Collator("en", { numeric: true });

/**
 * A row to show.
 * @typedef {{ endpoint: Endpoint } | { group: string, endpoints: Endpoint[], isOpen: boolean }} Item
 */

/** @param {Item} item */
const keyOf = (item) => ("endpoint" in item ? `endpoint ${item.endpoint.name}` : `group ${item.group}`);

export class Table {
  #head;
  #body;
  #pager;
  #open;
  /** @type {Endpoint[]} */
  #endpoints = [];
  /**
   * The place of each endpoint by its name.
   * @type {Map<string, number>}
   */
  #ranks = new Map();
  /** @type {Timeline | null} */
  #timeline = null;
  /** @type {Item[]} */
  #items = [];
  #shown = 0;
  #page = 0;
  /** @type {Map<string, EndpointRow>} */
  #rows = new Map();
  /** @type {EndpointRow[]} */
  #unusedRows = [];
  /** @type {Map<Element, EndpointRow>} */
  #rowOfElement = new Map();
  /** @type {Map<string, GroupRow>} */
  #groups = new Map();
  /**
   * Groups that the user has opened or folded.
   * @type {Map<string, boolean>}
   */
  #opened = new Map();
  #sort = { column: BY_STATE, isDescending: false };
  /** @type {string[]} */
  #words = [];
  /** @type {State | null} */
  #state = null;
  /** @type {string | null} */
  #label = null;
  /** @type {string | null} */
  #marked = null;
  /**
   * The row that the Tab key reaches.
   * @type {string | null}
   */
  #focused = null;
  #visibility;

  /**
   * @param {HTMLTableElement} table
   * @param {HTMLElement} pager
   * @param {(name: string) => void} open called with the endpoint whose details the user opens
   */
  constructor(table, pager, open) {
    const head = table.tHead?.rows[0];
    const body = table.tBodies[0];
    const columns = table.querySelector("colgroup");
    if (!head || !body || !columns) throw new Error("the table needs a column group, a row of headings and a body");
    this.#head = head;
    this.#body = body;
    this.#pager = pager;
    this.#open = open;
    this.#visibility = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const row = this.#rowOfElement.get(target);
        if (!row) continue;
        row.isVisible = isIntersecting;
        if (isIntersecting) row.draw();
        else row.removeCharts();
      }
    }, { rootMargin: "100px" });
    const widths = COLUMNS.flatMap(({ width, series }) => (series ? [width, CHART_WIDTH] : [width]));
    for (const width of widths) {
      const column = columns.appendChild(document.createElement("col"));
      if (width !== undefined) column.style.width = `${width}px`;
    }
    for (const [index, column] of COLUMNS.entries()) this.#addHeading(column, index);
    body.addEventListener("click", ({ target }) => this.#select(this.#itemOf(target)));
    body.addEventListener("keydown", (event) => this.#navigate(event));
  }

  /**
   * @param {Column} column
   * @param {number} index
   */
  #addHeading({ label, title, format, series }, index) {
    const cell = document.createElement("th");
    cell.scope = "col";
    if (series) cell.colSpan = 2;
    if (format) cell.className = series ? "charted" : "number";
    const button = cell.appendChild(document.createElement("button"));
    button.type = "button";
    button.textContent = label;
    button.title = `${title ? `${title}. ` : ""}Sort (key ${(index + 1) % 10})`;
    button.addEventListener("click", () => this.sortBy(index));
    this.#head.append(cell);
  }

  /**
   * The index among all items of the row that an element is in; -1: none.
   * @param {EventTarget | null} target
   */
  #itemOf(target) {
    const element = target instanceof Element ? target.closest("tr") : null;
    if (!element) return -1;
    const { endpoint, group } = element.dataset;
    const key = group === undefined ? `endpoint ${endpoint}` : `group ${group}`;
    return this.#items.findIndex((item) => keyOf(item) === key);
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
    this.#page = 0;
    this.#arrange();
  }

  /**
   * Shows only rows that contain every word of the text.
   * @param {string} text
   */
  filter(text) {
    this.#words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.#page = 0;
    this.#arrange();
  }

  /**
   * Shows only endpoints in this state; all with null.
   * @param {State | null} state
   */
  filterState(state) {
    this.#state = state;
    this.#page = 0;
    this.#arrange();
  }

  /**
   * Shows the endpoints in groups of equal values of this label; without groups with null.
   * @param {string | null} label
   */
  groupBy(label) {
    this.#label = label;
    this.#opened.clear();
    this.#page = 0;
    this.#arrange();
  }

  focus() {
    /** @type {HTMLElement | null} */ (this.#body.querySelector('tr[tabindex="0"]'))?.focus();
  }

  /**
   * Marks the endpoint whose details are open.
   * @param {string | null} name
   */
  mark(name) {
    this.#marked = name;
    for (const { element } of this.#rows.values()) this.#markRow(element);
  }

  /** @param {HTMLElement} element */
  #markRow(element) {
    if (element.dataset.endpoint === this.#marked) element.setAttribute("aria-current", "true");
    else element.removeAttribute("aria-current");
  }

  /**
   * @param {Status} status
   * @param {Timeline} timeline
   */
  show({ endpoints }, timeline) {
    const isSame = endpoints.length === this.#ranks.size && endpoints.every(({ name }) => this.#ranks.has(name));
    if (!isSame) {
      const names = endpoints.map(({ name }) => name).sort(collator.compare);
      this.#ranks = new Map(names.map((name, rank) => [name, rank]));
    }
    this.#endpoints = endpoints;
    this.#timeline = timeline;
    this.#arrange();
  }

  clear() {
    this.#endpoints = [];
    this.#page = 0;
    this.#arrange();
  }

  counts() {
    return { shown: this.#shown, all: this.#endpoints.length };
  }

  #arrange() {
    const { column, isDescending } = this.#sort;
    for (const [index, cell] of [...this.#head.cells].entries()) {
      if (index === column) cell.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    const endpoints = this.#sorted(this.#endpoints.filter((endpoint) => this.#matches(endpoint)));
    this.#shown = endpoints.length;
    this.#items = this.#label === null ? endpoints.map((endpoint) => ({ endpoint })) : this.#grouped(endpoints, this.#label);
    this.#place();
  }

  /** @param {Endpoint} endpoint */
  #matches(endpoint) {
    if (this.#state !== null && endpoint.state !== this.#state) return false;
    if (this.#words.length === 0) return true;
    const text = searchedText(endpoint);
    return this.#words.every((word) => text.includes(word));
  }

  /** @param {Endpoint[]} endpoints */
  #sorted(endpoints) {
    const { column, isDescending } = this.#sort;
    const rank = (/** @type {Endpoint} */ { name }) => this.#ranks.get(name) ?? 0;
    const isName = COLUMNS[column]?.label === "Endpoint";
    const keys = new Map(endpoints.map((it) => [it, isName ? rank(it) : (COLUMNS[column]?.value(it) ?? null)]));
    return endpoints.sort((a, b) => {
      const [left, right] = [keys.get(a) ?? null, keys.get(b) ?? null];
      if (left === right) return rank(a) - rank(b);
      if (left === null || right === null) return left === null ? 1 : -1;
      return (Number(left) - Number(right)) * (isDescending ? -1 : 1) || rank(a) - rank(b);
    });
  }

  /**
   * Groups in the order of their first endpoints: the worst first, unless sorted otherwise.
   * @param {Endpoint[]} endpoints sorted
   * @param {string} label
   * @returns {Item[]}
   */
  #grouped(endpoints, label) {
    /** @type {Map<string, Endpoint[]>} */
    const groups = new Map();
    for (const endpoint of endpoints) {
      const value = endpoint.labels?.[label];
      const name = value === undefined ? `no ${label}` : `${label}=${value}`;
      const group = groups.get(name);
      if (group) group.push(endpoint);
      else groups.set(name, [endpoint]);
    }
    return [...groups].flatMap(([group, endpoints]) => {
      const isOpen = this.#opened.get(group) ?? this.#endpoints.length <= PAGE;
      return [{ group, endpoints, isOpen }, ...(isOpen ? endpoints.map((endpoint) => ({ endpoint })) : [])];
    });
  }

  /** Shows the items of this page. Moves as few rows as possible, so that focus and scrolling stay. */
  #place() {
    const pages = Math.max(1, Math.ceil(this.#items.length / PAGE));
    this.#page = Math.min(this.#page, pages - 1);
    const items = this.#items.slice(this.#page * PAGE, (this.#page + 1) * PAGE);
    const keys = new Set(items.map(keyOf));
    for (const [key, row] of this.#rows) {
      if (keys.has(key)) continue;
      this.#rows.delete(key);
      this.#unusedRows.push(row);
    }
    for (const [key, row] of this.#groups) {
      if (keys.has(key)) continue;
      row.element.remove();
      this.#groups.delete(key);
    }
    if (this.#focused === null || !keys.has(this.#focused)) this.#focused = items[0] ? keyOf(items[0]) : null;
    const focused = document.activeElement;
    let next = this.#body.firstChild;
    for (const item of items) {
      const element = this.#fill(item);
      element.tabIndex = keyOf(item) === this.#focused ? 0 : -1;
      if (element === next) next = next.nextSibling;
      else this.#body.insertBefore(element, next);
    }
    for (const { element } of this.#unusedRows) element.remove();
    if (focused instanceof HTMLElement && focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
    this.#showPager(pages);
  }

  /**
   * The row of an item, with its present values.
   * @param {Item} item
   */
  #fill(item) {
    const key = keyOf(item);
    if (!("endpoint" in item)) {
      const row = this.#groups.get(key) ?? new GroupRow();
      this.#groups.set(key, row);
      row.show(item.group, item.endpoints, item.isOpen);
      return row.element;
    }
    let row = this.#rows.get(key);
    if (!row) {
      row = this.#unusedRows.pop() ?? new EndpointRow();
      this.#rows.set(key, row);
      if (!this.#rowOfElement.has(row.element)) {
        this.#rowOfElement.set(row.element, row);
        this.#visibility.observe(row.element);
      }
    }
    if (this.#timeline) row.show(item.endpoint, this.#timeline);
    this.#markRow(row.element);
    return row.element;
  }

  /** @param {number} pages */
  #showPager(pages) {
    this.#pager.hidden = pages === 1;
    if (pages === 1) return;
    const [previous, next] = this.#pager.querySelectorAll("button");
    const text = this.#pager.querySelector("span");
    if (!previous || !next || !text) return;
    previous.disabled = this.#page === 0;
    next.disabled = this.#page === pages - 1;
    const end = Math.min((this.#page + 1) * PAGE, this.#items.length);
    text.textContent = `${this.#page * PAGE + 1} to ${end} of ${formatWhole(this.#items.length)} ${this.#label === null ? "endpoints" : "rows"}`;
  }

  /** @param {number} pages forwards; negative: backwards */
  turn(pages) {
    this.#page = Math.max(0, this.#page + pages);
    this.#place();
  }

  /** @param {KeyboardEvent} event */
  #navigate(event) {
    const index = this.#itemOf(event.target);
    if (index < 0) return;
    const last = this.#items.length - 1;
    /** @type {Record<string, number>} */
    const targets = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: last, PageDown: index + 10, PageUp: index - 10 };
    const target = targets[event.key];
    if (target !== undefined) {
      this.#focusItem(Math.max(0, Math.min(last, target)));
    } else if (event.key === "Enter") {
      this.#select(index);
    } else {
      return;
    }
    event.preventDefault();
  }

  /** @param {number} index */
  #focusItem(index) {
    const item = this.#items[index];
    if (!item) return;
    this.#page = Math.floor(index / PAGE);
    this.#focused = keyOf(item);
    this.#place();
    this.focus();
  }

  /** @param {number} index */
  #select(index) {
    const item = this.#items[index];
    if (!item) return;
    this.#focused = keyOf(item);
    if ("endpoint" in item) {
      this.#place();
      this.#open(item.endpoint.name);
    } else {
      this.#opened.set(item.group, !item.isOpen);
      this.#arrange();
    }
  }
}
