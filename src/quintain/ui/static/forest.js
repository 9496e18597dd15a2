// Panels of comparisons: estimates with intervals, one a row. Panels are those of quintain.evaluation.reports.figures:
// forest: [{ label, value, low, high, wide, strong, note }], origin.
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
