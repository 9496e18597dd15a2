"""Encoding of records as stored JSON text, lookup by id, and the error for unknown ids."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeVar

from pydantic_core import PydanticSerializationError
from sqlalchemy import JSON, Column, ColumnElement, Connection, Engine, Select, Table, cast, func, select, type_coerce

from quintain.errors import NotFound
from quintain.next_step import Hint, call
from quintain.records.record import Record
from quintain.records.text import require_clean
from quintain.records.wording import list_names, shown
from quintain.store.database.engine import read_transaction

R = TypeVar("R", bound=Record)

CHUNK = 500
"""Values per `IN (...)` clause, far below SQLite's limit of 32,766 parameters."""


def encode(record: Record, where: str) -> str:
    """Return a record as JSON text; errors name it by `where`, such as `trajectory`.

    Raises:
        InvalidInput: A free field such as `metadata` contains NaN, Infinity or a lone surrogate.
    """
    value = record.model_dump()
    try:
        # pydantic writes NaN as null, which would change recorded data silently.
        json.dumps(value, allow_nan=False, default=str)
        return record.model_dump_json()
    except (ValueError, PydanticSerializationError):
        require_clean(value, where)
        raise


def json_of(engine: Engine, document: Column[str]) -> ColumnElement[Any]:
    """Return a column of JSON text as a JSON value, whose members SQL can read.

    PostgreSQL needs a cast, and cannot read any member of a document with an escaped NUL. SQLite reads JSON from text, and its
    CAST would make a number of it.
    """
    if engine.dialect.name == "sqlite":
        return type_coerce(document, JSON)
    return cast(func.replace(document, r"\u0000", r"\u2400"), JSON)


_LISTED_BY = {
    "trajectory": call("search_trajectories"),
    "job": call("list_jobs"),
    "calibration": call("list_library", kind="calibrations"),
    "evaluation": call("list_library", kind="evaluations"),
}
"""Noun -> the call that lists its records."""


def fetch(connection: Connection, table: Table, kind: type[R], record_id: str, noun: str) -> R:
    """Return the record with this id.

    Raises:
        NotFound: The id does not exist. The message lists the three newest ids.
    """
    document = connection.scalar(select(table.c.document).where(table.c.id == record_id))
    if document is None:
        raise not_found_error(connection, table, [record_id], noun)
    return kind.from_stored(document, record_id)


def get(engine: Engine, table: Table, kind: type[R], record_id: str, noun: str) -> R:
    """Return the record with this id, as `fetch`, in a separate transaction."""
    with read_transaction(engine) as connection:
        return fetch(connection, table, kind, record_id, noun)


def read_all(engine: Engine, kind: type[R], documents: Select[Any]) -> list[R]:
    """Return the records that a selection of ids and documents finds, in its order."""
    with read_transaction(engine) as connection:
        return [kind.from_stored(document, name) for name, document in connection.execute(documents)]


def not_found_error(connection: Connection, table: Table, ids: list[str], noun: str) -> NotFound:
    """Return the error for unknown ids. It names the three newest existing ones."""
    recent = list(connection.scalars(select(table.c.id).order_by(table.c.seq.desc()).limit(3)))
    named = list_names(list(map(shown, ids)), 3)
    known = f"the newest are {', '.join(recent)}" if recent else f"no {noun} is stored"
    listed = Hint("; see ", _LISTED_BY[noun]) if noun in _LISTED_BY else ""
    return NotFound(Hint(f"expected the id of a stored {noun}, got {named}; {known}", listed))


def require_stored(
    connection: Connection, table: Table, ids: Iterable[str], stored: Collection[str], noun: str
) -> None:
    """Check that the stored ids include these.

    Raises:
        NotFound: They do not. The message names the others.
    """
    if unknown := [record_id for record_id in dict.fromkeys(ids) if record_id not in stored]:
        raise not_found_error(connection, table, unknown, noun)


def rows_with(
    connection: Connection, query: Select[Any], column: ColumnElement[Any], values: Iterable[Any]
) -> Iterator[Any]:
    """Yield the rows of a query whose column has one of these values, in one query for each `CHUNK` of different values."""
    for chunk in chunks(list(dict.fromkeys(values))):
        yield from connection.execute(query.where(column.in_(chunk)))


def chunks(values: list[Any]) -> list[list[Any]]:
    """Split values into lists of at most `CHUNK`."""
    return [values[i : i + CHUNK] for i in range(0, len(values), CHUNK)]
