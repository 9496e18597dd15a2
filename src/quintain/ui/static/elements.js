// DOM elements from data. Text enters by text nodes only, so stored text is never parsed as HTML.
import { address, here, urlOf } from "./routes.js";

const SVG = "http://www.w3.org/2000/svg";
const SAFE_LINK = /^(https?:|\/(?!\/)|#|data:image\/png;)/;

// h("button", { class: "primary", onclick: start, disabled: false }, "Start")
// Properties: `class`, `style` (an object), `on...` listeners, `dataset`; all others are attributes, left out when null or false.
export function h(tag, props, ...children) {
  return build(document.createElement(tag), props, children);
}

export function svg(tag, props, ...children) {
  return build(document.createElementNS(SVG, tag), props, children);
}

function build(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.setAttribute("class", value);
    else if (name === "style") Object.entries(value).forEach(([key, one]) => element.style.setProperty(key, one));
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "href" || name === "src") {
      if (SAFE_LINK.test(value)) element.setAttribute(name, address(value));
    }
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

// Appends strings, numbers, elements and lists of them; null, undefined and false are left out.
export function append(element, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

// Replaces the children. The focus goes to the new element that reads like the one that had it.
export function replace(element, ...children) {
  const focused = document.activeElement;
  const place = alike(element, focused).indexOf(focused);
  element.replaceChildren();
  append(element, ...children);
  if (place >= 0) alike(element, focused)[place]?.focus({ preventScroll: true });
  return element;
}

function alike(element, one) {
  return [...element.querySelectorAll(one.tagName)].filter((other) =>
    other.textContent === one.textContent && ["href", "name", "aria-label"].every((name) => other.getAttribute(name) === one.getAttribute(name)));
}

// A link to an object's page by its id; plain text for an id without a page.
export function idLink(id, text = id) {
  const url = urlOf(id);
  return url ? h("a", { href: url, class: "id", title: String(id) }, text) : h("span", { class: "id" }, text);
}

export function badge(status, text = status) {
  return h("span", { class: `badge ${/^[a-z_]+$/.test(status) ? status : ""}` }, text);
}

// A card with a heading; `actions` are elements beside the heading.
export function card(title, ...children) {
  return h("section", { class: "card" }, title && h("h2", null, title), ...children);
}

// Name and value in two columns: facts([["Agent", idLink(id)], ...]); pairs with a null value are left out.
export function facts(pairs) {
  const shown = pairs.filter((pair) => pair && ![null, undefined, false, ""].includes(pair[1]));
  return h("dl", { class: "facts" }, shown.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

// A text of the server or of a view with what it names: `a command` between backticks, [a title](/path) of a page.
export function rich(text) {
  return String(text ?? "").split(/(`[^`]+`|\[[^\]]+\]\(\/[^)\s]*\))/).map((part, i) => {
    if (i % 2 === 0) return part;
    if (part[0] === "`") return h("code", { class: "command" }, part.slice(1, -1));
    const [, title, path] = part.match(/^\[(.+)\]\((.+)\)$/);
    return path === here() ? h("strong", null, title) : h("a", { class: "in-text", href: path }, title);
  });
}

export function empty(text, ...children) {
  return h("div", { class: "empty" }, h("p", null, rich(text)), ...children);
}

// An error of the API with its code and remedy.
export function errorBox(error) {
  return h("div", { class: "error", role: "alert" },
    h("strong", null, rich(error.problem ?? error.message ?? String(error))), " ",
    error.code && h("code", null, error.code),
    error.remedy && h("p", null, rich(error.remedy)));
}

export function toast(text, kind = "note") {
  const box = h("div", { class: `toast ${kind}` }, rich(text));
  document.getElementById("toasts")?.append(box);
  setTimeout(() => box.remove(), 6000);
}

// What to do next, as the server names it for persons.
export function nextStep(text) {
  return text ? h("p", { class: "next" }, h("span", { class: "label" }, "Next"), " ", rich(text)) : null;
}

// Numbers and times, short. A missing value is a dash: unknown is not zero.
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
}

// A number of bytes in a binary unit, as the terminal and the answers of tools have it.
export function sizeText(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB"];
  let value = bytes, i = 0;
  for (; value >= 1024 && i < units.length - 1; i++) value /= 1024;
  return `${value < 100 ? Number(value.toFixed(1)) : Math.round(value).toLocaleString("en")} ${units[i]}`;
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || seconds < 0) return "–"; // below 0 the clock was set back meanwhile
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

export function ago(instant) {
  if (!instant) return "–";
  const date = new Date(instant);
  const seconds = (Date.now() - date.getTime()) / 1000;
  const text = seconds < 5 ? "now"
    : seconds < 90 ? `${Math.round(seconds)} s ago`
    : seconds < 5400 ? `${Math.round(seconds / 60)} min ago`
    : seconds < 129600 ? `${Math.round(seconds / 3600)} h ago`
    : date.toISOString().slice(0, 10);
  return h("time", { datetime: instant, title: date.toLocaleString() }, text);
}
