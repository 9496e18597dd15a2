// One agent: where it is from, its settings, its scores with intervals, its versions.
import { listAll } from "../agent_parts.js";
import { ago, card, empty, facts, h, idLink, number, percent, sizeText } from "../elements.js";
import { rateTable } from "../intervals.js";
import { measureForm, settingsLike } from "../measure_form.js";
import { talkCard } from "../talk.js";
import { listedField, trainingForm } from "../training_form.js";
import { placeName } from "../text.js";

export async function render(root, params, api) {
  const [name, version] = params.id.replace(/^agent:/, "").split("@");
  const { items } = await listAll(api, "agents", name);
  const versions = items.filter((item) => item.name === name);
  const agent = versions.find((item) => !version || String(item.version) === version);
  if (!agent) {
    root.append(h("h1", null, params.id), empty("There is no such agent.", h("a", { href: "/agents" }, "All agents")));
    return;
  }
  const [evaluations, lineage] = await Promise.all([listAll(api, "evaluations", agent.id), api.call("get_lineage", { id: agent.id, depth: 1 })]);
  const own = evaluations.items.filter((item) => item.agent_id === agent.id);
  document.title = `${agent.name}@${agent.version} · Quintain`;
  root.append(
    h("p", { class: "crumbs" }, h("a", { href: "/agents" }, "Agents"), " / ", `${agent.name}@${agent.version}`),
    h("header", { class: "head" }, h("h1", null, `${agent.name}@${agent.version}`),
      agent.role !== "policy" && h("span", { class: "badge" }, agent.role.replaceAll("_", " ")),
      agent.role === "policy" && h("a", { href: `/comparisons?agent=${encodeURIComponent(agent.id)}` }, "Compare"), h("a", { href: `/lineage/${encodeURIComponent(agent.id)}` }, "Lineage")),
    agent.note ? h("p", { class: "warning-box" }, agent.note) : "",
    agent.description ? h("p", null, agent.description) : "",
    h("div", { class: "grid" }, card("Where from", origin(agent, lineage)), card("Settings", settings(agent))),
    card("Scores", scores(agent, own, evaluations.isCut)),
    versions.length > 1 ? card("Versions", versionTable(versions, agent)) : "",
  );
  if (agent.role !== "policy" || agent.model.source === "expert") return undefined;
  const parents = agent.parent ? (await listAll(api, "evaluations", agent.parent)).items.filter((item) => item.agent_id === agent.parent) : [];
  const like = await settingsLike([...parents, ...own], api);
  const environments = (await listAll(api, "environments", "")).items.filter((item) => !item.players && !item.unusable).map((item) => item.id);
  const environmentField = (id) => listedField(id, typeof like.environment === "string" ? like.environment : "quintain/inventory", async () => environments, { required: true });
  const played = environmentField("training-environments");
  root.append(measureForm(agent, environmentField("measured-environments"), like, api), trainingForm({
    heading: "Train it further", title: "Environment", listed: played, fits: (one) => one.online,
    asked: () => ({ environment: played.input.value.trim(), model: agent.id }),
  }, api));
  if (!api.mayChange) {
    root.append(card("Talk to it", h("p", { class: "quiet" }, "This page is read-only. Open the address with #token= that the server printed to talk to the agent.")));
    return undefined;
  }
  const talk = talkCard(agent.id, environments, params.query.get("talk"), api);
  root.append(card("Talk to it", talk.element));
  return talk.leave;
}

function origin(agent, lineage) {
  const { count } = lineage.learned_from ?? {};
  return facts([
    ["Trained from", agent.parent && idLink(agent.parent)],
    ["Dataset", agent.dataset_id && idLink(agent.dataset_id)],
    ["Job", agent.job_id && idLink(agent.job_id.split("/")[0], agent.job_id)],
    ["Learned from", count ? `${count.toLocaleString("en")} runs` : "no stored run"],
    ["Made", ago(agent.created_at)],
    ["Files", agent.size_bytes === null ? "not on this machine" : `${sizeText(agent.size_bytes)}${agent.model.adapter ? " (adapter)" : ""}`],
    ["Held-out labels", agent.held_out && `${agent.held_out.right} of ${agent.held_out.n} ${agent.held_out.of} (95 % ${percent(agent.held_out.ci_low)} to ${percent(agent.held_out.ci_high)})`],
  ]);
}

function settings(agent) {
  const { model, sampling } = agent;
  const values = Object.entries(sampling).map(([name, value]) => `${name} ${typeof value === "number" ? number(value) : value}`);
  return [facts([
    ["Model", h("span", { title: model.path }, `${model.source}: ${fileName(model.source === "hub" ? "" : model.path) || model.path || "–"}`)],
    ["Adapter", model.adapter && h("span", { title: model.adapter }, fileName(model.adapter))],
    ["Revision", model.revision],
    ["Quantized", model.quantization],
    ["Turns", agent.template],
    ["Sampling", values.join(", ")],
    ["System prompt", agent.system_prompt === null ? "the environment's" : null],
  ]), agent.system_prompt !== null && [h("h3", null, "System prompt"), h("pre", null, agent.system_prompt)]];
}

// The folder or file without where it lies; the whole path is in the title.
function fileName(path) {
  return path.split(/[/\\]/).filter(Boolean).at(-1) ?? "";
}

function scores(agent, evaluations, isCut) {
  if (agent.role !== "policy") return empty("It does not act, so it has no success on tasks.");
  if (!evaluations.length) return empty(`Not evaluated yet. Measure it below, or with \`quintain evaluate ${agent.id} --environment quintain/inventory\`.`);
  const rows = evaluations.map((item) => ({
    name: [idLink(item.id, placeName(item.environment)), h("small", null, ` ${item.split}, seed ${item.seed}${item.purpose === "measurement" ? "" : `, ${item.purpose}`}`)],
    low: item.rate.ci_low, value: item.rate.value, high: item.rate.ci_high, n: item.rate.n, item,
  }));
  const newest = evaluations.find((item) => Object.keys(item.by_type).length > 1);
  return [
    rateTable(rows, { first: "Tasks", caption: "Evaluations with exact 95 % intervals", columns: [
      { title: "Unknown", class: "number wide", cell: ({ item }) => item.n_unknown + item.n_error },
      { title: "Turns", class: "number wide", cell: ({ item }) => number(item.mean_turns) },
      { title: "Made", class: "wide", cell: ({ item }) => ago(item.created_at) },
    ] }),
    isCut && h("p", { class: "quiet" }, "The newest evaluations; older ones are left out."),
    newest && h("details", null, h("summary", null, `By kind of task, ${placeName(newest.environment)}`), rateTable(
      Object.entries(newest.by_type).map(([kind, rate]) => ({ name: kind, low: rate.ci_low, value: rate.value, high: rate.ci_high, n: rate.n })),
      { first: "Kind of task", caption: "Success by kind of task" })),
  ];
}

function versionTable(versions, current) {
  return h("div", { class: "scroll-x", tabindex: "0" }, h("table", { class: "plain" },
    h("thead", null, h("tr", null, ["Version", "What changed", "Result on most tasks", "Made"].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", null, versions.map((item) => h("tr", null, h("td", null, item.id === current.id ? `${item.version}, this one` : idLink(item.id, String(item.version))),
      h("td", null, item.description), h("td", null, item.results[0] ? `${percent(item.results[0].success_rate)} of ${item.results[0].n}` : "–"), h("td", null, ago(item.created_at)))))));
}
