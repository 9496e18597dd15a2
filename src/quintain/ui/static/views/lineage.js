// What made a thing and what it made, as a graph; runs and sessions can be forgotten, datasets and agents removed from here.
import { ago, append, card, facts, h, idLink, replace } from "../elements.js";
import { openForgetting } from "../forgetting.js";
import { graph } from "../graph.js";
import { setQuery } from "../router.js";
import { urlOf } from "../routes.js";

const DEPTHS = [2, 4, 6, 12, 50];

export async function render(root, params, api) {
  let depth = Number(params.query.get("depth") ?? 6);
  if (!DEPTHS.includes(depth)) depth = 6;
  const choice = h("select", { onchange: (event) => {
    depth = Number(event.target.value);
    setQuery({ depth });
    draw();
  } }, DEPTHS.map((one) => h("option", { value: one, selected: one === depth }, one)));
  const place = h("div", { class: "stack" });
  root.append(h("header", { class: "head" }, h("h1", null, "Lineage of ", h("span", { class: "id" }, params.id)),
    h("label", { class: "field" }, "Steps each way", choice)), place);

  async function draw() {
    const found = await api.call("get_lineage", { id: params.id, depth });
    const nodes = unique([...found.things, ...found.ancestors, ...found.descendants]);
    const panel = h("div", { "aria-live": "polite" });
    const drawn = graph({ nodes, edges: found.edges, roots: found.things.map((one) => one.id), label: `Lineage of ${params.id}`,
      onselect: (node) => replace(panel, about(node, params.id, api, draw)) });
    const runs = found.things.filter((one) => one.kind === "trajectory");
    replace(place, h("p", { class: "quiet" }, summary(found)), h("div", { class: "graph-box" }, drawn.element), panel, listing(nodes, found.edges),
      runs.length > 0 && !runs.every((run) => run.mark === "forgotten") && runs[0].id !== params.id
        && h("div", { class: "row" }, h("button", { class: "danger", onclick: () => openForgetting(params.id, api, draw) }, `Forget the ${runs.length} runs of this session…`)));
    drawn.select((found.things[0] ?? nodes[0]).id);
  }

  await draw();
}

function unique(nodes) {
  return [...new Map(nodes.map((node) => [node.id, node])).values()];
}

function summary(found) {
  const count = (side) => {
    const { trajectory = 0, trajectories = 0, ...others } = found.counts[side] ?? {};
    const counted = Object.entries({ ...others, run: trajectory + trajectories }).filter(([, n]) => n > 0);
    return counted.map(([kind, n]) => `${n.toLocaleString("en")} ${kind}${n === 1 ? "" : "s"}`).join(", ") || "nothing";
  };
  const learned = found.learned_from ? ` Its training data has ${found.learned_from.count.toLocaleString("en")} runs.` : "";
  return `Made from: ${count("ancestors")}. Led to: ${count("descendants")}.${learned}${found.truncated ? " There is more than is shown." : ""}`;
}

// What the selected node is, with links to its page and its own lineage.
function about(node, centre, api, done) {
  const runs = node.filter && new URLSearchParams(Object.entries(node.filter).map(([name, value]) => [name, [value].flat().join(",")]));
  const url = urlOf(node.id);
  const canCentre = node.id !== centre && !["trajectories", "score", "checkpoint"].includes(node.kind);
  return card(null, h("h2", null, node.kind, " ", h("span", { class: "id" }, node.id)),
    facts([["What", node.label], ["Made", node.created_at && ago(node.created_at)], ["Runs", node.count?.toLocaleString("en")],
      ["State", node.mark && h("span", { class: "badge bad" }, node.mark)]]),
    h("div", { class: "row" }, url && !runs && h("a", { href: url }, "Open"), runs && h("a", { href: `/runs?${runs}` }, "Show the runs"),
      canCentre && h("a", { href: `/lineage/${encodeURIComponent(node.id)}` }, "Lineage from here"),
      node.kind === "trajectory" && node.mark !== "forgotten" && h("button", { class: "danger", onclick: () => openForgetting(node.id, api, done) }, "Forget…"),
      ["dataset", "agent"].includes(node.kind) && node.mark !== "removed" && h("button", { class: "danger", onclick: () => openForgetting(node.id, api, done, node.kind) }, "Remove…")));
}

// The same as a table, for those who read rather than look.
function listing(nodes, edges) {
  const sources = (id) => edges.filter((edge) => edge.target === id).map((edge) => edge.source);
  return h("details", { class: "card" }, h("summary", null, `As a table (${nodes.length})`), h("div", { class: "scroll-x", tabindex: "0" }, h("table", { class: "plain" },
    h("thead", null, h("tr", null, ["Kind", "Id", "What", "Made from"].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", null, nodes.map((node) => h("tr", null, h("td", null, node.kind), h("td", null, idLink(node.id)), h("td", null, node.label, node.mark && ` (${node.mark})`),
      append(h("td"), sources(node.id).flatMap((id) => [idLink(id), " "]))))))));
}
