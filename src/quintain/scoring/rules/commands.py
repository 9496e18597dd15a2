"""Properties of a shell command that the rules need: its effect, the part of a file that it prints, and which commands are equal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from quintain.scoring.file_activity.programs import Purpose, purpose_of
from quintain.scoring.file_activity.shell import Command

_MAX_PIPELINE = 4
_COUNT = re.compile(r"(?:-n|-)?(\d{1,9})")
_SED_LINES = re.compile(r"(\d{1,9}),(\d{1,9})p")


class Effect(Enum):
    """Effect of a call on the world that other calls look at."""

    NONE = "none"
    """It looks, checks or thinks."""
    TARGET = "target"
    """It changes what its target names."""
    ANY = "any"
    """It may change anything."""


class PrintedPart(NamedTuple):
    """The part of a file that a command prints."""

    path: str
    first: int
    """The first line, from 1; -1 for the end of the file."""
    last: int | None
    """The last line; None: up to the end, or unknown."""


def classify(commands: Sequence[Command]) -> tuple[Effect, Purpose]:
    """Return the possible changes of a script and its purpose; only commands known as harmless count as harmless."""
    purposes = [purpose_of(command) for command in commands]
    if Purpose.UNDO in purposes:
        return Effect.ANY, Purpose.UNDO
    if {Purpose.OTHER, Purpose.SETTING} & set(purposes) or any(map(_may_write, commands)):
        return Effect.ANY, Purpose.OTHER
    return Effect.NONE, Purpose.CHECK if Purpose.CHECK in purposes else Purpose.LOOK


def _may_write(command: Command) -> bool:
    has_substitution = not command.is_literal and any("`" in word or "$" in word for word in command.words)
    return bool(command.outputs) or (has_substitution and ("`" in command.source or "$(" in command.source))


def printed_part(commands: Sequence[Command]) -> PrintedPart | None:
    """Return the part of one file that a script prints where it does nothing else, such as `cat a | head -5`."""
    if not 0 < len(commands) <= _MAX_PIPELINE or any(command.operator != "|" for command in commands[1:]):
        return None
    if not all(command.is_literal and not command.here_document for command in commands):
        return None
    if any(one.target != "/dev/null" for command in commands for one in command.redirects):
        return None
    first, *others = commands
    paths = [word for word in first.arguments if not word.startswith("-") and not _SED_LINES.fullmatch(word)]
    if first.program in {"cat", "less", "more"} and len(first.arguments) != 1:
        return None
    if first.program == "head" or first.program == "tail":
        paths = [word for word in paths if not word.isdecimal()]
    if len(paths) != 1 or (lines := _lines(first, of_file=True)) is None:
        return None
    for other in others:
        cut = _lines(other, of_file=False)
        if cut is None:
            return None
        if cut != (1, None):
            # The lines of a second cut are not those of the file.
            lines = cut if lines == (1, None) and len(others) == 1 else (cut[0], None)
    return PrintedPart(paths[0], *lines)


def _lines(command: Command, *, of_file: bool) -> tuple[int, int | None] | None:
    """Return first and last line that one command of a pipeline passes on; None for other programs."""
    program, options = command.program, " ".join(command.arguments)
    if program in {"cat", "less", "more"}:
        return (1, None) if of_file or not command.arguments else None
    if program == "tail" and "-f" not in command.arguments:
        return -1, None
    if program == "head":
        count = next((found[1] for word in command.arguments if (found := _COUNT.fullmatch(word))), None)
        return (1, None) if "-c" in options else (1, int(count or 10))
    if program == "sed" and command.arguments[:1] == ("-n",):
        found = _SED_LINES.fullmatch("".join(command.arguments[1:2]))
        return (int(found[1]), int(found[2])) if found else None
    return None


def canonical_text(commands: Sequence[Command]) -> str:
    """Return one text for scripts that differ only in comments, spaces and commands that do nothing."""
    lines = []
    for command in commands:
        redirects = [f"{one.operator}{one.target!r}" for one in command.redirects if one.target != "/dev/null"]
        document = [repr(command.here_document.text)] if command.here_document else []
        lines.append((command.operator, " ".join([*map(repr, command.words), *redirects, *document])))
    while len(lines) > 1 and lines[-1][1] in {"", "'true'", "':'"} and lines[-1][0] != "|":
        lines.pop()
    return "\n".join(f"{operator} {text}" for operator, text in lines)
