"""Tasks that a caller writes: checked in form, kept as a task file in the inbox, and played by a job.

On an MCP server each task carries the calls that solve it (`script`), so that `agent="expert"` shows by executing them that the task can
be solved and that its checker notices it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from quintain.environments.mcp_server.tasks import calls_of, digest, unplayable, write_rows
from quintain.environments.references import Reference, parse_reference, parts_of, write_reference
from quintain.environments.servers import PREFIX
from quintain.environments.tasks.task_rows import task_of
from quintain.errors import InvalidInput, QuintainError, Unavailable
from quintain.jobs.directory import write_atomically
from quintain.records.record import clip, explain
from quintain.records.trajectory import Task
from quintain.tools.services import Services

_FOLDER = "tasks"
_MAX_LISTED = 10
_FORM = (
    "; a task is {'prompt': ..., 'checker': ..., 'script': [{'tool': ..., 'args': {...}}]}, its checker {'type': 'state', 'tool': "
    "..., 'args': {...}, 'contains': ...}, {'type': 'calls', 'expect': [{'tool': ..., 'args': {...}}]} or {'type': 'answer', "
    "'answer': ...}, its script the calls that solve it"
)
"""Added to refusals of tasks for an MCP server."""


def store_tasks(
    services: Services, environment: str | Mapping[str, float], rows: Sequence[Mapping[str, Any]], split: str
) -> str:
    """Write tasks into a file and return the reference that plays them in an environment.

    Args:
        services: Settings with the inbox.
        environment: One environment without the option `tasks`.
        rows: Rows of a task file; a row without `split` belongs to `split`.
        split: Split that the job plays.

    Raises:
        InvalidInput: rows that are not tasks, with the reason of each, or of another split; or several environments.
        Unavailable: the disk does not take the file.
    """
    if not isinstance(environment, str) or parts_of(environment) is not None:
        raise InvalidInput("expected one environment for `tasks`, got several; write tasks for each of them alone")
    name, options = parse_reference(environment)
    if "tasks" in options:
        raise InvalidInput("expected `tasks` or the option `tasks` of the environment, got both; leave one out")
    found, faults = dict[str, Task](), list[str]()
    for place, row in enumerate(rows):
        try:
            task = _task(row, split)
            fault = _fault(task, name, split, {other.prompt for other in found.values()})
        except ValidationError as error:
            fault = explain(error, "row")
        except QuintainError as error:
            fault = error.message
        if fault is None:
            found[task.id or ""] = task
        else:
            faults.append(f"tasks[{place}]: {fault}")
    if faults:
        raise InvalidInput(
            f"{len(faults)} of {len(rows)} tasks cannot be played: {'; '.join(faults[:_MAX_LISTED])}; correct or remove them"
            + (_FORM if name.startswith(PREFIX) else ""),
            code="bad_task_rows",
        )
    return write_reference(Reference(name, {**options, "tasks": str(_store(services, list(found.values())))}))


def _task(row: Mapping[str, Any], split: str) -> Task:
    fields = {name: value for name, value in row.items() if name not in ("script", "setup")}
    calls = {name: row[name] for name in ("script", "setup") if name in row}
    metadata = {**(row.get("metadata") or {}), **calls}
    return task_of({"split": split, **fields, "metadata": metadata})


def _fault(task: Task, name: str, split: str, prompts: set[str]) -> str | None:
    """Return why a task is not taken; None: it is."""
    if task.prompt in prompts:
        return "expected a prompt of its own, got that of an earlier task"
    if task.metadata["split"] != split:
        return f"expected split {split!r}, as in the call, got {task.metadata['split']!r}"
    if not name.startswith(PREFIX):
        return None
    if (fault := unplayable(task)) is not None:
        return fault
    if task.metadata.get("checker") is None and task.metadata.get("answer") is None:
        return "expected a `checker` or an `answer`, got neither"
    if not calls_of(task, "script"):
        return f"expected the calls that solve it as `script`, got none for {clip(task.prompt)!r}"
    return None


def _store(services: Services, tasks: Sequence[Task]) -> Path:
    folder = services.settings.inbox_dir / _FOLDER
    text = write_rows(tasks)
    path = folder / f"{digest(text)}.jsonl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as error:
        raise Unavailable(
            f"tasks cannot be written to {folder} ({error.strerror}); free the disk or its rights"
        ) from error
    return path
