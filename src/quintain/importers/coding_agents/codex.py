"""Codex sessions: rollouts (`~/.codex/sessions/**/rollout-*.jsonl`) of all generations, and `codex exec --json`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from quintain.importers.coding_agents.codex_events import EXEC_EVENTS, exec_runs
from quintain.importers.coding_agents.codex_rollouts import ITEMS, Rollout
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Importer, Probe, Report, Run
from quintain.importers.row_reader import if_most, only_objects
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank

_LINES = {"session_meta", "turn_context", "response_item", "event_msg", "compacted", "world_state"}


def _detect(probe: Probe) -> float:
    """Match lines with type and payload, bare items, or events of `codex exec --json`."""
    if probe.document is not None and isinstance(probe.document.get("session"), dict):
        items = dicts_in(probe.document.get("items"))
        return 0.9 if any(as_text(item.get("type")) in ITEMS for item in items) else 0.0
    # An array of items, or messages without a type among them, is what the Responses API takes: no rollout is.
    untyped = any("role" in row and "type" not in row for row in map(as_dict, probe.rows))
    is_request = probe.shape == "array" or untyped
    best = 0.0
    is_first = "type" not in probe.first and {"id", "instructions"} <= set(probe.first)  # of the first generation
    # Other programs write single items of the Responses API among lines of their own.
    kinds = {as_text(row.get("type")) for row in map(as_dict, probe.rows)} - {""}
    bare = 0.82 if kinds <= ITEMS else 0.3
    for row in map(as_dict, [*probe.rows, probe.document]):
        kind = row.get("type")
        if not isinstance(kind, str):
            continue
        if kind in _LINES and isinstance(row.get("payload"), dict):
            return if_most(0.97, probe, _is_line)
        if kind == "thread.started" or (kind in EXEC_EVENTS and isinstance(row.get("item"), dict)):
            return if_most(0.95, probe, _is_event)
        if kind in ITEMS and ("content" in row or "call_id" in row or "summary" in row) and "message" not in row:
            best = max(best, 0.95 if is_first else min(bare, 0.6) if kind == "message" or is_request else bare)
    return best


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    thread: Rollout | None = None
    rows = only_objects(_rows(log, report), report)
    for line, row in rows:
        kind, payload = as_text(row.get("type")), as_dict(row.get("payload"))
        if thread is None and kind in EXEC_EVENTS:
            yield from exec_runs(line, row, rows, report)
            return
        other = nonblank(payload.get("id"), payload.get("session_id")) if kind == "session_meta" else None
        if thread is None or (other and other != thread.session and thread.has_model_output):
            if thread is not None:
                yield from thread.run()
            thread = Rollout(line, report, partial(_find_repeats, log))
        thread.take(line, kind, row, payload)
    if thread is not None:
        yield from thread.run()
    else:
        report.reject(None, "expected a session, got no line of one")


IMPORTER = Importer("codex", "Codex session", _detect, _read)


def _is_line(row: dict[str, Any]) -> bool:
    return isinstance(row.get("type"), str) and isinstance(row.get("payload"), dict)


def _is_event(row: dict[str, Any]) -> bool:
    return as_text(row.get("type")) in EXEC_EVENTS | {"error"}


def _rows(log: LogFile, report: Report) -> Iterator[tuple[int, Any]]:
    """Yield the lines; the single-object form of the first version (`session` and `items`) is expanded to lines."""
    for line, row in log.rows(report):
        session = row.get("session") if isinstance(row, dict) and "items" in row else None
        if isinstance(session, dict):
            yield line, session
            yield from ((line, item) for item in dicts_in(row["items"]))
        else:
            yield line, row


_ID = re.compile(r"[0-9A-Za-z-]{8,80}")
_DAYS = 3
"""Levels of the session folders: year, month, day."""


def _find_repeats(log: LogFile, session: str) -> Callable[[dict[str, Any]], bool] | None:
    """Return a test whether successive items repeat the session with this id; None if that session is not found."""
    place = LogFile(log.path, log.root)  # what a fork repeats does not change: it need not be read again with the other
    for other in _candidates(place, session):
        if other.path != log.path and _session_of(other) == session:
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


def _session_of(log: LogFile) -> str | None:
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
        return nonblank(meta.get("id"), meta.get("session_id"))
    return None


def _items(log: LogFile) -> Iterator[dict[str, Any]]:
    for _, row in log.rows(Report()):
        if as_dict(row).get("type") == "response_item":
            yield as_dict(row.get("payload"))
