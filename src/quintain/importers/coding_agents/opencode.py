"""OpenCode sessions: its database `opencode.db`, its storage folder, `opencode export`, and `opencode run --format json`.

A message of the assistant may hold several turns of the model: each `step-start` begins one. In the storage folder, which
came before the database, the session's file leads; the files of `message/` and `part/` are joined to it by id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.files.databases import UNREAD_LOG, is_database, opened, records
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, object_rows
from quintain.importers.run_builder import COMPACTED, build_session_run
from quintain.importers.transcripts.message_parts import (
    Message,
    join_messages,
    join_thoughts,
    plain_text,
    visible_content,
)
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank, parse_json_text

_EVENTS = ("step_start", "text", "tool_use", "step_finish", "reasoning")
_NO_MESSAGES = "expected the messages of this session in the folder, got none; import all of `storage`"
_QUIET = ("step-finish", "snapshot", "patch", "agent", "retry")
_CUT_OFF = "replies that were cut off are not trained on"
_TABLES = {"session", "message", "part"}
_MESSAGES = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
_PARTS = "SELECT id, data FROM part WHERE message_id = ? ORDER BY id"


def _detect(probe: Probe) -> float:
    """Match a database, a session file, an export (`info` and `messages` with parts), or events with a part."""
    if probe.shape == "sqlite":
        return 0.9 if set(probe.rows) >= _TABLES else 0.0
    head = probe.first
    messages = dicts_in(head.get("messages"))
    if isinstance(head.get("info"), dict) and any({"parts", "info"} <= message.keys() for message in messages):
        return 0.95
    named = isinstance(head.get("sessionID"), str) and isinstance(head.get("part"), dict)
    if named and head.get("type") in _EVENTS:
        return 0.95
    if probe.document is None or not isinstance(head.get("id"), str) or not isinstance(head.get("time"), dict):
        return 0.0
    is_part = "sessionID" in head or bool(messages)
    if is_part or not {"projectID", "directory", "title", "messages"} & set(head):
        return 0.0
    return 0.9 if "projectID" in head or "directory" in head or "session" in probe.path else 0.6


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    if is_database(log.path, log.root):
        yield from _read_database(log, report)
        return
    events: dict[str, _Session] = {}
    for line, row in object_rows(log, report):
        if isinstance(row.get("info"), dict):
            messages = ((as_dict(m.get("info")), dicts_in(m.get("parts"))) for m in dicts_in(row.get("messages")))
            yield from _run(line, _Session(row["info"], list(messages)), report)
        elif isinstance(row.get("part"), dict) and nonblank(row.get("sessionID")):
            events.setdefault(row["sessionID"], _Session({"id": row["sessionID"]}, [])).part(row["part"])
        elif "part" in row or "sessionID" in row:
            report.skip(nonblank(row.get("type")) or "without type")
        else:
            session = _Session(row, _stored(log, row, report))
            if session.messages:
                yield from _run(line, session, report)
            else:
                report.reject(None, _NO_MESSAGES)
    for session in events.values():
        report.note("the events of `opencode run` do not record the task")
        yield from _run(1, session, report)


IMPORTER = Importer("opencode", "OpenCode session", _detect, _read)


@dataclass
class _Session:
    """A session and its messages with their parts."""

    info: dict[str, Any]
    messages: list[tuple[dict[str, Any], list[dict[str, Any]]]] = field(default_factory=list)

    def part(self, part: dict[str, Any]) -> None:
        """Add a part to its message, which is always the agent's."""
        name = part.get("messageID")
        if not self.messages or self.messages[-1][0].get("id") != name:
            self.messages.append(({"id": name, "role": "assistant"}, []))
        self.messages[-1][1].append(part)


def _read_database(log: LogFile, report: Report) -> Iterator[Run]:
    if log.sibling(f"{log.path.name}-wal") is not None:
        report.note(UNREAD_LOG.format(name=log.path.name))
    with opened(log.path, log.root) as connection:
        for line, row in enumerate(list(records(connection, "SELECT * FROM session")), 1):
            messages = []
            for stored in list(records(connection, _MESSAGES, row["id"])):
                parts = records(connection, _PARTS, stored["id"])
                messages.append((_held(stored), [_held(part) for part in parts]))
            yield from _run(line, _Session({**row, "parentID": row.get("parent_id")}, messages), report)


def _held(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the message or part that a row of the database has as JSON."""
    return as_dict(parse_json_text(as_text(stored["data"]))) | {"id": stored["id"]}


def _stored(log: LogFile, session: dict[str, Any], report: Report) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Read the messages of a session and their parts from the files beside it."""
    name = as_text(session.get("id"))
    if not name or "/" in name or "\\" in name:
        return []
    # The first layout kept all under `session/` (`info/`, `message/`, `part/SESSION/`).
    old = log.parts[-2:-1] == ("info",)
    up = ".." if old else "../.."
    found = [message for message in _documents(log, f"{up}/message/{name}", report) if nonblank(message.get("id"))]
    named = [item for item in as_list(session.get("messages")) if isinstance(item, str)]
    found.sort(key=lambda m: (_place(m["id"], named), _created(m), m["id"]))
    messages = []
    for message in found:
        parts = dicts_in(message.get("parts"))
        if not parts and "/" not in message["id"]:
            folder = f"{up}/part/{name}/{message['id']}" if old else f"{up}/part/{message['id']}"
            parts = _documents(log, folder, report)
            order = [item for item in as_list(message.get("parts")) if isinstance(item, str)]
            parts.sort(key=lambda p: (_place(p.get("id"), order), as_text(p.get("id"))))
        messages.append((message, parts))
    return messages


def _documents(log: LogFile, folder: str, report: Report) -> list[dict[str, Any]]:
    found = []
    for sibling in log.siblings(folder):
        try:
            value = sibling.document()
        except InvalidInput as error:
            report.reject(None, error.message)
            continue
        if isinstance(value, dict):
            found.append(value)
        else:
            report.reject(None, f"{sibling.path.name}: expected an object, got {type(value).__name__}")
    return found


def _place(name: Any, order: list[str]) -> int:
    return order.index(name) if name in order else len(order)


def _created(message: dict[str, Any]) -> float:
    at = as_dict(message.get("time")).get("created")
    return float(at) if isinstance(at, int | float) else 0.0


def _run(line: int, session: _Session, report: Report) -> Iterator[Run]:
    info, messages = session.info, list[dict[str, Any]]()
    for message, parts in session.messages:
        role = message.get("role")
        if role == "user":
            messages += _asked(message, parts, report)
        elif role == "assistant":
            messages += _replies(message, parts, report)
        else:
            report.skip(f"message of role {role}" if isinstance(role, str) else "message without role")
    typed = (_typed(parts) for message, parts in session.messages if message.get("role") == "user")
    key = nonblank(info.get("id"))
    yield from build_session_run(
        messages,
        report,
        line,
        agent="opencode",
        version=info.get("version"),
        session=key,
        parent=nonblank(info.get("parentID")) if key else None,
        prompt=nonblank(*typed) or "",
        about={"title": info.get("title"), "cwd": info.get("directory")},
    )


def _asked(message: dict[str, Any], parts: list[dict[str, Any]], report: Report) -> Iterator[dict[str, Any]]:
    """Yield a message of the user, after the system prompt that it states."""
    if system := nonblank(message.get("system")):
        yield {"role": "system", "content": system}
    for part in parts:
        if part.get("type") not in ("text", "file", *_QUIET):
            report.skip(f"part/{part.get('type')}")
    yield {"role": "user", "content": visible_content(_shown(parts)), "timestamp": _created(message) or None}


def _shown(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [part for part in parts if part.get("type") in ("text", "file") and part.get("ignored") is not True]


def _typed(parts: list[dict[str, Any]]) -> str:
    return plain_text(visible_content([part for part in _shown(parts) if part.get("synthetic") is not True]))


def _replies(message: dict[str, Any], parts: list[dict[str, Any]], report: Report) -> Iterator[dict[str, Any]]:
    """Yield the turns of a message of the assistant, each with the results of its calls."""
    if message.get("summary") is True:
        report.note(COMPACTED)
    if message.get("error") is not None:
        report.skip(f"error/{nonblank(as_dict(message['error']).get('name')) or 'unknown'}")
    turns: list[list[dict[str, Any]]] = [[]]
    for part in parts:
        if part.get("type") == "step-start":
            if any(one.get("type") not in _QUIET for one in turns[-1]):
                turns.append([])
        else:
            turns[-1].append(part)
    for turn in turns:
        usage = as_dict(message.get("tokens")) if len(turns) == 1 else {}
        is_last = turn is turns[-1] and message.get("error") is not None
        is_cut = is_last and bool(turn) and turn[-1].get("type") in ("text", "reasoning")
        for written in _turn(message, turn, usage, report):
            if is_cut and written["role"] == "assistant":  # else a step has its end, or a call that was whole
                report.note(_CUT_OFF)
                written["train"] = False
            yield written


def _turn(
    message: dict[str, Any], parts: list[dict[str, Any]], usage: dict[str, Any], report: Report
) -> Iterator[dict[str, Any]]:
    contents: list[Message] = []
    thoughts, calls = list[str](), list[dict[str, Any]]()
    for part in parts:
        kind = part.get("type")
        if kind == "tool":
            calls.append(part)
        elif kind == "reasoning":
            thoughts.append(as_text(part.get("text")))
        elif kind in ("text", "file"):
            contents.append(visible_content(part))
        elif kind == "step-finish":
            usage = as_dict(part.get("tokens")) or usage
        else:
            report.skip(f"part/{kind}")
    if not (contents or thoughts or calls):
        return
    states = [(_id(call), call.get("tool"), as_dict(call.get("state"))) for call in calls]
    yield {
        "role": "assistant",
        "content": join_messages(*contents),
        "thinking": join_thoughts(thoughts),
        "tool_calls": [{"id": name, "name": tool, "arguments": state.get("input")} for name, tool, state in states],
        "model": nonblank(message.get("modelID"), as_dict(message.get("model")).get("modelID")),
        "timestamp": _created(message) or None,
        "usage": usage,
    } | ({"summary": True} if message.get("summary") is True else {})
    for call_id, _, state in states:
        if state.get("status") in ("completed", "error"):
            failed = state["status"] == "error"
            answer = state.get("error") if failed else state.get("output")
            content = join_messages(visible_content(answer), visible_content(dicts_in(state.get("attachments"))))
            yield {"role": "tool", "tool_call_id": call_id, "content": content, "is_error": failed}


def _id(call: dict[str, Any]) -> str | None:
    """Return the id of a call, or of its part if the log has no call id."""
    return nonblank(call.get("callID"), call.get("id"))
