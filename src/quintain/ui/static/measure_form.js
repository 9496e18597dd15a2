// An evaluation from the page of its agent, started with the token.
import { card, errorBox, h, replace } from "./elements.js";
import { navigate } from "./router.js";

// `like` has the settings that the form begins with: those of an evaluation on the same tasks, or none.
export function measureForm(agent, environment, like, api) {
  const problem = h("div");
  const count = (value, least, most, more = { required: true }) => h("input", { type: "number", min: least, max: most, value, ...more });
  const tasks = count(like.n_tasks, 1, 100000, { placeholder: "100 at most" }), repeats = count(like.repeats ?? 1, 1, 256), seed = count(like.seed ?? 0, 0);
  const turns = count(like.max_turns, 1, 1000, { placeholder: "the environment's" });
  const sampling = Object.fromEntries(Object.entries(like.sampling ?? {}).filter(([name, value]) => value !== agent.sampling[name]));
  const sampled = Object.entries(sampling).map(([name, value]) => `${name} ${value}`).join(", ");
  const why = api.mayChange ? null : "This page is read-only: open the address with #token= that the server printed at its start.";
  const start = h("button", { type: "submit", class: "primary", disabled: !api.mayChange, title: why }, "Evaluate");
  const field = (title, element) => h("label", { class: "field" }, title, element);
  const form = h("form", { class: "stack", onsubmit: evaluate },
    h("div", { class: "row" }, field("Environment", environment.input), field("Tasks", tasks), field("Episodes a task", repeats), field("Turns at most", turns), field("Seed", seed), start),
    sampled && h("p", { class: "quiet" }, `Sampled as in the earlier evaluation: ${sampled}.`), environment.options, problem);

  async function evaluate(event) {
    event.preventDefault();
    start.disabled = true;
    replace(problem);
    try {
      const job = await api.call("evaluate_agent", { agent: agent.id, environment: environment.input.value.trim(),
        ...(tasks.value && { n_tasks: Number(tasks.value) }), ...(turns.value && { max_turns: Number(turns.value) }), ...(sampled && { sampling }),
        repeats: Number(repeats.value), seed: Number(seed.value) });
      navigate(`/jobs/${job.job_id}`);
    } catch (error) {
      start.disabled = false;
      replace(problem, errorBox(error));
    }
  }

  return card("Measure it", h("p", { class: "quiet" }, "On held-out tasks. Agents that are measured with equal numbers and seed play the same tasks, so they can be compared."), form);
}

// The settings of the newest evaluation on held-out tasks among these, for another one on the same tasks.
export async function settingsLike(evaluations, api) {
  const found = evaluations.find((one) => one.purpose === "measurement" && one.split === "held_out" && !one.dataset_id && !one.opponent_id && one.job_id);
  const page = found && await api.get(`/api/jobs/${encodeURIComponent(found.job_id)}`).catch(() => null);
  return page?.settings.n_tasks ? page.settings : { environment: found?.environment };
}
