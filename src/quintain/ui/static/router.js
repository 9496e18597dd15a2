// Shows the view of the address in <main>; links within the page change the address without a reload.
import { errorBox, h, replace } from "./elements.js";
import { address, here, match, ROUTES } from "./routes.js";

let api, main, leave = null, turn = 0;

export function start(root, transport) {
  [main, api] = [root, transport];
  document.addEventListener("click", follow);
  window.addEventListener("popstate", show);
  return show();
}

// Begins to load the view of an address, beside what else the page waits for.
export function preload(pathname) {
  const found = match(pathname);
  if (found) import(`./views/${found.route.view}.js`).catch(() => {});
}

export function navigate(url, { replaced = false } = {}) {
  history[replaced ? "replaceState" : "pushState"](null, "", address(url));
  return show();
}

// Changes the query of the address without rendering again: for filters, so that the address can be shared.
export function setQuery(values) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(history.state, "", location.pathname + (text ? `?${text}` : ""));
}

function follow(event) {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest?.("a[href]");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (link.hash && link.pathname === location.pathname) return;
  event.preventDefault();
  navigate(link.href);
  window.scrollTo(0, 0);
}

async function show() {
  const mine = ++turn;
  leave?.();
  leave = null;
  const found = match(here());
  document.title = `${found?.route.title ?? "Not found"} · Quintain`;
  for (const link of document.querySelectorAll("#nav a")) {
    const isHere = link.pathname === address("/") ? here() === "/" : location.pathname.startsWith(link.pathname);
    if (isHere) {
      link.setAttribute("aria-current", "page");
      // The links scroll on a narrow screen. `scrollIntoView` would make the next Tab begin here and not at the top.
      link.parentElement.scrollLeft = Math.max(0, link.offsetLeft + link.offsetWidth - link.parentElement.offsetLeft - link.parentElement.clientWidth);
    } else link.removeAttribute("aria-current");
  }
  const root = h("div", { class: "view", "aria-busy": "true" });
  replace(main, root);
  if (mine > 1 && document.activeElement === document.body) main.focus({ preventScroll: true }); // what had it is gone
  try {
    if (!found) throw new Error("There is no such page.");
    const view = await import(`./views/${found.route.view}.js`);
    const params = { ...found.params, query: new URLSearchParams(location.search) };
    const end = await view.render(root, params, api);
    if (mine === turn) leave = typeof end === "function" ? end : null;
    else if (typeof end === "function") end();
  } catch (error) {
    console.error(error);
    if (mine === turn) replace(root, h("h1", null, found?.route.title ?? "Not found"), errorBox(error), h("p", null, h("a", { href: "/" }, "Overview")));
  }
  root.removeAttribute("aria-busy");
}

export function navigation() {
  return ROUTES.filter((route) => route.nav).map((route) => h("a", { href: route.path }, route.nav));
}
