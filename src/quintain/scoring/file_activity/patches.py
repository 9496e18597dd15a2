"""Parse and apply patches in the format of `apply_patch` and as unified diffs; a patch that does not fit exactly is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")


class FileChange(NamedTuple):
    """The change of one file in a patch."""

    kind: str
    """`add`, `update` or `delete`."""
    path: str
    lines: tuple[str, ...]
    """The lines of the section, with their signs."""
    target: str | None = None
    is_complete: bool = True
    """False for a diff that renames a file or has no hunk: it cannot be applied."""

    @property
    def removed(self) -> str:
        """The lines that are taken out."""
        return "\n".join(line[1:] for line in self.lines if line.startswith("-"))

    @property
    def added(self) -> str:
        """The lines that are put in."""
        return "\n".join(line[1:] for line in self.lines if line.startswith("+"))


def changes(patch: str) -> tuple[FileChange, ...]:
    """Return the files that a patch changes, in its order.

    Raises:
        ValueError: The text is in neither format.
    """
    lines = patch.strip("\n").splitlines()
    starts = [i for i, line in enumerate(lines) if line.strip() == "*** Begin Patch"]
    if starts:
        return tuple(_sections(lines[starts[0] + 1 :]))
    if any(line.startswith("+++ ") for line in lines):
        return tuple(_unified(lines))
    raise ValueError("expected the format of apply_patch or a unified diff")


def apply_patch(text: str, change: FileChange) -> str:
    """Return the text of a file after an update.

    Raises:
        ValueError: The old lines are missing from the text, or ambiguous.
    """
    if not change.is_complete:
        raise ValueError("a diff that renames a file, or has no hunk")
    lines = text.split("\n")
    place = 0
    for header, hunk in _hunks(change.lines):
        old = [line[1:] for line in hunk if line[:1] in {" ", "-", ""}]
        new = [line[1:] for line in hunk if line[:1] in {" ", "+", ""}]
        if header and (anchors := [i for i in range(place, len(lines)) if lines[i].strip() == header.strip()]):
            place = anchors[0]
        if not old:
            if header:
                raise ValueError("lines are added at an unknown place")
            tail = len(lines) - (lines[-1] == "")
            lines[tail:tail] = new
            continue
        found = [i for i in range(place, len(lines) - len(old) + 1) if lines[i : i + len(old)] == old]
        if not found or (len(found) > 1 and not header and place == 0):
            raise ValueError("its old lines are missing from the known text, or ambiguous")
        lines[found[0] : found[0] + len(old)] = new
        place = found[0] + len(new)
    return "\n".join(lines)


def hunks_of(change: FileChange, *, with_context: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the lines of each hunk before and after: those that change, or with those around them."""
    kept = (" ", "") if with_context else ()
    try:
        for _, hunk in _hunks(change.lines):
            old = "\n".join(line[1:] for line in hunk if line[:1] in ("-", *kept))
            new = "\n".join(line[1:] for line in hunk if line[:1] in ("+", *kept))
            if old or new:
                yield old, new
    except ValueError:
        return


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
        is_complete = kind != "update" or (old == new and any(_HUNK.match(line) for line in held))
        yield FileChange(kind, old if kind == "delete" else new, tuple(held), is_complete=is_complete)


def _hunks(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each hunk with the line after its `@@`, which precedes it in the file."""
    header, held = "", []  # type: str, list[str]
    for line in lines:
        if line.startswith("@@"):
            if held:
                yield header, held
            header, held = ("" if _HUNK.match(line) else line[2:].strip()), []
        elif line[:1] in {" ", "+", "-", ""}:
            held.append(line)
        else:
            raise ValueError(f"expected a line that starts with a space, + or -, got {line[:40]!r}")
    if held:
        yield header, held
