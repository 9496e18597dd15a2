"""Common part of all objects of the client: an id, and a record that is read when it is first needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import anyio.to_thread

from quintain.records.wording import clip

if TYPE_CHECKING:
    from quintain.client.session import Session
    from quintain.records.record import Record
    from quintain.tools.services import Services

R = TypeVar("R")
T = TypeVar("T")
JobT = TypeVar("JobT")
"""The job that methods of other objects return; it derives from `Thing`, too."""

_CHARS = 200
"""Characters of a value."""


class Thing(ABC, Generic[R]):
    """Something in the store, by its id. Its record is read when it is first needed."""

    _listed: Mapping[str, Any] = {}
    """What a list had of it, to show before its record is read."""

    def __init__(self, home: Any, id: str, record: R | None = None, answer: Record | None = None) -> None:
        self.id = id
        self._home = home
        self._session: Session = home.session
        self._record = record
        self._answer = answer

    @abstractmethod
    def _fetch(self, services: Services) -> R:
        """Read the record."""

    def load(self) -> R:
        """Read the record again, and return it.

        Raises:
            NotFound: nothing has this id.
        """
        self._record = self._session.read(self._fetch)
        return self._record

    def _loaded(self) -> Self:
        """Load the record, and return the object."""
        self.load()
        return self

    @property
    def record(self) -> R:
        """The stored record; a coroutine calls `load` first."""
        if self._record is None:
            self._record = self._session.read_now(self._fetch, self.id)
        return self._record

    @property
    def answer(self) -> Record | None:
        """Answer of the tool that made it, such as counts, paths and warnings; None: it was found."""
        return self._answer

    if not TYPE_CHECKING:  # which knows the fields by `record`, and so still finds a misspelt method

        def __getattr__(self, name: str) -> Any:
            """Return a field of the record."""
            return _field(self, name)

    def __dir__(self) -> Iterable[str]:
        return {*super().__dir__(), *(_fields(self._record) if self._record is not None else ())}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Thing) and other.id == self.id

    def __hash__(self) -> int:
        return hash((type(self), self.id))

    def _facts(self) -> Mapping[str, Any]:
        """Return what to show of the record."""
        return {}

    def __repr__(self) -> str:
        facts = self._facts() if self._record is not None else self._listed
        shown = "".join(f", {name}={value!r}" for name, value in facts.items() if value not in (None, (), {}))
        return f"{type(self).__name__}({self.id!r}{shown})"

    def _repr_html_(self) -> str:
        return fields_table(self.id, self._facts() if self._record is not None or self._session.blocking else {})


class AsyncThing(Generic[R]):
    """Something in the store, by its id. Its record is what was last loaded."""

    def __init__(self, blocking: Thing[R]) -> None:
        self._blocking = blocking
        self.id = blocking.id

    async def load(self) -> R:
        """Read the record again, and return it.

        Raises:
            NotFound: nothing has this id.
        """
        return await run_in_thread(self._blocking.load)

    @property
    def record(self) -> R:
        """The record as last loaded.

        Raises:
            Conflict: nothing was.
        """
        return self._blocking.record

    @property
    def answer(self) -> Record | None:
        """Answer of the tool that made it, such as counts, paths and warnings; None: it was found."""
        return self._blocking.answer

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a field of the record that was last loaded."""
            return _field(self, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncThing) and other._blocking == self._blocking

    def __hash__(self) -> int:
        return hash(self._blocking)

    def __repr__(self) -> str:
        return f"Async{self._blocking!r}"

    def _repr_html_(self) -> str:
        return self._blocking._repr_html_()


def _fields(record: object) -> list[str]:
    return list(getattr(type(record), "model_fields", ()))


def _field(thing: Thing[Any] | AsyncThing[Any], name: str) -> Any:
    """Return a field of a thing's record.

    Raises:
        AttributeError: it has no such field.
    """
    known = [] if name.startswith("_") else _fields(thing.record)
    if name in known:
        return getattr(thing.record, name)
    more = f"; fields of its record: {', '.join(known)}" if known else ""
    raise AttributeError(f"{type(thing).__name__!r} object has no attribute {name!r}{more}", name=name, obj=thing)


async def run_in_thread(function: Callable[[], T]) -> T:
    """Return the result of a function that blocks, called in a thread."""
    return await anyio.to_thread.run_sync(function)


def fields_table(title: str, fields: Mapping[str, Any]) -> str:
    """Return the fields that have a value, as HTML."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{_cell(value)}</td></tr>"
        for name, value in fields.items()
        if value is not None and value != () and value != {}
    )
    return f"<table><caption style='text-align:left'><b>{escape(title)}</b></caption>{rows}</table>"


def rows_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows under their columns, as HTML."""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return escape(clip(text, _CHARS))
