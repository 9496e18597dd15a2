"""Task files: users' own tasks for any environment, one per line, with a version from a hash of their contents.

A row has `id, prompt, type, difficulty, repo, base_commit, test_command, checker, answer, split, metadata`; rows of SWE-bench, GSM8K,
verl and exported benchmarks work too. A file with bad rows is refused with their lines and reasons: a suite must not lose tasks
silently.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from pydantic import ValidationError

from quintain.datasets.row_files import joined_columns, renamed_columns, rows_of
from quintain.environments.tasks.task_rows import repeats, task_of
from quintain.errors import InvalidInput, NotFound
from quintain.importers.protocol import Report
from quintain.records.protocols import SPLITS, Environment, TaskSource
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Task
from quintain.records.wording import clip, counted, explain

MAX_TASKS = 200_000
ALL = "all"
"""The split of all tasks of a file, for evaluations; the tasks drawn from it are marked as held out."""
HELD_OUT = 5
"""One in so many tasks is held out if rows do not name their split."""
_MAX_LISTED = 5

Fault = Callable[[Task], str | None]
"""Returns why an environment cannot play a task; None: it can."""


def prompt_fault(task: Task) -> str | None:
    """Return why a task asks nothing; None: it has a prompt."""
    if task.prompt.strip():
        return None
    others = ", ".join(name for name in task.metadata if name != "split")
    return f"its prompt is empty, beside the fields {clip(others)}" if others else "its prompt is empty"


@dataclass(frozen=True)
class TaskFile:
    """Tasks of a file."""

    path: Path
    tasks: tuple[Task, ...]
    lines: tuple[int, ...]
    """Line of each task."""
    digest: str
    """SHA-256 of the tasks' contents in the order of their ids."""

    def version_of(self, version: str) -> str:
        """Return an environment's version extended by the file's digest."""
        return f"{version}+{self.digest[:16]}"

    def draw(self, split: str, n: int, seed: int) -> list[Task]:
        """Return `n` tasks of a split, or up to `n` of all, shuffled by seed; fewer with the same seed are a prefix of more.

        Raises:
            InvalidInput: an unknown split, or more tasks than it has.
        """
        if split not in (*SPLITS, ALL):
            raise InvalidInput(f"expected split to be {', '.join(SPLITS)} or {ALL}, got {split!r}")
        wanted = SPLITS if split == ALL else (split,)
        found = sorted(
            (task for task in self.tasks if task.metadata["split"] in wanted), key=lambda task: task.id or ""
        )
        if n < 0 or (n > len(found) and split != ALL):
            raise InvalidInput(
                f"expected `n_tasks` of at most {len(found)}, got {n}: {clip(self.path.name)!r} has {counted(len(found), 'task')} in "
                f"{split} and {len(self.tasks) - len(found)} in the other split; take fewer, evaluate with `split='{ALL}'`, or "
                "change the split that its rows name",
                code="too_many_tasks",
            )
        Random(stable_seed(self.digest, split, seed)).shuffle(found)
        if split != ALL:
            return found[:n]
        # Their runs are not training data, whichever split a row is in.
        held_out = {"split": SPLITS[1]}
        return [task.model_copy(update={"metadata": task.metadata | held_out}) for task in found[:n]]

    def require(self, fault: Fault) -> None:
        """Refuse a file with tasks that an environment cannot play."""
        found = ((line, fault(task)) for line, task in zip(self.lines, self.tasks, strict=True))
        faults = [(line, reason) for line, reason in found if reason is not None]
        _refuse(self.path, faults, len(faults), some=len(faults) < len(self.tasks))


def read_tasks(path: Path, columns: Mapping[str, str] | None = None) -> TaskFile:
    """Return the tasks of a JSONL file or JSON array, optionally compressed (gzip, zstd, bzip2), or of a table.

    Args:
        path: The file.
        columns: Field of a task -> name of the column that has it.

    Raises:
        NotFound: the file does not exist.
        InvalidInput: bad rows, or different tasks of one id, with line and reason; no tasks; too many; or a damaged table.
        Unavailable: pyarrow is not installed.
    """
    resolved = path.expanduser().resolve()
    try:
        about = os.stat(resolved)
    except (OSError, ValueError):
        raise NotFound(
            f"expected the path of a JSONL file with one task per line, got {str(path)[:300]!r}, which does not exist",
            code="no_task_file",
        ) from None
    return _read(resolved, tuple(sorted((columns or {}).items())), about.st_mtime_ns, about.st_size, about.st_ino)


# Child processes make a new environment for every episode; the cache reads their file once.
@lru_cache(maxsize=8)
def _read(path: Path, columns: tuple[tuple[str, str], ...], *_: int) -> TaskFile:
    report = Report()
    places: dict[str, int] = {}
    tasks: dict[str, Task] = {}
    for line, task in _rows(path, dict(columns), report):
        assert task.id is not None
        if task.id in tasks:
            if not repeats(task, tasks[task.id]):
                report.reject(
                    line, f"duplicate id {clip(task.id)!r}, first in line {places[task.id]} with other content"
                )
            continue
        tasks[task.id], places[task.id] = task, line
        if len(tasks) > MAX_TASKS:
            raise InvalidInput(
                f"expected at most {MAX_TASKS:,} tasks in {clip(path.name)!r}, got more; split it into several files",
                code="too_large",
            )
    _refuse(path, report.rejected, report.n_rejected, some=bool(tasks))
    if not tasks:
        raise InvalidInput(
            f"expected tasks in {clip(path.name)!r}, got none; write one JSON object per line", code="no_tasks"
        )
    content = [tasks[task_id].model_dump(mode="json", exclude_defaults=True) for task_id in sorted(tasks)]
    encoded = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    return TaskFile(path, tuple(tasks.values()), tuple(places.values()), hashlib.sha256(encoded).hexdigest())


def _rows(path: Path, columns: Mapping[str, str], report: Report) -> Iterator[tuple[int, Task]]:
    for line, row in rows_of(path, report):
        try:
            is_named = columns and isinstance(row, dict)
            task = task_of(renamed_columns(joined_columns(row, columns), columns) if is_named else row)
        except InvalidInput as error:
            report.reject(line, error.message)
        except ValidationError as error:
            report.reject(line, explain(error, "row"))
        else:
            split = task.metadata.get("split") or split_of(task.id or "")
            yield line, task.model_copy(update={"metadata": {**task.metadata, "split": split}})


def split_of(task_id: str) -> str:
    """Return the split of a task whose row names none, from its id alone: other rows do not affect it."""
    return "held_out" if stable_seed("split", task_id) % HELD_OUT == 0 else "train"


def _refuse(path: Path, faults: Sequence[tuple[int | None, str]], n: int, *, some: bool) -> None:
    """Refuse a file with bad rows.

    Args:
        path: The file.
        faults: Line and reason of the first bad rows.
        n: Number of bad rows.
        some: Whether there are good rows too; if not, the columns have other names.
    """
    if not n:
        return
    lines = dict[str, list[str]]()
    for line, reason in sorted(faults, key=lambda fault: fault[0] or 0)[:_MAX_LISTED]:
        lines.setdefault(reason, []).append(str(line))
    listed = "; ".join(f"line{'s' * (len(own) > 1)} {', '.join(own)}: {reason}" for reason, own in lines.items())
    more = f"; and {counted(n - _MAX_LISTED, 'more line')}" if n > _MAX_LISTED else ""
    columns = (
        ""
        if some
        else "name the columns of question, choices and answer, quintain/tasks?file=PATH&prompt=ASK,A,B,C&answer=RIGHT, play "
        "prompts without an answer by quintain/tasks?file=PATH&open=true, or "
    )
    raise InvalidInput(
        f"{clip(path.name)!r} has {counted(n, 'bad row')}: {listed}{more}; {columns}correct or remove them",
        code="bad_task_rows",
    )


class FileTasks:
    """The tasks of a file, played in the environment of any source."""

    def __init__(self, source: TaskSource, path: Path) -> None:
        """Read the file."""
        self._source, self._file = source, read_tasks(path)
        self.id, self.version = source.id, self._file.version_of(source.version)

    def __getattr__(self, name: str) -> Any:
        if name in {"_source", "_file"}:  # not set yet while being copied or unpickled
            raise AttributeError(name)
        return getattr(self._source, name)

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        """Return tasks of the file under the source's environment id."""
        return [task.model_copy(update={"environment": self.id}) for task in self._file.draw(split, n, seed)]

    def make(self) -> Environment:
        """Return a fresh environment of the source."""
        return self._source.make()
