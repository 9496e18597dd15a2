"""Test runs whose report the tested code cannot simply print: our own runner counts, and signs its report with a secret.

The secret lies in a file that the runner reads and deletes before anything of the run is imported; the report gives what was collected
and what passed, on a copy of standard error, as the last thing before a normal end. Code in the same process can still do as it
likes with the test framework (an object that equals everything passes every comparison): this closes the easy ways, not all.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_SECRET_FILE = ".quintain-secret"
_SHELL_SIGNS = re.compile(r"[;&|<>$`*?~(){}\n\\]")
_RUNNER = r"""
import os, sys

def main(write, stream, secret, wanted, kind, arguments):
    counted = {"collected": 0, "passed": 0, "bad": 0}
    good, ill = set(), set()
    if kind == "unittest":
        import unittest
        class Result(unittest.TextTestResult):
            def names(self, test):
                kind = type(test)
                short = "%s (%s.%s)" % (getattr(test, "_testMethodName", ""), kind.__module__, kind.__qualname__)
                return {test.id(), str(test), short} if wanted else set()
            def addSuccess(self, test):
                counted["passed"] += 1
                good.update(self.names(test))
                unittest.TextTestResult.addSuccess(self, test)
            def addExpectedFailure(self, test, error):
                counted["passed"] += 1
                good.update(self.names(test))
                unittest.TextTestResult.addExpectedFailure(self, test, error)
            def addSkip(self, test, reason):
                counted["collected"] -= 1
                unittest.TextTestResult.addSkip(self, test, reason)
        class Runner(unittest.TextTestRunner):
            resultclass = Result
            def run(self, tests):
                counted["collected"] += tests.countTestCases()
                return unittest.TextTestRunner.run(self, tests)
        sys.argv = ["python -m unittest"] + arguments
        ended = unittest.main(module=None, testRunner=Runner, exit=False).result
        counted["bad"] = len(ended.failures) + len(ended.errors) + len(ended.unexpectedSuccesses)
        code = 0 if ended.wasSuccessful() else 1
    else:
        import pytest
        class Witness:
            @pytest.hookimpl(trylast=True)
            def pytest_collection_finish(self, session):
                counted["collected"] += len(session.items)
            def pytest_runtest_logreport(self, report):
                if report.failed and not hasattr(report, "wasxfail"):
                    counted["bad"] += 1
                    ill.add(report.nodeid)
                elif report.skipped:
                    counted["collected"] -= 1
                    if hasattr(report, "wasxfail"):
                        good.add(report.nodeid)
                elif report.when == "call":
                    counted["passed"] += 1
                    good.add(report.nodeid)
        sys.argv = ["pytest"] + arguments
        code = int(pytest.main(arguments, plugins=[Witness()]))
    sys.stdout.flush()
    sys.stderr.flush()
    told = "".join("01"[name in good and name not in ill] for name in wanted) or "-"
    write(stream, ("\n%s %d %d %d %s\n" % (secret, counted["collected"], counted["passed"], counted["bad"], told)).encode())
    return code

with open(".quintain-secret") as file:
    _secret, *_wanted = file.read().split("\n")  # no module is loaded before it is gone: the run may have written one of its name
os.remove(".quintain-secret")
_call = (main, os.write, os.dup(2), _secret, _wanted, sys.argv[1], sys.argv[2:])
del _secret, _wanted, main
sys.exit(_call[0](*_call[1:]))
"""


class Witnessed(NamedTuple):
    """A test command, and how its report is known."""

    command: tuple[str, ...]
    files: Mapping[str, str]
    """That the workspace must hold too."""
    secret: str
    least: int
    """Tests that the task's own files define."""


class Counts(NamedTuple):
    """What a signed report says."""

    collected: int
    passed: int
    bad: int
    wanted: str
    """Of each test that was asked for, 1 where it passed, else 0."""


def witnessed(
    command: str | Sequence[str], tests: Mapping[str, str], secret: str, wanted: Sequence[str] = ()
) -> Witnessed | None:
    """The command under our runner; None: it is none of unittest or pytest alone, whose report is then taken from what it prints.

    Args:
        command: The task's.
        tests: The task's test files.
        secret: That nobody else knows.
        wanted: Tests of which the report says each by its name: pytest's node id, or as unittest writes it.
    """
    words = list(command)
    if isinstance(command, str):
        if _SHELL_SIGNS.search(command):
            return None
        try:
            words = shlex.split(command)
        except ValueError:
            return None
    if words and words[0] in {"pytest", "py.test"}:
        words = ["python3", "-m", "pytest", *words[1:]]
    if (
        len(words) < 3
        or not re.fullmatch(r"(?:\S*/)?python[\d.]*", words[0])
        or words[1] != "-m"
        or words[2] not in {"unittest", "pytest"}
    ):
        return None
    argv = (words[0], "-c", _RUNNER, words[2], *words[3:])
    held = "\n".join([secret, *(name.replace("\n", " ") for name in wanted)])
    return Witnessed(argv, {_SECRET_FILE: held}, secret, _least(words[2], words[3:], tests))


def counts(report: Witnessed, printed: str) -> Counts | None:
    """What the report that bears the secret says; None: there is none."""
    found = re.findall(rf"^{re.escape(report.secret)} (-?\d+) (-?\d+) (-?\d+) ([01]+|-)$", printed, re.MULTILINE)
    if len(found) != 1:
        return None
    collected, passed, bad, wanted = found[0]
    return Counts(int(collected), int(passed), int(bad), wanted.strip("-"))


def unsigned(report: Witnessed, printed: str) -> str:
    """What was printed, less the report."""
    return "\n".join(line for line in printed.splitlines() if report.secret not in line)


def _least(kind: str, arguments: Sequence[str], tests: Mapping[str, str]) -> int:
    """Tests that must have been collected, counted in the text of the task's files; 0 where the command or a file selects some."""
    if any(re.match(r"-k|-m|--lf|--deselect|--ignore|-p$|-c$|--co", word) or "::" in word for word in arguments):
        return 0
    named = [word for word in arguments if not word.startswith("-")]
    steered = [path for path in tests if not path.endswith(".py") or path.rpartition("/")[2] == "conftest.py"]
    if steered or any("load_tests" in text or "__test__" in text for text in tests.values()):
        return 0
    wanted = []
    for word in named:
        path = word.removeprefix("./") if word.endswith(".py") else f"{word.replace('.', '/')}.py"
        if path not in tests:
            return 0
        wanted.append(path)
    shown = [path for path in tests if re.fullmatch(r"test\w*\.py", path)]
    return sum(_defined(kind, tests[path]) for path in (wanted or shown))


def _defined(kind: str, text: str) -> int:
    """Test functions that stand in a file without a condition or a decorator."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return 0

    def own(body: Sequence[ast.stmt]) -> set[str]:
        functions = (item for item in body if isinstance(item, ast.FunctionDef) and not item.decorator_list)
        return {item.name for item in functions if item.name.startswith("test")}

    count = len(own(tree.body)) if kind == "pytest" else 0
    classes = {item.name: item for item in tree.body if isinstance(item, ast.ClassDef) and not item.decorator_list}
    for item in classes.values():
        bases = [ast.unparse(base) for base in item.bases]
        if any(base in {"unittest.TestCase", "TestCase"} for base in bases) or (
            kind == "pytest" and not bases and item.name.startswith("Test")
        ):
            count += len(own(item.body))
    return count
