// The steps of a run as elements: what was asked, thought, said, called and answered, what trains, and scores by step.
import { h, number } from "./elements.js";
import { contentText, inlineText, textBlock } from "./text.js";

const ACTORS = { system: "System", user: "User", agent: "Agent" };
const ONE_LINE = 90;

// Whether a text of a step was cut by get_trajectory: a cut one is longer than the limit, for it names what is missing.
export function isCut(value, limit) {
  if (typeof value === "string") return value.length > limit;
  return value !== null && typeof value === "object" && Object.values(value).some((inner) => isCut(inner, limit));
}

// One step. `trains`: whether training uses it, null for steps that are not the agent's; `scores`: [{ scorer, value, feedback }];
// `whole`: loads the uncut step, where texts are cut.
export function stepElement(step, place, { trains = null, scores = [], whole = null } = {}) {
  const is = step.actor === "agent" ? (trains ? "trained" : "masked") : "context";
  return h("article", { class: `run-step ${step.actor in ACTORS ? step.actor : ""} ${is}`, id: `step-${place}`, tabindex: "-1", "aria-label": `Step ${place}` },
    h("header", { class: "run-step-head" },
      h("a", { href: `#step-${place}`, class: "run-step-number" }, place),
      h("strong", null, ACTORS[step.actor] ?? step.actor),
      trains !== null && h("span", { class: `badge ${trains ? "trains" : ""}` }, trains ? "trains" : "masked"),
      step.reward !== undefined && step.reward !== null && h("span", { class: "badge" }, `reward ${number(step.reward)}`),
      scores.map((score) => h("span", { class: "badge score", title: score.feedback || null }, inlineText(score.scorer), ` ${number(score.value)}`)),
      whole && h("button", { class: "small", onclick: whole }, "Show whole texts")),
    step.thought && h("div", { class: "thought loss" }, h("span", { class: "label" }, "thought"), textBlock(step.thought)),
    contentText(step.message) && message(step),
    exchanges(step));
}

function message(step) {
  const text = contentText(step.message);
  if (step.actor === "system" && text.length > 300) {
    return h("details", null, h("summary", null, inlineText(text.slice(0, 120)), "…"), textBlock(text));
  }
  return h("div", { class: step.actor === "agent" ? "loss" : null }, textBlock(text));
}

// Calls with their results: matched by call id, else by order; results without a call follow.
function exchanges(step) {
  const left = [...(step.observations ?? [])];
  const found = (step.actions ?? []).map((action) => {
    const at = action.call_id ? left.findIndex((one) => one.call_id === action.call_id) : left.length ? 0 : -1;
    const [result] = at < 0 ? [] : left.splice(at, 1);
    return h("div", { class: "exchange" }, call(action), result && observation(result));
  });
  return [...found, ...left.map(observation)];
}

function call(action) {
  const line = action.args ? JSON.stringify(action.args) : (action.raw_args ?? "");
  const isLong = line.length > ONE_LINE;
  return h("div", { class: "call loss" }, h("span", { class: "label" }, "call"), " ",
    h("code", { class: "tool" }, inlineText(action.tool)), isLong ? null : h("code", null, " ", inlineText(line)),
    isLong && textBlock(action.args ? JSON.stringify(action.args, null, 2) : line, "mono"));
}

function observation(result) {
  return h("div", { class: `observation ${result.is_error ? "is-error" : ""}` },
    h("span", { class: "label" }, result.is_error ? "error" : "result"),
    textBlock(contentText(result.content) || "(empty)", "mono"));
}
