"""Coding tasks as an environment plays them: initial files, visible tests, and the judge.

The files of a row with a repository are those of one commit, without history. Git gets the object folder only. It never reads a
repository's configuration, which could make it run programs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from quintain.checkers.declared import checker_fields, checker_type
from quintain.environments.registry import SANDBOX_ID
from quintain.environments.sandbox.judging import Base, CaseJudge, Judge, TestJudge, Texts, files_of, limits_of_tests
from quintain.environments.sandbox.projects import TEST_COMMAND, build_project
from quintain.environments.tasks.families import TaskKey
from quintain.environments.tasks.task_files import prompt_fault
from quintain.errors import InvalidInput, Unavailable
from quintain.records.trajectory import Task
from quintain.records.wording import clip, shown
from quintain.sandbox.limits import Limits
from quintain.sandbox.sandbox import relative_path
from quintain.sandbox.verdicts import signed_command

MAX_TREE_BYTES, MAX_TREE_FILES = 1_000_000_000, 50_000
"""Maximum size and number of the files of a commit."""
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_GIT_S = 300.0


@dataclass(frozen=True)
class Repository:
    """A repository on this machine."""

    name: str
    objects: Path

    def missing(self, commits: Sequence[str]) -> list[str]:
        """Return the commits that the repository lacks."""
        asked = "".join(f"{commit}^{{commit}}\n" for commit in commits).encode()
        with self._git() as git:
            answers = git(["cat-file", "--batch-check"], asked).decode("utf-8", "replace").splitlines()
        return [commit for commit, answer in zip(commits, answers, strict=False) if " commit " not in answer]

    def check_out(self, commit: str, folder: Path) -> None:
        """Write the files of a commit into an empty folder.

        Raises:
            InvalidInput: the commit is missing or too large.
            Unavailable: git does not run.
        """
        with self._git(folder) as git:
            listed = git(["ls-tree", "-r", "-l", "-z", commit]).split(b"\0")
            sizes = [
                int(about[3])
                for line in listed
                if len(about := line.partition(b"\t")[0].split()) == 4 and about[3].isdigit()
            ]
            if len(listed) > MAX_TREE_FILES or sum(sizes) > MAX_TREE_BYTES:
                raise InvalidInput(
                    f"expected at most {MAX_TREE_FILES:,} files of {MAX_TREE_BYTES:,} bytes in {commit} of {clip(self.name)!r}, "
                    f"got {len(listed):,} files of {sum(sizes):,} bytes"
                )
            git(["read-tree", commit])
            git(["checkout-index", "--all", "--quiet"])

    @contextmanager
    def _git(self, folder: Path | None = None) -> Iterator[_Git]:
        with tempfile.TemporaryDirectory(prefix="quintain-git-") as own:
            environment = {
                "PATH": os.defpath,
                "HOME": own,
                "LANG": "C.UTF-8",
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_CONFIG_GLOBAL": os.devnull,
                "GIT_DIR": f"{own}/git",
                "GIT_NO_LAZY_FETCH": "1",
                "GIT_TERMINAL_PROMPT": "0",
            }
            git = _Git(self.name, environment, folder or Path(own))
            git(["init", "--quiet", "--bare", "--template="])
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(self.objects)
            if folder is not None:
                environment["GIT_WORK_TREE"] = str(folder)
            yield git


@dataclass(frozen=True)
class _Git:
    name: str
    environment: dict[str, str]
    folder: Path

    def __call__(self, arguments: Sequence[str], stdin: bytes = b"") -> bytes:
        command = [shutil.which("git") or "git", *arguments]
        try:
            done = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                env=self.environment,
                cwd=self.folder,
                timeout=_GIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"cannot run git ({type(error).__name__}); install git", code="no_git") from None
        if done.returncode != 0:
            message = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
            raise InvalidInput(
                f"git {arguments[0]} failed on {clip(self.name)!r}: {message[0][:200]}", code="bad_repository"
            )
        return done.stdout


def find_repository(name: str, folders: Sequence[Path]) -> Repository:
    """Return the repository of a row, below one of the allowed folders.

    Args:
        name: A path, or `owner/name`, found as `owner/name`, `owner__name` or `name`, with or without `.git`.
        folders: Folders to search, in this order.

    Raises:
        InvalidInput: no such repository.
    """
    bare = name.removesuffix(".git").rstrip("/")
    tails = [
        bare,
        *([bare.replace("/", "__"), bare.rpartition("/")[2]] if re.fullmatch(r"[\w.-]+/[\w.-]+", bare) else []),
    ]
    for folder in folders:
        root = folder.resolve()
        for tail in tails:
            for place in (root / tail, root / f"{tail}.git"):
                try:
                    found = _objects(place.resolve(), root)
                except (OSError, ValueError, RuntimeError):
                    continue
                if found is not None:
                    return Repository(name, found)
    looked = " or ".join(repr(clip(str(folder), 200)) for folder in folders)
    raise InvalidInput(
        f"expected a git repository below {looked}, got {shown(name)}; clone it there, or name its folder with the option "
        "repos=FOLDER (nothing is fetched from a network)",
        code="no_repository",
    )


def _objects(place: Path, root: Path) -> Path | None:
    """Return the folder of git objects, if it is below the root too."""
    for objects in (place / ".git" / "objects", place / "objects"):
        if objects.is_dir() and (objects.parent / "HEAD").exists() and objects.resolve().is_relative_to(root):
            return objects.resolve()
    return None


def require_commit(commit: object) -> str:
    """Return a commit's hash.

    Raises:
        InvalidInput: not a hash; branch and tag names can move, so that a task would change.
    """
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise InvalidInput(
            f"expected base_commit to be a commit hash of 7 to 40 hexadecimal digits, got {shown(commit)}"
        )
    return commit


Find = Callable[[str], Repository]

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
    if (fault := prompt_fault(task)) is not None:
        raise InvalidInput(fault)
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
