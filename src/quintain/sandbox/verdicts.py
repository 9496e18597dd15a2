"""Test runs: a signed report of the tests, the verdict on a run, and the files and modules that could change it.

Our runner counts the tests and signs its report with a secret, so that the tested code cannot simply print one. It reads the secret
from a file and deletes the file before it imports code of the run. It writes the numbers of collected and passed tests to a copy of
standard error, right before a normal exit. Code in the same process can still manipulate the test framework (an object that equals
everything passes every comparison): this prevents the easy ways only.
"""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from quintain.sandbox.limits import CommandResult, Limits
from quintain.sandbox.sandbox import Workspace

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


PYTEST_MODULES = frozenset(
    {"pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli", "colorama"}
)
"""pytest and the modules it imports, in case the interpreter cannot list them."""

_LIST_MODULES = r"""
import re
from importlib.metadata import distributions

def plain(name):
    return re.sub(r"[-_.]+", "-", name or "").lower()

found = {plain(one.metadata["Name"]): one for one in distributions()}
wanted = [name for name, one in found.items() if name == "pytest" or any(e.group == "pytest11" for e in one.entry_points)]
seen = set()
while wanted:
    name = wanted.pop()
    if name in seen or name not in found:
        continue
    seen.add(name)
    one = found[name]
    needs = [need for need in one.requires or () if "extra ==" not in need]
    wanted += [plain(re.match(r"[\w.-]+", need).group()) for need in needs]
    named = (one.read_text("top_level.txt") or "").split()
    files = [str(path) for path in one.files or ()]
    tops = {path.partition("/")[0] for path in files if path.endswith((".py", ".so"))}
    for top in tops | set(named) or {name.replace("-", "_")}:
        print("module", top.partition(".")[0])
"""


_MODULE = re.compile(r"([^\W\d]\w*)\.(?:py[cdw]?|(?:[\w-]+\.)*so)")
"""An importable file. Compiled ones have several suffixes: `json.cpython-311-x86_64-linux-gnu.so`."""


def added_modules(paths: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return the new top-level entries of some paths that can be imported, with their module names.

    Args:
        paths: Files, relative to the folder in which the tests run.
        known: The files of the task in that folder.
    """
    added = {parts[0]: len(parts) > 1 for path in paths if (parts := PurePosixPath(path).parts)}
    for path in known:
        added.pop(PurePosixPath(path).parts[0], None)
    modules = {}
    for top, folder in added.items():
        if folder and top.isidentifier():
            modules[top] = top
        elif found := _MODULE.fullmatch(top):
            modules[top] = found[1]
    return modules


def modules_of_runners(workspace: Workspace, command: str | Sequence[str], limits: Limits) -> frozenset[str]:
    """Return the modules of Python, pytest, its installed plugins and their requirements, as listed by an interpreter.

    Args:
        workspace: Contains only the files of the task, because the interpreter can import files of the workspace.
        command: The test command; its interpreter is asked, or `python3` if it names none.
        limits: Limits of the listing.
    """
    words = command.split() if isinstance(command, str) else command
    python = next((word for word in words if re.fullmatch(r"(?:\S*/)?python[\d.]*", word)), "python3")
    ran = workspace.run([python, "-c", _LIST_MODULES], limits)
    lines = (line.split() for line in ran.stdout.splitlines())
    listed = {words[1] for words in lines if len(words) == 2 and words[0] == "module"}
    return PYTEST_MODULES | sys.stdlib_module_names | listed
