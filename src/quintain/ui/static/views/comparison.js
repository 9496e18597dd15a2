// One comparison: its verdict, all pairs with their intervals, learning curves, and the tasks that only one agent solved.
import { card, h, idLink, number, rich } from "../elements.js";
import { flipList } from "../flips.js";
import { axis, interval, linearScale, points, rateTable } from "../intervals.js";
import { learningCurves } from "../learning_curves.js";
import { placeName } from "../text.js";

export async function render(root, params, api) {
  const found = await api.call("compare_agents", { agents: [params.id] });
  const ids = new Map(found.lineage.map((origin) => [origin.agent, origin.agent_id]));
  const agent = (name) => idLink(ids.get(name) ?? name, name.replace(/^agent:/, ""));
  const names = found.leaderboard.map((row) => row.agent.replace(/^agent:/, ""));
  const curves = found.curves.length ? learningCurves(found.curves) : null;
  document.title = `${names.join(", ")} · Quintain`;
  root.append(
    h("p", { class: "crumbs" }, h("a", { href: "/comparisons" }, "Comparisons"), " / ", found.comparison_id),
    h("header", { class: "head" }, h("h1", null, names.join(", "), h("small", { title: found.environment }, ` on ${placeName(found.environment)}`)),
      h("a", { href: `/lineage/${encodeURIComponent(found.comparison_id)}` }, "Lineage")),
    h("p", { class: "next" }, h("span", { class: "label" }, "Verdict"), " ", rich(found.verdict)),
    found.notes.length ? h("div", { class: "warning-box" }, found.notes.map((note) => h("div", null, note))) : "",
    card("Success rates", rateTable(found.leaderboard.map((row) => ({
      name: [h("span", { class: "rank" }, row.rank), " ", agent(row.agent)], low: row.ci_low, value: row.success_rate, high: row.ci_high,
      n: row.n, row })), {
      caption: "Success rates with exact 95 % intervals",
      columns: [
        { title: "Reward", class: "number wide", cell: ({ row }) => number(row.mean_reward) },
        found.leaderboard.some((row) => row.loss !== null) && { title: "Loss", class: "number wide", cell: ({ row }) => number(row.loss) },
        { title: "Group", cell: ({ row }) => row.group || "–" },
      ].filter(Boolean) }),
      h("p", { class: "quiet" }, "Agents that share a letter do not differ significantly.")),
    card(found.comparisons.length > 1 ? "All pairs" : "The pair", forest(found.comparisons, agent)),
    curves ? card(found.curves.length > 1 ? "Learning curves" : "Learning curve", curves.elements) : "",
    card(`Flips (${found.flips_count})`, flipList(found, params.query, api)),
  );
  return () => curves?.destroy();
}

function forest(pairs, agent) {
  const bounds = pairs.flatMap((pair) => [pair.ci_low, pair.ci_high, pair.simultaneous_low ?? pair.ci_low, pair.simultaneous_high ?? pair.ci_high]);
  const scale = linearScale(Math.min(...bounds), Math.max(...bounds), [0]);
  const kind = (pair) => (!pair.significant ? "plain" : better(pair) === pair.b ? "good" : "bad");
  const first = pairs[0];
  const isLoss = first.measure === "loss";
  const change = isLoss ? (value) => `${value > 0 ? "+" : ""}${value.toFixed(3)}` : points;
  return [
    h("div", { class: "scroll-x", tabindex: "0" }, h("table", { class: "plain intervals forest" },
      h("caption", { class: "visually-hidden" }, `Differences of ${isLoss ? "losses" : "success rates"} with 95 % intervals`),
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Pair"), h("th", { scope: "col", class: "number" }, `Difference, ${isLoss ? "nats a token" : "points"}`),
        h("th", { scope: "col", class: "interval-cell" }, h("span", { class: "visually-hidden" }, "95 % interval"), axis(scale, change)),
        h("th", { scope: "col", class: "number wide" }, "p, corrected"), h("th", { scope: "col" }, "Result"),
        h("th", { scope: "col", class: "number wide" }, isLoss ? "Lower loss" : "Only one solved"), h("th", { scope: "col", class: "number wide" }, "Tasks"))),
      h("tbody", null, pairs.map((pair) => h("tr", null,
        h("th", { scope: "row" }, agent(pair.b), h("span", { class: "quiet" }, " against "), agent(pair.a)),
        h("td", { class: "number" }, change(pair.difference), h("span", { class: "bounds" }, `${change(pair.ci_low)} to ${change(pair.ci_high)}`)),
        h("td", { class: "interval-cell" }, interval(scale, { low: pair.ci_low, value: pair.difference, high: pair.ci_high,
          outerLow: pair.simultaneous_low, outerHigh: pair.simultaneous_high, kind: kind(pair) })),
        h("td", { class: "number wide" }, pValue(pair.p_corrected)),
        h("td", null, result(pair)),
        h("td", { class: "number wide" }, `${pair.b}: ${pair.only_b}, ${pair.a}: ${pair.only_a}`),
        h("td", { class: "number wide" }, pair.n_tasks, pair.n_excluded > 0 && h("span", { class: "quiet" }, ` (${pair.n_excluded} left out)`))))))),
    h("p", { class: "quiet" }, `${first.p_method}; interval of one pair: ${first.ci_method}.`,
      first.simultaneous_low !== null && pairs.length > 1 && " The thin line covers all pairs together."),
  ];
}

function pValue(p) {
  return p === null ? "–" : p < 0.001 ? "< 0.001" : p.toFixed(3);
}

function result(pair) {
  if (!pair.significant) return h("span", { class: "badge" }, "no difference shown");
  return h("span", { class: `badge ${better(pair) === pair.b ? "good" : "bad"}` }, `${better(pair)} is better`);
}

function better(pair) {
  return pair.difference > 0 === (pair.measure !== "loss") ? pair.b : pair.a;
}
