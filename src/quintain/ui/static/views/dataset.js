// One dataset: what was kept and left out, and its rows as a model reads them, with the mask of the loss.
import { ago, badge, card, empty, errorBox, facts, h, idLink, nextStep, number, percent, replace, svg } from "../elements.js";
import { setQuery } from "../router.js";
import { inlineText, pieces } from "../text.js";
import { modelField, trainingForm } from "../training_form.js";

const AUTO_ROWS = 2000; // A larger dataset is read by a job of minutes: that is started by a button.
const ORDERS = { first: "first rows", longest: "longest", shortest: "shortest", truncated: "most truncated", random: "random" };
const AUTHORS = { system: "system", user: "user", agent: "agent", observation: "result", template: "template", text: "text" };

export async function render(root, params, api) {
  const dataset = await api.read(`dataset://${encodeURIComponent(params.id)}`);
  const query = params.query;
  const wanted = { model: query.get("model") ?? "starter", show: query.get("show") ?? "first", rows: Number(query.get("rows") ?? 5) };
  const result = h("div", { class: "stack", "aria-live": "polite" });
  const leaving = new AbortController();
  root.append(
    h("p", { class: "crumbs" }, h("a", { href: "/datasets" }, "Datasets"), " / ", h("span", { class: "id" }, dataset.id)),
    h("header", { class: "head" }, h("h1", null, inlineText(dataset.name)), badge(dataset.kind), h("a", { href: `/runs?dataset_id=${dataset.id}` }, "Its runs"), h("a", { href: `/lineage/${dataset.id}` }, "Lineage")),
    h("div", { class: "grid" }, about(dataset), keptAndDropped(dataset)));
  if (dataset.kind === "benchmark") {
    root.append(card("X-ray", empty("A benchmark has tasks to be measured on; no model is trained on it.")));
    return null;
  }
  const form = controls(wanted, api, (changes) => {
    Object.assign(wanted, changes);
    setQuery(changes);
    xray();
  });
  const trained = modelField("trained-models", "starter", api, { required: true });
  const training = trainingForm({
    heading: "Train on it", title: "Model", listed: trained, fits: (one) => one.dataset_kind === dataset.kind,
    asked: () => ({ dataset_id: dataset.id, model: trained.input.value.trim() }),
  }, api);
  root.append(training, card("X-ray: what a model reads and what trains", form, result));

  let turn = 0;
  async function xray() {
    const mine = ++turn;
    replace(result, h("p", { class: "quiet" }, "Counting tokens …"));
    try {
      for (;;) {
        const view = await api.call("preview_dataset", { dataset_id: dataset.id, max_chars: 4000, ...wanted }, leaving.signal);
        if (mine !== turn) return;
        if (view.status === "succeeded") {
          replace(result, report(view));
          result.querySelectorAll(".spans").forEach(showTrained);
          return;
        }
        replace(result, h("p", { class: "quiet" }, idLink(view.job_id), ` ${view.phase ?? view.status} …`), h("progress", { max: view.total_steps ?? 1, value: view.total_steps ? view.step : null, "aria-label": "Rows counted" }));
      }
    } catch (error) {
      if (mine === turn && error.name !== "AbortError") replace(result, errorBox(error));
    }
  }

  if (dataset.rows <= AUTO_ROWS || query.get("model")) xray();
  else replace(result, empty(`${number(dataset.rows)} rows are read by a job.`, h("button", { class: "primary", onclick: xray }, "X-ray this dataset")));
  return () => { turn++; leaving.abort(); };
}

function about(dataset) {
  const counted = (counts) => Object.entries(counts ?? {}).map(([name, n]) => h("div", null, inlineText(name), h("span", { class: "quiet" }, ` ${number(n)}`)));
  return card("Dataset", facts([
    ["Rows", number(dataset.rows)],
    ["Splits", Object.entries(dataset.splits).map(([name, n]) => `${name} ${number(n)}`).join(", ")],
    ["Environments", Object.keys(dataset.environments ?? {}).length ? counted(dataset.environments) : null],
    ["Steps by model", Object.keys(dataset.source_models ?? {}).length ? counted(dataset.source_models) : null],
    ["Licence notes", dataset.licence_notes?.length ? dataset.licence_notes.map((note) => h("div", null, inlineText(note))) : null],
    ["Seed", String(dataset.seed ?? 0)],
    ["Frozen", ago(dataset.created_at)],
  ]));
}

// Rows by split and runs left out by reason, as bars of one scale.
function keptAndDropped(dataset) {
  const rows = [...Object.entries(dataset.splits).map(([name, n]) => [name, n, "kept"]), ...Object.entries(dataset.dropped ?? {}).map(([reason, n]) => [reason.replaceAll("_", " "), n, "left-out"])];
  const most = Math.max(1, ...rows.map(([, n]) => n));
  return card("Rows kept and runs left out", h("table", { class: "plain bars" }, h("tbody", null, rows.map(([name, n, kind]) => h("tr", null,
    h("th", { scope: "row" }, inlineText(name), " ", h("span", { class: "quiet" }, kind === "kept" ? "rows" : "left out")),
    h("td", { class: "bar-cell" }, h("div", { class: `fill ${kind}`, style: { width: `${(100 * n) / most}%` } })),
    h("td", { class: "number" }, number(n)))))),
  Object.keys(dataset.dropped ?? {}).length === 0 && h("p", { class: "quiet" }, "No run was left out."));
}

function controls(wanted, api, change) {
  const { input: model, options } = modelField("readers", wanted.model, api, { onchange: (event) => change({ model: event.target.value.trim() || "starter" }) });
  const order = h("select", { "aria-label": "Rows", onchange: (event) => change({ show: event.target.value }) },
    Object.entries(ORDERS).map(([value, text]) => h("option", { value, selected: value === wanted.show }, text)));
  const count = h("select", { "aria-label": "Number of rows", onchange: (event) => change({ rows: Number(event.target.value) }) },
    [1, 3, 5, 10, 20, 50].map((n) => h("option", { value: n, selected: n === wanted.rows }, n)));
  return h("form", { class: "row", onsubmit: (event) => event.preventDefault() },
    h("label", { class: "field" }, "Read by", model), h("label", { class: "field" }, "Show", order), count, options);
}

function report(view) {
  const counts = view.statistics;
  return [
    h("p", { class: view.verdict?.startsWith("Ready") ? "verdict good" : "verdict bad" }, view.verdict),
    view.warnings.filter((warning) => !view.verdict?.includes(warning.replace(/^\[\w+\] /, ""))).map((warning) => h("p", { class: "warning-box" }, inlineText(warning))),
    h("div", { class: "grid" },
      h("div", null, h("h3", null, "Tokens that train"), share(view), splits(counts.splits)),
      h("div", null, h("h3", null, "Length of rows"), lengths(view.histogram, counts.max_length))),
    legend(),
    view.rows.map(rowElement),
    view.rows.length === 0 && empty("No row to show."),
    nextStep(view.next_step),
  ];
}

function share(view) {
  const trained = view.trained_share ?? 0;
  return [
    h("div", { class: "share", role: "img", "aria-label": `${percent(trained)} of the tokens train` }, h("div", { class: "fill kept", style: { width: `${100 * trained}%` } })),
    h("p", null, h("span", { class: "big" }, percent(view.trained_share)), ` ${number(view.trained_tokens)} of ${number(view.total_tokens)} tokens`),
  ];
}

function splits(splits) {
  const lost = (one) => [one.truncated_rows && `${one.truncated_rows} rows truncated`, one.lost_steps && `${one.lost_steps} steps lost`, ...Object.entries(one.dropped ?? {}).map(([reason, n]) => `${n} ${reason.replaceAll("_", " ")}`)].filter(Boolean).join(", ");
  return h("div", { class: "scroll-x", tabindex: "0", role: "region", "aria-label": "Tokens by split" }, h("table", { class: "plain" },
    h("thead", null, h("tr", null, ["Split", "Rows", "Tokens", "Train", "Turns with stop", "Not used"].map((title, i) => h("th", { scope: "col", class: i && i < 5 ? "number" : null }, title)))),
    h("tbody", null, Object.entries(splits).map(([name, one]) => h("tr", null, h("th", { scope: "row" }, name),
      [number(one.rows), number(one.total_tokens), number(one.trained_tokens), `${one.turns_with_stop} of ${one.trained_turns}`].map((text) => h("td", { class: "number" }, text)),
      h("td", null, inlineText(lost(one) || "–")))))));
}

const [WIDTH, HEIGHT] = [320, 64];

function lengths(histogram, limit) {
  const counts = histogram.counts ?? [];
  if (!counts.length) return h("p", { class: "quiet" }, "No row.");
  const first = counts.findIndex((n) => n > 0);
  const shown = counts.slice(first);
  const most = Math.max(...shown), wide = WIDTH / shown.length;
  const text = `Median ${number(histogram.median)}, 90 % below ${number(histogram.p90)}, longest ${number(histogram.longest)} tokens; the limit is ${number(limit)}.`;
  return [
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "histogram", role: "img", "aria-label": text },
      shown.map((n, i) => svg("rect", { x: i * wide + 0.5, width: Math.max(1, wide - 1), y: HEIGHT - (HEIGHT * n) / most, height: (HEIGHT * n) / most },
        svg("title", null, `${(first + i) * histogram.bin_tokens} to ${(first + i + 1) * histogram.bin_tokens} tokens: ${n}`)))),
    h("div", { class: "histogram-axis" }, h("span", null, number(first * histogram.bin_tokens)), h("span", null, "tokens"), h("span", null, number(counts.length * histogram.bin_tokens))),
    h("p", { class: "quiet" }, text),
  ];
}

function legend() {
  return h("p", { class: "xray-legend" }, h("span", { class: "span agent trained" }, "trains"), " ",
    Object.entries(AUTHORS).map(([name, text]) => [h("span", { class: `span ${name}` }, text), " "]), h("span", { class: "span cut" }, "cut off"));
}

function rowElement(row) {
  return h("article", { class: "xray", "aria-label": `Row ${row.row} ${row.part}` },
    h("header", { class: "row" }, h("strong", null, `Row ${row.row}`), row.part && h("span", { class: "badge" }, inlineText(row.part)), row.id && idLink(row.id),
      h("span", { class: "quiet" }, `${number(row.trained_tokens)} of ${number(row.tokens)} tokens train · stop tokens ${row.stop_tokens}`),
      row.dropped && h("span", { class: "badge bad" }, `not used: ${row.dropped}`),
      row.lost_steps?.length > 0 && h("span", { class: "badge warning" }, `steps cut: ${row.lost_steps.join(", ")}`)),
    h("pre", { class: "spans", tabindex: "0", dir: "auto", "aria-label": `Text of row ${row.row}` }, row.spans.map(spanElement)));
}

// Long prompts are alike: a text begins at what trains, with some lines of what the model reads before it.
const LINES_BEFORE = 4;

function showTrained(text) {
  const first = text.querySelector(".trained");
  if (!first) return;
  const above = first.getBoundingClientRect().top - text.getBoundingClientRect().top;
  text.scrollTop = above - LINES_BEFORE * parseFloat(getComputedStyle(text).lineHeight);
}

function spanElement(span) {
  const about = [AUTHORS[span.by] ?? span.by, span.trained ? `trains, weight ${number(span.weight)}` : "masked",
    span.step !== undefined && span.step !== null && `step ${span.step}`, span.advantage !== undefined && span.advantage !== null && `advantage ${number(span.advantage)}`, span.cut && "cut off"].filter(Boolean).join(", ");
  return h("span", { class: `span ${span.by in AUTHORS ? span.by : ""} ${span.trained ? "trained" : ""} ${span.cut ? "cut" : ""}`, title: about }, pieces(span.text));
}
