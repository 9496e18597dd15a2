"""Coding tasks as an environment plays them: initial files, visible tests, and the judge."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from quintain.checkers.declared import checker_fields, checker_type
from quintain.environments.registry import SANDBOX_ID
from quintain.environments.sandbox.judging import Base, CaseJudge, Judge, TestJudge, Texts, files_of, limits_of_tests
from quintain.environments.sandbox.projects import TEST_COMMAND, build_project
from quintain.environments.sandbox.repositories import Repository, require_commit
from quintain.environments.tasks.families import TaskKey
from quintain.errors import InvalidInput
from quintain.records.record import shown
from quintain.records.trajectory import Task
from quintain.sandbox.limits import Limits
from quintain.sandbox.sandbox import relative_path
from quintain.sandbox.verdicts import signed_command

Find = Callable[[str], Repository]
"""Returns the repository of a name."""

_PROJECT_S = 10.0
_FIELDS = "(`repo` and `base_commit`) or `checker.files`, a `test_command`, and hidden tests in `test_patch` or `checker.tests`"


class Assignment(NamedTuple):
    """A task that can be played."""

    prompt: str
    base: Base
    test_command: str | Sequence[str]
    """Command that runs the visible tests."""
    judge: Judge
    test_s: float
    """Time limit of a test run in seconds."""


@dataclass(frozen=True)
class Commit:
    """Files of a commit."""

    repository: Repository
    commit: str

    def fill(self, folder: Path) -> None:
        """Write the files into an empty folder."""
        self.repository.check_out(self.commit, folder)


def generated_task(key: TaskKey, limits: Limits) -> Assignment:
    """Return a generated task."""
    project = build_project(key)
    seconds = min(_PROJECT_S, limits.wall_s)
    judge = CaseJudge(project.cases, project.gone, limits_of_tests(limits, seconds))
    return Assignment(project.prompt, Texts(project.files), TEST_COMMAND, judge, seconds)


def assignment_of(task: Task, find: Find, limits: Limits, test_s: float) -> Assignment:
    """Return the task of a row in a task file.

    Raises:
        InvalidInput: a field is missing or invalid.
    """
    row = task.metadata
    fields = checker_fields(task)
    kind = checker_type(task)
    if kind not in (None, "unit_tests"):
        raise InvalidInput(f"expected a checker of type unit_tests for {SANDBOX_ID}, got {shown(kind)}")
    if not task.prompt.strip():
        raise InvalidInput("its prompt is empty")
    base = _base(row, fields, find)
    tests = _texts(fields.get("tests"), "checker.tests")
    patch = row.get("test_patch") or ""
    if not isinstance(patch, str):
        raise InvalidInput(f"expected test_patch to be a patch as text, got {shown(patch)}")
    wanted = (*_names(row, "FAIL_TO_PASS"), *_names(row, "PASS_TO_PASS"))
    command = _command(row, fields, wanted)
    if wanted and signed_command(command, {}, "") is None:
        raise InvalidInput(
            f"expected test_command to be python -m pytest or python -m unittest without shell syntax (FAIL_TO_PASS needs test "
            f"names), got {shown(command)}"
        )
    if isinstance(base, Texts) and not tests:
        raise InvalidInput(f"expected tests, got none; a task needs {_FIELDS}")
    seconds = _seconds(fields.get("timeout_s", row.get("timeout_s", test_s)))
    judge = TestJudge(command, limits_of_tests(limits, seconds), tests, patch, wanted)
    return Assignment(task.prompt, base, command, judge, seconds)


def _base(row: Mapping[str, Any], fields: Mapping[str, Any], find: Find) -> Base:
    if (name := row.get("repo")) is not None:
        if not isinstance(name, str):
            raise InvalidInput(f"expected repo to be a name or a path, got {shown(name)}")
        return Commit(find(name), require_commit(row.get("base_commit")))
    files = _texts(fields.get("files"), "checker.files")
    if not files:
        raise InvalidInput(f"expected `repo` or `checker.files`, got neither; a task needs {_FIELDS}")
    return Texts(files)


def _command(row: Mapping[str, Any], fields: Mapping[str, Any], wanted: Sequence[str]) -> str | list[str]:
    command = row.get("test_command") or fields.get("command") or fields.get("test_command")
    if isinstance(command, str) and command.strip():
        return command
    if isinstance(command, list) and command and all(isinstance(part, str) for part in command):
        return command
    if command is not None:
        raise InvalidInput(
            f"expected test_command to be a line, or a list of a program and its arguments, got {shown(command)}"
        )
    if files := sorted(files_of(wanted)):  # rows of SWE-bench name tests, but no command
        return f"python3 -m pytest -q {shlex.join(files)}"
    raise InvalidInput("expected test_command, or FAIL_TO_PASS with files of pytest, got neither; add `test_command`")


def _texts(value: Any, name: str) -> dict[str, str]:
    """Return texts by path."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidInput(f"expected {name} to be an object of paths and texts, got {shown(value)}")
    return {relative_path(path): text for path, text in value.items()}


def _names(row: Mapping[str, Any], field: str) -> tuple[str, ...]:
    names = row.get(field) or []
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"expected {field} to be a list of test names, got {shown(names)}")
    return tuple(names)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.1 <= value <= 3600:
        raise InvalidInput(f"expected timeout_s from 0.1 to 3600 seconds, got {shown(value)}")
    return float(value)
