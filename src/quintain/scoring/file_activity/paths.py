"""Which paths of a run may be one file: agents write `a.py`, `./src/a.py` and `/repo/src/a.py` for the same one."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

_DEPTH = 12
"""So many last parts of a path are compared."""


class Files:
    """The files that paths of one run stand for.

    A relative path is the end of a longer one: then both are one file, if it is the end of one only. `a/x.py` and `b/x.py` are
    two files, and a mere `x.py` beside them may be either.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        """Take all paths of the run, normal ones."""
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
        """The file of a path; empty where it may be one of several."""
        return self._file.get(path, path)


def _ends(path: str) -> list[str]:
    """What a path ends with, shorter than itself, in whole parts."""
    if "://" in path:
        return []
    parts = path.lstrip("/").split("/")
    first = 0 if path.startswith("/") else 1
    return ["/".join(parts[i:]) for i in range(max(first, len(parts) - _DEPTH), len(parts))]


def normal(path: str) -> str:
    """A path without needless parts; addresses stay as they are."""
    return path if "://" in path or not path else posixpath.normpath(path)
