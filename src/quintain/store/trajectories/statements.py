"""Statements of hot paths, compiled once and passed to the driver as text with plain values.

SQLAlchemy needs about 0.3 ms per execution of a statement with a hundred parameters, more than SQLite itself.
Parameters and rows are those of the driver: a row is a tuple, a timestamp is text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, Dialect, Executable, Select, Table, bindparam, insert
from sqlalchemy.sql.compiler import SQLCompiler

from quintain.store.documents import CHUNK
from quintain.store.engine import dialect_insert

_SIZES = (1, 10, 50, 100, CHUNK)


class PreparedStatement(NamedTuple):
    """A compiled statement."""

    text: str
    order: tuple[str, ...] | None
    """Parameter names in order, or None if the driver takes parameters by name."""
    constants: Mapping[str, Any]
    """Values that are part of the statement."""

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Execute the statement and fetch all rows."""
        cursor = connection.connection.cursor()
        try:
            cursor.execute(self.text, self._arguments(values))
            return cursor.fetchall()  # type: ignore[return-value]
        finally:
            cursor.close()

    def run(self, connection: Connection, values: Iterable[Mapping[str, Any]]) -> int:
        """Execute the statement once per set of values with one `executemany`. Return the number of changed rows."""
        cursor = connection.connection.cursor()
        try:
            cursor.executemany(self.text, list(map(self._taker(), values)))
            return cursor.rowcount
        finally:
            cursor.close()

    def _arguments(self, values: Mapping[str, Any]) -> Any:
        known = {**self.constants, **values} if self.constants else values
        return known if self.order is None else tuple([known[name] for name in self.order])

    def _taker(self) -> Callable[[Mapping[str, Any]], Any]:
        """Return a faster equivalent of `_arguments` for many sets of values."""
        if self.constants or self.order is None or len(self.order) < 2:
            return self._arguments
        return itemgetter(*self.order)


def prepare(statement: Executable, dialect: Dialect, columns: Sequence[str] | None = None) -> PreparedStatement:
    """Compile a statement whose values are named parameters or constants of plain types.

    Args:
        statement: The statement.
        dialect: Dialect of the connections that will execute it.
        columns: For an insert, the columns that receive values.
    """
    compiled = statement.compile(dialect=dialect, column_keys=None if columns is None else list(columns))  # type: ignore[attr-defined]
    assert isinstance(compiled, SQLCompiler)
    order = compiled.positiontup
    names = frozenset(columns or ())
    constants = {name: value for name, value in compiled.params.items() if value is not None and name not in names}
    return PreparedStatement(str(compiled), None if order is None else tuple(order), constants)


def insert_strict(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
) -> int:
    """Insert rows like `insert_or_skip`, but raise the driver's `IntegrityError` on a unique violation."""
    return _run(_strict_insert, connection, table, rows, shared)


def insert_or_skip(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
) -> int:
    """Insert rows with equal columns by one `executemany`, skipping those that violate a unique constraint.

    Args:
        connection: A write transaction.
        table: Target table.
        rows: Column -> value of each row.
        shared: Column -> value shared by all rows.

    Returns:
        Number of inserted rows.
    """
    return _run(_lenient_insert, connection, table, rows, shared)


def _run(
    make: Callable[[Table, tuple[str, ...], Dialect], PreparedStatement],
    connection: Connection,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    shared: Mapping[str, Any],
) -> int:
    dialect = connection.dialect
    same = {name: _bound(table.c[name], value, dialect) for name, value in shared.items()}
    return make(table, (*rows[0], *shared), dialect).run(connection, [{**row, **same} for row in rows])


@lru_cache(maxsize=16)
def _strict_insert(table: Table, names: tuple[str, ...], dialect: Dialect) -> PreparedStatement:
    return prepare(insert(table), dialect, names)


@lru_cache(maxsize=16)
def _lenient_insert(table: Table, names: tuple[str, ...], dialect: Dialect) -> PreparedStatement:
    return prepare(dialect_insert(table, dialect).on_conflict_do_nothing(), dialect, names)


def _bound(column: Column[Any], value: Any, dialect: Dialect) -> Any:
    process = column.type.dialect_impl(dialect).bind_processor(dialect)
    return value if process is None else process(value)


def select_in(
    connection: Connection, query: Select[Any], column: ColumnElement[Any], values: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Return the rows of a constant query whose column is one of at most `CHUNK` values."""
    if not values:
        return []
    size = next(size for size in _SIZES if size >= len(values))
    padded = [*values, *[values[-1]] * (size - len(values))]
    named = {f"value_{i}": value for i, value in enumerate(padded)}
    return _select_in_statement(query, column, size, connection.dialect).rows(connection, named)


@lru_cache(maxsize=64)
def _select_in_statement(
    query: Select[Any], column: ColumnElement[Any], size: int, dialect: Dialect
) -> PreparedStatement:
    named = [bindparam(f"value_{i}", type_=column.type) for i in range(size)]
    return prepare(query.where(column.in_(named)), dialect)
