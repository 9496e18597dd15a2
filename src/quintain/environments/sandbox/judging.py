"""Submissions: the files that an agent changed, their patch, and the verdict on them.

Changes are found from outside the agent's workspace. They are judged on fresh files of the task, except changes of tests and of
files that configure them.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple, Protocol

from quintain.environments.sandbox.coding_tools import IGNORED
from quintain.environments.sandbox.projects import Case, count_right, occurs_as_word
from quintain.errors import Unavailable
from quintain.records.wording import counted
from quintain.sandbox.files import Entry, read_bytes, read_link, walk, write_link
from quintain.sandbox.limits import CommandResult, Limits
from quintain.sandbox.sandbox import Sandbox, Workspace
from quintain.sandbox.verdicts import (
    RUNNER_CONFIG,
    SignedCommand,
    added_modules,
    cannot_run,
    modules_of_runners,
    signed_command,
    verdict,
)

MAX_CHANGED, MAX_BYTES = 2_000, 50_000_000
"""Maximum number and size in bytes of changed files."""
MAX_PATCH = 200_000

_LARGE = 1_000_000
# Attributes in the changed files could hide changes; those of the repository take precedence.
_DIFF = """cd a && git init -q . && echo '* !diff !text !eol !filter' > .git/info/attributes && git add -A -f . && old=$(git write-tree) &&
cd ../b && git --git-dir=../a/.git --work-tree=. add -A -f . && git --git-dir=../a/.git diff --cached --no-color --no-ext-diff $old"""


class TooLarge(Exception):
    """A submission that exceeds the limits on changed files."""


class File(NamedTuple):
    """A file or a link."""

    data: bytes
    mode: int = 0o644
    is_link: bool = False


class Change(NamedTuple):
    """A file that the agent changed."""

    path: str
    before: File | None
    after: File | None


class Patch(NamedTuple):
    """A patch in the form of `git diff`."""

    text: str
    files: int
    lines: int
    """Number of added and removed lines."""


def changes(base: Workspace, agent: Workspace) -> list[Change]:
    """Return the differences between two workspaces in which no command runs.

    Raises:
        TooLarge: more or larger changes than the limits allow.
    """
    try:
        old, new = _files(base), _files(agent)
    except OSError as error:
        raise TooLarge(str(error.strerror)) from None
    found: list[Change] = []
    size = 0
    for path in sorted(old.keys() | new.keys()):
        before, after = old.get(path), new.get(path)
        if before and after and before.size != after.size:
            pass
        elif before and after and _load(base, before) == _load(agent, after):
            continue
        size += after.size if after else 0
        if len(found) >= MAX_CHANGED or size > MAX_BYTES:
            raise TooLarge(f"more than {counted(MAX_CHANGED, 'file')} or {MAX_BYTES // 1_000_000} MB are changed")
        found.append(Change(path, before and _load(base, before), after and _load(agent, after)))
    return found


def _files(workspace: Workspace) -> dict[str, Entry]:
    entries = walk(workspace.folder, IGNORED)
    return {
        entry.path: entry for entry in entries if entry.kind in {"file", "link"} and not entry.path.endswith(".pyc")
    }


def _load(workspace: Workspace, entry: Entry) -> File:
    if entry.kind == "link":
        return File(read_link(workspace.folder, entry.path).encode("utf-8", "surrogateescape"), 0o777, True)
    # Git stores only one permission, whether the file is executable.
    mode = 0o755 if entry.mode & 0o100 else 0o644
    return File(read_bytes(workspace.folder, entry.path, MAX_BYTES + 1), mode)


def apply_changes(workspace: Workspace, wanted: Sequence[Change]) -> None:
    """Apply changes to a workspace.

    Raises:
        TooLarge: a change is impossible, such as a file in place of a folder.
    """
    try:
        for change in wanted:  # removals come first, because a folder may replace a file
            workspace.remove(change.path) if change.before else None
        for change in wanted:
            if change.after is not None:
                _write(workspace, change.path, change.after)
    except OSError as error:
        raise TooLarge(f"{error.filename}: {error.strerror}") from None


def _write(workspace: Workspace, path: str, file: File) -> None:
    if file.is_link:
        target = file.data.decode("utf-8", "surrogateescape")
        write_link(workspace.folder, path, target, workspace.folders.uid)
    else:
        workspace.write(path, file.data, file.mode)


def patch_of(sandbox: Sandbox, found: Sequence[Change], limits: Limits) -> Patch:
    """Return the patch of some changes, computed by git in a workspace without the agent's processes."""
    small = [
        change for change in found if all(len(file.data) <= _LARGE for file in (change.before, change.after) if file)
    ]
    text = ""
    if small:
        with sandbox.workspace({"a/.keep": "", "b/.keep": ""}) as workspace:
            for change in small:
                for side, file in (("a", change.before), ("b", change.after)):
                    if file is not None:
                        _write(workspace, f"{side}/{change.path}", file)
            text = workspace.run(_DIFF, limits).stdout
    text += "".join(f"[{change.path} is too large to be shown]\n" for change in found if change not in small)
    lines = sum(line[:1] in {"+", "-"} and line[:4] not in {"+++ ", "--- "} for line in text.splitlines())
    return Patch(text[:MAX_PATCH], len(found), lines)


def without(found: Sequence[Change], is_protected: Callable[[str], bool]) -> list[Change]:
    """Return the changes except those of protected files."""
    return [change for change in found if not is_protected(change.path)]


def texts(files: Mapping[str, str]) -> list[Change]:
    """Return files as changes that replace existing ones."""
    return [Change(path, File(b""), File(text.encode("utf-8", "replace"))) for path, text in files.items()]


TESTS = re.compile(r"(?:^|/)tests/|^test/|(?:^|/)(?:test_[^/]*|[^/]*_test|tests)\.py$")

_PATCH_FILE = ".quintain-tests.patch"
_REPORT_CHARS = 400_000


class Base(Protocol):
    """Files with which a task begins."""

    def fill(self, folder: Path) -> None:
        """Write the files into an empty folder."""


@dataclass(frozen=True)
class Texts:
    """Files given as texts."""

    files: Mapping[str, str]

    def fill(self, folder: Path) -> None:
        """Write the files into an empty folder."""
        for path, text in self.files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode("utf-8", "replace"))


class Judgement(NamedTuple):
    """Verdict on a submission."""

    solved: bool
    summary: str
    passed: int | None = None
    """Number of tests that passed; None: not counted."""
    tests: int | None = None


@dataclass(frozen=True)
class CaseJudge:
    """Judge by calls whose expected results never enter the sandbox."""

    cases: tuple[Case, ...]
    gone: tuple[str, ...]
    """Names that may not occur in any file."""
    limits: Limits

    def judge(self, sandbox: Sandbox, base: Base, found: Sequence[Change]) -> Judgement:
        """Judge a submission.

        Raises:
            Unavailable: the sandbox does not work.
            TooLarge: the changes cannot be applied.
        """
        with sandbox.workspace({}, base.fill) as workspace:
            apply_changes(workspace, found)
            # Before the code runs, which could change the files.
            left = [name for name in self.gone if _occurs(workspace, name)]
            passed = count_right(workspace, self.cases, self.limits)
            if passed is None and workspace.is_broken():
                raise Unavailable("the sandbox does not start any more, so the tests cannot run", code="no_sandbox")
        tests = len(self.cases) + len(self.gone)
        passed = (passed or 0) + len(self.gone) - len(left)
        more = f" {', '.join(left)} is still in some file." if left else ""
        return Judgement(passed == tests, f"Of {tests} tests {passed} passed.{more}", passed, tests)


def _occurs(workspace: Workspace, name: str) -> bool:
    skip = frozenset({".git", "__pycache__"})
    files = (entry.path for entry in walk(workspace.folder, skip) if entry.kind == "file")
    return any(occurs_as_word(workspace.read(path, 1_000_000).decode("utf-8", "replace"), name) for path in files)


@dataclass(frozen=True)
class TestJudge:
    """Judge by the task's own tests, through the runner of `sandbox.verdicts` if it supports the command."""

    __test__ = False

    command: str | Sequence[str]
    limits: Limits
    tests: Mapping[str, str] = field(default_factory=dict)
    """Test files; they replace the agent's files of the same paths."""
    test_patch: str = ""
    wanted: tuple[str, ...] = ()
    """Names of tests that must pass; empty: all collected tests."""

    def judge(self, sandbox: Sandbox, base: Base, found: Sequence[Change]) -> Judgement:
        """Judge a submission.

        Raises:
            Unavailable: the sandbox or the task's own tests do not work.
            TooLarge: the changes cannot be applied.
        """
        report, ran = self._run(sandbox, base, found)
        if ran.exit_code in (125, 126, 127) or cannot_run(ran):
            # A run without the agent's changes shows whether the task itself is at fault.
            _, alone = self._run(sandbox, base, ())
            if (fault := cannot_run(alone)) is not None:
                raise Unavailable(fault, code="tests_cannot_run")
        found_verdict = verdict(self.command, report, ran, self.limits)
        return Judgement(found_verdict.passed, found_verdict.reason, found_verdict.n_passed, found_verdict.n_tests)

    def _run(self, sandbox: Sandbox, base: Base, found: Sequence[Change]) -> tuple[SignedCommand | None, CommandResult]:
        report = signed_command(self.command, self.tests, secrets.token_hex(16), self.wanted)
        with ExitStack() as stack:
            workspace = stack.enter_context(sandbox.workspace({}, base.fill))
            if self.test_patch:
                _apply(workspace, self.test_patch, self.limits)
            task_files = {**self.tests, **(report.files if report else {})}
            apply_changes(workspace, without(found, self._protected_paths(workspace, task_files, found)))
            apply_changes(workspace, texts(task_files))
            return report, workspace.run(list(report.command) if report else self.command, self.limits)

    def _protected_paths(
        self, workspace: Workspace, task_files: Mapping[str, str], found: Sequence[Change]
    ) -> _ProtectedPaths:
        known = [entry.path for entry in walk(workspace.folder, frozenset({".git"}))]
        paths = {*task_files, *patched_paths(self.test_patch), *files_of(self.wanted)}
        above = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
        added = added_modules((change.path for change in found if change.after is not None), known)
        imported = modules_of_runners(workspace, self.command, self.limits) if added else frozenset()
        shadows = frozenset(top for top, module in added.items() if module in imported)
        return _ProtectedPaths(frozenset(paths), frozenset(above), shadows)


Judge = CaseJudge | TestJudge
"""Decides whether a submission solves its task."""


@dataclass(frozen=True)
class _ProtectedPaths:
    """Whether a file comes from the task alone, so that the agent's change of it does not count."""

    paths: frozenset[str]
    above: frozenset[str]
    """Folders of `paths`: a file or link in place of a folder would block them."""
    shadows: frozenset[str]
    """Top-level names that the agent added and that shadow a module of the test runner."""

    def __call__(self, path: str) -> bool:
        blocks = path in self.above or any(str(part) in self.paths for part in (*PurePosixPath(path).parents, path))
        shadows = path.partition("/")[0] in self.shadows
        return blocks or shadows or any(kind.search(path) for kind in (TESTS, RUNNER_CONFIG))


def _apply(workspace: Workspace, patch: str, limits: Limits) -> None:
    workspace.write(_PATCH_FILE, patch.encode("utf-8", "replace"))
    ran = workspace.run(["git", "apply", "--whitespace=nowarn", _PATCH_FILE], limits)
    workspace.remove(_PATCH_FILE)
    if ran.exit_code != 0:
        raise Unavailable(
            f"test_patch does not apply to base_commit: {(ran.stderr or ran.stdout).strip()[:200]}; correct the row",
            code="tests_cannot_run",
        )


def patched_paths(patch: str) -> set[str]:
    """Return the files that a patch changes, creates or removes."""
    named = re.findall(r"^(?:\+\+\+ b|--- a)/([^\t\n]+)", patch, re.MULTILINE)
    return set(named) | set(re.findall(r"^rename (?:from|to) (.+)$", patch, re.MULTILINE))


def files_of(wanted: Sequence[str]) -> set[str]:
    """Return the files in pytest's node ids."""
    return {name.partition("::")[0] for name in wanted if "::" in name}


def limits_of_tests(limits: Limits, wall_s: float) -> Limits:
    """Return limits for a test run, with room for its report."""
    return replace(limits, wall_s=wall_s, cpu_s=max(int(wall_s), limits.cpu_s), output_chars=_REPORT_CHARS)
