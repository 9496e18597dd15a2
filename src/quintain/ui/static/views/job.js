import { facts, h } from "../elements.js";
export async function render(root, params, api) {
  const job = await api.call("get_job", { job_id: params.id });
  root.append(h("h1", null, job.label), facts([["State", job.status], ["Phase", job.phase]]));
}
