// Intervals drawn in the cells of a table: one axis in the head, one line with a point in each row.
//   const scale = linearScale(-0.2, 0.7, [0])
//   h("th", { class: "interval-cell" }, axis(scale)), h("td", { class: "interval-cell" }, interval(scale, { low, value, high }))
// The numbers are in other cells, so a reader without the picture misses nothing. Positions are shares of the width in percent.
import { h, percent, svg } from "./elements.js";

// Returns a scale over a range that is widened to multiples of a round step; `marks` are values with a line of their own,
// which the range includes.
export function linearScale(from, to, marks = [], most = 5) {
  const low = Math.min(from, ...marks), high = Math.max(to, ...marks);
  const width = Math.max(high - low, 0.02);
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5].find((one) => width / one <= most) ?? 1;
  const first = Math.floor(low / step + 1e-9) * step, last = Math.ceil(high / step - 1e-9) * step;
  const ticks = Array.from({ length: Math.round((last - first) / step) + 1 }, (_, i) => first + i * step);
  const span = last - first || 1;
  return { ticks, marks, at: (value) => Math.min(1, Math.max(0, (value - first) / span)) };
}

// The inner width leaves room for half a label on both sides.
const x = (scale, value) => `${(4 + 92 * scale.at(value)).toFixed(2)}%`;

// `format` writes a tick; of a difference use `points`.
export function axis(scale, format = percent) {
  return svg("svg", { class: "interval-axis", role: "presentation", "aria-hidden": "true" },
    scale.ticks.map((tick) => svg("text", { x: x(scale, tick), y: 12, "text-anchor": "middle" }, format(tick))));
}

// `kind` is good, bad or plain; a missing bound draws the point alone, a missing value nothing.
export function interval(scale, { low, value, high, outerLow = null, outerHigh = null, kind = "plain" }) {
  const line = (from, to, name) => svg("line", { class: name, x1: x(scale, from), x2: x(scale, to), y1: "50%", y2: "50%" });
  const isKnown = (one) => one !== null && one !== undefined;
  return svg("svg", { class: `interval-row ${kind}`, role: "presentation", "aria-hidden": "true" },
    scale.ticks.map((tick) => svg("line", { class: "grid-line", x1: x(scale, tick), x2: x(scale, tick), y1: 0, y2: "100%" })),
    scale.marks.map((mark) => svg("line", { class: "mark-line", x1: x(scale, mark), x2: x(scale, mark), y1: 0, y2: "100%" })),
    isKnown(outerLow) && isKnown(outerHigh) && line(outerLow, outerHigh, "outer"),
    isKnown(low) && isKnown(high) && line(low, high, "inner"),
    isKnown(value) && svg("circle", { cx: x(scale, value), cy: "50%", r: 4.5 }));
}

// A difference of rates in percentage points with its sign.
export function points(value) {
  if (value === null || value === undefined) return "–";
  const rounded = Math.round(1000 * value) / 10;
  return `${rounded > 0 ? "+" : rounded < 0 ? "−" : ""}${Math.abs(rounded)}`;
}

// Success rates with their intervals as a table: rows are { name, low, value, high, n, more }.
// `columns` are further ones, { title, cell(row), class }.
export function rateTable(rows, { first = "Agent", caption, columns = [] }) {
  const scale = linearScale(0, 1, [], 4);
  return h("div", { class: "scroll-x", tabindex: "0" }, h("table", { class: "plain intervals" },
    caption && h("caption", { class: "visually-hidden" }, caption),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, first), h("th", { scope: "col", class: "number" }, "Success"),
      h("th", { scope: "col", class: "interval-cell" }, h("span", { class: "visually-hidden" }, "95 % interval"), axis(scale)),
      h("th", { scope: "col", class: "number" }, "Episodes"),
      columns.map((column) => h("th", { scope: "col", class: column.class }, column.title)))),
    h("tbody", null, rows.map((row) => h("tr", null, h("th", { scope: "row" }, row.name),
      h("td", { class: "number" }, percent(row.value), h("span", { class: "bounds" }, bounds(row))),
      h("td", { class: "interval-cell" }, interval(scale, row)),
      h("td", { class: "number" }, row.n),
      columns.map((column) => h("td", { class: column.class }, column.cell(row))))))));
}

function bounds({ low, high }) {
  return low === null || low === undefined ? "no interval" : `${percent(low)} to ${percent(high)}`;
}
