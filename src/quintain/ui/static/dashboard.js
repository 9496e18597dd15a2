// The view of a training in a host of MCP Apps. It draws the figure that comes with a tool's result (`_meta`), and reads
// job://ID/figure again while the job runs. All that it shows is also in the result's text.
import { connect } from "./api.js";
import { figure } from "./chart.js";
import { badge, duration, h, replace } from "./elements.js";
import { forest } from "./forest.js";

const AGAIN_MS = 2000;
const UNFINISHED = ["queued", "running"];
const root = document.getElementById("app");
let api, shown = null, timer = null;

function meta(result, name) {
  return result?._meta?.[`quintain/${name}`] ?? null;
}

function textOf(result) {
  return (result?.content ?? []).filter((part) => part.type === "text").map((part) => part.text).join("\n");
}

function show(result) {
  const description = meta(result, "figure"), job = meta(result, "job"), text = textOf(result);
  const before = meta(shown, "job");
  shown = result;
  replace(root,
    job && h("p", { class: "row" }, badge(job.status), ` ${job.phase ?? ""} `,
      job.total_steps ? h("progress", { value: job.step, max: job.total_steps, "aria-label": "steps" }) : null,
      job.eta_s ? h("span", { class: "quiet" }, `about ${duration(job.eta_s)} left`) : null),
    description ? figure(description, { others: { forest } }) : h("pre", null, text));
  clearTimeout(timer);
  if (job && UNFINISHED.includes(job.status)) timer = setTimeout(() => again(job.job_id), AGAIN_MS);
  else if (job && before && UNFINISHED.includes(before.status)) tellModel(text);
}

async function again(jobId) {
  try {
    show(await read(jobId));
  } catch {
    timer = setTimeout(() => again(jobId), 4 * AGAIN_MS);
  }
}

// A job as the result of a tool.
async function read(jobId) {
  const { job, figure: description } = await api.read(`job://${encodeURIComponent(jobId)}/figure`);
  const text = `${job.job_id}: ${job.label}, ${job.status}, step ${job.step} of ${job.total_steps ?? "?"}. ${job.next_step}`;
  return { content: [{ type: "text", text }], _meta: { "quintain/job": job, "quintain/figure": description } };
}

// The end of a job that the model saw running belongs to its context.
function tellModel(text) {
  api.askHost("ui/update-model-context", { content: [{ type: "text", text }] }).catch(() => {});
}

function applyTheme(context) {
  if (context?.theme !== "light" && context?.theme !== "dark") return;
  document.documentElement.style.colorScheme = context.theme;
  if (shown) show(shown);
}

async function main() {
  api = await connect();
  if (!api.inHost) {
    replace(root, h("p", null, "This page is shown by a host of MCP Apps. Without one, use quintain ui."));
    return;
  }
  api.onHost((method, params) => {
    if (method === "ui/notifications/tool-result") show(params);
    if (method === "ui/notifications/host-context-changed") applyTheme(params);
    if (method === "ui/resource-teardown") clearTimeout(timer);
  });
  applyTheme(api.hostContext);
  new ResizeObserver(() => {
    // The height of the content: the body is at least as high as the frame.
    const { width, height } = root.getBoundingClientRect();
    api.notifyHost("ui/notifications/size-changed", { width: Math.ceil(width), height: Math.ceil(height) });
  }).observe(root);
}

main();
