// Panels of comparisons: estimates with intervals, one a row, and learning curves. Panels are those of
// quintain.evaluation.reports.figures: forest: [{ label, value, low, high, wide, strong, note }], origin; curves: [{ label, points }].
import { chart } from "./chart.js";
import { h } from "./elements.js";
import { axis, interval, linearScale } from "./intervals.js";

export function forest(panel) {
  const rows = panel.forest;
  const ends = rows.flatMap((row) => [row.low, row.high, ...(row.wide ?? [])]);
  const scale = linearScale(Math.min(...ends), Math.max(...ends), panel.origin === undefined ? [] : [panel.origin]);
  return h("figure", { class: "chart forest-chart" }, h("h3", null, panel.title), h("div", { class: "scroll-x" },
    h("table", { class: "plain intervals forest" },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, panel.origin === undefined ? "Agent" : "Difference"),
        h("th", { scope: "col", class: "interval-cell" }, axis(scale)), h("th", { scope: "col" }, "Value and 95 % interval, in percent"))),
      h("tbody", null, rows.map((row) => h("tr", null, h("th", { scope: "row" }, row.label.replace("\n", " ")),
        h("td", { class: "interval-cell" }, interval(scale, { ...row, outerLow: row.wide?.[0], outerHigh: row.wide?.[1], kind: kind(panel, row) })),
        h("td", { class: "number" }, row.note)))))));
}

// Only a difference can be good or bad.
function kind(panel, row) {
  if (panel.origin === undefined || !row.strong) return "plain";
  return row.value < panel.origin ? "bad" : "good";
}

export function curves(panel) {
  const lines = panel.curves.map((curve) => ({
    label: curve.label, style: "measured", x: curve.points.map((point) => point.x), y: curve.points.map((point) => point.value),
    low: curve.points.map((point) => point.low), high: curve.points.map((point) => point.high),
  }));
  const places = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const name = (i) => (i === 0 ? "before training" : i === places.length - 1 ? "after" : String(i));
  const ticks = places.map((x, i) => ({ x, label: name(i) }));
  return chart({ title: panel.title, xlabel: "position in the training", ylabel: "share of tasks solved", format: "percent", lines, ticks }).element;
}
