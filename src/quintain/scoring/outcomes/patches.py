"""Patches, applied exactly or not at all: the format of `apply_patch`, and unified diffs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")


class FileChange(NamedTuple):
    """What a patch does to one file."""

    kind: str
    """`add`, `update` or `delete`."""
    path: str
    lines: tuple[str, ...]
    """Of the section, with their signs."""
    target: str | None = None
    """Where the file is moved to."""


def changes(patch: str) -> tuple[FileChange, ...]:
    """The files that a patch changes, in its order.

    Raises:
        ValueError: it is in neither format.
    """
    lines = patch.strip("\n").splitlines()
    starts = [i for i, line in enumerate(lines) if line.strip() == "*** Begin Patch"]
    if starts:
        return tuple(_sections(lines[starts[0] + 1 :]))
    if any(line.startswith("+++ ") for line in lines):
        return tuple(_unified(lines))
    raise ValueError("it is neither in the format of apply_patch nor a unified diff")


def patched(text: str, change: FileChange) -> str:
    """The text of a file after an update.

    Raises:
        ValueError: its old lines do not stand in the text, or stand there more than once.
    """
    lines = text.split("\n")
    place = 0
    for header, hunk in _hunks(change.lines):
        old = [line[1:] for line in hunk if line[:1] in {" ", "-", ""}]
        new = [line[1:] for line in hunk if line[:1] in {" ", "+", ""}]
        if header and (anchors := [i for i in range(place, len(lines)) if lines[i].strip() == header.strip()]):
            place = anchors[0]
        if not old:
            if header:
                raise ValueError("lines are added at a place that is not told")
            tail = len(lines) - (lines[-1] == "")
            lines[tail:tail] = new
            continue
        found = [i for i in range(place, len(lines) - len(old) + 1) if lines[i : i + len(old)] == old]
        if not found or (len(found) > 1 and not header and place == 0):
            raise ValueError("its old lines stand not once in what is known of the file")
        lines[found[0] : found[0] + len(old)] = new
        place = found[0] + len(new)
    return "\n".join(lines)


def added(change: FileChange) -> str:
    """The text of a new file."""
    return "".join(f"{line[1:]}\n" for line in change.lines if line.startswith("+"))


def _sections(lines: Sequence[str]) -> Iterator[FileChange]:
    kind, path, held, target = "", "", [], None  # type: str, str, list[str], str | None
    for line in [*lines, "*** End Patch"]:
        found = _FILE.match(line.rstrip())
        if found or line.strip() == "*** End Patch":
            if kind:
                yield FileChange(kind, path, tuple(held), target)
            if not found:
                return
            kind, path, held, target = found[1].lower(), found[2].strip(), [], None
        elif line.startswith("*** Move to: "):
            target = line[len("*** Move to: ") :].strip()
        elif line.strip() != "*** End of File":
            held.append(line)


def _unified(lines: Sequence[str]) -> Iterator[FileChange]:
    for start in [
        i for i, line in enumerate(lines) if line.startswith("+++ ") and i and lines[i - 1].startswith("--- ")
    ]:
        old, new = (re.sub(r"^[ab]/", "", lines[i][4:].split("\t")[0].strip()) for i in (start - 1, start))
        held = []
        for line in lines[start + 1 :]:
            if line.startswith(("--- ", "diff ", "index ")):
                break
            if not line.startswith("\\"):
                held.append(line)
        kind = "add" if old == "/dev/null" else "delete" if new == "/dev/null" else "update"
        if kind == "update" and (old != new or not any(_HUNK.match(line) for line in held)):
            raise ValueError("a diff that renames, or has no hunk")
        yield FileChange(kind, old if kind == "delete" else new, tuple(held))


def _hunks(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each hunk with the line after its `@@`, which stands before it in the file."""
    header, held = "", []  # type: str, list[str]
    for line in lines:
        if line.startswith("@@"):
            if held:
                yield header, held
            header, held = ("" if _HUNK.match(line) else line[2:].strip()), []
        elif line[:1] in {" ", "+", "-", ""}:
            held.append(line)
        else:
            raise ValueError(f"the line {line[:40]!r} has no sign")
    if held:
        yield header, held
