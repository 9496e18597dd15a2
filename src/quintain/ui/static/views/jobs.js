// All jobs, newest first; their states change as they run.
import { ago, badge, duration, h, idLink } from "../elements.js";
import { setQuery } from "../router.js";
import { pagedTable, wordSearch } from "../table.js";

const KINDS = ["", "train", "evolve", "recipe", "evaluate", "evaluate_dataset", "compare", "rollout", "judge", "score", "step_labels", "influence", "replay", "import", "preview", "export_agent", "fetch", "push", "talk", "selftest"];
const STATES = ["", "running", "queued", "succeeded", "failed", "cancelled", "interrupted"];

export async function render(root, params, api) {
  const wanted = { status: params.query.get("status") ?? "", kind: params.query.get("kind") ?? "" };
  const search = wordSearch(params.query, "Id, work or note", () => list.reload());
  const isNarrowed = () => Boolean(wanted.status || wanted.kind || search.asked().text);
  const choice = (name, label, values, all) => h("select", { "aria-label": label, onchange: (event) => {
    wanted[name] = event.target.value;
    setQuery(wanted);
    list.reload();
  } }, values.map((one) => h("option", { value: one, selected: one === wanted[name] }, one.replaceAll("_", " ") || all)));
  const list = pagedTable({
    label: "Jobs",
    none: () => search.none(isNarrowed() ? "No job is of this kind and state." : "No job yet. Measure an agent with `quintain evaluate starter --environment quintain/inventory`, or watch one get better: `quintain demo`.")(),
    key: (job) => job.job_id,
    href: (job) => `/jobs/${job.job_id}`,
    load: (cursor) => api.call("list_jobs", { limit: 200, cursor, ...search.asked(), ...Object.fromEntries(Object.entries(wanted).filter(([, value]) => value)) }),
    columns: [
      { title: "Job", width: "9.5rem", class: "wide", cell: (job) => idLink(job.job_id) },
      { title: "What it does", cell: (job) => [h("a", { href: `/jobs/${job.job_id}` }, job.label || job.kind), (job.stalled || job.trouble) && [" ", h("span", { class: "badge warning", title: job.stalled || job.trouble }, job.stalled ? "stalled" : "trouble")], job.note && h("span", { class: "quiet", title: job.note }, ` ${job.note}`)] },
      { title: "State", width: "7.5rem", cell: (job) => badge(job.status) },
      { title: "Step", width: "9rem", class: "number wide", cell: (job) => (job.total_steps ? `${job.step} of ${job.total_steps}` : job.step || "") },
      { title: "Begun", width: "7.5rem", class: "wide", cell: (job) => job.started_at && ago(job.started_at) },
      { title: "Took", width: "7.5rem", class: "number wide", cell: (job) => job.started_at && job.ended_at && duration((new Date(job.ended_at) - new Date(job.started_at)) / 1000) },
    ],
  });
  root.append(h("header", { class: "head" }, h("h1", null, "Jobs"), search.element, choice("kind", "Kind", KINDS, "all kinds"), choice("status", "State", STATES, "all states")), list.element);
  return api.subscribe((state) => {
    if (!list.update({ stalled: null, trouble: null, ...state }) && !isNarrowed()) list.reload();
  });
}
