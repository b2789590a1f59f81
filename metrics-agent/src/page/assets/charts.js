// Charts, drawn by uPlot (global, from uplot.js).

import { SPAN } from "/page/agent.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Every chart alive draws itself anew when light becomes dark.
const charts = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of charts) chart.restyle();
});

export const asCount = (value) => (value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toFixed(1));
export const asShare = (value) => `${Math.round(value * 100)} %`;

class Chart {
  #make;
  #plot = null;
  #data = null;

  constructor(make) {
    this.#make = make;
    charts.add(this);
  }

  show(data) {
    this.#data = data;
    if (this.#plot) this.#plot.setData(data);
    else this.#plot = this.#make(data);
  }

  resize(width) {
    this.#plot?.setSize({ width, height: this.#plot.height });
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

const lastMinutes = (_plot, _min, max) => [max - SPAN, max];
// A little more than what is there, and never nothing.
const fromZero = (least) => (_plot, _min, max) => [0, Math.max(least, (max ?? 0) * 1.1)];

// A chart with a title and axes. `lines` has a label for each column; `say` writes a value.
export function panel(parent, { title, lines, say, least = 1, height = 120 }) {
  const figure = document.createElement("div");
  figure.className = "chart";
  const heading = figure.appendChild(document.createElement("h3"));
  heading.append(title);
  const legend = heading.appendChild(document.createElement("span"));
  const values = lines.map((line, index) => {
    const mark = legend.appendChild(document.createElement("i"));
    mark.className = index === 0 ? "first" : "second";
    legend.append(`${line} `);
    return legend.appendChild(document.createElement("b"));
  });
  const place = figure.appendChild(document.createElement("div"));
  parent.append(figure);

  const tell = (plot) => {
    for (const [index, value] of values.entries()) {
      const column = plot.data[index + 1];
      const at = plot.cursor.idx ?? column.length - 1;
      const said = column[at];
      value.textContent = said === null || said === undefined ? "–" : say(said);
    }
  };
  const chart = new Chart((data) => new uPlot({
    width: place.clientWidth || 300,
    height,
    padding: [8, 4, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 5 } },
    scales: { x: { range: lastMinutes }, y: { range: fromZero(least) } },
    axes: [
      {
        stroke: colour("--quiet"), font: "11px system-ui", grid: { show: false }, ticks: { show: false }, size: 22, space: 60,
        splits: (plot) => [-4, -3, -2, -1].map((minutes) => plot.scales.x.max + minutes * 60),
        values: (_plot, splits) => splits.map((_, index) => `${index - 4} min`),
      },
      {
        stroke: colour("--quiet"), font: "11px system-ui", grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
        size: 44, gap: 4, space: 34, values: (_plot, splits) => splits.map(say),
      },
    ],
    series: [{}, ...lines.map((_, index) => ({
      stroke: colour(`--series-${index + 1}`), width: 1.5, spanGaps: false, points: { show: false },
      fill: index === 0 ? colour("--fill-1") : undefined,
    }))],
    hooks: { setData: [tell], setCursor: [tell], ready: [tell] },
  }, data, place));
  new ResizeObserver(() => place.clientWidth > 0 && chart.resize(place.clientWidth)).observe(place);
  return chart;
}

// A line without anything around it, in a cell of a table.
export function spark(place, least) {
  return new Chart((data) => new uPlot({
    width: 84,
    height: 28,
    padding: [3, 0, 2, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { range: lastMinutes }, y: { range: fromZero(least) } },
    axes: [{ show: false }, { show: false }],
    series: [{}, { stroke: colour("--series-1"), width: 1.25, fill: colour("--fill-1"), points: { show: false } }],
  }, data, place));
}
