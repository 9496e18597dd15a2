// All jobs, newest first; their states change as they run.
import { ago, badge, h, idLink } from "../elements.js";
import { setQuery } from "../router.js";
import { pagedTable } from "../table.js";

const STATES = ["", "running", "queued", "succeeded", "failed", "cancelled", "interrupted"];

export async function render(root, params, api) {
  let status = params.query.get("status") ?? "";
  const choice = h("select", { "aria-label": "State", onchange: (event) => {
    status = event.target.value;
    setQuery({ status });
    list.reload();
  } }, STATES.map((one) => h("option", { value: one, selected: one === status }, one || "all states")));
  const list = pagedTable({
    label: "Jobs",
    none: () => (status ? "No job is in this state." : "No job yet. Measure an agent with `quintain evaluate starter --environment quintain/inventory`, or watch one get better: `quintain demo`."),
    key: (job) => job.job_id,
    href: (job) => `/jobs/${job.job_id}`,
    load: (cursor) => api.call("list_jobs", { limit: 200, cursor, ...(status && { status }) }),
    columns: [
      { title: "Job", width: "9.5rem", class: "wide-only", cell: (job) => idLink(job.job_id) },
      { title: "What it does", cell: (job) => h("a", { href: `/jobs/${job.job_id}` }, job.label || job.kind) },
      { title: "State", width: "7.5rem", cell: (job) => badge(job.status) },
      { title: "Step", width: "7rem", class: "number", cell: (job) => (job.total_steps ? `${job.step} of ${job.total_steps}` : job.step || "") },
      { title: "Begun", width: "7.5rem", cell: (job) => ago(job.created_at) },
    ],
  });
  root.append(h("header", { class: "head" }, h("h1", null, "Jobs"), choice), list.element);
  return api.subscribe((state) => {
    if (!list.update(state) && !status) list.reload();
  });
}
