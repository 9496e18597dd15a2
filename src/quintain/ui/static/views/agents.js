// All agents, newest first, each with its result on most tasks.
import { ago, h, idLink, percent, sizeText } from "../elements.js";
import { axis, interval, linearScale } from "../intervals.js";
import { pagedTable, wordSearch } from "../table.js";
import { urlOf } from "../routes.js";
import { placeName } from "../text.js";

export async function render(root, params, api) {
  const search = wordSearch(params.query, "Name", () => list.reload());
  const scale = linearScale(0, 1, [], 2);
  const result = (item) => item.results[0];
  const list = pagedTable({
    label: "Agents",
    none: search.none("No agent yet. Name a model with `quintain register NAME --model MODEL`; a training makes an agent too."),
    key: (item) => item.id,
    href: (item) => urlOf(item.id),
    load: (cursor) => api.call("list_library", { kind: "agents", limit: 200, cursor, ...search.asked() }),
    columns: [
      { title: "Agent", cell: (item) => idLink(item.id, item.id.replace(/^agent:/, "")) },
      { title: "What it is", width: "27%", class: "wide", cell: (item) => (item.role === "policy" ? item.description : `${item.role.replaceAll("_", " ")}: ${item.description}`) },
      { title: "Result on most tasks", width: "14rem", cell: (item) => (result(item)
        ? [`${percent(result(item).success_rate)} of ${result(item).n} `, h("span", { class: "quiet", title: result(item).environment }, placeName(result(item).environment))] : "–") },
      { title: axis(scale), width: "13rem", class: "wide", cell: (item) => (result(item)
        ? interval(scale, { low: result(item).ci_low, value: result(item).success_rate, high: result(item).ci_high }) : "") },
      { title: "Size", width: "6rem", class: "number wide", cell: (item) => sizeText(item.size_bytes) },
      { title: "Made", width: "8rem", class: "wide", cell: (item) => ago(item.created_at) },
    ],
  });
  root.append(h("header", { class: "head" }, h("h1", null, "Agents"), search.element), list.element);
}
