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
from string import ascii_uppercase
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from quintain.checkers.quantities import quantity
from quintain.datasets.row_files import joined_columns, renamed_columns, rows_of
from quintain.errors import InvalidInput, NotFound
from quintain.importers.files.tables import with_small_names
from quintain.importers.protocol import Report
from quintain.records.protocols import SPLITS, Environment, TaskSource
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Task
from quintain.records.wording import clip, counted, explain, shown

_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("held_out", "held-out", "test", "validation", "valid", "val", "dev", "eval"), "held_out"),
}
_CHECKED_BY = ("repo", "base_commit", "test_command", "checker", "answer")
_SOLUTION_COLUMNS = frozenset({"patch", "hints_text"})
"""Columns of SWE-bench that give the solution away; tasks do not keep them."""
_EASY_LINES, _MEDIUM_LINES = 10, 50
ASKED = ("question", "problem", "query")
"""Columns of questions, beside `prompt`."""


class _Row(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    id: Annotated[str, Field(min_length=1, max_length=500)]
    prompt: str = ""
    type: str | None = None
    difficulty: str | None = None
    repo: str | None = None
    base_commit: str | None = None
    test_command: str | list[str] | None = None
    checker: dict[str, JsonValue] | str | None = None
    answer: JsonValue = None
    split: str | None = None
    environment: str | None = None
    metadata: dict[str, JsonValue] = {}


def task_of(value: Any) -> Task:
    """Return the task of a row, or of a prompt alone; unknown columns become metadata.

    Raises:
        InvalidInput: not an object, an unknown split, or neither id nor prompt.
        ValidationError: a field of a wrong type.
    """
    value = {"prompt": value} if isinstance(value, str) else value
    if not isinstance(value, dict):
        raise InvalidInput(f"expected a JSON object, got {shown(value)}")
    row = _Row.model_validate(_native(with_small_names(value)))
    split = row.split if row.split is not None else row.metadata.get("split")
    if split is not None and _SPLITS.get(str(split).strip().lower()) is None:
        raise InvalidInput(f"expected split to be train or held_out (or test, validation), got {shown(split)}")
    checked_by = {name: value for name in _CHECKED_BY if (value := getattr(row, name)) is not None}
    metadata = {**(row.model_extra or {}), **row.metadata, **checked_by}
    metadata.pop("split", None)
    return Task(
        id=row.id,
        prompt=row.prompt,
        type=row.type,
        difficulty=row.difficulty,
        environment=row.environment,
        metadata=metadata if split is None else {**metadata, "split": _SPLITS[str(split).strip().lower()]},
    )


def _native(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with Quintain's field names."""
    if isinstance(row.get("task"), dict) and "prompt" not in row:  # an exported benchmark
        row = _benchmark(row)
    if "instance_id" in row and "problem_statement" in row:
        return _swe_bench(row)
    fields = dict(row)
    if isinstance(row.get("reward_model"), dict):  # of verl
        fields["ground_truth"] = fields.pop("reward_model").get("ground_truth")
    for name in ("ground_truth", "answerKey"):
        if name in fields:
            fields.setdefault("answer", fields.pop(name))
    asked = next((name for name in ASKED if name in row), None)
    if asked is not None and ("prompt" not in row or "ground_truth" in row):  # there `prompt` is the templated question
        return _question(fields, asked)
    if isinstance(row.get("prompt"), list):
        fields["prompt"] = _asked_by_user(row["prompt"])
    for ours, theirs in (("id", "task_id"), ("prompt", "description"), ("prompt", "instruction")):
        if ours not in fields and theirs in fields:
            fields[ours] = fields.pop(theirs)
    return _identified(fields)


def _benchmark(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task of an exported benchmark, with the references of its best run as metadata."""
    task = dict(row["task"])
    known = {name: row[name] for name in ("target_tools", "plan") if row.get(name)}
    best = row["references"][0] if isinstance(row.get("references"), list) and row["references"] else None
    if isinstance(best, dict) and best.get("success") is True and best.get("steps"):
        known["reference_steps"] = best["steps"]
    metadata = task.get("metadata")
    task["metadata"] = known | metadata if isinstance(metadata, dict) else known
    return task


def _swe_bench(row: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in row.items() if name not in _SOLUTION_COLUMNS}
    for name in ("FAIL_TO_PASS", "PASS_TO_PASS"):
        if name in fields:
            fields[name] = _tests(name, fields[name])
    fields["id"], fields["prompt"] = fields.pop("instance_id"), fields.pop("problem_statement")
    if "version" in fields:
        fields["repo_version"] = fields.pop("version")
    fields.setdefault("type", "bug_fix")
    if "difficulty" in fields:  # SWE-bench Verified: estimated time for a person
        fields["time_estimate"] = fields.pop("difficulty")
    if isinstance(row.get("patch"), str):
        fields["difficulty"] = _patch_difficulty(row["patch"])
    return _identified(fields)


def _tests(name: str, value: Any) -> list[str]:
    """Return test names; SWE-bench stores the list as JSON text."""
    try:
        tests = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        tests = None
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise InvalidInput(f"expected {name} to be a list of test names, or that list as JSON text, got {shown(value)}")
    return tests


def _patch_difficulty(patch: str) -> str:
    """Return a difficulty by the number of lines of the reference patch."""
    lines = len(patch.splitlines())
    return "easy" if lines < _EASY_LINES else "medium" if lines < _MEDIUM_LINES else "hard"


def _question(fields: dict[str, Any], asked: str) -> dict[str, Any]:
    """Return the fields of a question; in GSM8K its answer follows `####` at the end of a worked solution."""
    fields["prompt"] = fields.pop(asked)
    if isinstance(answer := fields.get("answer"), str) and "####" in answer:
        solution, _, final = answer.rpartition("####")
        if not final.strip():
            raise InvalidInput("expected a final answer after `####`, got nothing")
        fields["answer"] = final.strip()
        if steps := solution.count("<<"):
            fields["n_steps"] = steps
    return _identified(fields)


def _with_choices(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with `choices` in the prompt, and the right one by its letter or its text.

    MMLU has a list and the index of the right one, ARC `{text, label}` and the label.
    """
    choices, prompt, answer = fields.get("choices"), fields.get("prompt"), fields.get("answer")
    texts, labels = (choices.get("text"), choices.get("label")) if isinstance(choices, dict) else (choices, None)
    if not isinstance(texts, list) or not isinstance(prompt, str) or len(texts) > len(ascii_uppercase):
        return fields
    named = dict(zip(labels if isinstance(labels, list) else ascii_uppercase, texts, strict=False))
    right = next((label for label, text in named.items() if answer in (label, text)), None)
    if right is None and isinstance(answer, int) and 0 <= answer < len(named):
        right = list(named)[answer]
    fields["prompt"] = "\n".join([prompt, *(f"{label}: {text}" for label, text in named.items())])
    if right is not None:  # beside a number, words and letters are not compared
        either = [right, named[right]]
        fields["answer"] = either if all(quantity(str(one)) is None for one in either) else right
    return fields


def _asked_by_user(messages: list[Any]) -> str:
    """Return the messages of a prompt of TRL or verl as one text, with the system's instructions before the question."""
    chat = [(str(one.get("role")), str(one.get("content", ""))) for one in messages if isinstance(one, dict)]
    roles = [role for role, _ in chat]
    if not {"user"} <= set(roles) <= {"system", "user"}:
        raise InvalidInput(f"expected prompt to be text or a user's messages, got those of {clip(', '.join(roles))}")
    return "\n\n".join(text for _, text in chat)


def _identified(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the choices in the prompt, and with an id: the row's own, or one derived from its prompt."""
    fields = _with_choices(fields)
    task_id, prompt = fields.get("id"), fields.get("prompt", "")
    if isinstance(task_id, int) and not isinstance(task_id, bool):
        fields["id"] = str(task_id)
    elif task_id is None:
        if not isinstance(prompt, str) or not prompt.strip():
            raise InvalidInput(
                f"expected an id or a prompt, got the fields {clip(', '.join(map(str, fields)) or 'none')}"
            )
        fields["id"] = f"task-{hashlib.sha256(prompt.encode()).hexdigest()[:16]}"
    return {name: value for name, value in fields.items() if value is not None}


def prompt_fault(task: Task) -> str | None:
    """Return why a task asks nothing; None: it has a prompt."""
    if task.prompt.strip():
        return None
    others = ", ".join(name for name in task.metadata if name != "split")
    return f"its prompt is empty, beside the fields {clip(others)}" if others else "its prompt is empty"


MAX_TASKS = 200_000
ALL = "all"
"""The split of all tasks of a file, for evaluations; the tasks drawn from it are marked as held out."""
HELD_OUT = 5
"""One in so many tasks is held out if rows do not name their split."""
_MAX_LISTED = 5

Fault = Callable[[Task], str | None]
"""Returns why an environment cannot play a task; None: it can."""


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
            if task != tasks[task.id]:  # a row that repeats another is the same task
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
