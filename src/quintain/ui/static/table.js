// A list of any length, page by page as it is scrolled; only the rows in sight are elements.
//   const list = pagedTable({
//     columns: [{ title: "Run", cell: (row) => idLink(row.id), width: "12rem", class: "number" }, ...],
//     load: (cursor) => api.call("search_trajectories", { limit: 200, cursor }),   // { items, next_cursor }
//     key: (row) => row.id, href: (row) => "/runs/" + row.id, label: "Runs",   // in the plural
//     none: "No run yet.",   // shown by `rich`; may be a function
//   });
//   root.append(list.element); list.reload(); list.update(row); list.rows(); list.more()
// Arrows (or j and k), Home and End move between rows, Enter opens one; `list.resume()` returns to the row that was opened.
import { errorBox, h, replace, rich } from "./elements.js";
import { navigate, setQuery } from "./router.js";

const AHEAD = 12;

// A search field whose words the address keeps; `search.asked()` is the argument of a call, without words nothing.
export function wordSearch(query, what, changed) {
  let text = query.get("text") ?? "";
  const element = h("input", { type: "search", value: text, placeholder: what.toLowerCase(), "aria-label": what, onchange: () => {
    text = element.value.trim();
    setQuery({ text });
    changed();
  } });
  return { element, asked: () => (text ? { text } : {}), none: (usual) => () => (text ? "Nothing is found by these words." : usual) };
}

export function pagedTable({ columns, load, key, href, label, none = "Nothing here yet." }) {
  let rows = [], unreadable = [], cursor = null, state = "idle", generation = 0, height = 38, shown = "", selected = -1;
  const head = h("thead", null, h("tr", null, columns.map((column) =>
    h("th", { scope: "col", class: column.class, style: column.width ? { width: column.width } : null }, column.title))));
  const body = h("tbody");
  const table = h("table", { class: "list", "aria-label": label, "aria-rowcount": -1 }, head, body);
  const status = h("p", { class: "list-status", role: "status" });
  const box = h("div", { class: "list-box", tabindex: "0", role: "region", "aria-label": `${label}, scrollable` }, table);
  const element = h("div", { class: "list-frame" }, box, status);

  function spacer(n) {
    return h("tr", { class: "spacer", "aria-hidden": "true", style: { height: `${n * height}px` } }, h("td"));
  }

  function rowElement(row, i) {
    const element = h("tr", { "aria-rowindex": i + 2, dataset: { key: key(row) }, class: i === selected ? "selected" : null },
      columns.map((column) => h("td", { class: column.class }, column.cell(row))));
    if (href) element.addEventListener("click", (event) => {
      selected = i;
      if (!event.target.closest("a,button,input") && !String(getSelection())) navigate(href(row));
    });
    return element;
  }

  function draw(force = false) {
    const first = Math.max(0, Math.floor(box.scrollTop / height) - AHEAD);
    const last = Math.min(rows.length, Math.ceil((box.scrollTop + box.clientHeight) / height) + AHEAD);
    const range = `${first}-${last}`;
    if (range === shown && !force) return;
    shown = range;
    const hadFocus = body.contains(document.activeElement);
    replace(body, first > 0 && spacer(first), rows.slice(first, last).map((row, i) => rowElement(row, first + i)),
      last < rows.length && spacer(rows.length - last));
    if (hadFocus && !body.contains(document.activeElement)) box.focus({ preventScroll: true });
    const real = body.querySelector("tr[data-key]")?.offsetHeight;
    if (real && Math.abs(real - height) > 0.5) {
      height = real;
      draw(true);
    } else if (last < rows.length && Math.ceil((box.scrollTop + box.clientHeight) / height) > last) draw(); // the rows made the box higher
  }

  async function more() {
    if (state !== "idle") return;
    const mine = generation;
    state = "loading";
    if (!status.firstChild) replace(status, "Loading ...");
    try {
      const page = await load(cursor);
      if (mine !== generation) return;
      rows = rows.concat(page.items);
      unreadable = unreadable.concat(page.unreadable ?? []);
      cursor = page.next_cursor ?? null;
      state = cursor ? "idle" : "done";
      table.setAttribute("aria-rowcount", cursor ? -1 : rows.length + 1);
      const noun = rows.length === 1 ? label.slice(0, -1) : label;
      replace(status, rows.length ? `${rows.length.toLocaleString("en")} ${noun.toLowerCase()}${cursor ? " so far" : ""}` : rich(typeof none === "function" ? none() : none),
        unreadable.length > 0 && `; left out, because this version cannot read them: ${unreadable.slice(0, 10).join(", ")}${unreadable.length > 10 ? ", ..." : ""}`);
      table.hidden = !rows.length;
      draw(true);
      near();
    } catch (error) {
      if (mine !== generation) return;
      state = "failed";
      replace(status, errorBox(error), h("button", { onclick: () => { state = "idle"; more(); } }, "Try again"));
    }
  }

  function near() {
    if (state === "idle" && box.clientHeight && box.scrollTop + 3 * box.clientHeight > rows.length * height) more();
  }

  function select(i) {
    selected = Math.max(0, Math.min(rows.length - 1, i));
    const top = selected * height, head = table.tHead.offsetHeight;
    if (top < box.scrollTop) box.scrollTop = top;
    if (top + height + head > box.scrollTop + box.clientHeight) box.scrollTop = top + height + head - box.clientHeight;
    draw(true);
    (body.querySelector("tr.selected a") ?? box).focus({ preventScroll: true });
  }

  let frame = 0;
  box.addEventListener("scroll", () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => { draw(); near(); });
  }, { passive: true });
  box.addEventListener("keydown", (event) => {
    if (event.target.closest("input,select,textarea")) return;
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity }[event.key];
    if (step) select(selected + step);
    else if (event.key === "Enter" && selected >= 0 && href && event.target === box) navigate(href(rows[selected]));
    else return;
    event.preventDefault();
  });

  function reload() {
    generation++;
    [rows, unreadable, cursor, state, shown, selected] = [[], [], null, "idle", "", -1];
    box.scrollTop = 0;
    return more();
  }

  // Replaces the row of the same key; returns whether there was one.
  function update(row) {
    const i = rows.findIndex((one) => key(one) === key(row));
    if (i < 0) return false;
    rows[i] = { ...rows[i], ...row };
    draw(true);
    return true;
  }

  reload();
  const resume = () => { if (selected >= 0) select(selected); };

  return { element, reload, more, update, resume, rows: () => rows };
}
