"""One home folder for the client's objects: calls of tools, reads of the store, and the bounds of a wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import anyio
import anyio.from_thread

from quintain.client.method_calls import errors_name_methods, in_methods
from quintain.errors import Conflict, JobFailed
from quintain.records.jobs.job import JobStatus
from quintain.records.record import Record
from quintain.settings import read_settings
from quintain.tools.catalog import tool as find
from quintain.tools.invocation import call, check

if TYPE_CHECKING:
    from quintain.tools.results import JobView
    from quintain.tools.services import Services

T = TypeVar("T")


@runtime_checkable
class Identified(Protocol):
    """An object of the store."""

    @property
    def id(self) -> str:
        """Its id, such as `agent:mine@1`."""


Reference = str | Identified
"""An id or a name, or the object itself."""


class Session:
    """Opens a home folder at its first use, and calls tools in it. Any thread may use it."""

    def __init__(self, home: str | PathLike[str] | None) -> None:
        self.settings = read_settings(None if home is None else Path(fspath(home)))
        self.blocking = True
        """Whether properties may read the store; a coroutine's may not, because they cannot be awaited."""
        self._services: Services | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def __reduce__(self) -> tuple[object, ...]:
        """Open the same home again in another process."""
        return Session, (self.settings.home,), {"blocking": self.blocking}

    def services(self) -> Services:
        """Return the open home.

        Raises:
            Conflict: it was closed.
            Unavailable: the home folder is not writable, or the database is newer than this program.
        """
        with self._lock:
            if self._is_closed:
                raise Conflict("expected an open home, got one that was closed; open it again", code="closed")
            if self._services is None:
                from quintain.tools.services import open_services

                self._services = open_services(self.settings, trusted=True)
            return self._services

    def close(self) -> None:
        """Close the database; jobs go on."""
        with self._lock:
            self._is_closed = True
            if self._services is not None:
                self._services.close()
                self._services = None

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool. An argument that is None is left out, and objects of the store count by their ids.

        Raises:
            QuintainError: as the tool.
        """
        with errors_name_methods(tool):
            return in_methods(call(self.services(), find(tool).for_operator, _given(arguments)), tool)

    def check(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Check the arguments of a call that is made later.

        Raises:
            InvalidInput: as the call would.
        """
        with errors_name_methods(tool):
            check(find(tool).for_operator, _given(arguments))

    def read(self, function: Callable[[Services], T]) -> T:
        """Call a function with the open home."""
        with errors_name_methods():
            return function(self.services())

    def pause(self, seconds: float) -> None:
        """Sleep. A thread of a coroutine ends its sleep when the coroutine is cancelled."""
        if self.blocking:
            time.sleep(seconds)
        else:
            anyio.from_thread.run(anyio.sleep, seconds)

    def read_now(self, function: Callable[[Services], T], what: str) -> T:
        """Read for a property.

        Raises:
            Conflict: the properties of this session cannot read, and `what` was not loaded.
        """
        if not self.blocking:
            raise Conflict(
                f"expected {what} after `load`, got it before; await its method `load` first", code="not_loaded"
            )
        return self.read(function)


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call that are not None, as tools take them."""
    return {name: plain(value) for name, value in arguments.items() if value is not None}


def plain(value: Any) -> Any:
    """Return an argument as tools take it: ids for objects, text for paths, lists and objects of JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Record):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Identified):
        return value.id
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [plain(inner) for inner in value]
    return value


def require_success(view: JobView) -> None:
    """Raise if a job did not succeed.

    Raises:
        JobFailed: with the code and the remedy of the job's error.
    """
    if view.status == JobStatus.SUCCEEDED:
        return
    error = view.error
    remedy = (error and error.hint) or view.next_step
    if error is None:
        raise JobFailed(f"expected {view.job_id} to succeed, got status {view.status}; {remedy}", code=view.status)
    raise JobFailed(f"{view.job_id} failed: {error.message.rstrip('.; ')}; {remedy}", code=error.code)


def ids_of(things: Iterable[Reference]) -> list[str]:
    """Return the ids of objects or references."""
    return [thing if isinstance(thing, str) else thing.id for thing in things]
