// A training from the page of its dataset: a plan of what would run, with its cost and blockers, then its start with the token.
import { card, errorBox, facts, h, replace, rich } from "./elements.js";
import { planned, settingsTable } from "./job_parts.js";
import { navigate } from "./router.js";

// An input for a model with the agents of the home to choose from; `id` names its list on the page.
export function modelField(id, value, api, attributes) {
  const models = h("datalist", { id });
  const input = h("input", { value, list: id, ...attributes });
  input.addEventListener("focus", async () => {
    const found = await api.call("list_library", { kind: "agents", limit: 200 }).catch(() => ({ items: [] }));
    replace(models, ["starter", ...found.items.map((one) => one.id)].map((one) => h("option", { value: one })));
  }, { once: true });
  return { input, models };
}

export function trainingForm(dataset, api) {
  const result = h("div", { class: "stack", "aria-live": "polite" });
  const { input: model, models } = modelField("trained-models", "starter", api, { required: true });
  const method = h("select", null, h("option", { value: "" }, "chosen by the plan"));
  const name = h("input", { placeholder: "MODEL-METHOD", pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]{0,99}", autocomplete: "off" });
  const settings = h("textarea", { rows: 2, cols: 60, spellcheck: "false", placeholder: '{"epochs": 3}' });
  const field = (title, element) => h("label", { class: "field" }, title, element);
  const form = h("form", { class: "stack", onsubmit: plan, oninput: () => replace(result) },
    h("div", { class: "row" }, field("Model", model), field("Method", method), field("Name of the agent", name)),
    field("Settings, as JSON", settings), models, h("div", { class: "row" }, h("button", { type: "submit" }, "Plan")));

  api.call("list_library", { kind: "methods", limit: 200 }).then(({ items }) => method.append(
    ...items.filter((one) => one.dataset_kind === dataset.kind).map((one) => h("option", { value: one.method, title: one.summary }, one.method))), () => {});

  let turn = 0;
  async function plan(event) {
    event.preventDefault();
    const mine = ++turn;
    replace(result, h("p", { class: "quiet" }, "Planning …"));
    let shown;
    try {
      const hyperparameters = settings.value.trim() ? JSON.parse(settings.value) : null;
      const found = await api.call("plan_training", { dataset_id: dataset.id, model: model.value.trim(), ...(method.value && { method: method.value }), ...(hyperparameters && { hyperparameters }) });
      shown = planElement(found, api, () => start(found));
    } catch (error) {
      shown = errorBox(error instanceof SyntaxError ? { problem: `expected settings as a JSON object (${error.message})`, remedy: 'write them as {"epochs": 3}, or leave them out' } : error);
    }
    if (mine === turn) replace(result, shown);
  }

  // What is started is the plan that is shown: a change of the form removes it.
  async function start({ method, model, hyperparameters, reward }) {
    const button = result.querySelector("button.primary");
    button.disabled = true;
    try {
      const job = await api.call("start_training", { method, model, dataset_id: dataset.id, hyperparameters, ...(reward && { reward }), ...(name.value.trim() && { name: name.value.trim() }) });
      navigate(`/jobs/${job.job_id}`);
    } catch (error) {
      button.disabled = false;
      result.append(errorBox(error));
    }
  }

  return card("Train on it", h("div", { class: "stack" }, form, result));
}

function planElement(plan, api, start) {
  const { steps, time, memory, tokens } = planned(plan.estimate);
  const why = api.mayChange ? null : "This page is read-only: open the address with #token= that the server printed at its start.";
  return [
    plan.blockers.map((one) => errorBox({ problem: one.message, code: one.code, remedy: one.remedy })),
    h("div", { class: "grid" },
      facts([["Method", plan.method ?? "none"], ["Model", plan.model], ["Optimizer steps", steps], ["Duration", time], ["Memory", memory], ["Tokens", tokens], ["Device", plan.estimate.device]]),
      settingsTable(plan.hyperparameters)),
    plan.notes.map((note) => h("p", { class: "warning-box" }, rich(note))),
    h("details", null, h("summary", null, "Why this plan"), h("p", null, rich(plan.why))),
    h("div", { class: "row" }, h("button", { type: "button", class: "primary", disabled: !api.mayChange || !plan.method, title: why, onclick: start }, "Start training"),
      why && h("span", { class: "quiet" }, "This page is read-only.")),
  ];
}
