"""What a task is to its environment: the files that it begins with, the tests that are there, and how it is judged."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from quintain.checkers.declared import checker_fields, checker_type
from quintain.environments.families import TaskKey
from quintain.environments.registry import SANDBOX_ID
from quintain.environments.sandbox.judging import Base, CaseJudge, Judge, TestJudge, Texts, files_of, limits_of_tests
from quintain.environments.sandbox.projects import TEST_COMMAND, build_project
from quintain.environments.sandbox.repositories import Repository, require_commit
from quintain.errors import InvalidInput
from quintain.records.record import shown
from quintain.records.trajectory import Task
from quintain.sandbox.limits import Limits
from quintain.sandbox.sandbox import relative_path
from quintain.sandbox.witnessed_tests import witnessed

Find = Callable[[str], Repository]
"""Finds the repository of a name."""

_PROJECT_S = 10.0
_FIELDS = "(`repo` and `base_commit`) or `checker.files`, a `test_command`, and hidden tests in `test_patch` or `checker.tests`"


class Assignment(NamedTuple):
    """A task that can be played."""

    prompt: str
    base: Base
    test_command: str | Sequence[str]
    """Runs the tests that the agent may see."""
    judge: Judge
    test_s: float
    """Seconds that tests get."""


@dataclass(frozen=True)
class Commit:
    """The files of a commit."""

    repository: Repository
    commit: str

    def fill(self, folder: Path) -> None:
        """As `Base`."""
        self.repository.check_out(self.commit, folder)


def generated(key: TaskKey, limits: Limits) -> Assignment:
    """One of our own tasks."""
    project = build_project(key)
    seconds = min(_PROJECT_S, limits.wall_s)
    judge = CaseJudge(project.cases, project.gone, limits_of_tests(limits, seconds))
    return Assignment(project.prompt, Texts(project.files), TEST_COMMAND, judge, seconds)


def assignment_of(task: Task, find: Find, limits: Limits, test_s: float) -> Assignment:
    """What a row of a task file asks for.

    Raises:
        InvalidInput: it cannot be played; says what is missing.
    """
    said = task.metadata
    fields = checker_fields(task)
    kind = checker_type(task)
    if kind not in (None, "unit_tests"):
        raise InvalidInput(f"its checker is {shown(kind)}, and {SANDBOX_ID} runs tests; valid: unit_tests")
    if not task.prompt.strip():
        raise InvalidInput("its prompt is empty")
    base = _base(said, fields, find)
    tests = _texts(fields.get("tests"), "checker.tests")
    patch = said.get("test_patch") or ""
    if not isinstance(patch, str):
        raise InvalidInput(f"test_patch is {shown(patch)}; it must be a patch as text")
    wanted = (*_names(said, "FAIL_TO_PASS"), *_names(said, "PASS_TO_PASS"))
    command = _command(said, fields, wanted)
    if wanted and witnessed(command, {}, "") is None:
        raise InvalidInput(
            f"its test_command is {shown(command)}, which does not tell tests by their names; valid with FAIL_TO_PASS: python -m "
            "pytest or python -m unittest, without signs of a shell"
        )
    if isinstance(base, Texts) and not tests:
        raise InvalidInput(f"it has no tests; a task needs {_FIELDS}")
    seconds = _seconds(fields.get("timeout_s", said.get("timeout_s", test_s)))
    judge = TestJudge(command, limits_of_tests(limits, seconds), tests, patch, wanted)
    return Assignment(task.prompt, base, command, judge, seconds)


def _base(said: Mapping[str, Any], fields: Mapping[str, Any], find: Find) -> Base:
    if (name := said.get("repo")) is not None:
        if not isinstance(name, str):
            raise InvalidInput(f"repo is {shown(name)}; it must be a name or a path")
        return Commit(find(name), require_commit(said.get("base_commit")))
    files = _texts(fields.get("files"), "checker.files")
    if not files:
        raise InvalidInput(f"it has neither `repo` nor `checker.files`; a task needs {_FIELDS}")
    return Texts(files)


def _command(said: Mapping[str, Any], fields: Mapping[str, Any], wanted: Sequence[str]) -> str | list[str]:
    command = said.get("test_command") or fields.get("command") or fields.get("test_command")
    if isinstance(command, str) and command.strip():
        return command
    if isinstance(command, list) and command and all(isinstance(part, str) for part in command):
        return command
    if command is not None:
        raise InvalidInput(
            f"test_command is {shown(command)}; it must be a line, or a list of a program and its arguments"
        )
    if files := sorted(files_of(wanted)):  # rows of SWE-bench name tests and no command
        return f"python3 -m pytest -q {shlex.join(files)}"
    raise InvalidInput("it states no test_command, and its FAIL_TO_PASS names no files of pytest; add `test_command`")


def _texts(value: Any, name: str) -> dict[str, str]:
    """Texts by path."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidInput(f"{name} is {shown(value)}; it must be an object of paths and texts")
    return {relative_path(path): text for path, text in value.items()}


def _names(said: Mapping[str, Any], field: str) -> tuple[str, ...]:
    names = said.get(field) or []
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InvalidInput(f"{field} is {shown(names)}; it must be a list of names of tests")
    return tuple(names)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.1 <= value <= 3600:
        raise InvalidInput(f"timeout_s is {shown(value)}; valid: 0.1..3600 seconds")
    return float(value)
