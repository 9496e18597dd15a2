"""The purpose of a simple command by its program: looking, checking, undoing changes, or anything else.

A record of a command has nothing but its words, so programs are known by name. A program that is missing here may change anything:
an omission leaves a repetition unfound, and counts a failing check as a failed call.
"""

import re
from collections.abc import Sequence
from enum import Enum

from quintain.scoring.file_activity.shell import Command

_LOOKS = frozenset(
    re.findall(
        r"\S+",
        "ls cat head tail grep egrep fgrep rg ag ack find fd wc pwd echo printf cd which whereis type tree stat file less more sort "
        "uniq cut tr diff cmp env printenv date whoami id uname hostname ps df du true false test [ [[ : nl awk gawk column jq "
        "basename dirname realpath readlink man help history sleep wait md5sum sha256sum xxd od hexdump strings lscpu nvidia-smi free "
        "uptime tac fold seq jobs",
    )
)
_SETTINGS = frozenset({"mkdir", "export", "set", "unset", "exit", "ulimit", "submit", "pip", "pip3"})
"""Programs that change more than they print, but no file of a workspace."""
_CHECKS = re.compile(
    r"(?:python[\d.]* -m |uv run |poetry run |npx |bundle exec |coverage run -m )?(?:pytest|py\.test|tox|nox|unittest|mypy|pyright|"
    r"ruff check|flake8|pylint|pyflakes|eslint|tsc|jest|vitest|mocha|rspec|phpunit|ctest)(?![\w/.-])|"
    r"(?:npm|pnpm|yarn)(?: run)? (?:test|lint)\b|"
    r"(?:cargo|go|mvn|gradle|gradlew|dotnet|swift|make|bazel|zig|mix|flutter) (?:-q )?(?:test|check|vet|verify|clippy)\b|"
    r"(?:ruff format|black|isort)(?: \S+)*? --check\b|python[\d.]* manage\.py test\b|"
    r"python[\d.]* -m (?:py_compile|compileall|doctest|json\.tool|pip)\b"
)
_CHECK_THAT_WRITES = re.compile(
    r"--fix\b|--write\b|-u\b|--snapshot-update|--update|--emit\b|--junit|--cov-report=(?!term)|-o\b"
)
_GIT_LOOKS = re.compile(
    r"(?:status|log|diff|show|blame|rev-parse|ls-files|ls-tree|describe|grep|shortlog|reflog|cat-file|merge-base|rev-list|remote -v|"
    r"branch(?: -[avr]+)*$|stash list|config --get|tag$|fetch)\b"
)
_GIT_SETTINGS = frozenset({"add", "commit", "config"})
_GIT_UNDOES = re.compile(
    r"checkout (?:\S+ )?--(?: |$)|checkout \.(?: |$)|restore\b|reset --hard|stash(?:$| push| save)"
)
_SED_WRITES = re.compile(r"(?:^| )(?:-[a-zA-Z]*i|--in-place)|(?:^|[;/\d} ])w ")
_FIND_ACTS = re.compile(r"(?:^| )-(?:delete|exec|execdir|ok|fprint)")
_VERSION = frozenset({"--version", "-V", "--help", "-h"})
_WAITS = re.compile(r"(?:sleep|wait|pgrep|jobs|squeue|watch)(?: |$)|kill -0|tail -\w*f")


class Purpose(Enum):
    """Purpose of a command."""

    LOOK = "look"
    CHECK = "check"
    """It runs tests or a checker."""
    SETTING = "setting"
    """It changes the session, the index of git or an installation, and no file of the workspace."""
    UNDO = "undo"
    """It undoes changes to files."""
    OTHER = "other"
    """It may change anything."""


def purpose_of(command: Command) -> Purpose:
    """Return the purpose of a command by its program and arguments; its redirections are not considered."""
    program, arguments = command.program, command.arguments
    line = " ".join((program, *arguments))
    if not program:
        return Purpose.LOOK
    if program == "git":
        return _git_purpose(command.git)
    if program in _LOOKS:
        options = " ".join(arguments)
        acts = (
            (program in {"find", "fd"} and _FIND_ACTS.search(options))
            or (program in {"awk", "gawk"} and ("system" in options or ">" in options))
            or (program == "sort" and "-o" in arguments)
        )
        return Purpose.OTHER if acts else Purpose.LOOK
    if program == "sed":
        return Purpose.OTHER if _SED_WRITES.search(" ".join(arguments)) else Purpose.LOOK
    if _CHECKS.match(line):
        return Purpose.OTHER if _CHECK_THAT_WRITES.search(line) else Purpose.CHECK
    if len(arguments) == 1 and arguments[0] in _VERSION:
        return Purpose.LOOK
    return Purpose.SETTING if program in _SETTINGS else Purpose.OTHER


def _git_purpose(words: Sequence[str]) -> Purpose:
    line = " ".join(words)
    if _GIT_UNDOES.match(line):
        return Purpose.UNDO
    if _GIT_LOOKS.match(line):
        return Purpose.LOOK
    return Purpose.SETTING if words and words[0] in _GIT_SETTINGS else Purpose.OTHER


def waits(commands: Sequence[Command]) -> bool:
    """Whether the script waits for something or asks for its state, so that repeating it later is not redundant."""
    return any(_WAITS.match(" ".join((one.program, *one.arguments))) for one in commands)
