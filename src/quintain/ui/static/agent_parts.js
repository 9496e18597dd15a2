// What the pages on agents share.

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
