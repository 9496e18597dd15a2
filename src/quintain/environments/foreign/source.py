"""Task sources of other libraries and servers: `gymnasium/ID`, `textarena/ID`, `openenv:NAME`, `agentgym:NAME`, `verifiers:NAME`.

Each runs its adapter in separate processes (`isolated`), with the interpreter that the operator names for the library or Quintain's.
The process sees Quintain's package by its path alone, not the libraries beside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, FiniteFloat

from quintain.environments.foreign.profiles import (
    LIBRARIES,
    ForeignProfile,
    find_foreign,
    find_interpreter,
    list_modules,
)
from quintain.environments.isolation.isolated import IsolatedSource
from quintain.environments.mcp_server.tasks import digest
from quintain.environments.servers import Seconds
from quintain.records.protocols import TaskSource

_PACKAGE = Path(__file__).parents[2]
_PROGRAM = (
    "import sys, types; package = types.ModuleType('quintain'); package.__path__ = [sys.argv.pop(1)]; "
    "sys.modules['quintain'] = package; from quintain.environments.foreign.adapter import main; main()"
)
"""Makes `quintain` importable without its `__init__` and without a folder of further packages on the path."""

_RULES = ("options", "modules", "success_at", "max_turns", "system_prompt", "reset", "create", "taskset", "config")
"""Settings that affect an agent: results under different ones are not comparable."""

_TIMEOUT_S = 60.0


def factory(environment_id: str, path: Path | None) -> Callable[..., TaskSource]:
    """Return the factory of an id's source.

    Args:
        environment_id: An id for which `is_foreign` is true.
        path: The operator's `environments.toml`.
    """
    library, _, name = environment_id.partition("/")
    if library in LIBRARIES:
        return _library_factory(library, name, path)
    profile = find_foreign(path, environment_id)

    def server() -> TaskSource:
        source = _open(profile.kind, profile.id, _settings(profile), path, profile.timeout_s)
        source.at_once = profile.at_once
        return source

    server.__doc__ = type(profile).__doc__
    server.may_hang = False  # type: ignore[attr-defined] # it runs in separate processes
    return server


def _library_factory(library: str, name: str, path: Path | None) -> Callable[..., TaskSource]:
    def environment(
        success_at: FiniteFloat = 1.0,
        max_turns: Annotated[int, Field(ge=1, le=1000)] | None = None,
        timeout_s: Seconds = _TIMEOUT_S,
        system_prompt: Annotated[str, Field(max_length=20_000)] | None = None,
        **options: str,
    ) -> TaskSource:
        settings = {"name": name, "success_at": success_at, "max_turns": max_turns, "system_prompt": system_prompt}
        settings |= {"options": _values(options), "modules": list_modules(path) if library == "gymnasium" else []}
        return _open(library, f"{library}/{name}", settings, path, timeout_s)

    environment.__doc__ = f"An environment of {library}; further options are arguments of its constructor."
    environment.may_hang = False  # type: ignore[attr-defined] # it runs in separate processes
    return environment


def _values(options: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments of a constructor: numbers and other JSON where an option's text is JSON, else the text."""
    values: dict[str, Any] = {}
    for name, text in options.items():
        try:
            values[name] = json.loads(text)
        except (ValueError, RecursionError):
            values[name] = text
    return values


def _settings(profile: ForeignProfile) -> dict[str, Any]:
    fields = profile.model_dump(mode="json", exclude={"tasks"})
    return {**fields, "n_tasks": getattr(profile, "tasks", None)}


def _open(
    kind: str, environment_id: str, settings: dict[str, Any], path: Path | None, timeout_s: float
) -> IsolatedSource:
    rules = digest({name: settings.get(name) for name in _RULES})
    passed = json.dumps({**settings, "kind": kind, "id": environment_id, "rules": rules})
    interpreter = find_interpreter(path, kind) or sys.executable
    command = (interpreter, "-P", "-c", _PROGRAM, str(_PACKAGE), passed)
    return IsolatedSource(environment_id, command=command, timeout_s=timeout_s)
