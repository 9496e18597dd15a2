// One evaluation: success with its interval, by kind of task, why episodes failed, its runs.
import { ago, card, duration, empty, facts, h, idLink, number, percent } from "../elements.js";
import { rateTable } from "../intervals.js";
import { placeName } from "../text.js";

export async function render(root, params, api) {
  const { items } = await api.call("list_library", { kind: "evaluations", text: params.id, limit: 20 });
  const found = items.find((item) => item.id === params.id);
  if (!found) {
    root.append(h("h1", null, params.id), empty("There is no such evaluation.", h("a", { href: "/comparisons" }, "All comparisons")));
    return;
  }
  const agent = found.agent_id.replace(/^agent:/, "");
  document.title = `${agent} on ${placeName(found.environment)} · Quintain`;
  const groups = [found.by_environment, found.by_type, found.by_difficulty].find((one) => Object.keys(one ?? {}).length > 1) ?? {};
  root.append(
    h("p", { class: "crumbs" }, h("a", { href: "/agents" }, "Agents"), " / ", idLink(found.agent_id, agent), " / ", found.id),
    h("header", { class: "head" }, h("h1", null, agent, h("small", { title: found.environment }, ` on ${placeName(found.environment)}`)),
      h("a", { href: `/comparisons?agent=${encodeURIComponent(found.id)}` }, "Compare"), h("a", { href: `/lineage/${encodeURIComponent(found.id)}` }, "Lineage")),
    card("Success", rateTable([rateRow("all tasks", found.rate), ...Object.entries(groups).map(([name, rate]) => rateRow(name, rate))],
      { first: "Tasks", caption: "Success with exact 95 % intervals" })),
    h("div", { class: "grid" }, card("Facts", facts([
      ["Tasks", `${found.split.replaceAll("_", " ")}, seed ${found.seed}${found.repeats > 1 ? `, ${found.repeats} attempts each` : ""}`],
      ["Purpose", found.purpose === "measurement" ? null : found.purpose],
      ["Without a verdict", found.n_unknown + found.n_error],
      ["Mean reward", number(found.mean_reward)],
      ["Mean turns", found.held_out ? null : number(found.mean_turns)],
      ["Mean duration", found.mean_duration_s === null ? null : duration(found.mean_duration_s)],
      ["Cost", found.cost_usd === null ? null : `${number(found.cost_usd)} USD`],
      ["Dataset", found.dataset_id && idLink(found.dataset_id)],
      ["Loss, nats a token", found.held_out && number(found.held_out.loss)],
      ["Token accuracy", found.held_out && percent(found.held_out.token_accuracy)],
      ["Same tools next", found.held_out?.tool_match && percent(found.held_out.tool_match.value)],
      ["Same action next", found.held_out?.action_match && percent(found.held_out.action_match.value)],
      ["Job", found.job_id && idLink(found.job_id.split("/")[0], found.job_id)],
      ["Runs", found.held_out ? null : found.job_id && [runsOf(found.job_id, "", "all runs of the job"), ", ", runsOf(found.job_id, "&outcome=failure", "failed ones")]],
      ["Made", ago(found.created_at)],
    ])), Object.keys(found.failures).length > 0 && card("Why episodes failed", failures(found.failures))));
}

function runsOf(jobId, more, text) {
  return h("a", { href: `/runs?job_id=${encodeURIComponent(jobId.split("/")[0])}${more}` }, text);
}

function rateRow(name, rate) {
  return { name, low: rate.ci_low, value: rate.value, high: rate.ci_high, n: rate.n };
}

function failures(kinds) {
  return h("table", { class: "plain" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Kind"), h("th", { scope: "col", class: "number" }, "Episodes"), h("th", { scope: "col" }, "Examples"))),
    h("tbody", null, Object.entries(kinds).map(([kind, { n, examples }]) => h("tr", null, h("td", null, kind.replaceAll("_", " ")), h("td", { class: "number" }, n), h("td", null, examples.map((id) => [idLink(id), " "]))))));
}
