// Tasks that one agent solved and another failed, and the two runs of one side by side.
import { append, empty, errorBox, h, idLink, replace } from "./elements.js";
import { setQuery } from "./router.js";
import { contentText, pieces } from "./text.js";

// A list of flips with a filter; one opens below as two runs. The address names the open one.
export function flipList(comparison, query, api) {
  const { flips, flips_count: total } = comparison;
  if (!flips.length) return empty("No task was solved by one agent alone.");
  const all = flips.map((flip, i) => ({ ...flip, i }));
  const pairs = [...new Set(all.map((flip) => `${flip.solved_by} solved, ${flip.failed_by} failed`))];
  const body = h("tbody"), runs = h("div", { class: "flip-runs", tabindex: -1, onkeydown: (event) => {
    if (event.key === "Escape") body.querySelector("[aria-expanded=true]")?.focus();
  } });
  const pair = h("select", { "aria-label": "Who solved and who failed", onchange: draw }, h("option", { value: "" }, "all pairs"), pairs.map((one) => h("option", { value: one }, one)));
  const search = h("input", { type: "search", placeholder: "task", "aria-label": "Task", oninput: draw });
  const status = h("span", { class: "quiet", role: "status" });
  let visible = [], open = -1;

  function draw() {
    visible = all.filter((flip) => (!pair.value || pair.value === `${flip.solved_by} solved, ${flip.failed_by} failed`)
      && flip.task_id.toLowerCase().includes(search.value.trim().toLowerCase()));
    replace(body, visible.map(row));
    const listed = flips.length < total ? `the first ${flips.length} of ${total}` : String(total);
    status.textContent = visible.length < flips.length ? `${visible.length} of ${listed}` : listed;
  }

  function row(flip) {
    const can = flip.trajectory_solved && flip.trajectory_failed;
    return h("tr", { class: flip.i === open ? "selected" : null }, h("td", null, can
      ? h("button", { class: "link", "aria-expanded": String(flip.i === open), onclick: () => show(flip) }, flip.task_id)
      : h("span", { title: "The runs are not stored" }, flip.task_id)),
      h("td", null, flip.solved_by), h("td", null, flip.failed_by));
  }

  async function show(flip, focus = true) {
    open = flip.i;
    setQuery({ flip: flip.i });
    draw();
    const place = visible.findIndex((one) => one.i === flip.i);
    const step = (n) => visible.slice(n > 0 ? place + 1 : 0, n > 0 ? undefined : place).filter((one) => one.trajectory_solved && one.trajectory_failed).at(n > 0 ? 0 : -1);
    const button = (text, to) => h("button", { disabled: !to, onclick: () => show(to) }, text);
    const content = h("div", { "aria-busy": "true" }, h("p", { class: "quiet" }, "Loading both runs…"));
    replace(runs, h("div", { class: "row" }, h("h3", null, flip.task_id), button("Previous", step(-1)), button("Next", step(1))), content);
    if (focus) runs.focus();
    const [solved, failed] = await Promise.all([flip.trajectory_solved, flip.trajectory_failed].map((id) => readRun(api, id)));
    content.removeAttribute("aria-busy");
    if (focus) runs.scrollIntoView({ block: "start" });
    if (flip.i === open) replace(content, sideBySide([{ agent: flip.solved_by, id: flip.trajectory_solved, ...solved, outcome: "solved" },
      { agent: flip.failed_by, id: flip.trajectory_failed, ...failed, outcome: "failed" }]));
  }

  draw();
  const wanted = all[Number(query.get("flip") ?? -1)];
  if (wanted?.trajectory_solved && wanted.trajectory_failed) show(wanted, false);
  return h("div", { class: "stack" }, h("div", { class: "row" }, pair, search, status),
    h("div", { class: "choice-box", tabindex: 0, role: "region", "aria-label": "Flips, scrollable" }, h("table", { class: "plain" },
      h("thead", null, h("tr", null, ["Task", "Solved by", "Failed by"].map((title) => h("th", { scope: "col" }, title)))), body)), runs);
}

const PAGE = 200;

// Returns { steps, error } of a run; the pages of a long one are read in turn.
async function readRun(api, id) {
  const steps = [];
  try {
    for (;;) {
      const page = await api.call("get_trajectory", { trajectory_id: id, first_step: steps.length, limit: PAGE, max_chars: 10000 });
      steps.push(...page.trajectory.steps);
      if (steps.length >= page.total_steps || !page.trajectory.steps.length) return { steps };
    }
  } catch (error) {
    return { steps, error };
  }
}

// Two runs in two columns, aligned by step; the first step in which they differ is marked.
export function sideBySide(runs) {
  const length = Math.max(...runs.map((run) => run.steps.length));
  const first = Array.from({ length }, (_, i) => i).find((i) => essence(runs[0].steps[i]) !== essence(runs[1].steps[i]));
  const place = h("div", { class: "side-by-side" });
  for (const run of runs) {
    append(place, h("header", null, h("span", { class: `badge ${run.outcome === "solved" ? "good" : "bad"}` }, run.outcome), " ", h("strong", null, run.agent), " ", idLink(run.id),
      run.error && errorBox(run.error)));
  }
  for (let i = 0; i < length; i++) {
    if (i === first) append(place, h("p", { class: "first-difference", id: "first-difference" }, "First difference"));
    for (const run of runs) append(place, stepCell(run.steps[i], i, run.agent, i === first));
  }
  return [first === undefined
    ? h("p", { class: "quiet" }, "Both runs have the same steps.")
    : h("p", { class: "quiet" }, `The runs are equal up to step ${first}. `, h("a", { href: "#first-difference", onclick: (event) => {
      event.preventDefault();
      place.querySelector("#first-difference").scrollIntoView({ block: "center" });
    } }, "Go to the first difference")), place];
}

// What makes two steps equal: who acts, what it writes and does, and what comes back.
function essence(step) {
  if (!step) return null;
  const { actor, message = "", thought = null, actions = [], observations = [] } = step;
  return JSON.stringify([actor, message, thought, actions.map(({ tool, args }) => [tool, args]), observations.map(({ content, is_error = false }) => [content, is_error])]);
}

function stepCell(step, i, agent, isFirst) {
  if (!step) return h("div", { class: "turn none" }, "–");
  return h("div", { class: `turn ${step.actor}${isFirst ? " differs" : ""}` },
    h("p", { class: "label" }, `${i} ${step.actor}`, h("span", { class: "who" }, ` · ${agent}`)), stepContent(step));
}

// Thought, message, calls and results of a step as elements.
export function stepContent(step) {
  return [
    step.thought && h("p", { class: "turn-thought" }, pieces(step.thought)),
    step.message && h("div", { class: "turn-text", dir: "auto" }, pieces(contentText(step.message))),
    (step.actions ?? []).map((action) => h("pre", { class: "turn-call" }, pieces(`${action.tool} ${JSON.stringify(action.args)}`))),
    (step.observations ?? []).map((observation) => h("pre", { class: observation.is_error ? "turn-result bad" : "turn-result" }, pieces(contentText(observation.content)))),
  ];
}
