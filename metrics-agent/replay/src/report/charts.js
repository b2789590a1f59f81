"use strict";
// Draws the two charts of a replay by uPlot.
(() => {
  const { rows } = JSON.parse(document.getElementById("data").textContent);
  const colors = ["#222", "#888", "#1668dc", "#d4380d", "#389e0d", "#722ed1", "#d48806", "#08979c"];
  const draw = (id, { axes, scales, looks }, values) => {
    const options = {
      width: Math.min(1140, document.body.clientWidth),
      height: 360,
      scales: { x: { time: false }, ...scales },
      axes,
      series: [
        { label: axes[0].label },
        ...rows.map((row, number) => ({ label: row.name, stroke: colors[number % colors.length], width: 2, ...looks })),
      ],
    };
    const places = rows[0] ? values(rows[0]).map((_, place) => place + 1) : [];
    new uPlot(options, [places, ...rows.map(values)], document.getElementById(id));
  };
  const logarithmic = { axes: [{ label: "percentile" }, { label: "ms", size: 70 }], scales: { y: { distr: 3 } } };
  draw("times", logarithmic, (row) => row.percentiles_ms.map((value) => (value > 0 ? value : null)));
  // Nothing is between two servers, so they have points and no line.
  const points = {
    axes: [{ label: "server", incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500] }, { label: "requests", size: 70 }],
    scales: { y: { range: (_, least, most) => [0, most * 1.1 || 1] } },
    looks: { paths: () => null, points: { show: true, size: 9 } },
  };
  draw("servers", points, (row) => row.by_server);
})();
