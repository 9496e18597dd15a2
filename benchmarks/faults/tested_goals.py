"""Trials that are tests of the suite: hostile inputs with a bound on their number, and trainings killed and resumed.

A test with many inputs states how many as its property `cases`; each other test is one case.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from xml.etree import ElementTree

from benchmarks.figures import not_run, report, say

ROOT = Path(__file__).parents[2]


class Goal(NamedTuple):
    """Tests that show one goal, and the least number of their cases."""

    tests: tuple[str, ...]
    cases: int


GOALS = {
    "paths": Goal(("tests/security/test_hostile_paths.py::test_no_path_argument_reads_or_writes_outside",), 100),
    "addresses": Goal(("tests/security/test_hostile_paths.py::test_no_argument_makes_the_server_ask_another",), 60),
    "pickles_and_remote_code": Goal(("tests/security/test_hostile_folders.py",), 20),
    "names_that_are_code": Goal(("tests/security/test_hostile_names.py",), 20),
    "secrets": Goal(("tests/security/test_secret_canaries.py",), 10),
    "http_requests": Goal(("tests/server/test_http_matrix.py",), 40),
    "sandbox_escapes": Goal(("tests/sandbox/test_sandbox.py::test_a_command_cannot_escape",), 15),
    "resumed_trainings": Goal(
        (
            "tests/trainers/test_training.py::test_a_run_killed_at_any_step_resumes_to_bit_equal_weights",
            "tests/trainers/test_methods_train.py::test_a_killed_run_of_any_method_resumes_to_bit_equal_weights",
            "tests/trainers/test_parallel.py::test_a_run_killed_and_then_cancelled_resumes_to_bit_equal_weights",
            "tests/worker/test_online_rollouts.py::test_an_online_job_stopped_in_a_rollout_and_between_updates_continues_bit_equal",
        ),
        5,
    ),
}
"""Goal -> its tests. A killed training is resumed to the weights of one that was not interrupted."""


class Outcome(NamedTuple):
    """What tests showed."""

    cases: int
    failed: list[str]
    skipped: list[str]


def tested_goals(count: int) -> None:
    """Run the tests of the first `count` goals, and report their cases and failures."""
    for name, goal in list(GOALS.items())[:count]:
        outcome = _run(goal.tests)
        if not outcome.cases:
            not_run(f"{name}_failed", "tests", 0, "lower", "; ".join(outcome.skipped) or "no test was collected")
            continue
        report(f"{name}_tried", [outcome.cases], "cases", goal.cases, skipped=outcome.skipped)
        report(f"{name}_failed", [len(outcome.failed)], "tests", 0, "lower", found=outcome.failed[:5])


def _run(tests: tuple[str, ...]) -> Outcome:
    with TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        argv = [sys.executable, "-m", "pytest", "-q", "-o", "junit_family=xunit1", f"--junitxml={results}", *tests]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        ran = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if not results.exists():
            say(ran.stdout + ran.stderr)
            return Outcome(0, [], [f"pytest ended with exit code {ran.returncode}"])
        cases, failed, skipped = 0, [], []
        for test in ElementTree.parse(results).iter("testcase"):
            name = test.get("name", "")
            reasons = [item.get("message", "") for item in test.findall("skipped")]
            skipped += [f"{name}: {reason}"[:200] for reason in reasons]
            failures = [*test.findall("failure"), *test.findall("error")]
            failed += [f"{name}: {item.get('message', '')}"[:200] for item in failures]
            stated = [int(item.get("value", "1")) for item in test.iter("property") if item.get("name") == "cases"]
            cases += 0 if reasons else sum(stated) or 1
    return Outcome(cases, failed, skipped)
