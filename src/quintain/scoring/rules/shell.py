"""What a shell command may change, told from its text: only what is known to change nothing counts as harmless."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any, NamedTuple


class Effect(Enum):
    """What a call may do to the world that other calls look at."""

    NONE = "none"
    """It looks, or checks, or thinks."""
    TARGET = "target"
    """It changes what its target names."""
    ANY = "any"
    """It may change anything."""


class Kind(Enum):
    """What a command is for."""

    LOOK = "look"
    CHECK = "check"
    """It runs tests or a checker."""
    UNDO = "undo"
    """It takes back changes to files."""
    OTHER = "other"


_SHORT = 500
"""Longer commands are taken as they are."""
_PIPE = 4
"""Commands in a row that are looked at to tell what is printed."""

_COMMAND_ARGS = ("command", "cmd", "keystrokes", "script", "code", "commands", "input", "args", "chars")

_LOOKS = frozenset(
    {
        *("ls", "cat", "head", "tail", "grep", "egrep", "fgrep", "rg", "ag", "ack", "find", "fd", "wc", "pwd"),
        *("echo", "printf", "cd", "which", "type", "tree", "stat", "file", "less", "more", "sort", "uniq", "cut"),
        *("tr", "diff", "cmp", "env", "printenv", "date", "whoami", "id", "uname", "hostname", "ps", "df", "du"),
        *("true", "test", "[", "nl", "awk", "column", "jq", "basename", "dirname", "realpath", "readlink", "man"),
        *("help", "history", "sleep", "md5sum", "sha256sum", "xxd", "od", "strings", "lscpu", "nvidia-smi"),
        *("free", "uptime", "node-version", "tac", "fold", "seq"),
    }
)
_CHECKS = re.compile(
    r"(?:python3? -m |uv run |poetry run |npx |bundle exec |coverage run -m )?(?:pytest|py\.test|tox|nox|unittest|mypy|pyright|ruff check|"
    r"flake8|pylint|eslint|tsc|jest|vitest|mocha|rspec|phpunit|ctest)\b|(?:npm|pnpm|yarn)(?: run)? (?:test|lint)\b|"
    r"(?:cargo|go|mvn|gradle|\./gradlew|dotnet|swift|make|bazel|zig|mix|flutter) (?:-q )?(?:test|check|vet|verify|clippy)\b|"
    r"python3? manage\.py test\b"
)
_CHECK_THAT_WRITES = re.compile(
    r"--fix\b|--write\b|-u\b|--snapshot-update|--update|--emit\b|--junit|--cov-report=(?!term)|-o\b"
)
_GIT_LOOKS = re.compile(
    r"git (?:-[cC] \S+ |--no-pager )*(?:status|log|diff|show|blame|rev-parse|ls-files|ls-tree|describe|grep|shortlog|reflog|"
    r"cat-file|merge-base|rev-list|remote -v|branch(?: -[avr]+)*$|stash list|config --get|tag$|fetch)"
)
_UNDO = re.compile(
    r"\bgit (?:-C \S+ )?(?:checkout\s+(?:\S+\s+)?--\s|checkout\s+\.|restore\b|reset --hard|stash(?:\s*$| push| save))"
)
_HARMLESS_REDIRECTS = re.compile(r"[0-9&]?>>?\s*(?:/dev/null|&[0-9])")
_SEGMENTS = re.compile(r"&&|\|\||[;|&\n]")
_SED_WRITES = re.compile(r"\s(?:-[nErsz]{0,4}i|--in-place)|[/\d\s]w\s")
_VERSION = re.compile(r"\S+ (?:--version|-V|--help|-h)$")
_SUBSHELL = re.compile(r"`|\$\(|<\(")
_FIND_ACTS = re.compile(r"\s-(?:delete|exec|execdir|ok|fprint)")
_PREFIX = re.compile(r"^(?:sudo |time |timeout \S+ |env |[A-Z_][A-Z0-9_]*=\S* )+")
_PATH = r"(['\"]?)([^\s|;&<>$`*?'\"-][^\s|;&<>$`*?'\"]*)"
_CAT = re.compile(rf"(?:cat|less|more)\s+{_PATH}\1$")
_HEAD = re.compile(r"head(?:\s+(?:-n\s*|-c\s*|-)(\d{1,9}))?")
_CUT = re.compile(rf"(?:head|tail|sed -n)\s.*?{_PATH}\1$")
_TAIL = re.compile(r"tail(?:\s+(?:-n\s*|-)(\d{1,9}))?")
_SED_LINES = re.compile(r"sed -n ['\"]?(\d{1,9}),(\d{1,9})p['\"]?")
_COMMENT = re.compile(r"(?:^|(?<=[\s;]))#[^\n]*")
_NOTHING = re.compile(r"(?:\s*(?:;|&&|\|\|)\s*(?:true|:)?\s*)+$")
_WAITS = re.compile(r"\b(?:sleep|wait|kill -0|pgrep|jobs|squeue|tail -f|watch)\b")


def command_of(args: dict[str, Any]) -> str:
    """The command line among the arguments of a shell tool, or nothing."""
    for name in _COMMAND_ARGS:
        value = args.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:  # argv, as Codex sends it: ["bash", "-lc", "ls"]
            words = [word for word in value if isinstance(word, str)]
            shell = len(words) == 3 and words[1] in {"-lc", "-c"}
            return words[2] if shell else " ".join(words)
    return ""


class Printed(NamedTuple):
    """What of a file a command prints."""

    path: str
    first: int
    """Its first line, from 1; -1: what is printed is the end."""
    last: int | None
    """Its last line; None: to the end, or not known."""


def printed(command: str) -> Printed | None:
    """The part of one file that a command prints, where it does nothing else: `cat a`, `cat a | head -5`, `sed -n 3,9p a`."""
    parts = [_PREFIX.sub("", part.strip()) for part in command.split("|")]
    if len(command) > _SHORT or len(parts) > _PIPE or any(mark in command for mark in ";&\n<>`$"):
        return None
    path, first, last = "", 1, None
    for at, part in enumerate(parts):
        if at == 0:
            found = _CAT.match(part) or _CUT.match(part)
            if found is None:
                return None
            path = found[2]
            part = part[: found.start(2)].strip(" '\"") if not part.startswith(("cat", "less", "more")) else "cat"
        if part == "cat":
            continue
        if shown := _SED_LINES.fullmatch(part):
            first, last = int(shown[1]), int(shown[2])
        elif shown := _HEAD.fullmatch(part):
            last = int(shown[1] or 10) if "-c" not in part else None
        elif _TAIL.fullmatch(part):
            first, last = -1, None
        else:
            return None
        if at:  # of what was printed before it, not of the file
            last = None if first != 1 or len(parts) > 2 else last
    return Printed(path, first, last)


def essence(command: str) -> str:
    """A command without comments, needless space and what does nothing: two that differ in those alone are one."""
    if "<<" in command or len(command) > _SHORT:
        return command
    if "#" in command and not any(mark in command for mark in "'\"`$"):
        command = _COMMENT.sub("", command)
    command = _NOTHING.sub("", command.strip())
    return command if any(mark in command for mark in "'\"\n") else " ".join(command.split())


def waits(command: str) -> bool:
    """Does it wait, or ask whether something goes on? Then calling it again is not the same question."""
    return bool(_WAITS.search(command))


def without_redirects(command: str) -> str:
    """A command without redirections that lead nowhere: `2>/dev/null`, `2>&1`."""
    return _HARMLESS_REDIRECTS.sub("", command) if ">" in command else command


def segments(command: str) -> list[str]:
    """The single commands of a command line."""
    return [segment.strip() for segment in _SEGMENTS.split(command)]


def classify(command: str) -> tuple[Effect, Kind]:
    """What a command may change, and what it is for. What is not known to be harmless may change anything."""
    plain = without_redirects(command)
    if _UNDO.search(plain):
        return Effect.ANY, Kind.UNDO
    if ">" in plain or _SUBSHELL.search(plain):
        return Effect.ANY, Kind.OTHER
    kind = Kind.LOOK
    for segment in segments(plain):
        found = _kind(segment)
        if found is Kind.OTHER:
            return Effect.ANY, Kind.OTHER
        if found is Kind.CHECK:
            kind = found
    return Effect.NONE, kind


def _kind(segment: str) -> Kind:
    if not segment or segment[0] == "#":
        return Kind.LOOK
    first = segment.split(None, 1)[0]
    if first not in _LOOKS and ("=" in first or first in {"sudo", "time", "timeout", "env"}):
        segment = _PREFIX.sub("", segment)
        first = segment.split(None, 1)[0] if segment else "true"
    if first in _LOOKS:
        acts = (first in {"find", "fd"} and _FIND_ACTS.search(segment)) or (first == "awk" and "system" in segment)
        return Kind.OTHER if acts else Kind.LOOK
    if first == "sed":
        return Kind.OTHER if _SED_WRITES.search(segment) else Kind.LOOK
    if first == "git":
        return Kind.LOOK if _GIT_LOOKS.match(segment) else Kind.OTHER
    if _CHECKS.match(segment):
        return Kind.OTHER if _CHECK_THAT_WRITES.search(segment) else Kind.CHECK
    return Kind.LOOK if _VERSION.match(segment) else Kind.OTHER
