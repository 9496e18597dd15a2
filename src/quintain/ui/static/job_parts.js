// Parts of a job's page: what was planned and what came, settings, stages of a recipe or rounds of an evolution.
import { card, duration, errorBox, h, idLink, number, percent, replace, sizeText } from "./elements.js";

const PLANNED = ["epochs", "max_steps", "batch_size", "batch_tokens", "learning_rate", "max_length", "lora", "precision"];

// The plan of the same training, asked for when the reader opens it: it is not stored with the job.
export function planAgainstFact(job, page, api) {
  const { method, agent, dataset_id, environment, config } = page.settings;
  if (job.kind !== "train" || !agent) return null;
  const place = h("div");
  const box = h("details", { class: "card" }, h("summary", null, "Plan against fact"), place);
  box.addEventListener("toggle", async () => {
    if (!box.open || place.childElementCount) return;
    try {
      const hyperparameters = Object.fromEntries(PLANNED.filter((name) => name in (config ?? {})).map((name) => [name, config[name]]));
      const plan = await api.call("plan_training", { method, model: String(agent), ...(dataset_id ? { dataset_id } : { environment }), hyperparameters });
      replace(place, planTable(job, plan));
    } catch (error) {
      replace(place, errorBox(error));
    }
  });
  return box;
}

// The figures of an estimate as texts; what is not known is a dash.
export function planned(estimate) {
  const range = (low, high, show) => (low === high ? show(low) : `${show(low)} to ${show(high)}`);
  return {
    steps: number(estimate.steps),
    time: (estimate.duration_s !== null ? duration(estimate.duration_s) : estimate.duration_range_s && range(...estimate.duration_range_s, duration)) ?? "–",
    memory: estimate.memory_mb === null ? "–" : sizeText(estimate.memory_mb * 2 ** 20),
    tokens: (estimate.tokens !== null ? number(estimate.tokens) : estimate.tokens_range && range(...estimate.tokens_range, number)) ?? "–",
  };
}

function planTable(job, { estimate }) {
  const took = job.started_at && (new Date(job.ended_at ?? Date.now()) - new Date(job.started_at)) / 1000;
  const plan = planned(estimate);
  const rows = [
    ["Optimizer steps", plan.steps, `${number(job.step)}${job.ended_at ? "" : " so far"}`],
    ["Duration", plan.time, took ? `${duration(took)}${job.ended_at ? "" : " so far"}` : "–"],
    ["Memory", plan.memory, job.metrics?.peak_memory_mb ? sizeText(job.metrics.peak_memory_mb * 2 ** 20) : "–"],
    ["Tokens", plan.tokens, number(job.result?.report?.tokens)],
  ];
  const measured = estimate.measured_by ?? [];
  return [
    h("table", { class: "plain" }, h("thead", null, h("tr", null, ["", "Plan", "Fact"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", null, rows.map(([name, plan, fact]) => h("tr", null, h("th", { scope: "row" }, name), h("td", null, plan), h("td", null, fact))))),
    measured.length > 0 && h("p", { class: "quiet" }, "Planned from earlier trainings", measured.includes(job.job_id) ? ", this one among them" : "", "."),
  ];
}

// Nested settings as pairs of NAME.MEMBER and value.
function flat(settings) {
  const rows = [];
  const walk = (prefix, value) => {
    if (Array.isArray(value) && value.some((one) => one !== null && typeof one === "object")) value.forEach((one, i) => walk(`${prefix}.${i + 1}`, one));
    else if (value !== null && typeof value === "object" && !Array.isArray(value)) Object.entries(value).forEach(([name, one]) => walk(prefix ? `${prefix}.${name}` : name, one));
    else rows.push([prefix, Array.isArray(value) ? value.join(", ") : String(value)]);
  };
  walk("", settings);
  return rows;
}

export function settingsTable(settings) {
  return h("div", { class: "settings", tabindex: "0" }, h("table", { class: "plain" }, h("tbody", null, flat(settings).map(([name, value]) => h("tr", null, h("th", { scope: "row" }, name), h("td", { class: "mono" }, value))))));
}

// The settings in which several jobs differ, a column each; `compared` are pairs of a heading and settings.
export function differences(compared) {
  const all = compared.map(([, settings]) => new Map(flat(settings)));
  const names = [...new Set(all.flatMap((one) => [...one.keys()]))].filter((name) => new Set(all.map((one) => one.get(name))).size > 1);
  if (!names.length) return h("p", { class: "quiet" }, "Their settings are equal.");
  return h("details", { open: true }, h("summary", null, `Settings that differ (${names.length})`), h("div", { class: "scroll-x", tabindex: "0" }, h("table", { class: "plain" },
    h("thead", null, h("tr", null, ["Setting", ...compared.map(([heading]) => heading)].map((title) => h("th", { scope: "col" }, title)))),
    h("tbody", null, names.map((name) => h("tr", null, h("th", { scope: "row" }, name), all.map((one) => h("td", { class: "mono" }, one.get(name) ?? "–"))))))));
}

const RESULTS = ["round", "stage", "success", "gain", "decision"];
const BOUNDS = ["ci_low", "ci_high"]; // of the gain, beside which they are shown

// Stages of a recipe, rounds of an evolution: what each reported, its result first.
export function stages(job, page) {
  const report = job.result?.report ?? {};
  const done = report.rounds ?? report.stages;
  if (!Array.isArray(done) || !done.length) {
    const begun = [...new Set(page.phases.map((phase) => phase.stage).filter(Boolean))];
    return begun.length ? card("Stages", h("ol", null, begun.map((stage) => h("li", null, stage)))) : null;
  }
  const known = new Set([...RESULTS, ...done.flatMap((one) => Object.keys(one))]);
  const isOfJob = (name) => done.every((one) => one[name] === page.settings[name]);
  const columns = [...known].filter((name) => done.some((one) => isShort(one[name])) && !isOfJob(name) && !BOUNDS.includes(name));
  return card(report.rounds ? "Rounds" : "Stages", h("div", { class: "scroll-x", tabindex: "0" }, h("table", { class: "plain whole-ids" },
    h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, name.replace(/_id$/, "").replaceAll("_", " "))))),
    h("tbody", null, done.map((one) => h("tr", null, columns.map((name) => h("td", null, name === "gain" ? gain(one) : cell(name, one[name])))))))));
}

function isShort(value) {
  return value !== null && value !== undefined && typeof value !== "object" && String(value).length < 60;
}

function gain(one) {
  if (!isShort(one.gain)) return "";
  const points = (share) => `${share > 0 ? "+" : ""}${number(Math.round(1000 * share) / 10)}`;
  return [`${points(one.gain)} points`, isShort(one.ci_low) && h("small", { class: "quiet", style: { display: "block", "white-space": "nowrap" } }, `${points(one.ci_low)} to ${points(one.ci_high)}`)];
}

function cell(name, value) {
  if (!isShort(value)) return "";
  if (typeof value === "number") return /(success|rate|accuracy)/.test(name) && value >= 0 && value <= 1 ? percent(value) : number(value);
  return typeof value === "string" ? idLink(value) : String(value);
}
