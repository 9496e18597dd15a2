// Forgetting runs, or removing a dataset or an agent: first a dry run that shows what would happen, then the action, with the token and a typed confirmation.
import { errorBox, h, idLink, replace, rich } from "./elements.js";

// Opens the dialog for a run, session, dataset or agent; `done` is called afterwards.
export function openForgetting(id, api, done, kind = "trajectory") {
  const ofRuns = kind === "trajectory", verb = ofRuns ? "Forget" : "Remove";
  const twins = option("Also equal runs under other ids"), copies = option("Also delete their datasets, exports and job inputs");
  const report = h("div", { "aria-live": "polite" });
  const typed = h("input", { type: "text", autocomplete: "off", spellcheck: "false", "aria-label": `Type ${id} to confirm`, oninput: update });
  const act = h("button", { class: "danger", disabled: true, onclick: forget }, `${verb} for good`);
  const dialog = h("dialog", { class: "forgetting", "aria-labelledby": "forgetting-title", onclose: () => dialog.remove() },
    h("h2", { id: "forgetting-title" }, `${verb} `, h("span", { class: "id" }, id)),
    h("p", { class: "quiet" }, "This is a dry run: nothing has been changed yet."),
    h("div", { class: "row" }, ofRuns && twins.element, kind !== "agent" && copies.element), report,
    api.mayChange
      ? h("p", null, h("label", { class: "field" }, "Type the id to confirm: ", typed))
      : h("p", { class: "warning-box" }, "This page is read-only. Open the address with #token= that the server printed to forget for good."),
    h("div", { class: "row" }, api.mayChange && act, h("button", { onclick: () => dialog.close() }, "Close")));
  let isKnown = false;

  function option(text) {
    const box = h("input", { type: "checkbox", onchange: rehearse });
    return { box, element: h("label", { class: "field" }, box, text) };
  }

  function update() {
    act.disabled = !(isKnown && typed.value.trim() === id);
  }

  const request = (dryRun) => api.call("forget", { id, dry_run: dryRun, twins: twins.box.checked, copies: copies.box.checked });

  async function rehearse() {
    isKnown = false;
    update();
    try {
      replace(report, counts(await request(true), true, ofRuns));
      isKnown = true;
    } catch (error) {
      replace(report, errorBox(error));
    }
    update();
  }

  async function forget() {
    act.disabled = true;
    try {
      const result = await request(false);
      replace(dialog, h("h2", null, ofRuns ? "Forgotten" : "Removed"), counts(result, false, ofRuns), h("p", null, rich(result.next_step)),
        h("div", { class: "row" }, h("button", { class: "primary", onclick: () => { dialog.close(); done(); } }, "Done")));
      dialog.querySelector("button.primary").focus();
    } catch (error) {
      replace(report, errorBox(error));
      update();
    }
  }

  document.body.append(dialog);
  dialog.showModal();
  rehearse();
  return dialog;
}

function counts(result, isDry, ofRuns) {
  const row = (name, value) => [h("dt", null, name), h("dd", null, value)];
  return [
    h("dl", { class: "facts" }, ofRuns && row(isDry ? "Runs that would be forgotten" : "Runs forgotten", result.runs),
      result.before > 0 && row("Forgotten earlier", result.before), ofRuns && row("Scores removed", result.scores_removed),
      row("Affected objects", result.touched_count), ofRuns && row("Equal runs under other ids", `${result.twins_count}${result.twins_forgotten ? ", among them" : result.twins_count ? ", which stay" : ""}`),
      row(isDry ? "Files that would be deleted" : "Files deleted", result.removed.length), row("Copies that remain", result.copies_count)),
    result.touched.length > 0 && h("div", { class: "choice-box", tabindex: 0, role: "region", "aria-label": "Affected objects, scrollable" }, h("table", { class: "plain" },
      h("thead", null, h("tr", null, ["What", "State", "Remedy"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", null, result.touched.map((thing) => h("tr", null, h("td", null, `${thing.kind} `, idLink(thing.id)), h("td", null, thing.state), h("td", null, rich(thing.remedy))))))),
    fileList("Files", result.removed), fileList("Copies", result.copies),
  ];
}

function fileList(title, files) {
  return files.length > 0 && h("details", null, h("summary", null, `${title} (${files.length})`), h("ul", null, files.map((file) => h("li", { class: "mono" }, file))));
}
