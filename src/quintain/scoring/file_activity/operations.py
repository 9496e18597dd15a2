"""Operations on files, the one form in which rules, audit and replays read the effects of a run, and which paths are one file.

Agents write `a.py`, `./src/a.py` and `/repo/src/a.py` for the same file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from quintain.scoring.file_activity.patches import FileChange, changes

OperationKind = Literal[
    "read", "write", "append", "edit", "insert", "delete", "move", "copy", "undo", "patch", "search", "run", "unknown"
]


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that a call did to a file, or may have done.

    Attributes:
        kind: `run` is a program or code of which only the text is known; `unknown` a change that cannot be read.
        path: The file as the agent named it, joined with the folder that a script changed to; empty where nothing is named.
        old: Text that an edit removes.
        new: Text that an edit puts in its place, or that is written; the command of a `run`.
        target: Where a file is moved or copied to.
        line: After which line, from 0, text is inserted.
        everywhere: Whether an edit replaces every occurrence.
        change: The section of a patch.
        is_exact: Whether old text and new text are known exactly, so that the operation can be replayed.
        is_whole: Whether the file consists of the new text afterwards.
        note: Description of an operation that cannot be replayed.
    """

    kind: OperationKind
    path: str = ""
    old: str = ""
    new: str = ""
    target: str = ""
    line: int | None = None
    everywhere: bool = False
    change: FileChange | None = None
    is_exact: bool = True
    is_whole: bool = False
    note: str = ""

    @property
    def changes_files(self) -> bool:
        """Whether the operation changes a file, or may."""
        return self.kind not in {"read", "search"}

    @property
    def removes_file(self) -> bool:
        """Whether the file is no longer at its path afterwards."""
        return self.kind in {"delete", "move"} or (self.change is not None and self.change.kind == "delete")


def patch_operations(patch: str, *, is_exact: bool = True) -> Iterator[Operation]:
    """Yield the changes of a patch; one `unknown` operation for a text in neither format."""
    try:
        found = changes(patch)
    except ValueError as error:
        yield Operation("unknown", is_exact=False, note=f"a patch that cannot be replayed: {error}")
        return
    for change in found:
        yield Operation(
            "patch",
            change.path,
            change.removed,
            change.added,
            target=change.target or "",
            change=change,
            is_exact=is_exact,
            is_whole=change.kind == "add",
            note="a patch that may not have been applied",
        )


_DEPTH = 12
"""Only so many last parts of a path are compared."""


class Files:
    """The files that the paths of one run denote.

    A relative path that is the end of one longer path, and of one only, denotes the same file. `a/x.py` and `b/x.py` are
    two files, and a mere `x.py` beside them may be either.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        """Index all normal paths of the run."""
        distinct = set(paths)
        longest: dict[str, set[str]] = {}
        for path in distinct:
            for end in _ends(path):
                if end in distinct:
                    longest.setdefault(end, set()).add(path)
        self._file = {path: path for path in distinct - longest.keys()}
        for path, longer in longest.items():
            owners = longer - longest.keys()
            self._file[path] = owners.pop() if len(owners) == 1 else ""

    def __getitem__(self, path: str) -> str:
        """Return the file of a path; empty where it may be one of several."""
        return self._file.get(path, path)


def _ends(path: str) -> list[str]:
    """Return the proper endings of a path, in whole parts."""
    if "://" in path:
        return []
    parts = path.lstrip("/").split("/")
    first = 0 if path.startswith("/") else 1
    return ["/".join(parts[i:]) for i in range(max(first, len(parts) - _DEPTH), len(parts))]


def normal(path: str) -> str:
    """Return a path without redundant parts; addresses stay unchanged."""
    return path if "://" in path or not path else posixpath.normpath(path)
