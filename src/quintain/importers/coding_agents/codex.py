"""Codex sessions: rollouts (`~/.codex/sessions/**/rollout-*.jsonl`) of all generations, and `codex exec --json`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

from quintain.importers.coding_agents.codex_rollouts import ITEMS, Rollout
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, only_objects
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.chat_messages import read_turns
from quintain.importers.transcripts.message_parts import join_thoughts, visible_content
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, total_usage
from quintain.records.trajectory import Outcome

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


EXEC_EVENTS = {"thread.started", "turn.started", "turn.completed", "turn.failed", "item.started", "item.updated"}
EXEC_EVENTS |= {"item.completed"}

_NO_TASK = "codex exec --json does not record the task: add a prompt to the runs before training"


def exec_runs(
    line: int, row: dict[str, Any], rest: Iterable[tuple[int, dict[str, Any]]], report: Report
) -> Iterator[Run]:
    """Yield the runs of such a file, one for each `thread.started`."""
    thread = _Events(line, report)
    thread.take(line, row)
    for number, event in rest:
        if event.get("type") == "thread.started" and thread.script.has_acted:
            yield from thread.run()
            thread = _Events(number, report)
        thread.take(number, event)
    yield from thread.run()


class _Events:
    """One thread: messages and thoughts wait for the call that belongs to them."""

    def __init__(self, line: int, report: Report) -> None:
        self.line, self.report, self.script = line, report, Transcript()
        self.session: str | None = None
        self.failure: str | None = None
        self._spent: list[dict[str, Any]] = []
        self._reply: dict[str, Any] = {}
        self._running: dict[str, dict[str, Any]] = {}

    def take(self, line: int, event: dict[str, Any]) -> None:
        kind, item = as_text(event.get("type")), as_dict(event.get("item"))
        if kind == "thread.started":
            self.session = nonblank(event.get("thread_id"))
        elif kind == "turn.completed":
            self._spent.append(as_dict(event.get("usage")))
            self._write([])
        elif kind in ("turn.failed", "error"):
            self.failure = nonblank(as_dict(event.get("error")).get("message"), event.get("message"), kind)
            self.report.skip(kind)
        elif kind == "item.started":
            self._running[as_text(item.get("id"))] = item
        elif kind == "item.completed" and item:
            self._running.pop(as_text(item.get("id")), None)
            self._item(item)
        elif kind == "item.completed":
            self.report.reject(line, "expected an item in item.completed")
        else:
            self.report.skip(kind or "without type")

    def _item(self, item: dict[str, Any]) -> None:
        kind = nonblank(item.get("type"), item.get("item_type"))
        if kind in ("agent_message", "assistant_message", "reasoning"):
            if "content" in self._reply:
                self._write([])
            if kind == "reasoning":
                self._reply.setdefault("thoughts", []).append(as_text(item.get("text")))
            else:
                self._reply["content"] = as_text(item.get("text"))
        elif call := _call(item):
            self._write([call])
            answer = _answer(item)
            if answer is not None:
                status = item.get("status")
                failed = status in ("failed", "declined") or item.get("exit_code") not in (None, 0)
                result = {"role": "tool", "tool_call_id": call["id"], "content": answer, "is_error": failed}
                read_turns([result], self.script, self.report.refuse)
        else:
            self.report.skip(f"item/{kind}")

    def _write(self, calls: list[dict[str, Any]]) -> None:
        if self._reply or calls:
            thoughts = join_thoughts(self._reply.get("thoughts", ()))
            reply = {"content": self._reply.get("content", ""), "thinking": thoughts, "tool_calls": calls}
            read_turns([{"role": "assistant", **reply}], self.script, self.report.refuse)
        self._reply = {}

    def run(self) -> Iterator[Run]:
        self._write([call for item in self._running.values() if (call := _call(item))])
        self.report.note(_NO_TASK)
        self.report.note("the log does not mark the end of a model reply: each call is a separate step")
        usage = total_usage(self._spent)
        yield from build_session_run(
            self.script,
            self.report,
            self.line,
            agent="codex",
            session=self.session,
            prompt="",
            outcome=Outcome(exit_status=self.failure and self.failure[:200]),
            extra={"usage": usage} if usage else {},
        )


def _call(item: dict[str, Any]) -> dict[str, Any] | None:
    arguments: Any
    kind = nonblank(item.get("type"), item.get("item_type"))
    if kind == "command_execution":
        name, arguments = "shell", {"command": as_text(item.get("command"))}
    elif kind == "file_change":
        name, arguments = "apply_patch", {"changes": item.get("changes")}
    elif kind == "mcp_tool_call":
        name = ".".join(filter(None, (as_text(item.get("server")), as_text(item.get("tool")))))
        arguments = item.get("arguments")
    elif kind == "web_search":
        name, arguments = "web_search", {"query": as_text(item.get("query"))}
    else:
        return None
    return {"id": item.get("id"), "name": name, "arguments": arguments}


def _answer(item: dict[str, Any]) -> Any:
    """Return the result of a call; None if the event has none."""
    if "aggregated_output" in item:
        return as_text(item["aggregated_output"])
    if item.get("error") is not None:
        return as_text(as_dict(item["error"]).get("message"))
    result = item.get("result")
    return visible_content(as_dict(result).get("content", result)) if result is not None else None
