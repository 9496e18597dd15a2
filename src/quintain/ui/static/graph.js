// A directed graph without cycles, from left to right, as an SVG whose nodes are buttons.
//   graph({ nodes: [{ id, kind, label, mark }], edges: [{ source, target }], roots: [id], onselect: (node) => ... })
// Tab reaches the graph; arrows move between its nodes, Enter or Space selects one.
// Layers by longest path and orders by the mean place of neighbours, after Sugiyama, Tagawa and Toda 1981.
import { svg } from "./elements.js";

const WIDTH = 184, HEIGHT = 46, GAP_X = 56, GAP_Y = 14, PAD = 12, SWEEPS = 6;

export function graph({ nodes, edges, roots, label, onselect }) {
  const places = layout(nodes, edges);
  const right = Math.max(...[...places.values()].map((place) => place.x)) + WIDTH + PAD;
  const bottom = Math.max(...[...places.values()].map((place) => place.y)) + HEIGHT + PAD;
  const known = edges.filter((edge) => places.has(edge.source) && places.has(edge.target));
  const lines = known.map((edge) => line(edge, places));
  const boxes = new Map(nodes.map((node) => [node.id, box(node, places.get(node.id), roots.includes(node.id))]));
  let current = roots.find((id) => boxes.has(id)) ?? nodes[0]?.id;

  function focus(id) {
    for (const [other, element] of boxes) element.setAttribute("tabindex", other === id ? "0" : "-1");
    current = id;
  }

  function select(id) {
    focus(id);
    for (const [other, element] of boxes) element.setAttribute("aria-pressed", String(other === id));
    known.forEach((edge, i) => lines[i].classList.toggle("near", edge.source === id || edge.target === id));
    boxes.get(id).scrollIntoView({ block: "nearest", inline: "center" });
    onselect(nodes.find((node) => node.id === id));
  }

  for (const [id, element] of boxes) {
    element.addEventListener("click", () => select(id));
    element.addEventListener("keydown", (event) => {
      const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (direction) {
        const next = nearest(places, id, direction);
        if (next) {
          focus(next);
          boxes.get(next).focus();
        }
      } else if (event.key === "Enter" || event.key === " ") select(id);
      else return;
      event.preventDefault();
    });
  }
  focus(current);
  const element = svg("svg", { class: "graph", role: "group", "aria-label": label, width: right, height: bottom, viewBox: `0 0 ${right} ${bottom}` },
    svg("defs", null, svg("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
      svg("path", { d: "M0,0 L8,4 L0,8 z", fill: "context-stroke" }))),
    svg("g", { "aria-hidden": "true" }, lines), [...boxes.values()]);
  return { element, select };
}

// Returns id -> { x, y } of the upper left corner.
export function layout(nodes, edges) {
  const ids = new Set(nodes.map((node) => node.id));
  const known = edges.filter((edge) => ids.has(edge.source) && ids.has(edge.target));
  const before = neighbours(known, "target", "source"), after = neighbours(known, "source", "target");
  const layer = new Map();
  const depth = (id, path) => {
    if (!layer.has(id)) {
      if (path.has(id)) return 0; // a cycle is cut where it is met
      path.add(id);
      layer.set(id, Math.max(0, ...(before.get(id) ?? []).map((source) => depth(source, path) + 1)));
      path.delete(id);
    }
    return layer.get(id);
  };
  nodes.forEach((node) => depth(node.id, new Set()));
  for (const node of [...nodes].sort((a, b) => layer.get(b.id) - layer.get(a.id))) { // sources move next to their first target
    const targets = after.get(node.id);
    if (targets) layer.set(node.id, Math.max(layer.get(node.id), Math.min(...targets.map((target) => layer.get(target))) - 1));
  }
  const columns = [];
  for (const node of nodes) (columns[layer.get(node.id)] ??= []).push(node.id);
  const filled = columns.filter(Boolean);
  order(filled, before, after);
  const tallest = Math.max(...filled.map((column) => column.length));
  const places = new Map();
  filled.forEach((column, i) => column.forEach((id, j) => places.set(id, {
    x: PAD + i * (WIDTH + GAP_X), y: PAD + (j + (tallest - column.length) / 2) * (HEIGHT + GAP_Y) })));
  return places;
}

function neighbours(edges, from, to) {
  const found = new Map();
  for (const edge of edges) {
    if (!found.has(edge[from])) found.set(edge[from], []);
    found.get(edge[from]).push(edge[to]);
  }
  return found;
}

// Sorts each column by the mean place of its nodes' neighbours, forwards and backwards in turn.
function order(columns, before, after) {
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const place = new Map(columns.flatMap((column) => column.map((id, i) => [id, i - column.length / 2])));
    const near = sweep % 2 ? after : before;
    for (const column of sweep % 2 ? [...columns].reverse() : columns) {
      const mean = new Map(column.map((id) => {
        const others = near.get(id) ?? [];
        return [id, others.length ? others.reduce((sum, other) => sum + place.get(other), 0) / others.length : place.get(id)];
      }));
      column.sort((a, b) => mean.get(a) - mean.get(b));
      column.forEach((id, i) => place.set(id, i - column.length / 2));
    }
  }
}

function line({ source, target }, places) {
  const from = places.get(source), to = places.get(target);
  const [x0, y0, x1, y1] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x - 2, to.y + HEIGHT / 2];
  const bend = Math.max(24, (x1 - x0) / 2);
  return svg("path", { class: "edge", d: `M${x0},${y0} C${x0 + bend},${y0} ${x1 - bend},${y1} ${x1},${y1}`, "marker-end": "url(#arrow)" });
}

function box(node, { x, y }, isRoot) {
  const name = `${node.kind} ${node.id}: ${node.label}${node.mark ? `, ${node.mark}` : ""}`;
  return svg("g", { class: `node ${node.kind}${isRoot ? " root" : ""}${node.mark ? " marked" : ""}`, role: "button", tabindex: -1, "aria-pressed": "false",
    "aria-label": name, transform: `translate(${x},${y})`, "data-id": node.id },
    svg("title", null, name), svg("rect", { width: WIDTH, height: HEIGHT, rx: 7 }),
    svg("text", { class: "kind", x: 10, y: 17 }, `${node.kind}${node.mark ? ` · ${node.mark}` : ""}`),
    svg("text", { class: "name", x: 10, y: 35 }, clip(node.label || node.id, 25)));
}

function clip(text, most) {
  const characters = [...text];
  return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : text;
}

// The closest node in a direction: distance along it, and three times the distance across it.
function nearest(places, id, [dx, dy]) {
  const from = places.get(id);
  let best = null, least = Infinity;
  for (const [other, place] of places) {
    const along = dx * (place.x - from.x) + dy * (place.y - from.y);
    const across = Math.abs(dy * (place.x - from.x)) + Math.abs(dx * (place.y - from.y));
    if (along > 0 && along + 3 * across < least) [best, least] = [other, along + 3 * across];
  }
  return best;
}
