// One job: state, what got better, curves beside those of other jobs, phases, samples, settings, log; live while it runs.
import { liveFigure } from "../chart.js";
import { ago, badge, card, duration, errorBox, facts, h, idLink, nextStep, number, replace, rich, toast } from "../elements.js";
import { forest } from "../forest.js";
import { jobCurves } from "../job_curves.js";
import { jobNote } from "../job_note.js";
import { planAgainstFact, settingsTable, stages } from "../job_parts.js";
import { navigate } from "../router.js";

const ENDED = ["succeeded", "failed", "cancelled", "interrupted"];
const REFRESH_MS = 1000;

export async function render(root, params, api) {
  const id = params.id;
  let [job, page, curves] = await Promise.all([
    api.call("get_job", { job_id: id, detail: "metrics" }), api.get(`/api/jobs/${encodeURIComponent(id)}`), jobCurves(id, params.query, api)]);

  const top = h("div", { class: "stack" });
  const picture = liveFigure({ height: 220, others: { forest } });
  const better = h("section", { class: "card", hidden: true }, picture.element);
  const [result, plan, phases] = [h("div"), h("div"), h("div")];
  const side = h("div", { class: "stack" }, result, plan, phases, card("Settings", settingsTable(page.settings)));
  const below = h("div", { class: "stack" });
  const log = logCard(id, api);
  const note = jobNote(api, (stored) => {
    job = { ...job, name: stored.name, note: stored.note, label: stored.label };
    show();
  });
  root.append(top, note.element, h("div", { class: "columns" }, h("div", { class: "stack" }, better, curves.element, below, log.element), side));

  let drawn = "";

  async function showFigure() {
    const found = await api.read(`job://${encodeURIComponent(id)}/figure`).then((answer) => answer.figure, () => null);
    better.hidden = !found?.panels?.length;
    if (!better.hidden) picture.update(found);
  }

  function show() {
    document.title = `${job.label || id} · Quintain`;
    showTop(top, job, api, act);
    note.show(job);
    curves.show(job, page);
    replace(result, resultCard(job, page));
    replace(phases, phasesCard(page));
    // What the reader may have opened is built again only when it has changed.
    if (!plan.querySelector("details[open]")) replace(plan, planAgainstFact(job, page, api));
    const parts = JSON.stringify([page.samples, job.result?.report]);
    if (parts !== drawn) replace(below, stages(job, page), samplesCard(page.samples));
    drawn = parts;
  }

  async function act(tool) {
    try {
      const after = await api.call(tool, { job_id: id });
      toast(tool === "cancel_job" ? "Asked to stop at its next step." : "The job goes on.");
      if (after.job_id !== id) navigate(`/jobs/${after.job_id}`);
      else refresh();
    } catch (error) {
      toast(error.message, "bad");
    }
  }

  let waiting = null, again = false, took = 0;
  async function refresh() {
    if (waiting) {
      again = true;
      return;
    }
    waiting = setTimeout(() => {
      waiting = null;
      if (again) refresh();
    }, Math.max(REFRESH_MS, 10 * took));
    again = false;
    const begun = performance.now();
    try {
      const [next, details] = await Promise.all([
        api.call("get_job", { job_id: id, detail: "metrics" }), api.get(`/api/jobs/${encodeURIComponent(id)}`), showFigure(), log.refresh()]);
      [job, page] = [next, details];
      show();
    } catch (error) {
      if (error.code !== "offline") replace(top, errorBox(error));
    }
    took = performance.now() - begun;
  }

  show();
  showFigure();
  const end = api.subscribe((state) => {
    if (state.job_id === id) {
      const known = ["status", "phase", "step", "total_steps", "eta_s", "attempt"];
      const changed = known.some((name) => job[name] !== state[name]);
      if (!changed) return;
      if (job.status !== state.status) job.next_step = ""; // that of the earlier status; the refresh brings its own
      job = { ...job, ...Object.fromEntries(known.map((name) => [name, state[name]])), metrics: state.metrics };
      showTop(top, job, api, act);
      curves.append(state);
      refresh();
    }
  });
  return () => {
    end();
    clearTimeout(waiting);
    curves.destroy();
    picture.destroy();
  };
}

function showTop(top, job, api, act) {
  const isOpen = !ENDED.includes(job.status);
  const mayResume = ["failed", "cancelled", "interrupted"].includes(job.status);
  const why = api.mayChange ? null : "This page is read-only: open the address with #token= that the server printed at its start.";
  const button = (text, tool, kind) => h("button", { class: kind, disabled: !api.mayChange, title: why, onclick: () => act(tool) }, text);
  const steps = job.total_steps ? `step ${number(job.step)} of ${number(job.total_steps)}` : job.step ? `step ${number(job.step)}` : "";
  const left = isOpen && job.eta_s !== null ? `about ${duration(job.eta_s)} left` : "";
  const waits = job.waiting_for;
  replace(top,
    h("p", { class: "crumbs" }, h("a", { href: "/jobs" }, "Jobs"), " / ", h("span", { class: "id" }, job.job_id)),
    h("header", { class: "head" }, h("h1", null, job.label || job.job_id), badge(job.status),
      isOpen && button("Cancel", "cancel_job", "danger"), mayResume && button("Resume", "resume_job", "primary"),
      h("a", { href: `/lineage/${encodeURIComponent(job.job_id)}` }, "Lineage")),
    job.total_steps && h("progress", { value: job.step, max: job.total_steps, "aria-label": "Steps" }),
    h("p", { class: "quiet", role: "status" }, [
      isOpen && job.phase && job.phase.replaceAll("_", " "), steps, left, job.activity && activity(job.activity), job.attempt > 1 && `attempt ${job.attempt}`,
    ].filter(Boolean).join(" · ")),
    waits && h("p", { class: "warning-box" }, "Waits for a free slot", waits.ahead ? `, ${waits.ahead} ahead` : "", ": ",
      Object.entries(waits.held_by ?? {}).map(([holder, label], i) => [i > 0 && ", ", idLink(holder, label)])),
    [job.stalled, job.trouble].map((text) => text && h("p", { class: "warning-box" }, text)),
    job.error && errorBox({ problem: job.error.message, code: job.error.code, remedy: job.error.hint }),
    (job.warnings ?? []).map((warning) => h("p", { class: "warning-box" }, rich(warning))),
    !isOpen && nextStep(job.next_step)); // an open job is followed and cancelled by this page
}

function activity(state) {
  return `${number(state.episodes)} of ${number(state.planned)} episodes, ${number(state.turns)} turns`;
}

function resultCard(job, page) {
  const result = job.result ?? {}, spec = page.settings;
  return card("Facts", facts([
    ["Kind", job.kind],
    ["Starts from", spec.agent && idLink(String(spec.agent))],
    ["Dataset", spec.dataset_id && idLink(spec.dataset_id)],
    ["Environment", spec.environment],
    ["Result", result.agent && idLink(result.agent)],
    ["Comparison", result.comparison_id && idLink(result.comparison_id)],
    ["Evaluation", result.evaluation_id && idLink(result.evaluation_id)],
    ["Recorded runs", result.trajectories && h("a", { href: `/runs?job_id=${encodeURIComponent(job.job_id)}` }, number(result.trajectories.count))],
    ["Success", result.success_rate !== null && result.success_rate !== undefined && `${(100 * result.success_rate).toFixed(1)} % of ${number(result.n)}`],
    ["Final loss", result.final_loss !== null && result.final_loss !== undefined && number(result.final_loss)],
    ["Best step", result.report?.best_step],
    ["Resumes", job.resumed_from && idLink(job.resumed_from)],
    ["Begun", ago(job.started_at ?? job.created_at)],
    ["Took", job.started_at && job.ended_at && duration((new Date(job.ended_at) - new Date(job.started_at)) / 1000)],
    ["Attempt", page.attempt > 1 && `${page.attempt} of at most ${page.max_attempts}`],
    ["Checkpoints", page.checkpoints.length > 0 && `step ${page.checkpoints.slice(-6).join(", ")}`],
  ].filter(([, value]) => value)));
}

function phasesCard(page) {
  if (!page.phases.length) return null;
  const seconds = (phase) => (new Date(phase.ended_at ?? Date.now()) - new Date(phase.started_at)) / 1000;
  const longest = Math.max(...page.phases.map(seconds), 0.1);
  const shown = page.phases.slice(-24);
  return card("Phases",
    shown.length < page.phases.length && h("p", { class: "quiet" }, `the last ${shown.length} of ${page.phases.length}`),
    h("ol", { class: "phases" }, shown.map((phase) => h("li", { class: phase.ended_at ? "" : "now" },
      h("span", null, phase.stage && h("small", null, `${phase.stage} `), phase.name.replaceAll("_", " "), phase.attempt > 1 && h("small", null, ` attempt ${phase.attempt}`)),
      h("span", { class: "meter", style: { "--share": String(seconds(phase) / longest) } }),
      h("span", { class: "number" }, phase.ended_at ? duration(seconds(phase)) : "now")))));
}

function samplesCard(samples) {
  if (!samples.length) return null;
  const prompts = [...new Set(samples.map((sample) => sample.prompt))];
  return card("Samples on fixed probes", prompts.map((prompt, i) => {
    const own = samples.filter((sample) => sample.prompt === prompt);
    return h("details", { open: i === 0 }, h("summary", null, `Probe ${i + 1}`), h("pre", { class: "quiet" }, prompt),
      own.map((sample) => h("div", { class: "sample" },
        h("div", { class: "row" }, h("span", { class: "label" }, sample.stage && `${sample.stage} `, `step ${sample.step}`), h("small", { class: "quiet" }, `${number(sample.tokens)} tokens`),
          sample.stop === "length" && badge("warning", "cut off"), sample.error && badge("bad", "does not parse")),
        h("pre", null, sample.text || "(empty)"))));
  }));
}

function logCard(id, api) {
  const text = h("pre", { class: "log", tabindex: "0", "aria-label": "End of the log" });
  const box = h("details", { class: "card" }, h("summary", null, "Log"), text);
  async function refresh() {
    if (!box.open) return;
    const found = await api.read(`job://${id}/log?tail=300`).catch((error) => ({ text: error.message }));
    const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 20;
    text.textContent = found.text || "(empty)";
    if (atEnd) text.scrollTop = text.scrollHeight;
  }
  box.addEventListener("toggle", refresh);
  return { element: box, refresh };
}
