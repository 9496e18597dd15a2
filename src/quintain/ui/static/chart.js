// Charts of a panel: lines over steps with their intervals, smoothed values over raw ones, marks; and bars of rates.
// A panel is what quintain.evaluation.reports.figures describes:
//   { title, xlabel, ylabel, format: "percent"|"number", log, lines: [{ x, y, label, smooth, low, high, best, style }], marks, bars }
// `y` has null where the line is broken. Needs nothing but this file, elements.js and vendor/uplot.js.
//   const view = chart(panel, { height: 240, smoothing: 0.3 });
//   root.append(view.element); view.update(panel); view.smooth(0.6); view.destroy();
//   figure({ title, subtitle, panels }) -> element with every panel
import { h, number, percent } from "./elements.js";
import uPlot from "./vendor/uplot.js";

export const SERIES = 8;

// Exponential moving average, corrected for its start at zero (Kingma & Ba 2015, section 3). `strength` is 0..1.
export function smoothed(values, strength) {
  const known = values.filter((value) => value !== null && value !== undefined).length;
  const decay = 1 - 2 / (Math.max(1, strength * known * 0.6) + 1);
  let average = 0, weight = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    average = decay * average + (1 - decay) * value;
    weight = decay * weight + (1 - decay);
    return average / weight;
  });
}

export function chart(panel, options = {}) {
  let current = panel, plot = null, strength = options.smoothing ?? null;
  const place = h("div", { class: "chart-plot", tabindex: "0", role: "img" });
  const legend = h("div", { class: "chart-legend" });
  const values = h("p", { class: "visually-hidden", "aria-live": "polite" });
  const table = h("details", { class: "chart-table" });
  const title = h("h3");
  const element = h("figure", { class: "chart" }, title, place, legend, values, table);

  function draw() {
    title.textContent = current.title ?? "";
    title.hidden = !current.title || options.untitled === true;
    place.setAttribute("aria-label", summary(current));
    fillTable(table, current);
    plot?.destroy();
    const width = place.clientWidth;
    plot = width ? lines(place, legend, current, { width, height: options.height ?? 230, strength }) : null;
  }

  const resized = new ResizeObserver(() => {
    if (plot && Math.abs(plot.width - place.clientWidth) < 1) return;
    if (plot) plot.setSize({ width: place.clientWidth, height: plot.height });
    else draw();
  });
  const theme = matchMedia("(prefers-color-scheme: dark)");
  resized.observe(place);
  theme.addEventListener("change", draw);
  place.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!step || !plot) return;
    event.preventDefault();
    const last = plot.data[0].length - 1;
    const i = Math.max(0, Math.min(last, (plot.cursor.idx ?? (step > 0 ? -1 : last + 1)) + step));
    plot.setCursor({ left: plot.valToPos(plot.data[0][i], "x"), top: plot.bbox.height / (4 * devicePixelRatio) });
    values.textContent = valuesAt(current, plot.data[0][i]);
  });
  draw();
  return {
    element,
    update: (next) => { current = next; draw(); },
    smooth: (next) => { strength = next; draw(); },
    destroy: () => { resized.disconnect(); theme.removeEventListener("change", draw); plot?.destroy(); plot = null; },
  };
}

// All panels of a figure; charts of lines and bars. `others` maps a key of a panel (such as "forest") to a function that draws it.
export function figure(description, options) {
  const live = liveFigure(options);
  live.update(description);
  return live.element;
}

// The same for a figure that changes: { element, update(description), destroy() }. Charts of lines stay and get new values.
export function liveFigure({ others = {}, ...options } = {}) {
  const charts = new Map();
  const [title, subtitle, place] = [h("h2"), h("p", { class: "quiet" }), h("div", { class: "panels" })];

  function drawn(panel, used) {
    if (panel.lines?.some((line) => line.x.length)) {
      used.add(panel.title);
      if (charts.has(panel.title)) charts.get(panel.title).update(panel);
      else charts.set(panel.title, chart(panel, options));
      return charts.get(panel.title).element;
    }
    if (panel.bars?.length) return bars(panel);
    const kind = Object.keys(others).find((key) => panel[key]);
    return kind ? others[kind](panel) : null;
  }

  function update(description) {
    const used = new Set();
    for (const [element, text] of [[title, description.title], [subtitle, description.subtitle]]) {
      element.textContent = text ?? "";
      element.hidden = !text;
    }
    const panels = description.panels.map((panel) => drawn(panel, used)).filter(Boolean);
    if (panels.some((panel, i) => place.children[i] !== panel) || place.children.length !== panels.length) place.replaceChildren(...panels);
    for (const [name, one] of charts) if (!used.has(name)) {
      one.destroy();
      charts.delete(name);
    }
  }

  return { element: h("section", { class: "figure" }, title, subtitle, place), update, destroy: () => charts.forEach((one) => one.destroy()) };
}

// --- lines by uPlot ---

function colours(place) {
  const probe = h("span");
  place.append(probe);
  const of = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const found = { text: of("--quiet"), grid: of("--line"), accent: of("--accent"), series: Array.from({ length: SERIES }, (_, i) => of(`--series-${i + 1}`)) };
  probe.remove();
  return found;
}

function faint(colour, alpha) {
  return colour.replace(/^rgba?\(([^,)]+),([^,)]+),([^,)]+).*$/, `rgba($1,$2,$3,${alpha})`);
}

function lines(place, legend, panel, { width, height, strength }) {
  const paint = colours(place);
  const tables = [], series = [{}], bands = [], entries = [];
  panel.lines.forEach((line, i) => {
    const colour = paint.series[(line.colour ?? i) % SERIES];
    const dash = line.dash ?? (line.style === "measured" ? [2, 4] : i >= SERIES ? [6, 4] : undefined);
    const isPoints = line.style === "points" || line.style === "measured";
    const trend = isPoints ? null : strength === null ? line.smooth : strength > 0 ? smoothed(line.y, strength) : null;
    const columns = [line.x, line.y];
    const few = line.y.length < 25;
    series.push({
      stroke: isPoints && line.style === "points" ? undefined : trend ? faint(colour, 0.28) : colour,
      width: trend ? 1 : 2, dash, points: { show: isPoints || few, size: isPoints ? 7 : 4, fill: colour, stroke: colour },
    });
    if (isPoints && line.style === "points") series.at(-1).paths = () => null;
    if (trend) {
      columns.push(trend);
      series.push({ stroke: colour, width: 2, dash, points: { show: false } });
    }
    if (line.low && line.high) {
      columns.push(line.low, line.high);
      const at = series.length;
      const edge = { stroke: undefined, paths: isPoints ? () => null : undefined, points: { show: false } };
      series.push({ ...edge }, { ...edge });
      if (!isPoints) bands.push({ series: [at + 1, at], fill: faint(colour, 0.14) });
    }
    tables.push(columns);
    entries.push({ colour, dash, label: line.label });
  });
  const data = uPlot.join(tables);
  const text = panel.format === "percent" ? percent : (value) => number(value);
  const axis = {
    stroke: paint.text, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 18, labelGap: 2,
    grid: { stroke: paint.grid, width: 1 }, ticks: { stroke: paint.grid, width: 1, size: 4 },
  };
  const isLog = panel.log === true;
  const plot = new uPlot({
    width, height, series, bands,
    padding: [null, panel.ticks?.length ? NAME_ROOM : null, null, null],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false } },
    scales: {
      x: { time: false, range: ({ data: [steps] }, low, high) => (steps.length === 1 ? [steps[0] - 1, steps[0] + 1] : [low, high]) },
      y: isLog ? { distr: 3 } : "floor" in panel ? { range: (_, low, high) => uPlot.rangeNum(Math.max(low, panel.floor), Math.max(high, panel.floor + 1), 0.1, true) } : panel.format === "percent" ? { range: (_, low, high) => percentRange(low, high) } : {},
    },
    axes: [
      { ...axis, label: panel.xlabel ?? "step", size: 34, incrs: panel.xlabel?.includes("step") === false ? undefined : WHOLE, ...named(panel.ticks) },
      { ...axis, label: panel.ylabel || undefined, size: 52, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : text(tick))) },
    ],
    hooks: {
      draw: [(u) => { marks(u, panel, paint); errorBars(u, panel, paint); }],
      setCursor: [(u) => showValues(legend, entries, panel, u.cursor.idx === null || u.cursor.idx === undefined ? null : u.data[0][u.cursor.idx], text)],
    },
  }, data, place);
  showValues(legend, entries, panel, null, text);
  return plot;
}

// Places with names of their own, such as the rounds of an evolution.
function named(ticks) {
  return ticks?.length ? { splits: () => ticks.map((tick) => tick.x), values: () => ticks.map((tick) => tick.label.replace("\n", " ")) } : {};
}

const NAME_ROOM = 44; // Pixels right of the last place, for half of its name.
const WHOLE = [1, 2, 5].flatMap((one) => Array.from({ length: 9 }, (_, i) => one * 10 ** i)).sort((a, b) => a - b);

function percentRange(low, high) {
  if (low === null || high === null) return [0, 1];
  const room = Math.max(0.05, 0.08 * (high - low));
  return [Math.max(0, low - room), Math.min(1, high + room)];
}

function marks(u, panel, paint) {
  const { ctx, bbox } = u, ratio = devicePixelRatio;
  ctx.save();
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.fillStyle = ctx.strokeStyle = paint.text;
  ctx.lineWidth = ratio;
  ctx.setLineDash([3 * ratio, 3 * ratio]);
  let free = -Infinity;
  for (const mark of [...(panel.marks ?? [])].sort((a, b) => a.x - b.x)) {
    const x = Math.round(u.valToPos(mark.x, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const wide = ctx.measureText(mark.label).width, left = x + 4 * ratio;
    if (left < free || left + wide > bbox.left + bbox.width) continue;
    ctx.fillText(mark.label, left, bbox.top + 11 * ratio);
    free = left + wide + 8 * ratio;
  }
  ctx.setLineDash([]);
  panel.lines.forEach((line, i) => {
    if (!line.best) return;
    const [x, y] = [u.valToPos(line.best.x, "x", true), u.valToPos(line.best.y, "y", true)];
    if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) return;
    ctx.strokeStyle = paint.series[(line.colour ?? i) % SERIES];
    ctx.lineWidth = 2 * ratio;
    ctx.beginPath();
    ctx.arc(x, y, 5 * ratio, 0, 2 * Math.PI);
    ctx.stroke();
  });
  ctx.restore();
}

function errorBars(u, panel, paint) {
  const { ctx } = u, ratio = devicePixelRatio;
  ctx.save();
  ctx.lineWidth = 1.5 * ratio;
  panel.lines.forEach((line, i) => {
    if (!line.low || !line.high || !["points", "measured"].includes(line.style)) return;
    ctx.strokeStyle = paint.series[(line.colour ?? i) % SERIES];
    line.x.forEach((at, j) => {
      if (line.low[j] === null || line.high[j] === null) return;
      const [x, low, high] = [u.valToPos(at, "x", true), u.valToPos(line.low[j], "y", true), u.valToPos(line.high[j], "y", true)];
      ctx.beginPath();
      ctx.moveTo(x, low);
      ctx.lineTo(x, high);
      for (const end of [low, high]) {
        ctx.moveTo(x - 4 * ratio, end);
        ctx.lineTo(x + 4 * ratio, end);
      }
      ctx.stroke();
    });
  });
  ctx.restore();
}

function showValues(legend, entries, panel, x, text) {
  legend.replaceChildren(...entries.map((entry, i) => h("span", { class: "key" },
    h("i", { style: { background: entry.colour } }), entry.label ?? "", x === null ? null : h("b", null, ` ${text(nearest(panel.lines[i], x))}`))));
  panel.lines.forEach((line, i) => line.best && legend.append(h("span", { class: "key" }, h("i", { class: "ring", style: { "border-color": entries[i].colour } }), line.best.label)));
  if (x !== null) legend.append(h("span", { class: "quiet" }, `${panel.xlabel ?? "step"} ${number(x)}`));
}

function nearest(line, x) {
  const at = line.x.findLastIndex((one) => one <= x);
  return at < 0 ? null : line.y[at];
}

// --- bars of rates with intervals ---

export function bars(panel) {
  return h("figure", { class: "chart" }, panel.title && h("h3", null, panel.title),
    h("ul", { class: "rates" }, panel.bars.map((bar) => h("li", null,
      h("span", { class: "rate-label", title: bar.label }, bar.label),
      h("span", { class: "rate-track", title: `95 % interval ${percent(bar.low)} to ${percent(bar.high)}`,
        style: { "--value": bar.value ?? 0, "--low": bar.low ?? 0, "--high": bar.high ?? 0 } },
        h("i", { class: bar.strong ? "rate-bar strong" : "rate-bar" }), h("i", { class: "rate-interval" })),
      h("span", { class: "number" }, percent(bar.value), h("small", { class: "quiet" }, ` [${percent(bar.low)}, ${percent(bar.high)}]`))))));
}

// --- the same in words ---

function summary(panel) {
  const text = panel.format === "percent" ? percent : number;
  const parts = panel.lines.map((line) => {
    const known = line.x.map((x, i) => [x, line.y[i]]).filter(([, y]) => y !== null && y !== undefined);
    if (!known.length) return `${line.label}: no data`;
    const [[x0, y0], [x1, y1]] = [known[0], known.at(-1)];
    return `${line.label ?? "line"}: ${text(y0)} at ${x0} to ${text(y1)} at ${x1}${line.best ? `, ${line.best.label}` : ""}`;
  });
  const events = (panel.marks ?? []).map((mark) => `${mark.label} at ${mark.x}`);
  return `${panel.title ?? "Chart"}, ${panel.ylabel ?? "value"} by ${panel.xlabel ?? "step"}. ${[...parts, ...events].join("; ")}. Arrow keys read values.`;
}

function valuesAt(panel, x) {
  const text = panel.format === "percent" ? percent : number;
  return `${panel.xlabel ?? "step"} ${x}: ${panel.lines.map((line) => `${line.label ?? ""} ${text(nearest(line, x))}`).join(", ")}`;
}

function fillTable(details, panel) {
  if (details.open) return;
  details.replaceChildren(h("summary", null, "Values"));
  details.ontoggle = () => {
    if (!details.open || details.querySelector("table")) return;
    const steps = [...new Set(panel.lines.flatMap((line) => line.x.filter((_, i) => line.y[i] !== null)))].sort((a, b) => a - b);
    const stride = Math.ceil(steps.length / 50);
    const shown = steps.filter((_, i) => i % stride === 0 || i === steps.length - 1);
    const text = panel.format === "percent" ? percent : number;
    details.append(h("div", { class: "scroll-x" }, h("table", { class: "plain" },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, panel.xlabel ?? "step"), panel.lines.map((line) => h("th", { scope: "col" }, line.label ?? "value")))),
      h("tbody", null, shown.map((x) => h("tr", null, h("td", null, x), panel.lines.map((line) => h("td", null, text(valueAt(line, x))))))))));
  };
}

function valueAt(line, x) {
  const at = line.x.indexOf(x);
  return at < 0 ? null : line.y[at];
}
