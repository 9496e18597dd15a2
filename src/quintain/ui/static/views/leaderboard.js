// Agents of an environment by their success on one suite of tasks, with 95 % intervals.
import { badge, card, empty, errorBox, h, idLink, number, replace, toast } from "../elements.js";
import { rateTable } from "../intervals.js";
import { navigate, setQuery } from "../router.js";
import { inlineText, placeName } from "../text.js";

const PAGES = 10; // Pages of evaluations in which environments are looked for.

export async function render(root, params, api) {
  const environments = await evaluated(api);
  const body = h("div", { class: "stack" });
  let environment = params.query.get("environment") ?? environments[0], suite = params.query.get("suite");
  const choice = h("select", { "aria-label": "Environment", onchange: (event) => {
    [environment, suite] = [event.target.value, null];
    setQuery({ environment, suite });
    load();
  } }, environments.map((one) => h("option", { value: one, selected: one === environment, title: one }, placeName(one))));
  root.append(h("header", { class: "head" }, h("h1", null, "Leaderboard"), environments.length > 0 && choice), body);
  if (!environment) {
    replace(body, empty("No agent was evaluated yet. Measure one with `quintain evaluate AGENT --environment ENVIRONMENT`."));
    return null;
  }

  async function load() {
    try {
      const board = await api.read(`leaderboard://${encodeURIComponent(environment)}${suite ? `/suites/${encodeURIComponent(suite)}` : ""}`);
      const newest = await newestComparison(board, api).catch(() => null);
      replace(body, table(board, newest, api), ratings(board), suites(board));
    } catch (error) {
      replace(body, errorBox(error));
    }
  }
  await load();
  return api.subscribe((state) => { if (state.status === "succeeded") load(); });
}

async function evaluated(api) {
  const found = new Set();
  let cursor = null;
  for (let i = 0; i < PAGES; i++) {
    const page = await api.call("list_library", { kind: "evaluations", limit: 200, cursor });
    page.items.forEach((one) => found.add(one.environment));
    cursor = page.next_cursor;
    if (!cursor) break;
  }
  return [...found];
}

// The newest comparison that has the first two agents' evaluations, by the lineage of the first.
async function newestComparison(board, api) {
  const [first, second] = board.rows;
  if (!second) return null;
  const of = async (row) => (await api.call("get_lineage", { id: row.evaluation_id, depth: 1 })).descendants.filter((node) => node.kind === "comparison");
  const [one, other] = await Promise.all([of(first), of(second)]);
  const shared = one.filter((node) => other.some((twin) => twin.id === node.id));
  return shared.sort((a, b) => (b.created_at ?? "").localeCompare(a.created_at ?? ""))[0]?.id ?? null;
}

function table(board, newest, api) {
  const compare = h("button", { onclick: async () => {
    compare.disabled = true;
    try {
      const agents = board.rows.slice(0, 20).map((row) => row.evaluation_id);
      const { comparison_id } = await api.call("compare_agents", { agents, environment: board.environment });
      navigate(`/comparisons/${comparison_id}`);
    } catch (error) {
      toast(error.message, "bad");
      compare.disabled = false;
    }
  } }, newest ? "Compare again" : "Compare these agents");
  return card(null,
    h("div", { class: "row" }, h("h2", { class: "grow" }, inlineText(board.name || placeName(board.environment))),
      newest && h("a", { href: `/comparisons/${newest}` }, "Newest comparison"), board.rows.length > 1 && compare),
    h("p", { class: "quiet" }, "Success with its 95 % interval. Agents that share a letter do not differ significantly."),
    rateTable(board.rows.map((row) => ({
      name: [`${row.rank} `, idLink(row.agent, row.agent.replace(/^agent:/, ""))], low: row.ci_low, value: row.success_rate, high: row.ci_high, n: row.n, row,
    })), { caption: "Agents by success with 95 % intervals", columns: [
      { title: "Mean reward", class: "number wide", cell: ({ row }) => number(row.mean_reward) },
      { title: "Group", cell: ({ row }) => row.group && badge(row.group) },
      { title: "Runs", class: "wide", cell: ({ row }) => h("a", { href: `/runs?agent=${encodeURIComponent(row.agent)}` }, "runs") },
    ] }),
    board.notes.map((note) => h("p", { class: "warning-box" }, inlineText(note))));
}

function ratings(board) {
  return board.ratings.length > 0 && card("Ratings from games", h("table", { class: "plain" },
    h("thead", null, h("tr", null, ["Agent", "Rating", "95 % interval", "Games"].map((title, i) => h("th", { scope: "col", class: i ? "number" : null }, title)))),
    h("tbody", null, board.ratings.map((one) => h("tr", null, h("td", null, idLink(one.agent)), h("td", { class: "number" }, number(Math.round(one.elo))),
      h("td", { class: "number" }, `${Math.round(one.ci_low)} to ${Math.round(one.ci_high)}`), h("td", { class: "number" }, number(one.games)))))));
}

function suites(board) {
  return board.others.length > 0 && card("Other suites of this environment", h("table", { class: "plain" },
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Suite"), h("th", { scope: "col", class: "number" }, "Agents"))),
    h("tbody", null, board.others.map((one) => h("tr", null,
      h("td", null, h("a", { href: `/leaderboard?environment=${encodeURIComponent(board.environment)}&suite=${encodeURIComponent(one.suite_hash)}` }, inlineText(one.name))),
      h("td", { class: "number" }, number(one.agents)))))));
}
