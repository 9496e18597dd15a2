// Success along the way to each agent, by its place in the training, with 95 % intervals.
import { chart } from "./chart.js";
import { h, idLink, percent } from "./elements.js";
import { rateTable } from "./intervals.js";

const APART = 0.012; // Share of the width between the points of neighbouring curves.

// One picture of all curves, and a table of each: { elements, destroy }.
export function learningCurves(curves) {
  const drawn = picture(curves);
  const tables = curves.map((curve) => h("details", null,
    h("summary", null, `${curve.agent}: ${curve.points.map((point) => percent(point.success_rate)).join(" → ")}`),
    rateTable(curve.points.map((point) => ({ name: [h("span", { class: "rank" }, point.place), " ", idLink(point.agent_id, point.agent_id.replace(/^agent:/, ""))],
      low: point.ci_low, value: point.success_rate, high: point.ci_high, n: point.n })), { first: "Agent, oldest first", caption: `Success on the way to ${curve.agent}` }),
    h("p", { class: "quiet" }, `On ${curve.n_tasks} tasks that most of these agents have run.`)));
  return { elements: [drawn.element, ...tables], destroy: drawn.destroy };
}

function picture(curves) {
  const places = [...new Set(curves.flatMap((curve) => curve.points.map((point) => point.place)))].sort((a, b) => a - b);
  const apart = APART * (places.at(-1) - places[0]);
  const end = curves.every((curve) => curve.points.at(-1).place === places.at(-1)) ? places.at(-1) : null;
  const ticks = places.map((x, i) => ({ x, label: i === 0 ? "before training" : x === end ? "after" : String(x) }));
  const lines = curves.map(({ agent, points }, i) => ({
    label: agent, style: "measured", x: points.map((point) => point.place + apart * (i - (curves.length - 1) / 2)), y: points.map((point) => point.success_rate),
    low: points.map((point) => point.ci_low), high: points.map((point) => point.ci_high),
  }));
  return chart({ xlabel: "stages or rounds of training", ylabel: "share of tasks solved", format: "percent", lines, ticks });
}
