// All comparisons, newest first, and the choice of evaluations for a new one.
import { ago, append, empty, errorBox, h, idLink, percent, replace } from "../elements.js";
import { navigate } from "../router.js";
import { urlOf } from "../routes.js";
import { pagedTable, wordSearch } from "../table.js";
import { placeName } from "../text.js";

const short = (agent) => agent.replace(/^agent:/, "");
// Not without a verdict, nor stopped early by a sequential comparison.
const canBePaired = (item) => item.rate.value !== null && item.purpose !== "sequential";

export async function render(root, params, api) {
  const search = wordSearch(params.query, "Agent, environment or id", () => list.reload());
  const list = pagedTable({
    label: "Comparisons",
    none: search.none("No comparison yet. Choose two evaluations above."),
    key: (item) => item.id,
    href: (item) => urlOf(item.id),
    load: (cursor) => api.call("list_library", { kind: "comparisons", limit: 100, cursor, ...search.asked() }),
    columns: [
      { title: "Comparison", width: "12rem", class: "wide", cell: (item) => idLink(item.id) },
      { title: "Agents, best first", cell: (item) => h("a", { href: urlOf(item.id) }, item.agents.map(short).join(", ")) },
      { title: "Environment", width: "13rem", class: "wide", cell: (item) => placeName(item.environment) },
      { title: "Significant", width: "7rem", class: "number wide", cell: (item) => `${item.significant} of ${item.pairs}` },
      { title: "Flips", width: "4.5rem", class: "number wide", cell: (item) => item.flips },
      { title: "Made", width: "8rem", class: "wide", cell: (item) => ago(item.created_at) },
    ],
  });
  root.append(h("header", { class: "head" }, h("h1", null, "Comparisons"), search.element), newComparison(api, params.query.get("agent") ?? ""), list.element);
}

// A card with the stored evaluations; those of one suite can be compared.
function newComparison(api, agent) {
  const chosen = new Map();
  let cursor = null, generation = 0;
  const rows = h("tbody");
  const status = h("p", { class: "quiet", role: "status" });
  const start = h("button", { class: "primary", disabled: true, onclick: compare }, "Compare");
  const more = h("button", { hidden: true, onclick: () => load(false) }, "Older evaluations");
  const search = h("input", { type: "search", placeholder: "agent or environment", "aria-label": "Agent or environment",
    onchange: () => load(true) });
  const problem = h("div");

  async function load(fromStart) {
    const mine = ++generation;
    if (fromStart) cursor = null;
    try {
      const text = search.value.trim();
      const page = await api.call("list_library", { kind: "evaluations", limit: 50, cursor, ...(text && { text }) });
      if (mine !== generation) return;
      if (fromStart) replace(rows, [...chosen.values()].map(row));
      append(rows, page.items.filter((item) => canBePaired(item) && !(fromStart && chosen.has(item.id))).map(row));
      cursor = page.next_cursor;
      more.hidden = !cursor;
      if (!rows.children.length) replace(rows, h("tr", null, h("td", { colspan: 5 }, empty("No evaluation found. Measure an agent with `quintain evaluate AGENT --environment ENVIRONMENT`."))));
      update();
    } catch (error) {
      replace(problem, errorBox(error));
    }
  }

  function row(item) {
    const box = h("input", { type: "checkbox", "aria-label": `Compare ${item.agent_id}, ${item.id}`, checked: chosen.has(item.id),
      onchange: () => {
        if (box.checked) chosen.set(item.id, item);
        else chosen.delete(item.id);
        update();
      } });
    box.dataset.suite = item.suite_hash;
    return h("tr", null, h("td", null, box), h("th", { scope: "row" }, idLink(item.agent_id)), h("td", null, idLink(item.id, placeName(item.environment))),
      h("td", { class: "number" }, `${percent(item.rate.value)} of ${item.rate.n}`), h("td", null, ago(item.created_at)));
  }

  function update() {
    const suite = chosen.values().next().value?.suite_hash;
    for (const box of rows.querySelectorAll("input")) box.disabled = Boolean(suite) && box.dataset.suite !== suite;
    start.disabled = chosen.size < 2 || chosen.size > 20;
    status.textContent = !suite ? "Choose two or more evaluations on the same tasks."
      : `${chosen.size} chosen; evaluations on other tasks cannot be paired with them.`;
  }

  async function compare() {
    start.disabled = true;
    try {
      const result = await api.call("compare_agents", { agents: [...chosen.keys()] });
      navigate(`/comparisons/${encodeURIComponent(result.comparison_id)}`);
    } catch (error) {
      replace(problem, errorBox(error));
      update();
    }
  }

  async function begin() {
    if (agent) {
      const page = await api.call("list_library", { kind: "evaluations", limit: 50, text: agent });
      const item = page.items.find(canBePaired);
      if (item) chosen.set(item.id, item);
    }
    await load(true);
  }

  begin().catch((error) => replace(problem, errorBox(error)));
  return h("details", { class: "card", open: Boolean(agent) }, h("summary", null, "Compare evaluations"),
    h("div", { class: "stack" }, h("div", { class: "row" }, search, start, status), problem,
      h("div", { class: "choice-box", tabindex: 0, role: "region", "aria-label": "Evaluations, scrollable" },
        h("table", { class: "plain" },
          h("thead", null, h("tr", null, h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "Chosen")),
            ["Agent", "Environment"].map((title) => h("th", { scope: "col" }, title)),
            h("th", { scope: "col", class: "number" }, "Success"), h("th", { scope: "col" }, "Made"))), rows)), more));
}
