// A conversation with an agent: a job keeps its model loaded between the messages. The address names the open conversation.
import { errorBox, h, idLink, replace } from "./elements.js";
import { stepContent } from "./flips.js";
import { setQuery } from "./router.js";

// Returns { element, leave }; `environments` are ids that can lend their tools.
export function talkCard(agentId, environments, jobId, api) {
  let open = jobId, isGone = false;
  const steps = h("div", { class: "talk", role: "log", "aria-label": "Conversation", tabindex: 0, hidden: !open });
  const status = h("p", { class: "quiet", role: "status" });
  const text = h("textarea", { "aria-label": "Message", placeholder: "Say something", rows: 2, onkeydown: (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  } });
  const send = h("button", { class: "primary", type: "submit" }, "Send");
  const tools = h("select", { "aria-label": "Tools and prompt" }, h("option", { value: "" }, "no tools"), environments.map((id) => h("option", { value: id }, `tools of ${id}`)));
  const keep = h("button", { type: "button", onclick: () => say({ end: "keep" }) }, "End and keep as a run");
  const discard = h("button", { type: "button", onclick: () => say({ end: "discard" }) }, "End");
  const form = h("form", { class: "talk-form", onsubmit: (event) => {
    event.preventDefault();
    const message = text.value.trim();
    if (message) say({ message });
  } }, text, send);
  const problem = h("div");

  function draw(talk) {
    const isOver = talk?.turn === "over", isMine = !talk || talk.turn === "person";
    steps.hidden = !talk;
    if (talk) replace(steps, talk.steps.map((step) => h("div", { class: `turn ${step.actor}` }, h("p", { class: "label" }, step.actor === "user" ? "you" : step.actor), stepContent(step))));
    requestAnimationFrame(() => { steps.scrollTop = steps.scrollHeight; });
    send.disabled = !isMine && !isOver;
    tools.hidden = Boolean(talk) && !isOver;
    keep.hidden = discard.hidden = !talk || isOver;
    if (talk?.example) text.placeholder = `Say something, such as: ${talk.example}`;
    status.textContent = !talk ? "" : isOver ? `The conversation has ended${talk.ended ? `: ${talk.ended}` : ""}. ${talk.kept ? "It is stored as a run." : "It was not stored."}`
      : talk.turn === "agent" ? (talk.phase === "talking" ? "The agent writes…" : `Starting (${(talk.phase ?? talk.status).replaceAll("_", " ")})…`) : "Your turn.";
    replace(problem, talk?.error && errorBox({ problem: talk.error.message, code: talk.error.code, remedy: talk.error.hint }));
    if (isOver) open = null;
  }

  async function say(words) {
    replace(problem);
    send.disabled = true;
    try {
      const talk = await api.call("talk_to_agent", open ? { job_id: open, wait_s: 0, ...words }
        : { agent: agentId, wait_s: 0, ...words, ...(tools.value && { environment: tools.value }) });
      if (words.message) text.value = "";
      open = talk.job_id;
      setQuery({ talk: open });
      draw(talk);
      await follow(talk);
    } catch (error) {
      send.disabled = false;
      replace(problem, errorBox(error));
    }
  }

  async function follow(talk) {
    while (talk.turn === "agent" && !isGone) {
      talk = await api.call("talk_to_agent", { job_id: talk.job_id, wait_s: talk.status === "queued" ? 3 : 20 });
      if (isGone) return;
      draw(talk);
      if (talk.status === "queued") replace(status, waiting(await api.call("get_job", { job_id: talk.job_id })));
    }
  }

  draw(null);
  if (open) api.call("talk_to_agent", { job_id: open, wait_s: 0 }).then((talk) => { draw(talk); return follow(talk); }).catch((error) => replace(problem, errorBox(error)));
  return { element: [steps, status, problem, form, h("div", { class: "row" }, tools, keep, discard)], leave: () => { isGone = true; } };
}

// What a queued conversation waits for, with links to the jobs that are at work.
function waiting(job) {
  const jobs = Object.entries(job.waiting_for?.held_by ?? {});
  return ["It waits until a job ends: ", jobs.map(([id, label], i) => [i > 0 && ", ", idLink(id, label)])];
}
