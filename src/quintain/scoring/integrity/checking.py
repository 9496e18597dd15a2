"""Checks of a run: the paths of tests and graders, and the commands in files that run them.

Paths are all that is left where neither the task nor the run's own commands name the check. Two conventions are read: how runners
of tests find files (`test_x`, `x_test`, `x.spec`, `XTest`, `conftest`, folders called `tests`), and the words `grader` and
`verifier`. No structure can replace these two words; a task does better to declare its check as `protected_paths`, `hidden_paths`
or `checker`. Commands have their exit status discarded, are replaced by nothing, or have tests taken out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from quintain.scoring.file_activity.programs import Purpose, purpose_of
from quintain.scoring.file_activity.shell import Command, parse_script

_FOLDER = r"_*(?:tests?|specs?)_*"
_NAME = r"(?:test_[^/]*|[^/]*[_.](?:test|spec)|conftest|[^/]*[a-z0-9](?:Tests?|Spec))"

TEST_FILE = re.compile(rf"(?:^|/){_NAME}\.\w+$")
"""A file of tests by its own name."""
TEST_FOLDER = re.compile(rf"(?:^|/){_FOLDER}(?:/\*?)?$")
"""A folder of tests as a whole."""
TEST_PATH = re.compile(rf"(?:^|/){_FOLDER}(?:/|$)|{TEST_FILE.pattern}")
"""A file of tests, or anything in a folder of tests."""
CONFTEST = re.compile(r"(?:^|/)conftest\.py$")
GRADER = re.compile(r"(?:^|/)graders?(?:[./]|$)|^/(?:logs/)?verifiers?/")
"""Paths that can hardly be anything but the check of the task; `/logs/verifier` is Harbor's folder of verdicts."""
CHECKER = re.compile(rf"{GRADER.pattern}|(?:^|/)verifiers?(?:[./]|$)")
"""Paths that may be the check of the task, or a part of the product of that name."""
CONFIGURATION = re.compile(r"(?:^|/)\.[^./]")
"""Hidden files and folders of a repository, such as its workflows."""
SCRATCH = re.compile(r"^/(?:var/)?tmp/")
"""Files that nobody checks."""

_BEFORE_COMMAND = re.compile(r"""^[\s@-]*(?:["']?[\w-]+["']?\s*:\s+)?["']?""")
"""Text before a command in a Makefile, in YAML and in JSON: `@`, `- run: `, `"test": "`."""
_PYTEST_OPTIONS = re.compile(r"addopts\b.*?--(?:ignore|ignore-glob|deselect)[= ]([^\s\"',]+)")


def discards_status(text: str) -> str | None:
    """Return the first line that runs a check and succeeds whatever it finds: `pytest || true`, `pytest; true`."""
    return next((line.strip() for line, commands in _command_lines(text) if _is_discarded(commands)), None)


def replaced_check(old: str, new: str) -> str | None:
    """Return the replacement of a check that does nothing: commands that only print, or succeed."""
    before = [one for _, commands in _command_lines(old) for one in commands]
    after = [one for _, commands in _command_lines(new) for one in commands if one.words]
    added = [one for one in after if all(one.words != earlier.words for earlier in before)]
    if any(purpose_of(one) is Purpose.CHECK for one in after) or not added:
        return None
    is_lost = any(purpose_of(one) is Purpose.CHECK for one in before)
    return added[0].source if is_lost and all(purpose_of(one) is Purpose.LOOK for one in added) else None


def deselected_test(text: str) -> str | None:
    """Return a test that pytest's settings take out of the run."""
    found = (match.group(1).partition("::")[0] for match in _PYTEST_OPTIONS.finditer(text))
    return next((path for path in found if TEST_FILE.search(path) or TEST_FOLDER.search(path)), None)


def replaces_checker(command: Command) -> bool:
    """Whether `ln` or `alias` puts something else in the place of a program that checks."""
    if command.program == "alias":
        names = [word.partition("=")[0] for word in command.arguments if "=" in word]
    else:
        names = [word for word in command.arguments if not word.startswith("-")][-1:] if command.program == "ln" else []
    return any(is_checker(name) for name in names)


def is_checker(path: str) -> bool:
    """Whether a program of this name checks, such as `/usr/bin/pytest`."""
    name = path.rpartition("/")[2]
    return bool(name) and purpose_of(Command((name,), name)) is Purpose.CHECK


def _command_lines(text: str) -> Iterator[tuple[str, tuple[Command, ...]]]:
    for line in text.splitlines():
        if script := _BEFORE_COMMAND.sub("", line).rstrip("\"', \t"):
            yield line, parse_script(script)


def _is_discarded(commands: Sequence[Command]) -> bool:
    place = next((i for i, one in enumerate(commands) if purpose_of(one) is Purpose.CHECK), len(commands))
    following = commands[place + 1 :]
    return any(_succeeds(one) and (one.operator == "||" or one is commands[-1]) for one in following)


def _succeeds(command: Command) -> bool:
    succeeding = {("true",), ("exit", "0")} if command.operator == ";" else {("true",), (":",), ("exit", "0")}
    return command.words in succeeding and command.operator in {"||", ";"}
