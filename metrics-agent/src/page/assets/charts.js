// Charts, drawn by uPlot (global, from uplot.js).

import { SPAN } from "/page/agent.js";
import { MISSING } from "/page/formats.js";

/** @param {string} name a variable of page.css */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/**
 * All charts of the page; they are drawn again when the colour scheme changes.
 * @type {Set<Chart>}
 */
const charts = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of charts) chart.restyle();
});

export class Chart {
  #create;
  /** @type {uPlot | null} */
  #plot = null;
  /** @type {uPlot.AlignedData | null} */
  #data = null;

  /** @param {(data: uPlot.AlignedData) => uPlot} create */
  constructor(create) {
    this.#create = create;
    charts.add(this);
  }

  /** @param {uPlot.AlignedData} data */
  show(data) {
    this.#data = data;
    if (this.#plot) this.#plot.setData(data);
    else this.#plot = this.#create(data);
  }

  /** @param {number} width */
  resize(width) {
    if (this.#plot) this.#plot.setSize({ width, height: this.#plot.height });
  }

  restyle() {
    this.#plot?.destroy();
    this.#plot = null;
    if (this.#data) this.show(this.#data);
  }

  remove() {
    this.#plot?.destroy();
    charts.delete(this);
  }
}

/** @type {uPlot.Range.Function} */
const lastMinutes = (_plot, _min, max) => [max - SPAN, max];

/**
 * A scale from 0 to slightly above the greatest value, and to `minimum` at least.
 * @param {number} minimum
 * @returns {uPlot.Range.Function}
 */
const fromZero = (minimum) => (_plot, _min, max) => [0, Math.max(minimum, (max ?? 0) * 1.1)];

/**
 * @typedef {object} PanelOptions
 * @property {string} title
 * @property {string[]} lines a label for each line; maximum six
 * @property {(value: number) => string} format
 * @property {number} [minimum] of the scale's upper end
 * @property {number} [height]
 */

/**
 * A chart with a title, a legend and axes.
 * @param {Element} parent
 * @param {PanelOptions} options
 */
export function panel(parent, { title, lines, format, minimum = 1, height = 120 }) {
  const figure = document.createElement("div");
  figure.className = "chart";
  const heading = figure.appendChild(document.createElement("h3"));
  heading.append(title);
  const legend = heading.appendChild(document.createElement("span"));
  const values = lines.map((line, index) => {
    const mark = legend.appendChild(document.createElement("i"));
    mark.className = `line-${index + 1}`;
    legend.append(`${line} `);
    return legend.appendChild(document.createElement("b"));
  });
  const place = figure.appendChild(document.createElement("div"));
  parent.append(figure);

  // The values under the cursor, or the latest ones.
  const showValues = (/** @type {uPlot} */ plot) => {
    for (const [index, element] of values.entries()) {
      const column = plot.data[index + 1] ?? [];
      const value = column[plot.cursor.idx ?? column.length - 1];
      element.textContent = value === null || value === undefined ? MISSING : format(value);
    }
  };
  const chart = new Chart((data) => new uPlot({
    width: place.clientWidth || 300,
    height,
    padding: [8, 4, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 } },
    scales: { x: { range: lastMinutes }, y: { range: fromZero(minimum) } },
    axes: [
      {
        stroke: colour("--muted"), font: "11px system-ui", grid: { show: false }, ticks: { show: false }, size: 22, space: 60,
        splits: (_plot, _axis, _min, max) => [-4, -3, -2, -1].map((minutes) => max + minutes * 60),
        values: (_plot, splits) => splits.map((_, index) => `${index - 4} min`),
      },
      {
        stroke: colour("--muted"), font: "11px system-ui", grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
        size: 44, gap: 4, space: 34, values: (_plot, splits) => splits.map(format),
      },
    ],
    series: [{}, ...lines.map((_, index) => ({
      stroke: colour(`--series-${index + 1}`), width: 1.5, spanGaps: false, points: { show: false },
      fill: index === 0 && lines.length <= 2 ? colour("--fill-1") : undefined,
    }))],
    hooks: { setData: [showValues], setCursor: [showValues], ready: [showValues] },
  }, data, place));
  new ResizeObserver(() => place.clientWidth > 0 && chart.resize(place.clientWidth)).observe(place);
  return chart;
}

/**
 * A line without axes, in a cell of a table.
 * @param {HTMLElement} place
 * @param {number} minimum of the scale's upper end
 */
export function sparkline(place, minimum) {
  return new Chart((data) => new uPlot({
    width: 74,
    height: 28,
    padding: [3, 0, 2, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { range: lastMinutes }, y: { range: fromZero(minimum) } },
    axes: [{ show: false }, { show: false }],
    series: [{}, { stroke: colour("--series-1"), width: 1.25, fill: colour("--fill-1"), points: { show: false } }],
  }, data, place));
}
