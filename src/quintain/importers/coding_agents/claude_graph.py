"""The lines of a Claude Code session as a graph, and the branch of it that becomes a run.

Lines hang on each other by `parentUuid`: edits, retries and rewinds leave branches behind. A run is the branch that ends in
the latest turn.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

from quintain.importers.files.byte_streams import ReadState
from quintain.importers.files.spooled_list import Place, Spool
from quintain.importers.protocol import Report
from quintain.importers.transcripts.message_parts import plain_text, visible_content
from quintain.importers.values import as_dict, as_text, nonblank

_LINKS = {"user", "assistant", "system", "attachment", "progress"}
_NO_REPLY = "No response requested."
"""Placeholder reply that the program writes if its own message needs no answer."""


MEMORY_BYTES = 2**20
"""Bytes of a log after which the rows of further lines go to a file until they are written."""


@dataclass(eq=False, slots=True)
class Line:
    """One line of the graph; lines without a turn only keep the graph connected."""

    number: int
    uuid: str
    parent: str | None
    thread: tuple[str, str]
    """Session and sidechain (empty for the session itself)."""
    kind: str = ""
    """`user`, `assistant` or `attachment`; empty if the line is not a turn."""
    reply: str | None = None
    """Id of the reply of the API that the line is a part of."""
    is_meta: bool = False
    answers: tuple[str, ...] = ()
    """Ids of the calls that the line answers."""
    forked_from: dict[str, Any] | None = None
    is_loose: bool = False
    """Whether the line has no parent field at all; then it continues the line before it."""
    _row: dict[str, Any] | Place = field(default_factory=dict)
    _spool: Spool | None = None

    def describe(self, row: dict[str, Any]) -> None:
        """Take over the row of a turn."""
        self._row, self.kind = row, as_text(row.get("type"))
        if self.kind == "assistant":
            self.reply = nonblank(row["message"].get("id"))
        self.is_meta = row.get("isMeta") is True
        self.answers = tuple(as_text(result.get("tool_use_id")) for result in results_in(row))
        origin = row.get("forkedFrom")
        self.forked_from = origin if isinstance(origin, dict) else None

    def store(self, spool: Spool, position: int) -> None:
        """Move the row to a file; `position` as in `Spool.put`."""
        self._row, self._spool = spool.put(self._row, position), spool

    @property
    def row(self) -> dict[str, Any]:
        """The row as read; empty if the line is not a turn or was dropped."""
        if isinstance(self._row, dict):
            return self._row
        assert self._spool is not None
        row: dict[str, Any] = self._spool.get(self._row)
        return row

    def drop(self) -> None:
        """Forget the row."""
        self._row, self._spool = {}, None


def blocks_in(row: dict[str, Any]) -> list[Any]:
    """Return the content blocks of a row's message."""
    content = as_dict(row.get("message")).get("content")
    return content if isinstance(content, list) else [content]


def results_in(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool results among the blocks."""
    return [b for b in blocks_in(row) if isinstance(b, dict) and as_text(b.get("type")).endswith("tool_result")]


class Graph:
    """All lines of a file and their parents. Of a long file, only the first rows are in memory."""

    def __init__(self, reading: ReadState, session: str) -> None:
        self._reading, self._spool = reading, Spool()
        self.lines: dict[str, Line] = {}
        self.ends: dict[str, str] = {}
        """Session -> result subtype of a headless run."""
        self.steering: list[Line] = []
        """Prompts typed while the model was working, delivered from the queue before its next call."""
        self._queued: dict[str, list[str]] = {}
        self._session = session
        """Session of lines that do not name theirs: that of the line before, or the name of the file."""
        self._threads: dict[tuple[str, str], tuple[str, str]] = {}

    def add(self, number: int, row: dict[str, Any], report: Report) -> None:
        """Add a line, or report why it is not added."""
        kind = nonblank(row.get("type")) or "without type"
        session = nonblank(row.get("sessionId"), row.get("session_id")) or self._session
        if kind in ("tool_use", "tool_result"):
            kind, row = _wrapped(kind, row)
        if kind == "result":
            self.ends[session] = as_text(row.get("subtype"))
        if kind == "queue-operation":
            self._queue(number, session, row)
        if kind not in _LINKS:
            report.skip(kind)
            return
        self._session = session
        turn = _is_turn(number, kind, row, report)
        uuid = nonblank(row.get("uuid")) or f"#{number}"
        if uuid in self.lines:
            if not turn or self.lines[uuid].row.get("message") == row.get("message"):
                report.skip("repeated line")
                return
            uuid = f"{uuid}#{number}"
        called_by = nonblank(row.get("parent_tool_use_id"))
        side = nonblank(row.get("agentId"), called_by, "?") if row.get("isSidechain") is True or called_by else None
        parent = nonblank(row.get("parentUuid"), row.get("logicalParentUuid"))
        is_loose = parent is None and not {"parentUuid", "logicalParentUuid"} & row.keys()
        thread = (session, side or "")
        thread = self._threads.setdefault(thread, thread)  # one object for all lines
        self.lines[uuid] = line = Line(number, uuid, parent, thread, is_loose=is_loose)
        if turn:
            line.describe(_needed(row))
            if self._reading.unpacked > MEMORY_BYTES:
                line.store(self._spool, self._reading.unpacked)

    def _queue(self, number: int, session: str, row: dict[str, Any]) -> None:
        """Follow the prompt queue: a removed prompt went to the model at once, a dequeued one is a separate turn."""
        waiting = self._queued.setdefault(session, [])
        operation, prompt = row.get("operation"), as_text(row.get("content"))
        if operation == "enqueue":
            waiting.append(prompt)
        elif operation in ("dequeue", "remove", "popped", "popAll"):
            removed = waiting[:1] if operation != "popAll" else waiting[:]
            del waiting[: len(removed)]
            prompt = prompt or "".join(removed[:1])
            if operation in ("remove", "popped") and prompt.strip():
                attachment = {"type": "queued_command", "prompt": prompt}
                turn = {"type": "attachment", "attachment": attachment, "timestamp": row.get("timestamp")}
                line = Line(number, f"#{number}", None, (session, ""))
                line.describe(turn)
                self.steering.append(line)

    def steered(self, branch: list[Line]) -> list[Line]:
        """Insert prompts typed during the run into a branch, unless a turn already has the same text."""
        session, side = branch[-1].thread
        if side or not self.steering:
            return branch
        texts = {_words(line).strip() for line in self.lines.values() if line.kind and line.thread[0] == session}
        new = [line for line in self.steering if line.thread[0] == session and _words(line).strip() not in texts]
        if not new:
            return branch
        merged = list(branch)
        for line in new:
            place = next((n for n, other in enumerate(merged) if other.number > line.number), len(merged))
            merged.insert(place, line)
        return merged

    def threads(self) -> dict[tuple[str, str], list[Line]]:
        """Return the turns of each session and sidechain in file order."""
        roots: dict[str, str] = {}
        found: dict[tuple[str, str], list[Line]] = {}
        for line in self.lines.values():
            if line.thread[1] == "?":
                # Sidechains of old versions have no agent id: what hangs on one root is one of them.
                above = self.lines.get(line.parent or "")
                is_root = above is None or above.thread[1] == ""
                roots[line.uuid] = line.uuid if is_root else roots.get(line.parent or "", line.uuid)
                line.thread = (line.thread[0], "?" + roots[line.uuid])
            if line.kind:
                found.setdefault(line.thread, []).append(line)
        return found

    def branch(self, turns: list[Line]) -> list[Line]:
        """Return the lines from the root to the latest turn; file order if no line names an existing parent.

        Where nobody answered on that branch, as after a rewind that was the end, it is the one of the latest reply.
        """
        if not any(line.parent in self.lines for line in turns):
            return turns
        chain = self._chain(turns, turns[-1])
        replies = [line for line in turns if line.kind == "assistant"]
        if replies and not any(line.kind == "assistant" for line in chain):
            return self._chain(turns, replies[-1])
        return chain

    def _chain(self, turns: list[Line], leaf: Line) -> list[Line]:
        numbers = [line.number for line in turns]
        chain: list[Line] = []
        at: Line | None = leaf
        seen: set[str] = set()
        while at is not None and at.uuid not in seen:
            seen.add(at.uuid)
            if at.kind:
                chain.append(at)
            above = self.lines.get(at.parent or "")
            if above is None and (at.parent or at.is_loose) and (earlier := bisect_left(numbers, at.number)):
                above = turns[earlier - 1]  # its parent is not in the file: use the turn before it
            if at.thread[1] and above is not None and above.thread[1] != at.thread[1]:
                break  # a subagent begins where it was called; what came before is not its own
            at = above
        return chain[::-1]

    def turn_above(self, line: Line) -> Line | None:
        """Return the nearest ancestor that is a turn."""
        seen: set[str] = set()
        above = self.lines.get(line.parent or "")
        while above is not None and not above.kind and above.uuid not in seen:
            seen.add(above.uuid)
            above = self.lines.get(above.parent or "")
        return above


def _needed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a line without the program's own record of a result, unless the model's view of it is missing."""
    if "toolUseResult" not in row or any(as_dict(block).get("content", block) is None for block in blocks_in(row)):
        return row
    return {key: value for key, value in row.items() if key != "toolUseResult"}


def _words(line: Line) -> str:
    """Return the text that the user typed in a line."""
    row = line.row
    attached = as_dict(row.get("attachment")).get("prompt")
    spoken = [
        b for b in blocks_in(row) if b is not None and not as_text(as_dict(b).get("type")).endswith("tool_result")
    ]
    return plain_text(visible_content(spoken if attached is None else attached))


def _wrapped(kind: str, row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Wrap a call or result on its own line into the message that would contain it."""
    keys = ("name", "input") if kind == "tool_use" else ("content", "is_error")
    block = {"type": kind, **{key: row[key] for key in keys if key in row}}
    if kind == "tool_result":
        block |= {"tool_use_id": row.get("tool_use_id"), "content": row.get("content", row.get("output"))}
    else:
        block["id"] = nonblank(row.get("id"), row.get("tool_use_id"))
    role = "assistant" if kind == "tool_use" else "user"
    return role, {**row, "type": role, "message": {"role": role, "content": [block]}}


def _is_turn(number: int, kind: str, row: dict[str, Any], report: Report) -> bool:
    """Whether a line of the graph has a message, a call or a result."""
    if kind == "attachment" and as_dict(row.get("attachment")).get("type") == "queued_command":
        return bool(plain_text(visible_content(row["attachment"].get("prompt"))).strip())
    if kind not in ("user", "assistant"):
        what = row.get("subtype") or as_dict(row.get("attachment")).get("type") or as_dict(row.get("data")).get("type")
        report.skip(f"{kind}/{what}" if isinstance(what, str) else kind)
        return False
    message = as_dict(row.get("message"))
    if not isinstance(row.get("message"), dict):
        report.reject(number, f"expected a message object in a line of type {kind}")
        return False
    if row.get("isApiErrorMessage") is True or (kind == "assistant" and message.get("model") == "<synthetic>"):
        is_filler = plain_text(visible_content(message.get("content"))).strip() == _NO_REPLY
        report.skip("no response requested" if is_filler else "api error")
        return False
    if not isinstance(message.get("content"), str | list) and (kind == "assistant" or "toolUseResult" not in row):
        report.reject(number, f"expected message.content in a line of type {kind}")
        return False
    return True
