// The note of a job, and the form for its name and note, with the token.
import { errorBox, h, replace, toast } from "./elements.js";
import { inlineText } from "./text.js";

// Returns { element, show(job) }; `changed(job)` gets the job as it is stored then.
export function jobNote(api, changed) {
  const element = h("div", { class: "job-note" });
  let isOpen = false;

  function show(job) {
    if (isOpen) return;
    const edit = api.mayChange && h("button", { onclick: () => open(job) }, job.note ? "Edit" : "Name or note");
    replace(element, job.note && h("p", { class: "note" }, inlineText(job.note)), edit);
    element.hidden = !element.childElementCount;
  }

  function open(job) {
    isOpen = true;
    const name = h("input", { value: job.name ?? "", maxlength: 120, placeholder: job.label, autocomplete: "off" });
    const note = h("textarea", { rows: 3, cols: 60, maxlength: 4000 }, job.note);
    const problem = h("div");
    const close = () => { isOpen = false; show(job); element.querySelector("button").focus(); };
    const form = h("form", { class: "stack", onkeydown: (event) => { if (event.key === "Escape") close(); }, onsubmit: async (event) => {
      event.preventDefault();
      try {
        job = await api.call("annotate_job", { job_id: job.job_id, name: name.value, note: note.value });
        close();
        toast("Stored.");
        changed(job);
      } catch (error) {
        replace(problem, errorBox(error));
      }
    } }, h("label", { class: "field" }, "Name", name), h("label", { class: "field" }, "Note", note), problem,
    h("div", { class: "row" }, h("button", { class: "primary" }, "Save"), h("button", { type: "button", onclick: close }, "Cancel")));
    replace(element, form);
    name.focus();
  }

  return { element, show };
}
