// One run: its transcript page by page, its scores and judgements, and what it belongs to.
import { ago, badge, card, empty, facts, h, idLink, number, replace, toast } from "../elements.js";
import { navigate } from "../router.js";
import { runTags } from "../run_tags.js";
import { inlineText, textBlock } from "../text.js";
import { isCut, stepElement } from "../transcript.js";
import { listAddress, neighbour } from "./runs.js";

const PAGE = 30;
const MAX_CHARS = 4000;
const WHOLE = 100_000;

export async function render(root, params, api) {
  const id = params.id;
  const view = await api.call("get_trajectory", { trajectory_id: id, limit: PAGE, max_chars: MAX_CHARS });
  const run = view.trajectory;
  const transcript = h("div", { class: "transcript" });
  const more = h("div", { class: "row more" });
  let loaded = 0, loading = false;

  function add(page) {
    page.trajectory.steps.forEach((step, i) => transcript.append(stepOf(page, step, page.first_step + i)));
    loaded = page.first_step + page.trajectory.steps.length;
    replace(more, loaded < page.total_steps &&
      h("button", { onclick: next }, `Show the next steps (${number(page.total_steps - loaded)} left)`));
  }

  function stepOf(page, step, place) {
    const scores = page.scores.flatMap((score) => (score.steps ?? []).filter((one) => one.step === place && one.value !== null)
      .map((one) => ({ scorer: score.rater ?? score.scorer, ...one })));
    const whole = isCut(step, MAX_CHARS) && page.max_chars !== WHOLE ? () => showWhole(place) : null;
    const trains = step.actor === "agent" ? !page.masked.includes(place) : null;
    return stepElement(step, place, { trains, scores, whole });
  }

  async function showWhole(place) {
    const page = await api.call("get_trajectory", { trajectory_id: id, first_step: place, limit: 1, max_chars: WHOLE }).catch(report);
    if (!page) return;
    const whole = stepOf({ ...page, max_chars: WHOLE }, page.trajectory.steps[0], place);
    transcript.querySelector(`#step-${place}`).replaceWith(whole);
    whole.focus({ preventScroll: true });
  }

  async function next() {
    if (loading || loaded >= view.total_steps) return;
    loading = true;
    const page = await api.call("get_trajectory", { trajectory_id: id, first_step: loaded, limit: PAGE, max_chars: MAX_CHARS }).catch(report);
    loading = false;
    if (page) add(page);
  }

  const dim = h("button", { "aria-pressed": "false", onclick: () => {
    const on = transcript.classList.toggle("only-loss");
    dim.setAttribute("aria-pressed", String(on));
  } }, "Highlight what trains");
  const origin = h("div");
  add(view);
  root.append(
    h("p", { class: "crumbs" }, h("a", { href: listAddress() }, "Runs"), " / ", h("span", { class: "id" }, id), keys()),
    h("header", { class: "head" }, h("h1", null, inlineText(clip(run.task?.prompt || run.task?.id || id))), badge(run.outcome?.status ?? "unknown"), dim),
    h("div", { class: "columns" },
      h("div", { class: "stack" }, transcript, more),
      h("aside", { class: "stack", "aria-label": "About this run" }, about(run, view, api), scoresOf(view), origin)));
  belongs(id, api).then((element) => origin.replaceWith(element), () => origin.remove());

  const watch = new IntersectionObserver(([seen]) => { if (seen.isIntersecting) next(); }, { rootMargin: "600px" });
  watch.observe(more);
  await toStep(location.hash, transcript, next);
  const onKey = keyHandler(id, transcript, next);
  document.addEventListener("keydown", onKey);
  return () => { watch.disconnect(); document.removeEventListener("keydown", onKey); };
}

const clip = (text) => (text.length > 160 ? `${text.slice(0, 160)}…` : text);
const report = (error) => { toast(error.message, "bad"); };

// Shows the step that the address names, which may be many pages down.
async function toStep(hash, transcript, next) {
  if (!/^#step-\d+$/.test(hash)) return;
  for (let before = -1; !transcript.querySelector(hash) && before < transcript.childElementCount;) {
    before = transcript.childElementCount;
    await next();
  }
  transcript.querySelector(hash)?.scrollIntoView({ block: "start" });
}

function keys() {
  return h("span", { class: "keys" }, h("kbd", null, "J"), h("kbd", null, "K"), " next, previous run ", h("kbd", null, "N"), h("kbd", null, "P"), " step ", h("kbd", null, "Esc"), " list");
}

function keyHandler(id, transcript, more) {
  return async (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey || event.target.closest?.("input,select,textarea,dialog")) return;
    const key = event.key.toLowerCase();
    if (key === "escape") navigate(listAddress());
    else if (key === "j" || key === "k") {
      const other = await neighbour(id, key === "j" ? 1 : -1);
      if (other) navigate(`/runs/${encodeURIComponent(other)}`);
      else toast("There is no further run in the list that was open.");
    } else if (key === "n" || key === "p") {
      const steps = [...transcript.children];
      const now = steps.findIndex((one) => one === document.activeElement?.closest(".run-step"));
      const at = now < 0 ? 0 : now + (key === "n" ? 1 : -1);
      steps[at]?.focus({ preventScroll: true });
      steps[at]?.scrollIntoView({ block: "start" });
      if (at >= steps.length - 2) more();
    }
  };
}

function about(run, view, api) {
  const task = run.task ?? {}, outcome = run.outcome ?? {}, agent = run.agent ?? {};
  return card("Run", facts([
    ["Outcome", [badge(outcome.status ?? "unknown"), outcome.exit_status && [" ", inlineText(outcome.exit_status)]]],
    ["Stated by", run.extra?.outcome_stated_by && inlineText(run.extra.outcome_stated_by)],
    ["Reward", outcome.reward === undefined ? null : number(outcome.reward)],
    ["Agent", agent.name && agentLink(agent)],
    ["Environment", task.environment && inlineText(task.environment)],
    ["Task", task.id && h("a", { href: `/runs?task_id=${encodeURIComponent(task.id)}`, title: "All runs of this task" }, inlineText(task.id))],
    ["Kind", task.type && inlineText([task.type, task.difficulty].filter(Boolean).join(", "))],
    ["Job", run.job_id && idLink(run.job_id)],
    ["Session", run.session_id && h("a", { href: `/runs?session_id=${encodeURIComponent(run.session_id)}` }, inlineText(run.session_id))],
    ["Continues", run.continues && idLink(run.continues)],
    ["Subagents", run.subagents?.length ? run.subagents.map((one) => [idLink(one), " "]) : null],
    ["Steps", number(view.total_steps)],
    ["Tags", runTags(view.trajectory.id, run.tags ?? [], api)],
    ["Source", run.source?.format && inlineText(run.source.format)],
    ["Redacted", run.redactions && Object.entries(run.redactions).map(([kind, n]) => `${n} ${kind}`).join(", ")],
  ]), run.tools?.length > 0 && h("details", null, h("summary", null, `${run.tools.length} tools`), textBlock(JSON.stringify(run.tools, null, 2), "mono")));
}

function agentLink(agent) {
  const id = `agent:${agent.name}@${agent.version}`;
  return agent.model === id ? idLink(id) : inlineText([agent.name, agent.version, agent.model].filter(Boolean).join(" · "));
}

// Scores by rules, then judgements: each with its value, parts and words.
function scoresOf(view) {
  const entries = (wanted) => view.scores.filter((score) => Boolean(score.rater) === wanted).map(scoreElement);
  const [rules, judged] = [entries(false), entries(true)];
  return [
    card("Scores", rules.length ? rules : empty("Not scored yet.")),
    judged.length > 0 && card("Judgements", judged),
  ];
}

function scoreElement(score) {
  const parts = Object.entries(score.parts ?? {});
  return h("div", { class: "score-entry" },
    h("div", { class: "row" }, h("strong", null, inlineText(score.rater ?? score.scorer)), h("span", { class: "quiet" }, inlineText([score.rater && score.scorer, score.rubric].filter(Boolean).join(", ")), " ", ago(score.created_at)),
      h("span", { class: "score-value" }, score.value === undefined ? "unscored" : number(score.value))),
    score.value !== undefined && meter(score.value, score.scorer),
    score.reason && textBlock(score.reason, "quiet"),
    score.feedback && textBlock(score.feedback),
    parts.length > 0 && h("details", null, h("summary", null, `${parts.length} parts`),
      h("table", { class: "plain" }, h("tbody", null, parts.map(([name, value]) => h("tr", null, h("th", { scope: "row" }, inlineText(name)), h("td", { class: "number" }, number(value))))))));
}

function meter(value, label) {
  return h("div", { class: "share", role: "img", "aria-label": `${label}: ${number(value)}` }, h("div", { class: "fill kept", style: { width: `${100 * value}%` } }));
}

// What contains this run and learned from it.
async function belongs(id, api) {
  const found = await api.call("get_lineage", { id, depth: 1 });
  const datasets = found.descendants.filter((node) => node.kind === "dataset");
  return card("Used in",
    datasets.length ? h("ul", { class: "bare" }, datasets.map((node) => h("li", null, idLink(node.id), " ", inlineText(node.label)))) : h("p", { class: "quiet" }, "No dataset contains it."),
    found.shaped?.length > 0 && h("p", null, "Learned from by ", found.shaped.map((agent) => [idLink(agent), " "])),
    h("p", null, h("a", { href: `/lineage/${encodeURIComponent(id)}` }, "Lineage")));
}
