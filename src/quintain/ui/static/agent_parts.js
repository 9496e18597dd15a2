// What the pages on agents share.

export function sizeText(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes, i = 0;
  for (; value >= 1000 && i < units.length - 1; i++) value /= 1000;
  return `${value >= 100 || i === 0 ? Math.round(value) : value.toFixed(1)} ${units[i]}`;
}

// Returns all items of a list of the library that a text finds, at most `most`.
export async function listAll(api, kind, text, most = 200) {
  const items = [];
  let cursor = null;
  do {
    const page = await api.call("list_library", { kind, limit: 200, ...(text && { text }), ...(cursor && { cursor }) });
    items.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor && items.length < most);
  return { items, isCut: Boolean(cursor) };
}
