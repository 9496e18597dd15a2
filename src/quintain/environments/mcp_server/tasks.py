"""Metadata of tasks on a server: checks, setup calls, and the script of generated tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from pydantic import ValidationError

from quintain.environments.mcp_server.checks import read_checks
from quintain.environments.servers import Call
from quintain.errors import InvalidInput
from quintain.records.record import explain
from quintain.records.trajectory import Task

_COLUMNS = ("checker", "answer", "split")


def calls_of(task: Task, name: str) -> tuple[Call, ...]:
    """Return the calls in a task's metadata: `setup` before it begins, `script` to solve it.

    Raises:
        InvalidInput: the metadata does not contain calls.
    """
    listed = task.metadata.get(name) or ()
    try:
        return tuple(Call.model_validate(call) for call in listed)
    except (ValidationError, TypeError) as error:
        why = explain(error, f"metadata.{name}") if isinstance(error, ValidationError) else str(error)
        raise InvalidInput(f"{why}; write a list of {{'tool': ..., 'args': {{...}}}}", code="bad_task_rows") from None


def unplayable(task: Task) -> str | None:
    """Return why a task cannot be played on a server; None: it can. A task without a checker ends without a verdict."""
    if not task.prompt.strip():
        return "its prompt is empty"
    try:
        read_checks(task.metadata)
        calls_of(task, "setup")
    except InvalidInput as error:
        return error.message
    return None


def write_rows(tasks: Iterable[Task]) -> str:
    """Return the text of a task file, which `task_files` reads."""
    rows = []
    for task in tasks:
        columns = {name: task.metadata[name] for name in _COLUMNS if name in task.metadata}
        rest = {name: value for name, value in task.metadata.items() if name not in _COLUMNS}
        row = {
            "id": task.id,
            "prompt": task.prompt,
            "type": task.type,
            "difficulty": task.difficulty,
            **columns,
            "metadata": rest,
        }
        rows.append(
            json.dumps({name: value for name, value in row.items() if value is not None}, ensure_ascii=False) + "\n"
        )
    return "".join(rows)


def digest(*values: Any) -> str:
    """Return a short hash of JSON values."""
    return sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]
