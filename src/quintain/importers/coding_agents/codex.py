"""Codex sessions: rollouts (`~/.codex/sessions/**/rollout-*.jsonl`) of all generations, and `codex exec --json`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from quintain.importers.coding_agents.codex_events import EXEC_EVENTS, exec_runs
from quintain.importers.coding_agents.codex_forks import find_repeats
from quintain.importers.coding_agents.codex_rollouts import ITEMS, Rollout
from quintain.importers.importer import Importer
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import if_most, only_objects
from quintain.importers.transcripts.field_values import as_dict, as_text, dicts_in, first_text

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
    """Yield one run a session; a concatenated file yields several."""
    thread: Rollout | None = None
    rows = only_objects(_rows(log, report), report)
    for line, row in rows:
        kind, payload = as_text(row.get("type")), as_dict(row.get("payload"))
        if thread is None and kind in EXEC_EVENTS:
            yield from exec_runs(line, row, rows, report)
            return
        other = first_text(payload.get("id"), payload.get("session_id")) if kind == "session_meta" else None
        if thread is None or (other and other != thread.session and thread.has_model_output):
            if thread is not None:
                yield from thread.run()
            thread = Rollout(line, report, partial(find_repeats, log))
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
