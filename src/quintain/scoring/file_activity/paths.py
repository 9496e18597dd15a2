"""Which paths of a run may be one file: agents write `a.py`, `./src/a.py` and `/repo/src/a.py` for the same one."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

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
