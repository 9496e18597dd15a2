// Success along the way to each agent, by its place in the training, with 95 % intervals.
import { h, idLink, percent, svg } from "./elements.js";
import { rateTable } from "./intervals.js";

const WIDTH = 640, HEIGHT = 240, LEFT = 44, RIGHT = 120, TOP = 12, BOTTOM = 30, SHIFT = 5;

// One picture of all curves, and a table of each.
export function learningCurves(curves) {
  return [picture(curves), ...curves.map((curve) => h("details", null,
    h("summary", null, `${curve.agent}: ${curve.points.map((point) => percent(point.success_rate)).join(" → ")}`),
    rateTable(curve.points.map((point) => ({ name: [h("span", { class: "rank" }, point.place), " ", idLink(point.agent_id, point.agent_id.replace(/^agent:/, ""))],
      low: point.ci_low, value: point.success_rate, high: point.ci_high, n: point.n })), { first: "Agent, oldest first", caption: `Success on the way to ${curve.agent}` }),
    h("p", { class: "quiet" }, `On ${curve.n_tasks} tasks that most of these agents have run.`)))];
}

function picture(curves) {
  const places = curves.flatMap((curve) => curve.points.map((point) => point.place));
  const first = Math.min(...places), last = Math.max(...places);
  const x = (place) => LEFT + (WIDTH - LEFT - RIGHT) * (last > first ? (place - first) / (last - first) : 0);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value);
  const ends = labelPlaces(curves.map((curve) => y(curve.points.at(-1).success_rate)));
  return h("div", { class: "scroll-x", tabindex: "0" }, svg("svg", { class: "curves", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    "aria-label": curves.map((curve) => `${curve.agent}: ${curve.points.map((point) => percent(point.success_rate)).join(", ")}`).join("; ") },
    [0, 0.25, 0.5, 0.75, 1].map((tick) => [svg("line", { class: "grid-line", x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick) }),
      svg("text", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, percent(tick))]),
    svg("text", { x: LEFT, y: HEIGHT - 8 }, "before training"), last > first && svg("text", { x: x(last), y: HEIGHT - 8, "text-anchor": "end" }, "after"),
    curves.map((curve, i) => {
      const shift = SHIFT * (i - (curves.length - 1) / 2);
      const at = (point) => x(point.place) + shift;
      return svg("g", { class: `curve curve-${i % 6}` },
        svg("path", { d: curve.points.map((point, j) => `${j ? "L" : "M"}${at(point)},${y(point.success_rate)}`).join(" ") }),
        curve.points.map((point) => [svg("line", { x1: at(point), x2: at(point), y1: y(point.ci_low), y2: y(point.ci_high) }), svg("circle", { cx: at(point), cy: y(point.success_rate), r: 3.5 })]),
        svg("text", { x: WIDTH - RIGHT + 16, y: ends[i] + 4 }, clip(curve.agent)));
    })));
}

// Returns heights of labels near the wanted ones that are at least a line apart.
function labelPlaces(wanted) {
  const sorted = wanted.map((height, i) => ({ height, i })).sort((a, b) => a.height - b.height);
  sorted.forEach((one, j) => { if (j) one.height = Math.max(one.height, sorted[j - 1].height + 14); });
  return sorted.sort((a, b) => a.i - b.i).map((one) => one.height);
}

function clip(text) {
  const characters = [...text];
  return characters.length > 15 ? `${characters.slice(0, 14).join("")}…` : text;
}
