"""Find the items that a forked Codex session repeats from the session it continues."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Report
from quintain.importers.transcripts.field_values import as_dict, first_text

_ID = re.compile(r"[0-9A-Za-z-]{8,80}")
_DAYS = 3
"""Levels of the session folders: year, month, day."""


def find_repeats(log: LogFile, session: str) -> Callable[[dict[str, Any]], bool] | None:
    """Return a test whether successive items repeat the session with this id; None if that session is not found.

    Args:
        log: Of the fork.
        session: Id of the other session.
    """
    place = LogFile(log.path, log.root)  # what a fork repeats does not change: it need not be read again with the other
    for other in _candidates(place, session):
        if other.path != log.path and session_of(other) == session:
            items = _items(other)
            return lambda item: item in items
    return None


def _candidates(place: LogFile, session: str) -> Iterator[LogFile]:
    yield from place.siblings(".", ".jsonl")
    top = place.path.parents[_DAYS] if len(place.parts) > _DAYS else None
    if top is not None and _ID.fullmatch(session) and top.is_relative_to(place.root):
        for path in sorted(top.glob(f"*/*/*/*{session}.jsonl")):
            if path.is_file() and not path.is_symlink():
                yield LogFile(path, place.root)


def session_of(log: LogFile) -> str | None:
    """Return the session id at the beginning of a rollout."""
    try:
        stamp = log.path.stat()
    except OSError:
        return None
    return _session(log.path, log.root, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=10_000)
def _session(path: Path, root: Path, mtime_ns: int, size: int) -> str | None:
    for _, row in islice(LogFile(path, root).rows(Report()), 1):
        meta = as_dict(as_dict(row).get("payload"))
        return first_text(meta.get("id"), meta.get("session_id"))
    return None


def _items(log: LogFile) -> Iterator[dict[str, Any]]:
    for _, row in log.rows(Report()):
        if as_dict(row).get("type") == "response_item":
            yield as_dict(row.get("payload"))
