// The curves of a job, metric by metric, smoothed as far as the reader likes, beside those of other jobs.
import { chart } from "./chart.js";
import { h, idLink, replace } from "./elements.js";
import { differences } from "./job_parts.js";
import { setQuery } from "./router.js";

const FIRST = ["success_rate", "mean_reward", "validation_loss", "loss", "reward_accuracy", "reward_margin", "kl", "drift", "entropy", "grad_norm", "learning_rate"];
const STAGED = ["evolve", "recipe"];
const SHOWN = 2;
const MOST_JOBS = 6;

export async function jobCurves(id, query, api) {
  const charts = new Map(), jobs = new Map(), settings = new Map();
  let chosen = query.get("metrics")?.split(",").filter(Boolean) ?? null;
  let strength = Number(query.get("smooth") ?? 0.3);
  const others = new Set((query.get("with") ?? "").split(",").filter((other) => other && other !== id));

  const slider = h("input", { type: "range", min: "0", max: "1", step: "0.05", value: String(strength), oninput: () => {
    strength = Number(slider.value);
    charts.forEach((one) => one.smooth(strength));
    setQuery({ smooth: strength });
  } });
  const select = h("select", { "aria-label": "Compare with another job", onfocus: offer, onchange: () => {
    if (select.value) add(select.value);
    select.value = "";
  } }, h("option", { value: "" }, "Compare with…"));
  const chips = h("div", { class: "row" });
  const names = h("div", { class: "row metrics", role: "group", "aria-label": "Metrics" });
  const place = h("div", { class: "panels" }), differing = h("div");
  const element = h("section", { class: "card" },
    h("div", { class: "head" }, h("h2", { style: { "margin-right": "auto", "margin-bottom": "0" } }, "Curves"),
      h("label", { class: "field" }, "Smoothing", slider), select), chips, names, place, differing);

  async function offer() {
    if (select.options.length > 1) return;
    const kind = jobs.get(id)?.kind;
    const page = await api.call("list_jobs", { limit: 100, ...(kind && { kind }) }).catch(() => ({ items: [] }));
    select.append(...page.items.filter((job) => job.job_id !== id).map((job) => h("option", { value: job.job_id }, `${job.label} (${job.job_id})`)));
  }

  async function add(other) {
    if (jobs.size >= MOST_JOBS) return;
    others.add(other);
    setQuery({ with: [...others].join(",") });
    await load(other);
    draw();
    contrast();
  }

  function contrast() {
    const compared = [...jobs.keys()].filter((one) => settings.has(one)).map((one) => [idLink(one), settings.get(one)]);
    replace(differing, compared.length > 1 && differences(compared));
  }

  function remove(other) {
    others.delete(other);
    jobs.delete(other);
    setQuery({ with: [...others].join(",") });
    draw();
    contrast();
  }

  async function load(other) {
    try {
      const [job, page] = await Promise.all([api.call("get_job", { job_id: other, detail: "metrics" }), api.get(`/api/jobs/${encodeURIComponent(other)}`)]);
      jobs.set(other, job);
      settings.set(other, page.settings);
    } catch {
      others.delete(other);
    }
  }

  function available() {
    const found = new Set([...jobs.values()].flatMap((job) => Object.keys(job.curves ?? {})));
    return [...found].filter((name) => !/_(low|high)$/.test(name) || !found.has(name.replace(/_(low|high)$/, "")))
      .sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  }

  function draw() {
    const all = available();
    element.hidden = !all.length;
    const shown = chosen?.filter((name) => all.includes(name)) ?? all.slice(0, SHOWN);
    replace(names, all.map((name) => h("button", { class: "metric", "aria-pressed": String(shown.includes(name)), onclick: () => {
      chosen = shown.includes(name) ? shown.filter((one) => one !== name) : [...shown, name];
      setQuery({ metrics: chosen.join(",") });
      draw();
    } }, name.replaceAll("_", " "))));
    replace(chips, [...others].filter((other) => jobs.has(other)).map((other) => h("button", { class: "metric", title: "Leave out", onclick: () => remove(other) }, `${jobs.get(other).label} ×`)));
    chips.hidden = !chips.childElementCount;
    for (const name of charts.keys()) if (!shown.includes(name)) {
      charts.get(name).destroy();
      charts.get(name).element.remove();
      charts.delete(name);
    }
    for (const name of shown) {
      const panel = panelOf(name, [...jobs.values()]);
      if (charts.has(name)) charts.get(name).update(panel);
      else charts.set(name, chart(panel, { smoothing: strength, height: 220 }));
      place.append(charts.get(name).element);
    }
  }

  await Promise.all([...others].map(load));
  return {
    element,
    show: (job, page) => {
      const isFirst = !settings.has(id);
      settings.set(id, page.settings);
      const rest = [...jobs].filter(([other]) => other !== id);
      jobs.clear();
      jobs.set(id, job);
      rest.forEach(([other, one]) => jobs.set(other, one));
      draw();
      if (isFirst) contrast();
    },
    // Adds the step of a live state to the lines at once; the whole curves follow.
    append: (state) => {
      const curves = jobs.get(id)?.curves ?? {};
      for (const [name, value] of Object.entries(state.metrics ?? {})) {
        const curve = curves[name] ??= { steps: [], values: [] };
        if (value === null || curve.steps.at(-1) >= state.step) continue;
        curve.steps = [...curve.steps, state.step];
        curve.values = [...curve.values, value];
      }
      draw();
    },
    destroy: () => charts.forEach((one) => one.destroy()),
  };
}

function rank(name) {
  const place = FIRST.indexOf(name);
  return place < 0 ? FIRST.length : place;
}

function panelOf(name, jobs) {
  const several = jobs.length > 1, isStaged = jobs.some((job) => STAGED.includes(job.kind));
  const lines = jobs.filter((job) => job.curves?.[name]).map((job) => {
    const { steps, ...curve } = withGaps(job.curves[name], isStaged);
    const [low, high] = ["low", "high"].map((side) => job.curves[`${name}_${side}`]).map((one) => one && steps.map((step) => one.values[one.steps.indexOf(step)] ?? null));
    const best = job.curves[name].best_step;
    return {
      ...curve, ...(low && high && { low, high }), label: several ? `${job.label} (${job.job_id})` : name.replaceAll("_", " "), colour: jobs.indexOf(job),
      best: best === null || best === undefined ? undefined : { x: curve.x[steps.indexOf(best)], y: job.curves[name].values[job.curves[name].steps.indexOf(best)], label: `lowest loss: step ${best}` },
    };
  });
  const values = lines.flatMap((line) => line.y).filter((value) => value !== null);
  const isShare = /(_rate|accuracy|_share)$/.test(name) && name !== "learning_rate" && values.every((value) => value >= 0 && value <= 1);
  return { title: name.replaceAll("_", " ").replace(/^./, (letter) => letter.toUpperCase()), xlabel: isStaged ? "reported step, over all stages" : "step", ylabel: "", format: isShare ? "percent" : "number", lines };
}

// Breaks a line where steps are missing: where the distance is more than one and a half times the usual one. `counted`: a
// value's place is its number, for the steps of other stages between two trainings would leave their lines no width.
function withGaps(curve, counted) {
  const distances = curve.steps.slice(1).map((step, i) => step - curve.steps[i]).sort((a, b) => a - b);
  const usual = distances[Math.floor(distances.length / 2)] ?? 1;
  const place = (i) => (counted ? i + 1 : curve.steps[i]);
  const x = [], y = [], steps = [];
  curve.steps.forEach((step, i) => {
    if (i > 0 && step - curve.steps[i - 1] > 1.5 * usual) {
      x.push((place(i) + place(i - 1)) / 2);
      y.push(null);
      steps.push(null);
    }
    x.push(place(i));
    y.push(curve.values[i]);
    steps.push(step);
  });
  return { x, y, steps };
}
