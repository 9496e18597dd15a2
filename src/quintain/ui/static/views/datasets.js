// All datasets, newest first.
import { ago, h, idLink, number } from "../elements.js";
import { pagedTable, wordSearch } from "../table.js";
import { inlineText } from "../text.js";

const sum = (counts) => Object.values(counts ?? {}).reduce((total, n) => total + n, 0);

export async function render(root, params, api) {
  const search = wordSearch(params.query, "Name or id", () => list.reload());
  const list = pagedTable({
    label: "Datasets",
    none: search.none("No dataset yet. Freeze runs into one: `quintain export sft NAME --all`."),
    key: (dataset) => dataset.id,
    href: (dataset) => `/datasets/${dataset.id}`,
    load: (cursor) => api.call("list_library", { kind: "datasets", limit: 200, cursor, ...search.asked() }),
    columns: [
      { title: "Name", cell: (dataset) => h("a", { href: `/datasets/${dataset.id}` }, inlineText(dataset.name)) },
      { title: "Id", width: "9rem", class: "wide", cell: (dataset) => idLink(dataset.id) },
      { title: "Kind", width: "6rem", cell: (dataset) => dataset.kind },
      { title: "Rows", width: "5.5rem", class: "number", cell: (dataset) => number(dataset.rows) },
      { title: "Left out", width: "6rem", class: "number wide", cell: (dataset) => number(sum(dataset.dropped)) },
      { title: "Note", width: "14rem", class: "wide", cell: (dataset) => dataset.note && inlineText(dataset.note) },
      { title: "Frozen", width: "7.5rem", class: "wide", cell: (dataset) => ago(dataset.created_at) },
    ],
  });
  root.append(h("header", { class: "head" }, h("h1", null, "Datasets"), search.element), list.element);
  return api.subscribe((state) => { if (state.status === "succeeded") list.reload(); });
}
