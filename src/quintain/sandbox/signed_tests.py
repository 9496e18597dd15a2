"""Test runs with a report that the tested code cannot simply print: our runner counts the tests and signs with a secret.

The runner reads the secret from a file and deletes the file before it imports code of the run. It writes the numbers of collected
and passed tests to a copy of standard error, right before a normal exit. Code in the same process can still manipulate the test
framework (an object that equals everything passes every comparison): this prevents the easy ways only.
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

def main(write, stream, secret, named, kind, arguments):
    counted = {"collected": 0, "passed": 0, "bad": 0}
    good, ill = set(), set()
    if kind == "unittest":
        import unittest
        class Result(unittest.TextTestResult):
            def names(self, test):
                kind = type(test)
                short = "%s (%s.%s)" % (getattr(test, "_testMethodName", ""), kind.__module__, kind.__qualname__)
                return {test.id(), str(test), short} if named else set()
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
    results = "".join("01"[name in good and name not in ill] for name in named) or "-"
    write(stream, ("\n%s %d %d %d %s\n" % (secret, counted["collected"], counted["passed"], counted["bad"], results)).encode())
    return code

with open(".quintain-secret") as file:
    _secret, *_named = file.read().split("\n")  # no import before the deletion: the run may have written a module of that name
os.remove(".quintain-secret")
_call = (main, os.write, os.dup(2), _secret, _named, sys.argv[1], sys.argv[2:])
del _secret, _named, main
sys.exit(_call[0](*_call[1:]))
"""


class SignedCommand(NamedTuple):
    """A test command under the signing runner, and the data to verify its report."""

    command: tuple[str, ...]
    files: Mapping[str, str]
    """Files to add to the workspace."""
    secret: str
    min_tests: int
    """Number of tests defined in the files of the task."""


class Counts(NamedTuple):
    """Numbers of tests in a signed report."""

    collected: int
    passed: int
    bad: int
    named: str
    """One character for each named test: 1 if it passed, else 0."""


def signed_command(
    command: str | Sequence[str], tests: Mapping[str, str], secret: str, named: Sequence[str] = ()
) -> SignedCommand | None:
    """Return the command under the signing runner; None if the command is not a plain call of unittest or pytest.

    Args:
        command: The test command of the task.
        tests: Path -> text of the test files of the task.
        secret: A random text to sign the report with.
        named: Tests to report one by one: node ids of pytest, or names as unittest prints them.
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
    content = "\n".join([secret, *(name.replace("\n", " ") for name in named)])
    return SignedCommand(argv, {_SECRET_FILE: content}, secret, _min_tests(words[2], words[3:], tests))


def read_counts(report: SignedCommand, printed: str) -> Counts | None:
    """Return the numbers of the signed report; None without exactly one such report."""
    found = re.findall(rf"^{re.escape(report.secret)} (-?\d+) (-?\d+) (-?\d+) ([01]+|-)$", printed, re.MULTILINE)
    if len(found) != 1:
        return None
    collected, passed, bad, named = found[0]
    return Counts(int(collected), int(passed), int(bad), named.strip("-"))


def without_report(report: SignedCommand, printed: str) -> str:
    """Return the output without the report."""
    return "\n".join(line for line in printed.splitlines() if report.secret not in line)


def _min_tests(kind: str, arguments: Sequence[str], tests: Mapping[str, str]) -> int:
    """Return the number of tests to expect, from the source of the test files; 0 if the command or a file selects tests."""
    if any(re.match(r"-k|-m|--lf|--deselect|--ignore|-p$|-c$|--co", word) or "::" in word for word in arguments):
        return 0
    targets = [word for word in arguments if not word.startswith("-")]
    configs = [path for path in tests if not path.endswith(".py") or path.rpartition("/")[2] == "conftest.py"]
    if configs or any("load_tests" in text or "__test__" in text for text in tests.values()):
        return 0
    named = []
    for word in targets:
        path = word.removeprefix("./") if word.endswith(".py") else f"{word.replace('.', '/')}.py"
        if path not in tests:
            return 0
        named.append(path)
    collected = [path for path in tests if re.fullmatch(r"test\w*\.py", path)]
    return sum(_defined_tests(kind, tests[path]) for path in (named or collected))


def _defined_tests(kind: str, text: str) -> int:
    """Return the number of test functions in a file without a condition or a decorator."""
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
