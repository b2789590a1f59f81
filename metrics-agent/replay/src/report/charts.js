"use strict";
// Draws the two charts of a replay by uPlot.
(() => {
  const { rows } = JSON.parse(document.getElementById("data").textContent);
  const colors = ["#222", "#888", "#1668dc", "#d4380d", "#389e0d", "#722ed1", "#d48806", "#08979c"];
  const series = (rows) => rows.map((row, number) => ({
    label: row.name,
    stroke: colors[number % colors.length],
    width: 2,
  }));
  const draw = (id, axes, scales, labels, rows, values) => {
    const options = {
      width: Math.min(920, document.body.clientWidth),
      height: 360,
      scales,
      axes,
      series: [{ label: labels }, ...series(rows)],
    };
    new uPlot(options, [rows[0] ? values(rows[0]).map((_, place) => place + 1) : [], ...rows.map(values)], document.getElementById(id));
  };
  const milliseconds = { label: "ms", size: 70 };
  draw("times", [{ label: "percentile" }, milliseconds], { x: { time: false }, y: { distr: 3 } }, "percentile", rows,
    (row) => row.percentiles_ms.map((value) => (value > 0 ? value : null)));
  draw("servers", [{ label: "server" }, { label: "requests", size: 70 }], { x: { time: false } }, "server", rows,
    (row) => row.by_server);
})();
