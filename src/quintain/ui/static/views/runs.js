// All runs, newest first, by filters that stay in the address.
import { ago, badge, h, idLink, number, replace } from "../elements.js";
import { setQuery } from "../router.js";
import { address } from "../routes.js";
import { pagedTable } from "../table.js";
import { inlineText } from "../text.js";

const OUTCOMES = ["success", "failure", "error", "truncated", "unknown"];
const ORDERS = [["", "newest first"], ["reward", "highest reward"], ["-reward", "lowest reward"]];
const FILTERS = ["text", "agent", "environment", "task_type", "outcome", "personal_data", "min_reward", "max_reward", "tag", "task_id", "session_id", "since", "until", "dataset_id", "job_id"];
const TYPING_MS = 250;
const LIVE_MS = 1500;

let kept = null; // The list that was left, with its place, for the way back and for J and K in a run.

// Returns the id of the run that is `step` places after this one in the list that was open, and the list's address.
export async function neighbour(id, step) {
  if (!kept) return null;
  const places = () => kept.list.rows().findIndex((row) => row.id === id);
  const at = places();
  if (at < 0) return null;
  if (at + step >= kept.list.rows().length) await kept.list.more();
  return kept.list.rows()[at + step]?.id ?? null;
}

export const listAddress = () => `/runs${kept?.search ?? ""}`;

export function filterOf(query) {
  const filter = {};
  for (const name of FILTERS) {
    const value = query.get(name);
    if (!value) continue;
    if (name === "tag") filter.tags = [value];
    else if (/^\d{4}-\d\d-\d\d$/.test(value) && ["since", "until"].includes(name)) filter[name] = `${value}T00:00:00Z`;
    else filter[name] = name.endsWith("_reward") && !Number.isNaN(Number(value)) ? Number(value) : value;
  }
  return Object.keys(filter).length ? filter : null;
}

export async function render(root, params, api) {
  const query = () => new URLSearchParams(location.search);
  if (kept?.search !== location.search) kept = { search: location.search, list: listOf(api, query), top: 0 };
  const list = kept.list;
  const newer = h("button", { class: "small", hidden: true, onclick: () => { newer.hidden = true; list.reload(); } }, "Show newer runs");
  const judge = h("a", { href: "/judging" }, "Judge these");

  let typing = 0;
  function change(values, wait = 0) {
    clearTimeout(typing);
    typing = setTimeout(() => {
      setQuery(values);
      kept.search = location.search;
      judge.setAttribute("href", address(`/judging${location.search}`));
      replace(chips, chipsOf(query(), change));
      list.reload();
    }, wait);
  }
  judge.setAttribute("href", address(`/judging${location.search}`));
  const chips = h("div", { class: "row" }, chipsOf(query(), change));
  root.append(h("header", { class: "head" }, h("h1", null, "Runs"), newer, judge), filters(query(), change, api), chips, list.element);
  const box = list.element.querySelector(".list-box");
  box.scrollTop = kept.top;
  list.resume();
  box.addEventListener("scroll", () => { if (box.isConnected) kept.top = box.scrollTop; }, { passive: true });

  let waiting = 0;
  async function look() {
    waiting = 0;
    if (query().get("sort") || !root.isConnected) return;
    const page = await api.call("search_trajectories", { limit: 1, filter: filterOf(query()) }).catch(() => null);
    const isNew = page?.items.length && !list.rows().some((row) => row.id === page.items[0].id);
    if (isNew && box.scrollTop < 5) list.reload();
    else if (isNew) newer.hidden = false;
  }
  look();
  const end = api.subscribe(() => { waiting ||= setTimeout(look, LIVE_MS); });
  return () => { clearTimeout(typing); clearTimeout(waiting); end(); };
}

function listOf(api, query) {
  return pagedTable({
    label: "Runs",
    none: () => (filterOf(query()) ? "No run matches. Loosen the filter, or let an agent act: `quintain collect starter --environment quintain/inventory`."
      : "No run yet. Import logs of agents with `quintain import PATH`, or let one act: `quintain collect starter --environment quintain/inventory`."),
    key: (run) => run.id,
    href: (run) => `/runs/${encodeURIComponent(run.id)}`,
    load: (cursor) => api.call("search_trajectories", { limit: 200, cursor, filter: filterOf(query()), sort: query().get("sort") || null }),
    columns: [
      { title: "Outcome", width: "7.5rem", cell: (run) => badge(run.outcome) },
      { title: "Task", cell: (run) => h("a", { href: `/runs/${encodeURIComponent(run.id)}` }, inlineText(run.prompt || run.task_id || run.id)) },
      { title: "Kind", class: "wide", width: "8rem", cell: (run) => run.task_type && inlineText(run.task_type) },
      { title: "Agent", class: "wide", width: "9rem", cell: (run) => inlineText(run.agent) },
      { title: "Reward", width: "4.5rem", class: "number", cell: (run) => number(run.reward) },
      { title: "Score", width: "5rem", class: "number wide", cell: (run) => (run.score === null ? "" : number(run.score)) },
      { title: "Turns", width: "4.5rem", class: "number wide", cell: (run) => number(run.steps) },
      { title: "Stored", class: "wide", width: "7.5rem", cell: (run) => ago(run.created_at) },
    ],
  });
}

function filters(query, change, api) {
  const input = (name, label, more = {}) => h("input", {
    name, "aria-label": label, placeholder: label, value: query.get(name), oninput: (event) => change({ [name]: event.target.value.trim() }, TYPING_MS), ...more,
  });
  const select = (name, label, options) => h("select", { name, "aria-label": label, onchange: (event) => change({ [name]: event.target.value }) },
    options.map(([value, text]) => h("option", { value, selected: value === (query.get(name) ?? "") }, text)));
  const agents = h("datalist", { id: "agents" });
  const scorers = h("datalist", { id: "orders" });
  const more = ["environment", "task_type", "personal_data", "min_reward", "max_reward", "tag", "task_id", "session_id", "since", "until"];
  return h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault(), onfocusin: () => suggest(api, agents) },
    input("text", "Text of the run", { type: "search", class: "search-text" }),
    input("agent", "Agent", { list: "agents" }),
    select("outcome", "Outcome", [["", "all outcomes"], ...OUTCOMES.map((one) => [one, one])]),
    orderSelect(query, change, api),
    h("details", { open: more.some((name) => query.get(name)) }, h("summary", null, "More filters"), h("div", { class: "row" },
      input("environment", "Environment"), input("task_type", "Kind of task"),
      select("personal_data", "Personal data", [["", "any personal data"], ["none", "none found"], ["found", "found and removed"], ["unknown", "not searched for"]]),
      input("min_reward", "Reward from", { type: "number", step: "any" }), input("max_reward", "Reward to", { type: "number", step: "any" }),
      input("tag", "Tag"), input("task_id", "Task id"), input("session_id", "Session id"),
      h("label", { class: "field" }, "Stored from", input("since", "Stored from", { type: "date" })), h("label", { class: "field" }, "before", input("until", "Stored before", { type: "date" })))),
    agents, scorers);
}

function orderSelect(query, change, api) {
  const now = query.get("sort") ?? "";
  const known = ORDERS.some(([value]) => value === now) ? ORDERS : [...ORDERS, [now, now]];
  const options = (pairs) => pairs.map(([value, text]) => h("option", { value, selected: value === now }, text));
  const select = h("select", { "aria-label": "Order", onchange: (event) => change({ sort: event.target.value }) }, options(known));
  select.addEventListener("focus", async () => {
    const found = await api.call("list_library", { kind: "scorers", limit: 200 }).catch(() => ({ items: [] }));
    const names = found.items.map((one) => one.name).filter((name) => name && !known.some(([value]) => value === name));
    select.append(...options(names.flatMap((name) => [[name, `best by ${name}`], [`-${name}`, `worst by ${name}`]])));
  }, { once: true });
  return select;
}

async function suggest(api, agents) {
  if (agents.childElementCount || agents.dataset.asked) return;
  agents.dataset.asked = "yes";
  const found = await api.call("list_library", { kind: "agents", limit: 200 }).catch(() => ({ items: [] }));
  agents.append(...found.items.map((one) => h("option", { value: one.id })));
}

// What the address narrows the list to besides the form's fields.
function chipsOf(query, change) {
  return ["dataset_id", "job_id"].filter((name) => query.get(name)).map((name) => h("span", { class: "filter-chip" },
    name === "job_id" ? "of job " : "in dataset ", idLink(query.get(name)),
    h("button", { class: "small", "aria-label": "Remove this filter", onclick: () => change({ [name]: null }) }, "×")));
}
