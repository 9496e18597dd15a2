// The first page: what runs, what waits and for what, what was measured lately, what to do next.
import { ago, badge, card, duration, empty, h, idLink, nextStep, number, percent, replace } from "../elements.js";
import { placeName } from "../text.js";

export async function render(root, params, api) {
  const place = h("div", { class: "stack" });
  root.append(h("h1", { class: "visually-hidden" }, "Overview"), place);
  const bars = new Map();
  let waiting = null;

  async function show() {
    const found = await api.get("/api/overview");
    bars.clear();
    const running = found.open.filter((job) => job.status === "running"), queued = found.open.filter((job) => job.status === "queued");
    replace(place,
      nextStep(found.next_step),
      h("div", { class: "grid" },
        card(running.length ? `Running (${running.length})` : "Running", running.length ? running.map(runningJob) : h("p", { class: "quiet" }, "Nothing runs.")),
        card(queued.length ? `Waiting (${queued.length})` : "Waiting", queued.length ? queued.map(queuedJob) : h("p", { class: "quiet" }, "Nothing waits."))),
      h("div", { class: "grid" },
        card("Measured lately", found.measured.length ? measured(found.measured) : empty("No agent has been evaluated yet.")),
        h("div", { class: "stack" },
          found.comparisons.length > 0 && card("Compared lately", found.comparisons.map(comparison)),
          card("Ended lately", found.ended.length ? found.ended.map(endedJob) : h("p", { class: "quiet" }, "No job has ended yet."),
            h("p", { class: "quiet" }, h("a", { href: "/jobs" }, "All jobs"), " · ", h("a", { href: "/runs" }, `${number(found.runs)} recorded runs`))))));
  }

  function runningJob(job) {
    const bar = h("progress", { max: job.total_steps ?? 1, value: job.total_steps ? job.step : null, "aria-label": `Steps of ${job.label}` });
    const text = h("span", { class: "quiet" }, steps(job));
    bars.set(job.job_id, { bar, text });
    return h("div", { class: "entry" }, idLink(job.job_id, job.label || job.job_id), bar, text);
  }

  function queuedJob(job) {
    const waits = job.waiting_for;
    return h("div", { class: "entry" }, idLink(job.job_id, job.label || job.job_id), h("span", { class: "quiet" },
      waits ? ["for a slot", waits.ahead ? `, ${waits.ahead} ahead` : "", ", held by ", Object.entries(waits.held_by ?? {}).map(([id, label], i) => [i > 0 && ", ", idLink(id, label)])] : "begins soon"));
  }

  await show();
  const end = api.subscribe((state) => {
    const known = bars.get(state.job_id);
    if (known && state.status === "running") {
      if (state.total_steps) [known.bar.max, known.bar.value] = [state.total_steps, state.step];
      known.text.textContent = steps(state);
      return;
    }
    waiting ??= setTimeout(() => {
      waiting = null;
      show().catch(() => {});
    }, 300);
  });
  return () => {
    end();
    clearTimeout(waiting);
  };
}

function steps(job) {
  return [job.phase?.replaceAll("_", " "), job.total_steps ? `${number(job.step)} of ${number(job.total_steps)}` : job.step ? `step ${number(job.step)}` : "begins",
    job.eta_s ? `about ${duration(job.eta_s)} left` : ""].filter(Boolean).join(" · ");
}

function endedJob(job) {
  return h("div", { class: "entry line" }, idLink(job.job_id, job.label || job.job_id), badge(job.status), ago(job.ended_at ?? job.created_at));
}

function measured(rows) {
  return h("ul", { class: "measured" }, rows.map((row) => {
    const change = row.before && row.rate.value !== null && row.before.value !== null ? row.rate.value - row.before.value : null;
    const kind = change === null ? "" : row.rate.ci_low > row.before.ci_high ? "good" : row.rate.ci_high < row.before.ci_low ? "bad" : "";
    return h("li", null,
      h("span", null, idLink(row.agent), h("small", { class: "quiet" }, " ", idLink(row.evaluation_id, `${placeName(row.environment)}, ${row.split.replaceAll("_", " ")}${row.purpose === "measurement" ? "" : `, ${row.purpose}`}`))),
      h("span", { class: "interval", title: `${percent(row.rate.value)} of ${number(row.rate.n)}, 95 % interval ${percent(row.rate.ci_low)} to ${percent(row.rate.ci_high)}`,
        style: { "--low": row.rate.ci_low ?? 0, "--high": row.rate.ci_high ?? 0, "--value": row.rate.value ?? 0, "--before": row.before?.value ?? -1 } },
        h("i", { class: "span" }), row.before && h("i", { class: "before" }), h("i", { class: "point" })),
      h("span", { class: "number" }, h("b", null, percent(row.rate.value)), h("small", { class: "quiet" }, ` of ${number(row.rate.n)}`)),
      h("span", { class: "number" }, change === null ? "" : badge(kind, `${change > 0 ? "+" : ""}${(100 * change).toFixed(1)} points`)));
  }), h("li", { class: "quiet legend" }, "Point: success. Bar: 95 % interval. Line: the agent that it was trained from, on the same tasks; a colour: their intervals do not overlap."));
}

function comparison(one) {
  const pair = one.pair;
  return h("div", { class: "entry" }, idLink(one.comparison_id, pair ? `${short(pair.b)} against ${short(pair.a)}` : one.comparison_id),
    h("span", { class: "quiet" }, pair && `${pair.difference > 0 ? "+" : ""}${change(pair, pair.difference)} ${pair.measure === "loss" ? "nats a token" : "points"} [${change(pair, pair.ci_low)}, ${change(pair, pair.ci_high)}] on ${number(pair.n_tasks)} tasks, `,
      pair && (pair.significant ? "a difference" : "no clear difference"), one.pairs > 1 && `, ${one.pairs} pairs`));
}

function short(agent) {
  return agent.replace(/^agent:/, "");
}

function change(pair, value) {
  return pair.measure === "loss" ? value.toFixed(3) : (100 * value).toFixed(1);
}
