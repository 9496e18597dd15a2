"""How a submission is judged: on fresh files of the task, with the agent's changes but none of its tests or of what steers them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol

from quintain.environments.sandbox.cases import Case, count_right
from quintain.environments.sandbox.projects import named
from quintain.environments.sandbox.submission import Change, put, texts, without
from quintain.errors import Unavailable
from quintain.sandbox.files import walk
from quintain.sandbox.limits import CommandResult, Limits
from quintain.sandbox.runner_modules import added_modules, modules_of_runners
from quintain.sandbox.sandbox import Sandbox, Workspace
from quintain.sandbox.verdicts import STEERS, cannot_run, verdict
from quintain.sandbox.witnessed_tests import Witnessed, witnessed

TESTS = re.compile(r"(?:^|/)tests/|^test/|(?:^|/)(?:test_[^/]*|[^/]*_test|tests)\.py$")
"""Files that are tests by their names."""

_PATCH_FILE = ".quintain-tests.patch"
_REPORT_CHARS = 400_000


class Base(Protocol):
    """The files that a task begins with."""

    def fill(self, folder: Path) -> None:
        """Put them into an empty folder."""


@dataclass(frozen=True)
class Texts:
    """Files that stand in the task."""

    files: Mapping[str, str]

    def fill(self, folder: Path) -> None:
        """As `Base`."""
        for path, text in self.files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode("utf-8", "replace"))


class Judgement(NamedTuple):
    """What a submission is worth."""

    solved: bool
    told: str
    passed: int | None = None
    """Tests that passed; None: not counted."""
    tests: int | None = None


class Judge(Protocol):
    """Decides whether a submission solves its task."""

    def judge(self, sandbox: Sandbox, base: Base, found: Sequence[Change]) -> Judgement:
        """Decide.

        Raises:
            Unavailable: nothing can be said, for the sandbox or the task's own tests do not work.
            TooLarge: the changes cannot be made.
        """


@dataclass(frozen=True)
class CaseJudge:
    """By calls whose right results never enter the sandbox."""

    cases: tuple[Case, ...]
    gone: tuple[str, ...]
    """Names that may stand nowhere."""
    limits: Limits

    def judge(self, sandbox: Sandbox, base: Base, found: Sequence[Change]) -> Judgement:
        """As `Judge`."""
        with sandbox.workspace({}, base.fill) as workspace:
            put(workspace, found)
            # Looked at before the code runs, which could change it.
            left = [name for name in self.gone if _stands(workspace, name)]
            passed = count_right(workspace, self.cases, self.limits)
            if passed is None and workspace.is_broken():
                raise Unavailable("the sandbox is broken: the tests cannot be run", code="no_sandbox")
        tests = len(self.cases) + len(self.gone)
        passed = (passed or 0) + len(self.gone) - len(left)
        more = f" {', '.join(left)} still stands in some file." if left else ""
        return Judgement(passed == tests, f"Of {tests} tests {passed} passed.{more}", passed, tests)


def _stands(workspace: Workspace, name: str) -> bool:
    skip = frozenset({".git", "__pycache__"})
    files = (entry.path for entry in walk(workspace.folder, skip) if entry.kind == "file")
    return any(named(workspace.read(path, 1_000_000).decode("utf-8", "replace"), name) for path in files)


@dataclass(frozen=True)
class TestJudge:
    """By the task's own tests, under our runner where that can run them (`sandbox.witnessed_tests`)."""

    __test__ = False

    command: str | Sequence[str]
    limits: Limits
    tests: Mapping[str, str] = field(default_factory=dict)
    """Test files, which replace whatever the agent left there."""
    test_patch: str = ""
    """Or a patch of tests."""
    wanted: tuple[str, ...] = ()
    """Tests that must pass; none: all that are found."""

    def judge(self, sandbox: Sandbox, base: Base, found: Sequence[Change]) -> Judgement:
        """As `Judge`."""
        report, ran = self._run(sandbox, base, found)
        if ran.exit_code in (125, 126, 127) or cannot_run(ran):
            # Does that say something of the agent's code, or of the task? Its files alone tell.
            _, alone = self._run(sandbox, base, ())
            if (fault := cannot_run(alone)) is not None:
                raise Unavailable(fault, code="tests_cannot_run")
        said = verdict(self.command, report, ran, self.limits)
        return Judgement(said.passed, said.reason, said.n_passed, said.n_tests)

    def _run(self, sandbox: Sandbox, base: Base, found: Sequence[Change]) -> tuple[Witnessed | None, CommandResult]:
        report = witnessed(self.command, self.tests, secrets.token_hex(16), self.wanted)
        with ExitStack() as stack:
            workspace = stack.enter_context(sandbox.workspace({}, base.fill))
            if self.test_patch:
                _apply(workspace, self.test_patch, self.limits)
            ours = {**self.tests, **(report.files if report else {})}
            put(workspace, without(found, self._is_ours(workspace, ours, found)))
            put(workspace, texts(ours))
            return report, workspace.run(list(report.command) if report else self.command, self.limits)

    def _is_ours(self, workspace: Workspace, ours: Mapping[str, str], found: Sequence[Change]) -> _Kept:
        known = [entry.path for entry in walk(workspace.folder, frozenset({".git"}))]
        paths = {*ours, *patched_paths(self.test_patch), *files_of(self.wanted)}
        above = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
        added = added_modules((change.path for change in found if change.after is not None), known)
        imported = modules_of_runners(workspace, self.command, self.limits) if added else frozenset()
        shadows = frozenset(top for top, module in added.items() if module in imported)
        return _Kept(frozenset(paths), frozenset(above), shadows)


@dataclass(frozen=True)
class _Kept:
    """Which files are taken from the task alone."""

    paths: frozenset[str]
    above: frozenset[str]
    """Their folders: a file or a link in the place of one would be in the way."""
    shadows: frozenset[str]
    """What the agent has added at the top under the name of a module that the test runner imports."""

    def __call__(self, path: str) -> bool:
        in_the_way = path in self.above or any(str(part) in self.paths for part in (*PurePosixPath(path).parents, path))
        shadows = path.partition("/")[0] in self.shadows
        return in_the_way or shadows or any(kind.search(path) for kind in (TESTS, STEERS))


def _apply(workspace: Workspace, patch: str, limits: Limits) -> None:
    workspace.write(_PATCH_FILE, patch.encode("utf-8", "replace"))
    ran = workspace.run(["git", "apply", "--whitespace=nowarn", _PATCH_FILE], limits)
    workspace.remove(_PATCH_FILE)
    if ran.exit_code != 0:
        raise Unavailable(
            f"the task's test_patch does not apply to its base_commit: {(ran.stderr or ran.stdout).strip()[:200]}; mend the row",
            code="tests_cannot_run",
        )


def patched_paths(patch: str) -> set[str]:
    """The files that a patch changes, makes or removes."""
    named = re.findall(r"^(?:\+\+\+ b|--- a)/([^\t\n]+)", patch, re.MULTILINE)
    return set(named) | set(re.findall(r"^rename (?:from|to) (.+)$", patch, re.MULTILINE))


def files_of(wanted: Sequence[str]) -> set[str]:
    """The files that pytest's node ids name."""
    return {name.partition("::")[0] for name in wanted if "::" in name}


def limits_of_tests(limits: Limits, wall_s: float) -> Limits:
    """Limits of a run of tests whose report must come through."""
    return replace(limits, wall_s=wall_s, cpu_s=max(int(wall_s), limits.cpu_s), output_chars=_REPORT_CHARS)
