// The judging queue: one run at a time, or two of a task, blind, by a rubric. Every verdict is stored at once; the address has the batch and
// the history entry the unfinished answer, so a reload goes on where it was.
import { card, empty, errorBox, h, number, replace, toast } from "../elements.js";
import { setQuery } from "../router.js";
import { inlineText, pieces } from "../text.js";
import { filterOf } from "./runs.js";

const POINTS = 5;
const value = (point) => (point - 1) / (POINTS - 1);
const point = (stored) => Math.round(stored * (POINTS - 1)) + 1;

export async function render(root, params, api) {
  const body = h("div", { class: "stack" });
  root.append(h("header", { class: "head" }, h("h1", null, "Judging")), body);
  if (!api.mayChange) {
    replace(body, empty("Verdicts are stored only with the token: open the address with #token= that the server printed at its start."));
    return null;
  }
  let queue = null;
  const onKey = (event) => queue?.key(event);
  document.addEventListener("keydown", onKey);

  async function open(batchId) {
    try {
      const batch = await api.read(`judging://${encodeURIComponent(batchId)}`);
      const kind = { score: Queue, pairwise: PairQueue }[batch.mode];
      if (!kind) throw new Error(`This page judges single runs and pairs; batch ${batchId} is of mode ${batch.mode}.`);
      queue = new kind(body, batch, api, () => begin(batch.rater, batch.rubric, batch.mode));
      queue.show();
    } catch (error) {
      replace(body, errorBox(error), h("p", null, h("a", { href: "/judging" }, "Begin anew")));
    }
  }

  async function begin(rater, rubric, mode, limit = 10) {
    try {
      const args = { judge: "person", mode, rater: rater || null, rubric, limit, filter: filterOf(params.query) };
      const batch = await api.call("get_judging_batch", args);
      if (batch.batch_id === null) {
        queue = null;
        setQuery({ batch: null });
        replace(body, empty(batch.next_step), h("p", null, h("a", { href: "/judging" }, "Begin anew")));
        return;
      }
      setQuery({ batch: batch.batch_id });
      await open(batch.batch_id);
    } catch (error) {
      toast(error.message, "bad");
    }
  }

  const batchId = params.query.get("batch");
  if (batchId) await open(batchId);
  else replace(body, await startForm(api, params.query, begin));
  return () => document.removeEventListener("keydown", onKey);
}

async function startForm(api, query, begin) {
  const rubrics = (await api.read("judging://rubrics")).items;
  const rater = h("input", { name: "rater", autocomplete: "off", maxlength: 60, placeholder: "your name" });
  const rubric = h("select", { name: "rubric" }, rubrics.map((one) => h("option", { value: one.name, selected: one.name === "default" }, one.name)));
  const about = h("div");
  const describe = () => replace(about, rubricText(rubrics.find((one) => one.name === rubric.value)));
  rubric.addEventListener("change", describe);
  describe();
  const mode = h("select", { name: "mode" }, h("option", { value: "score" }, "one run at a time"), h("option", { value: "pairwise" }, "two runs of a task"));
  const limit = h("select", { name: "limit" }, [5, 10, 20, 50].map((n) => h("option", { value: n, selected: n === 10 }, n)));
  const narrowed = Object.entries(filterOf(query) ?? {}).map(([name, one]) => `${name.replaceAll("_", " ")} ${one}`).join(", ");
  const field = (label, control) => h("label", { class: "field" }, label, control);
  const form = h("form", { class: "stack", onsubmit: (event) => {
    event.preventDefault();
    begin(rater.value.trim(), rubric.value, mode.value, Number(limit.value));
  } }, h("div", { class: "row" }, field("Your name", rater), field("Judge", mode), field("Rubric", rubric), field("At most", limit), h("button", { class: "primary" }, "Start judging")),
  h("p", { class: "quiet" }, narrowed ? `Of the runs with ${narrowed}.` : "Of all runs; a filter of the list of runs narrows them."), about);
  return card("Judge runs blind", h("p", null, "You see each run without its agent, outcome and scores, and without the environment's verdict. What you decide is stored at once."), form);
}

function rubricText(rubric) {
  return h("div", { class: "rubric" }, rubric.description && h("p", null, inlineText(rubric.description)), rubric.criteria.map((one) => h("div", null,
    h("strong", null, inlineText(one.name.replaceAll("_", " "))), " ", inlineText(one.description), anchors(one))));
}

const anchors = (criterion) => h("ul", { class: "bare quiet" }, Object.entries(criterion.anchors ?? {})
  .sort(([a], [b]) => Number(a) - Number(b)).map(([at, text]) => h("li", null, h("b", null, number(1 + Number(at) * (POINTS - 1))), " ", inlineText(text))));

const button = (label, key, action, kind) => h("button", { type: "button", class: kind, onclick: action }, label, " ", h("kbd", null, key));

// One batch of single runs. `draft` is the unfinished answer: criterion -> point, and the note.
class Queue {
  what = "Run";

  constructor(body, batch, api, next) {
    Object.assign(this, { body, batch, api, next, busy: false, criteria: batch.rubric.criteria });
    this.done = batch.items.filter((item) => item.item_id in batch.answered).map((item) => item.item_id);
    this.status = h("p", { class: "visually-hidden", role: "status" });
    const kept = history.state?.judging;
    this.draft = kept?.batch === batch.batch_id ? kept.draft : null;
    this.item = batch.items.find((item) => item.item_id === this.draft?.item && !this.done.includes(item.item_id)) ?? this.open();
    if (this.draft?.item !== this.item?.item_id) this.clear();
  }

  open() {
    return this.batch.items.find((item) => !this.done.includes(item.item_id));
  }

  clear(points = {}, note = "") {
    this.draft = { item: this.item?.item_id, points, note };
    this.keep();
  }

  keep() {
    history.replaceState({ ...history.state, judging: { batch: this.batch.batch_id, draft: this.draft } }, "");
  }

  show() {
    const { batch, item, done } = this;
    const place = item ? batch.items.indexOf(item) + 1 : batch.items.length;
    const head = h("div", { class: "row" }, h("strong", null, item ? `${this.what} ${place} of ${batch.items.length}` : "All judged"),
      h("progress", { class: "grow", max: batch.items.length, value: done.length, "aria-label": `${this.what}s judged` }), h("span", { class: "quiet" }, `as ${batch.rater}`));
    replace(this.body, head, this.status, item ? this.question() : this.end());
    if (item) this.body.querySelector(".judged-run").focus({ preventScroll: true });
  }

  question() {
    this.fields = this.criteria.map((criterion) => this.field(criterion));
    this.noteField();
    this.mark();
    return h("div", { class: "columns judging" },
      h("section", { class: "card judged-run", tabindex: "0", "aria-label": "The run to judge" }, recording(this.item.text), this.more()),
      h("aside", { class: "stack", "aria-label": "Your verdict" }, card("Your verdict", this.fields, this.note,
        h("div", { class: "row" }, button("Store", "Enter", () => this.store(), "primary"), button("Skip", "S", () => this.skip()), button("Undo", "U", () => this.undo())),
        h("p", { class: "quiet" }, h("kbd", null, "1"), " to ", h("kbd", null, "5"), " judge the marked criterion; the last one stores. ", h("kbd", null, "C"), " for the note."))));
  }

  more() {
    const { batch, item, api } = this;
    return batch.shortened.includes(item.item_id) && h("button", { type: "button", onclick: async () => {
      try {
        item.text = (await api.post(`/api/judging/${encodeURIComponent(batch.batch_id)}/${encodeURIComponent(item.item_id)}`)).text;
        batch.shortened = batch.shortened.filter((one) => one !== item.item_id);
        if (this.item === item) this.show();
      } catch (error) {
        toast(error.message, "bad");
      }
    } }, "Show more of it");
  }

  noteField() {
    this.note = h("textarea", { rows: 2, "aria-label": "Why (may stay empty)", placeholder: "Why? (may stay empty)", oninput: () => { this.draft.note = this.note.value; this.keep(); } }, this.draft.note);
    return this.note;
  }

  field(criterion) {
    const radio = (n) => h("label", { class: "point" }, h("input", { type: "radio", name: criterion.name, value: n, checked: this.draft.points[criterion.name] === n,
      onchange: () => { this.draft.points[criterion.name] = n; this.keep(); this.mark(); } }), h("span", null, n));
    return h("fieldset", { class: "criterion", dataset: { criterion: criterion.name } }, h("legend", null, inlineText(criterion.name.replaceAll("_", " "))),
      h("p", null, inlineText(criterion.description)), h("div", { class: "points" }, [1, 2, 3, 4, 5].map(radio)), h("details", null, h("summary", null, "What the points mean"), anchors(criterion)));
  }

  // The first criterion without a point: what the next digit judges.
  active() {
    return this.criteria.find((criterion) => !(criterion.name in this.draft.points));
  }

  mark() {
    const name = this.active()?.name;
    this.fields.forEach((field) => {
      field.classList.toggle("active", field.dataset.criterion === name);
      const chosen = this.draft.points[field.dataset.criterion];
      field.querySelectorAll("input").forEach((input) => { input.checked = Number(input.value) === chosen; });
    });
  }

  key(event) {
    if (event.metaKey || event.ctrlKey || event.altKey || !this.body.isConnected || !this.item) return;
    if (event.target === this.note) {
      if (event.key === "Escape") this.body.querySelector(".judged-run").focus();
      return;
    }
    const action = { s: () => this.skip(), u: () => this.undo(), c: () => this.note.focus(), ...this.keys() }[event.key];
    if (action && !(event.key === "Enter" && event.target.closest("button,summary,a"))) action();
    else return;
    event.preventDefault();
  }

  // The keys of this kind of batch, with what they do.
  keys() {
    return { Enter: () => this.store(), ...Object.fromEntries([1, 2, 3, 4, 5].map((n) => [n, () => this.digit(n)])) };
  }

  digit(n) {
    const criterion = this.active();
    if (!criterion || this.busy) return;
    this.draft.points[criterion.name] = n;
    this.keep();
    this.mark();
    if (!this.active()) this.store();
  }

  store() {
    const missing = this.active();
    if (missing) return toast(`Judge ${missing.name.replaceAll("_", " ")} first, or skip the run.`);
    const scores = Object.fromEntries(Object.entries(this.draft.points).map(([name, n]) => [name, value(n)]));
    return this.submit({ scores, ...(this.draft.note.trim() && { rationale: this.draft.note.trim() }) }, "Stored");
  }

  skip() {
    return this.submit({ skip: this.draft.note.trim() || "cannot tell" }, "Skipped");
  }

  async submit(answer, word) {
    const item = this.item;
    if (!await this.send(item.item_id, answer)) return;
    this.batch.answered[item.item_id] = { scores: answer.scores ?? {}, rationale: answer.rationale ?? "", skipped: "skip" in answer };
    this.done = [...this.done.filter((one) => one !== item.item_id), item.item_id];
    this.item = this.open();
    this.clear();
    this.show();
    this.status.textContent = `${word}. ${this.done.length} of ${this.batch.items.length} done.`;
  }

  // Withdraws the last criterion of this run, or the stored verdict on the run before.
  async undo() {
    const given = this.criteria.filter((criterion) => criterion.name in this.draft.points);
    if (this.item && given.length) {
      delete this.draft.points[given.at(-1).name];
      this.keep();
      this.mark();
      return;
    }
    const last = this.done.at(-1);
    if (!last) {
      toast("There is nothing to undo.");
      return;
    }
    if (!await this.send(last, { skip: "withdrawn by undo" })) return;
    const before = this.batch.answered[last];
    delete this.batch.answered[last];
    this.done.pop();
    this.item = this.batch.items.find((item) => item.item_id === last);
    const points = Object.fromEntries(Object.entries(before.scores).map(([name, stored]) => [name, point(stored)]));
    delete points[this.criteria.at(-1).name];
    this.clear(points, before.rationale);
    this.show();
    this.status.textContent = "The verdict was withdrawn; judge the run again.";
  }

  async send(item, answer) {
    if (this.busy) return false;
    this.busy = true;
    try {
      const result = await this.api.call("submit_scores", { batch_id: this.batch.batch_id, scores: [{ item_id: item, ...answer }] });
      if (result.rejected.length) throw new Error(result.rejected[0].reason);
      this.agreement = result.agreement;
      return true;
    } catch (error) {
      toast(error.message, "bad");
      return false;
    } finally {
      this.busy = false;
    }
  }

  end() {
    const pairs = this.agreement?.pairs ?? [];
    const undo = h("button", { onclick: () => this.undo() }, "Undo the last verdict");
    return card("This batch is done", h("p", null, `${this.done.length} verdicts are stored.`),
      pairs.length > 0 && h("table", { class: "plain" }, h("thead", null, h("tr", null, ["Rater", "Rater", "Runs", "Weighted kappa"].map((title) => h("th", { scope: "col" }, title)))),
        h("tbody", null, pairs.map((pair) => h("tr", null, h("td", null, inlineText(pair.a)), h("td", null, inlineText(pair.b)), h("td", null, number(pair.n)), h("td", null, number(pair.kappa_weighted)))))),
      h("div", { class: "row" }, h("button", { class: "primary", onclick: this.next }, "Judge more"), undo));
  }
}

// One batch of pairs: which of two runs of a task is better, or neither.
class PairQueue extends Queue {
  what = "Pair";

  question() {
    const [left, right] = this.item.text.split(/\n\n(?=----- BEGIN RUN )/);
    const run = (name, text) => h("section", { class: "card judged-run", tabindex: "0", "aria-label": `${name} run` }, h("h2", null, name), recording(text));
    return h("div", { class: "stack judging" },
      h("div", { class: "grid" }, run("Left", left), run("Right", right)), this.more(),
      card("Which run did the task better?", h("details", null, h("summary", null, "Rubric"), rubricText(this.batch.rubric)), this.noteField(),
        h("div", { class: "row" }, button("Left", "←", () => this.prefer("A"), "primary"), button("Tie", "T", () => this.prefer("tie")), button("Right", "→", () => this.prefer("B"), "primary"),
          button("Skip", "S", () => this.skip()), button("Undo", "U", () => this.undo())),
        h("p", { class: "quiet" }, "Length is no merit, and neither is the side. A pair may come twice, with the sides exchanged. ", h("kbd", null, "C"), " for the note.")));
  }

  keys() {
    return { ArrowLeft: () => this.prefer("A"), ArrowRight: () => this.prefer("B"), t: () => this.prefer("tie") };
  }

  prefer(better) {
    const rationale = this.draft.note.trim();
    return this.submit({ better, ...(rationale && { rationale }) }, "Stored");
  }
}

// The recording as it is given out, between its first and last line, which mark it as data for models. Lines that begin with
// "| " are content, all others are its headings.
function recording(text) {
  const blocks = [];
  for (const line of text.split("\n").slice(1, -1)) {
    const isContent = line.startsWith("| ") || line === "|";
    if (isContent && blocks.at(-1)?.isContent) blocks.at(-1).lines.push(line.slice(2));
    else blocks.push({ isContent, lines: [isContent ? line.slice(2) : line] });
  }
  return blocks.map(({ isContent, lines }) => (isContent
    ? h("div", { class: "stored", dir: "auto" }, pieces(lines.join("\n")))
    : h("div", { class: /^STEP \d+$/.test(lines[0]) ? "label step-label" : "label" }, pieces(lines[0]))));
}
