"""Interpret the result of a test run, and name the files that could change it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from quintain.sandbox.limits import CommandResult, Limits
from quintain.sandbox.signed_tests import SignedCommand, read_counts, without_report

RUNNER_CONFIG = re.compile(
    r"(?:^|/)(?:conftest\.py|sitecustomize\.py|usercustomize\.py|\.?pytest\.(?:ini|toml)|tox\.ini|setup\.cfg|pyproject\.toml"
    r"|\.coveragerc|[^/]+\.pth|(?i:[^/]+\.(?:dist|egg)-info)(?:/.*)?"
    r"|_?pytest(?:\.py|/.*)|unittest(?:\.py|/.*)|pluggy(?:\.py|/.*))$"
)
"""Configuration files of test runners; only those of the task are used."""

_RUNNERS = (
    (
        re.compile(r"\bpytest\b|\bpy\.test\b"),
        re.compile(r"^=* ?(?:\d+ \w+, )*\d+ passed\b.*$|^\d+ passed\b.*$", re.MULTILINE),
    ),
    (re.compile(r"\bunittest\b"), re.compile(r"^Ran [1-9]\d* tests? in [^\n]*\n\s*OK\b", re.MULTILINE)),
)
"""Test runners and their final line on success; without it, exit code 0 was caused by the tested code."""


class Verdict(NamedTuple):
    """The result of a test run."""

    passed: bool
    reason: str
    """The explanation, one sentence."""
    n_passed: int | None = None
    """Number of passed tests; None if not counted."""
    n_tests: int | None = None


def verdict(command: str | Sequence[str], report: SignedCommand | None, ran: CommandResult, limits: Limits) -> Verdict:
    """Return whether the tests pass.

    Args:
        command: The task's test command.
        report: The command under the signing runner; None if it cannot run the command.
        ran: The result of the command.
        limits: The limits of the run.
    """
    if ran.timed_out:
        return Verdict(False, f"The tests did not end in {limits.wall_s:g} s.")
    if ran.stopped:
        return Verdict(False, f"The tests were stopped: more than {limits.disk_mb} MB on disk.")
    found = read_counts(report, ran.stderr) if report else None
    n_passed, n_tests = (found.passed, max(found.collected, found.passed)) if found else (None, None)
    if report is not None and found is not None and found.named:
        n_passed, n_tests = found.named.count("1"), len(found.named)
        return Verdict(
            n_passed == n_tests, f"Of {n_tests} tests that the task names {n_passed} passed.", n_passed, n_tests
        )
    if ran.exit_code != 0:
        output = ran.stdout.strip() or ran.stderr
        lines = (without_report(report, output) if report else output).strip().splitlines()[-1:]
        reason = f"The tests fail with exit code {ran.exit_code}{f': {lines[0][:150]}' if lines else ''}."
        return Verdict(False, reason, n_passed, n_tests)
    if report is not None:
        if found is None:
            return Verdict(False, "The command ended with 0 before its test runner reported passing tests.")
        if found.bad or found.passed < 1 or found.passed != found.collected:
            return Verdict(False, f"Of {found.collected} tests {found.passed} passed.", n_passed, n_tests)
        if found.passed < report.min_tests:
            reason = f"{found.passed} tests passed, of {report.min_tests} that the task defines."
            return Verdict(False, reason, n_passed, report.min_tests)
        return Verdict(True, f"The tests pass ({found.passed}).", n_passed, n_tests)
    line = command if isinstance(command, str) else " ".join(command)
    for runner, proof in _RUNNERS:
        if runner.search(line) and not proof.search(ran.stdout + "\n" + ran.stderr):
            return Verdict(False, "The command ended with 0 before its test runner reported passing tests.")
    return Verdict(True, "The tests pass.")


def cannot_run(ran: CommandResult) -> str | None:
    """Return why a test command failed to run on the task's own files; None if it ran."""
    output = (ran.stderr or ran.stdout).strip().splitlines()[-1:]
    reason = f" ({output[0][:150]})" if output else ""
    if ran.exit_code in (126, 127):
        return f"the test command cannot be run in the sandbox{reason}; install its program, or correct checker.command"
    if re.search(r"No module named '?(?:pytest|nose2?|unittest\w*)\b", ran.stderr + ran.stdout):
        return f"the test runner is not installed within the sandbox{reason}; install it beside quintain, or use python -m unittest"
    if ran.exit_code == 125:
        return f"the sandbox could not start the command{reason}"
    return None
