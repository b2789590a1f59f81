// The rows of the table of endpoints: one for an endpoint, one for a group of them.

import { mean, sum } from "/page/agent.js";
import { sparkline } from "/page/charts.js";
import { COLUMNS, fillNumber, setText, STATE_NAMES, STATES } from "/page/columns.js";
import { formatWhole } from "/page/formats.js";

/** @import { Endpoint, Series, Timeline } from "/page/agent.js" */
/** @import { Chart } from "/page/charts.js" */

/**
 * @typedef {object} Sparkline
 * @property {Series} series
 * @property {number} minimum
 * @property {HTMLElement} place
 * @property {Chart | null} chart
 */

/** A row that shows one endpoint, and another one later: making rows and their charts costs more than changing them. */
export class EndpointRow {
  /** @type {HTMLTableCellElement[]} */
  #cells = [];
  /** @type {Sparkline[]} */
  #sparklines = [];
  /** @type {Endpoint | null} */
  #endpoint = null;
  /** @type {Timeline | null} */
  #timeline = null;
  element = document.createElement("tr");
  isVisible = false;

  constructor() {
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
    const before = this.#endpoint;
    const hasChanged = before?.name === endpoint.name && before.state !== endpoint.state;
    if (endpoint !== before || timeline !== this.#timeline) {
      this.#endpoint = endpoint;
      this.#timeline = timeline;
      this.element.dataset.endpoint = endpoint.name;
      this.element.dataset.state = endpoint.state;
      for (const [index, column] of COLUMNS.entries()) {
        const cell = this.#cells[index];
        if (!cell) continue;
        if (column.fill) column.fill(cell, endpoint);
        else fillNumber(cell, column, column.value(endpoint));
      }
    }
    if (hasChanged || before?.name !== endpoint.name) this.element.classList.remove("changed");
    if (hasChanged) {
      // Reading the width makes the browser restart the animation.
      void this.element.offsetWidth;
      this.element.classList.add("changed");
    }
    this.draw();
  }

  draw() {
    const [endpoint, timeline] = [this.#endpoint, this.#timeline];
    if (!this.isVisible || !endpoint || !timeline) return;
    for (const it of this.#sparklines) {
      it.chart ??= sparkline(it.place, it.minimum);
      it.chart.show([timeline.times, timeline.of(endpoint.name, it.series)]);
    }
  }

  removeCharts() {
    for (const it of this.#sparklines) {
      it.chart?.remove();
      it.chart = null;
    }
  }
}

/** A row that shows a group: how many of its endpoints are in each state, and the sums of their numbers. */
export class GroupRow {
  /** @type {HTMLTableCellElement[]} */
  #cells = [];
  #button = document.createElement("button");
  element = document.createElement("tr");

  constructor() {
    this.element.className = "group";
    for (const [index, { format, series }] of COLUMNS.entries()) {
      const cell = this.element.insertCell();
      if (format) cell.className = "number";
      if (series) this.element.insertCell().className = "spark";
      this.#cells[index] = cell;
    }
    this.#button.type = "button";
    this.#button.tabIndex = -1;
    this.#cells[1]?.append(this.#button);
  }

  /**
   * @param {string} name
   * @param {Endpoint[]} endpoints
   * @param {boolean} isOpen
   */
  show(name, endpoints, isOpen) {
    this.element.dataset.group = name;
    setText(this.#button, `${name} (${formatWhole(endpoints.length)})`);
    this.#button.setAttribute("aria-expanded", String(isOpen));
    const states = this.#cells[0];
    if (states) {
      const counts = STATES.map(([state]) => [state, endpoints.filter((it) => it.state === state).length]).filter(([, count]) => count);
      states.replaceChildren(...counts.map(([state, count]) => {
        const mark = document.createElement("span");
        mark.className = "state";
        mark.dataset.state = String(state);
        mark.title = STATE_NAMES[/** @type {keyof typeof STATE_NAMES} */ (state)];
        mark.textContent = formatWhole(Number(count));
        return mark;
      }));
    }
    for (const [index, column] of COLUMNS.entries()) {
      const cell = this.#cells[index];
      if (!cell || !column.total) continue;
      const values = endpoints.map(column.value).filter((value) => typeof value === "number");
      const combine = column.total === "sum" ? sum : mean;
      fillNumber(cell, column, values.length > 0 ? combine(values) : null);
    }
  }
}
