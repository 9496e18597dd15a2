"""The task source of a server: tasks from a file or generated from the schemas."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quintain.environments.isolation.isolated import AT_ONCE
from quintain.environments.mcp_server.episode import Episode
from quintain.environments.mcp_server.generation import expert, generate
from quintain.environments.mcp_server.tasks import digest, unplayable
from quintain.environments.servers import ServerProfile
from quintain.environments.tasks.task_files import read_tasks
from quintain.errors import InvalidInput, Unavailable
from quintain.records.protocols import SPLITS, Environment, Policy, TaskSource
from quintain.records.trajectory import Task

if TYPE_CHECKING:
    from quintain.environments.mcp_server.connection import Connection

_JOB_VARIABLE = "QUINTAIN_JOB"
"""By it jobs/processes.py finds what a server left behind."""

_RULES = {"args", "tools", "deny", "values", "system_prompt", "max_turns", "setup", "reset", "fresh", "timeout_s"}
"""Profile fields that affect an agent: results under different rules are not comparable."""


def factory(profile: ServerProfile, variable: Callable[[str], str | None]) -> Callable[..., TaskSource]:
    """Return the factory of a server's source; its option `generated` selects generated tasks despite a task file.

    Args:
        profile: The server.
        variable: Returns the value of an environment variable; called when a server starts.
    """

    def server(generated: bool = False) -> TaskSource:
        return ServerSource(profile, variable, generated=generated)

    server.may_hang = False  # type: ignore[attr-defined] # the server is a separate process, which can be killed
    return server


class ServerSource:
    """Tasks on one MCP server."""

    def __init__(
        self, profile: ServerProfile, variable: Callable[[str], str | None], *, generated: bool = False
    ) -> None:
        """Read the task file, if any, without starting the server."""
        self._drawn: dict[tuple[str, int, int], list[Task]] = {}
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self.id = profile.id
        self.waits = True
        self.at_once = AT_ONCE if profile.fresh == "episode" else 1
        self._profile, self._variable = profile, variable
        self._file = None if generated or profile.tasks is None else read_tasks(Path(profile.tasks))
        version = f"1-{digest(profile.model_dump(mode='json', include=_RULES))}"
        if self._file is None:
            self.version = f"{version}-generated-{digest(list(profile.generate_from))}"
        else:
            self._file.require(unplayable)
            self.version = self._file.version_of(version)

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        """Return `n` distinct tasks of `train` or `held_out`; generating them starts the server."""
        if self._file is not None:
            return [task.model_copy(update={"environment": self.id}) for task in self._file.draw(split, n, seed)]
        if split not in SPLITS:
            raise InvalidInput(f"expected split to be {' or '.join(SPLITS)}, got {split!r} for {self.id}")
        key = (split, n, seed)
        if key not in self._drawn:
            self._drawn[key] = generate(self._profile, self._start, split, n, seed) if n else []
        return list(self._drawn[key])

    def make(self) -> Environment:
        """Return an episode, which starts the server when it begins."""
        return Episode(self._profile, self._borrow, self._give_back)

    def expert(self, tasks: Sequence[Task]) -> Policy:
        """Return a policy that plays the scripts of generated or written tasks."""
        return expert(tasks)

    def close(self) -> None:
        """End the servers without an episode."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    __del__ = close

    def _start(self) -> Connection:
        from quintain.environments.mcp_server.connection import Connection

        values = {name: self._variable(name) for name in self._profile.pass_env}
        if missing := [name for name, value in values.items() if value is None]:
            raise Unavailable(
                f"expected the variable {missing[0]} for {self._profile.id}, got none; set it where Quintain runs",
                code="variable_missing",
            )
        values[_JOB_VARIABLE] = self._variable(_JOB_VARIABLE)
        return Connection(self._profile, {name: value for name, value in values.items() if value is not None})

    def _borrow(self) -> Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._start()
            if connection.alive:
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        """Keep a server for the next episode of its session; a dead one is closed and replaced by a new one."""
        if self._profile.fresh == "session" and connection.alive:
            with self._lock:
                self._idle.append(connection)
        else:
            connection.close()
