"""The scorer `unit_tests`: whether the task's tests pass on the files that the run left, in a sandbox.

`task.metadata["checker"]` contains `command` (a line, or a program and its arguments), `tests` (path -> text: they replace what the
run wrote there), `files` (path -> text that the agent found; null, or a list of paths: files that the run gives), `timeout_s`.
The files of the run are replayed from its calls (`written_files`); where one file is to be given and no call wrote it, the last
fenced block of the last message is that file.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from quintain.checkers.declared import checker_fields
from quintain.errors import InvalidInput, QuintainError
from quintain.next_step import Hint, call
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.sandbox.limits import Limits
from quintain.sandbox.sandbox import Sandbox
from quintain.sandbox.verdicts import (
    RUNNER_CONFIG,
    SignedCommand,
    added_modules,
    cannot_run,
    modules_of_runners,
    signed_command,
    verdict,
)
from quintain.scoring.outcomes.whole_run_scores import scored, unscored
from quintain.scoring.outcomes.written_files import last_code, relative, written_files

OpenSandbox = Callable[[], Sandbox]
"""Opens the sandbox of the operator's choice, or raises with the reason."""

DEFAULT_S, MAX_S = 10.0, 30.0
"""Seconds that the tests of one run get, and may ask for."""
_NO_SANDBOX = Hint(
    "no sandbox was opened, and commands are never run without one; score with ",
    call("score_trajectories", scorer="unit_tests", filter=...),
)
_MOST_REMEMBERED = 256


class UnitTestScorer:
    """1 where the command ends with 0 (and its test runner reports passed tests), 0 where it does not.

    Unscored where the tests cannot be run: no sandbox, no tests, a test runner that is not there, files of the run not known.
    """

    name = "unit_tests"

    def __init__(self, open_sandbox: OpenSandbox | None = None) -> None:
        """Configure how the sandbox is opened; None: without one."""
        self._open = open_sandbox
        self._sandbox: Sandbox | str | None = None
        self._alone: dict[str, str | None] = {}

    def score(self, trajectory: Trajectory) -> Score:
        """Run the tests."""
        try:
            plan = _plan(trajectory)
            if isinstance(plan, str):
                return unscored(trajectory, self.name, plan)
            sandbox = self._walls()
            if isinstance(sandbox, str):
                return unscored(trajectory, self.name, sandbox)
            if (fault := self._fault(sandbox, plan)) is not None:
                return unscored(trajectory, self.name, fault)
            plan = self._without_shadows(sandbox, plan)
            ran = sandbox.run(plan.runs, {**plan.files, **plan.tests, **plan.extra}, plan.limits)
        except QuintainError as error:
            return unscored(trajectory, self.name, error.message)
        found = verdict(plan.command, plan.signed, ran, plan.limits)
        note = f"Files of the run that steer or replace tests were left out: {', '.join(plan.left_out[:3])}."
        feedback = f"{found.reason} {note}" if plan.left_out else found.reason
        return scored(trajectory, self.name, float(found.passed), feedback)

    def _walls(self) -> Sandbox | str:
        if self._sandbox is None:
            if self._open is None:
                self._sandbox = _NO_SANDBOX
            else:
                try:
                    self._sandbox = self._open()
                except QuintainError as error:
                    self._sandbox = error.message
        return self._sandbox

    def _without_shadows(self, sandbox: Sandbox, plan: _Plan) -> _Plan:
        """Without what the run added at the top under the name of a module that the test runner imports."""
        if not plan.added:
            return plan
        with sandbox.workspace(plan.start) as workspace:
            imported = modules_of_runners(workspace, plan.command, plan.limits)
        shadows = {top for top, module in plan.added.items() if module in imported}
        left_out = [path for path in plan.files if path.partition("/")[0] in shadows]
        files = {path: text for path, text in plan.files.items() if path not in left_out}
        return replace(plan, files=files, left_out=sorted((*plan.left_out, *left_out)))

    def _fault(self, sandbox: Sandbox, plan: _Plan) -> str | None:
        """Why the tests cannot run here at all, found out without anything of the agent's, once for each task's tests."""
        key = json.dumps([plan.command, plan.start, plan.tests], sort_keys=True)
        if key not in self._alone:
            if len(self._alone) >= _MOST_REMEMBERED:
                self._alone.clear()
            self._alone[key] = cannot_run(
                sandbox.run(plan.runs, {**plan.start, **plan.tests, **plan.extra}, plan.limits)
            )
        return self._alone[key]


@dataclass(frozen=True)
class _Plan:
    command: str | list[str]
    start: dict[str, str]
    """The task's own files."""
    files: dict[str, str]
    """What the run left of them and added, less what steers a test runner."""
    tests: dict[str, str]
    limits: Limits
    left_out: list[str]
    """Files of the run that would steer or replace the tests."""
    added: Mapping[str, str]
    """What the run added at the top, unasked, and the name by which it would be imported; see `added_modules`."""
    signed: SignedCommand | None
    """The command under our runner, where that can run it."""

    @property
    def runs(self) -> str | list[str]:
        """The command that is run."""
        return list(self.signed.command) if self.signed else self.command

    @property
    def extra(self) -> Mapping[str, str]:
        """Files that it needs besides."""
        return self.signed.files if self.signed else {}


def _plan(run: Trajectory) -> _Plan | str:
    """Return the command and the files to run it on, or why they are not known."""
    fields = checker_fields(run.task)
    command = fields.get("command", fields.get("test_command"))
    if isinstance(command, list) and command and all(isinstance(part, str) for part in command):
        line = " ".join(command)
    elif isinstance(command, str) and command.strip():
        line = command
    else:
        return (
            "the task states no test command; record task.metadata.checker = {'type': 'unit_tests', 'command', 'tests'}"
        )
    root = fields.get("root") if isinstance(fields.get("root"), str) else None
    start, copied = _files(fields.get("files"), "files", root)
    tests, _ = _files(fields.get("tests"), "tests", root)
    written = written_files(run, start, root=root, copied=[*copied, *tests])
    wanted = [path for path in copied if path not in written.changed]
    code = last_code(run) if len(wanted) == 1 else None
    if code is not None and written.unseen is None:
        written.files[wanted[0]] = code
        written.changed.add(wanted.pop())
    if written.unseen is not None:
        return f"the files that the run left are not known: {written.unseen}; record them as extra.files (path -> text)"
    if wanted or not written.changed:
        what = f"{', '.join(wanted[:3])!r}" if wanted else "no file"
        return f"the run shows {'no text of ' if wanted else ''}{what}: no call writes it, no fenced block gives it; record extra.files"
    left_out = sorted(path for path in written.changed if RUNNER_CONFIG.search(path) or path in tests)
    files = {path: text for path, text in written.files.items() if path not in left_out} | {
        path: start[path] for path in left_out if path in start
    }
    limits = Limits(wall_s=_seconds(fields.get("timeout_s", DEFAULT_S)), cpu_s=int(MAX_S))
    command = line if isinstance(command, str) else command
    report = signed_command(command, tests, secrets.token_hex(16))
    added = added_modules(set(written.changed).difference(left_out), (*start, *copied, *tests))
    return _Plan(command, start, files, tests, limits, left_out, added, report)


def _files(value: Any, name: str, root: str | None) -> tuple[dict[str, str], list[str]]:
    """Texts by path, and the paths without one."""
    if value is None:
        return {}, []
    named = {value: None} if isinstance(value, str) else dict.fromkeys(value) if _is_names(value) else value
    if not isinstance(named, Mapping):
        raise InvalidInput(
            f"expected checker.{name} to be an object of paths and texts, or a list of paths, got {type(value).__name__}"
        )
    texts, copied = {}, []
    for path, text in named.items():
        place = relative(path, root) if isinstance(path, str) else None
        if place is None or not (text is None or isinstance(text, str)):
            raise InvalidInput(
                f"expected paths below the workspace with their texts in checker.{name}, got {path!r:.80}"
            )
        if text is None:
            copied.append(place)
        else:
            texts[place] = text
    return texts, copied


def _is_names(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(path, str) for path in value)


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.1 <= value <= MAX_S:
        raise InvalidInput(f"checker.timeout_s is {value!r:.60}; valid: 0.1..{MAX_S:g} seconds")
    return float(value)
