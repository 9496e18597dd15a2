"""Keyset pagination, newest first: stable while rows are added, and equally fast at any depth."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, Table, func, or_, select

from quintain.errors import Conflict, InvalidInput
from quintain.records.filters import Page
from quintain.records.record import Record, unreadable_records
from quintain.store.database.engine import read_transaction

Item = TypeVar("Item", bound=Record)

MAX_LIMIT = 200


def read_pages(page: Callable[..., Page[Item]], unreadable: list[str] | None = None) -> Iterator[Item]:
    """Yield the records of all pages, newest first.

    Args:
        page: Takes `limit` and `cursor`.
        unreadable: Gets the ids of records that this version cannot read. None: the first of them is an error.

    Raises:
        Conflict: This version cannot read a record (`record_unreadable`).
    """
    cursor: str | None = None
    while True:
        found = page(limit=MAX_LIMIT, cursor=cursor)
        yield from found.items
        if unreadable is not None:
            unreadable += found.unreadable
        elif found.unreadable:
            raise unreadable_records(found.unreadable)
        if (cursor := found.next_cursor) is None:
            return


def fetch_page(
    engine: Engine,
    table: Table,
    kind: type[Item],
    *conditions: ColumnElement[bool],
    limit: int,
    cursor: str | None,
) -> Page[Item]:
    """Return one page of records, whose JSON is in the column `document`; arguments as for `fetch_rows`."""
    query = select(table.c.seq, table.c.id, table.c.document).where(*conditions)
    with read_transaction(engine) as connection:
        rows, following = fetch_rows(connection, query, table, limit=limit, cursor=cursor)
    return readable_page(rows, lambda row: kind.from_stored(row.document), following)


def readable_page(rows: Iterable[Row[Any]], read: Callable[[Row[Any]], Item], following: str | None) -> Page[Item]:
    """Return the records of rows that this version can read, with the ids of the others."""
    found, others = list[Item](), list[str]()
    for row in rows:
        try:
            found.append(read(row))
        except Conflict:
            others.append(row.id)
    return Page(items=tuple(found), next_cursor=following, unreadable=tuple(others))


def fetch_rows(
    connection: Connection,
    statement: Select[Any],
    table: Table,
    *,
    limit: int,
    cursor: str | None,
    key: ColumnElement[int] | None = None,
) -> tuple[Sequence[Row[Any]], str | None]:
    """Return one page of rows by descending `seq`, the first column of the statement, and the cursor of the next page.

    Args:
        connection: A read transaction.
        statement: The filtered selection.
        table: The table of `seq`, whose name is part of the cursor.
        limit: Rows per page, 1..200.
        cursor: `next_cursor` of the previous page, or None for the first page.
        key: Column that equals `seq` and has an index for the selection. None: `seq` itself.

    Raises:
        InvalidInput: The limit is out of bounds, or the cursor belongs to another list.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"expected limit in 1..{MAX_LIMIT}, got {limit}; use `cursor` to see more")
    key = table.c.seq if key is None else key
    if cursor is not None:
        statement = statement.where(key < decode_cursor(cursor, table.name))
    # One extra row shows whether another page follows.
    rows = connection.execute(statement.order_by(key.desc()).limit(limit + 1)).all()
    return rows[:limit], encode_cursor(rows[limit - 1][0], table.name) if len(rows) > limit else None


def contain_words(text: str, *columns: ColumnElement[str]) -> list[ColumnElement[bool]]:
    """Return the conditions that each word of a text is a substring of one of the columns, ignoring case."""
    lowered = [func.lower(column) for column in columns]
    return [or_(*(column.contains(word, autoescape=True) for column in lowered)) for word in text.lower().split()]


def encode_cursor(seq: int, noun: str) -> str:
    """Return an opaque cursor behind the entry with this number in a list."""
    return base64.urlsafe_b64encode(json.dumps([noun, seq]).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, noun: str) -> int:
    """Return the number in a cursor of this list.

    Raises:
        InvalidInput: The cursor belongs to another list, or is not a cursor.
    """
    try:
        value = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error):
        value = None
    match value:
        case [str(name), int(seq)] if name == noun and 0 < seq < 2**63:
            return seq
    raise InvalidInput(
        f"expected a cursor of this list, got {cursor[:60]!r}; pass `next_cursor` of the previous page unchanged, "
        "or omit it to start at the newest",
        code="bad_cursor",
    )
