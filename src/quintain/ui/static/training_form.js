// A training from the page of its dataset or agent: a plan of what would run, with its cost and blockers, then its start with the token.
import { card, errorBox, facts, h, idLink, replace, rich } from "./elements.js";
import { planned, settingsTable } from "./job_parts.js";
import { navigate } from "./router.js";

// An input with a list to choose from, which `load` returns when the input is used; `id` names the list on the page.
export function listedField(id, value, load, attributes) {
  const options = h("datalist", { id });
  const input = h("input", { value, list: id, ...attributes });
  input.addEventListener("focus", async () => {
    const found = await load().catch(() => []);
    replace(options, found.map((one) => h("option", { value: one })));
  }, { once: true });
  return { input, options };
}

// An input for a model with the agents of the home to choose from.
export function modelField(id, value, api, attributes) {
  return listedField(id, value, () => api.call("list_library", { kind: "agents", limit: 200 }).then(({ items }) => ["starter", ...items.map((one) => one.id)]), attributes);
}

// `title` names the field of what the page does not say: the model for a dataset, the environment for an agent. `listed` is that field,
// `fits` tells which methods can be chosen, and `asked` returns the arguments of the plan that come from the page and the field.
export function trainingForm({ heading, title, listed, fits, asked }, api) {
  const result = h("div", { class: "stack", "aria-live": "polite" });
  const method = h("select", null, h("option", { value: "" }, "chosen by the plan"));
  const name = h("input", { placeholder: "MODEL-METHOD", pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]{0,99}", autocomplete: "off" });
  const settings = h("textarea", { rows: 2, cols: 60, spellcheck: "false", placeholder: '{"epochs": 3}' });
  const field = (text, element) => h("label", { class: "field" }, text, element);
  const form = h("form", { class: "stack", onsubmit: plan, oninput: () => replace(result) },
    h("div", { class: "row" }, field(title, listed.input), field("Method", method), field("Name of the agent", name)),
    field("Settings, as JSON", settings), listed.options, h("div", { class: "row" }, h("button", { type: "submit" }, "Plan")));

  api.call("list_library", { kind: "methods", limit: 200 }).then(({ items }) => method.append(
    ...items.filter(fits).map((one) => h("option", { value: one.method, title: one.summary }, one.method))), () => {});

  let turn = 0;
  async function plan(event) {
    event.preventDefault();
    const mine = ++turn;
    replace(result, h("p", { class: "quiet" }, "Planning …"));
    let shown;
    try {
      const hyperparameters = settings.value.trim() ? JSON.parse(settings.value) : null;
      const found = await api.call("plan_training", { ...asked(), ...(method.value && { method: method.value }), ...(hyperparameters && { hyperparameters }) });
      shown = planElement(found, api, () => start(found));
    } catch (error) {
      shown = errorBox(error instanceof SyntaxError ? { problem: `expected settings as a JSON object (${error.message})`, remedy: 'write them as {"epochs": 3}, or leave them out' } : error);
    }
    if (mine === turn) replace(result, shown);
  }

  // What is started is the plan that is shown: a change of the form removes it.
  async function start({ method, model, dataset_id, environment, hyperparameters, reward }) {
    const button = result.querySelector("button.primary");
    button.disabled = true;
    try {
      const job = await api.call("start_training", { method, model, hyperparameters, ...(dataset_id ? { dataset_id } : { environment }), ...(reward && { reward }), ...(name.value.trim() && { name: name.value.trim() }) });
      navigate(`/jobs/${job.job_id}`);
    } catch (error) {
      button.disabled = false;
      result.append(errorBox(error));
    }
  }

  return card(heading, h("div", { class: "stack" }, form, result));
}

function planElement(plan, api, start) {
  const { steps, time, memory, tokens } = planned(plan.estimate);
  const why = api.mayChange ? null : "This page is read-only: open the address with #token= that the server printed at its start.";
  return [
    plan.blockers.map((one) => errorBox({ problem: one.message, code: one.code, remedy: one.remedy })),
    h("div", { class: "grid" },
      facts([["Method", plan.method ?? "none"], ["Model", plan.model], ["Dataset", plan.dataset_id && idLink(plan.dataset_id)], ["Environment", !plan.dataset_id && plan.environment], ["Optimizer steps", steps], ["Duration", time], ["Memory", memory], ["Tokens", tokens], ["Device", plan.estimate.device]]),
      settingsTable(plan.hyperparameters)),
    plan.notes.map((note) => h("p", { class: "warning-box" }, rich(note))),
    h("details", null, h("summary", null, "Why this plan"), h("p", null, rich(plan.why))),
    h("div", { class: "row" }, h("button", { type: "button", class: "primary", disabled: !api.mayChange || !plan.method, title: why, onclick: start }, "Start training"),
      why && h("span", { class: "quiet" }, "This page is read-only.")),
  ];
}
