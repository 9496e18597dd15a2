"""Find the session that a Claude Code session was forked from: another file of the folder with the same lines.

`--resume --fork-session` writes all lines of a session once more, with the same uuids under the id of the new session.
Nothing in the fork names the session that it comes from.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Report
from quintain.importers.values import as_dict, as_text, nonblank

_HEAD = 200
"""Lines searched for a session's first turn."""


class Origin(NamedTuple):
    """The session that another one continues."""

    session: str
    shared: frozenset[str]
    """Uuids of the lines in both."""


class _Head(NamedTuple):
    session: str | None
    turn: str | None
    """Hash of the first turn: uuid, time and message."""


class _Sessions(NamedTuple):
    turns: dict[str, str]
    """File name -> hash of its first turn."""
    alike: dict[str, dict[str, str | None]]
    """Hash of the first turn -> files that begin with it, by name, with their sessions."""


class _Lines(NamedTuple):
    stamps: frozenset[tuple[str, str]]
    """Uuid and time of each line with a uuid; copies keep both."""
    times: tuple[tuple[str | None, str], ...]
    """Uuid and time of each line with a time."""

    def first_time(self, shared: frozenset[str]) -> str:
        """Return the time of the first line that is not shared; "" if there is none."""
        return min((time for uuid, time in self.times if uuid not in shared), default="")


def origin_of(log: LogFile) -> Origin | None:
    """Return the fork's origin: of the older files with the same first turn, the one that shares most lines.

    Args:
        log: The file of a session. It is not read again when others change, because the repeated part does not change.
    """
    place = LogFile(log.path, log.root)  # what is looked at here does not count as read for the log
    known = _sessions(log.path.parent, log.root, log.path.parent.stat().st_mtime_ns)
    alike = known.alike.get(known.turns.get(log.path.name) or _head(place).turn or "", {})
    own = alike.get(log.path.name)
    forked = None
    for name, session in alike.items():
        if name == log.path.name or session in (None, own):
            continue
        mine, theirs = _lines_of(place), _lines_of(LogFile(log.path.with_name(name), log.root))
        shared = frozenset(uuid for uuid, _ in mine.stamps & theirs.stamps)
        older = (theirs.first_time(shared), session or "") < (mine.first_time(shared), own or "")
        if older and (forked is None or len(shared) > len(forked.shared)):
            forked = Origin(session or "", shared)
    return forked


@lru_cache(maxsize=64)
def _sessions(folder: Path, root: Path, mtime_ns: int) -> _Sessions:
    """Return the sessions of a folder, cached until files come or go."""
    found = _Sessions({}, {})
    for log in LogFile(folder / "-", root).siblings(".", ".jsonl"):
        head = _head(log)
        if head.turn is not None:
            found.turns[log.path.name] = head.turn
            found.alike.setdefault(head.turn, {})[log.path.name] = head.session
    return found


def _head(log: LogFile) -> _Head:
    for _, row in islice(log.rows(Report()), _HEAD):
        uuid = nonblank(as_dict(row).get("uuid"))
        if uuid and as_dict(row).get("type") in ("user", "assistant"):
            turn_key = [uuid, row.get("timestamp"), row.get("message")]
            return _Head(
                nonblank(row.get("sessionId")),
                hashlib.sha256(json.dumps(turn_key, sort_keys=True).encode()).hexdigest(),
            )
    return _Head(None, None)


def _lines_of(log: LogFile) -> _Lines:
    stamp = log.path.stat()
    return _lines(log.path, log.root, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=4)
def _lines(path: Path, root: Path, mtime_ns: int, size: int) -> _Lines:
    rows: list[dict[str, Any]] = [as_dict(row) for _, row in LogFile(path, root).rows(Report())]
    stamped = [(nonblank(row.get("uuid")), as_text(row.get("timestamp"))) for row in rows]
    stamps = frozenset((uuid, time) for uuid, time in stamped if uuid)
    return _Lines(stamps, tuple((uuid, time) for uuid, time in stamped if time))
