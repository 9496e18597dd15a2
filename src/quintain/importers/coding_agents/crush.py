"""Crush sessions, and those of OpenCode when it was written in Go: the database `.crush/crush.db` of a project."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.files.databases import UNREAD_LOG, opened, records
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer
from quintain.importers.run_builder import build_session_run
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, parse_json_text

_TABLES = {"goose_db_version", "sessions", "messages", "files"}
_SESSIONS = "SELECT * FROM sessions ORDER BY created_at, id"
_MESSAGES = "SELECT role, parts, model, created_at FROM messages WHERE session_id = ? ORDER BY created_at, rowid"


def _detect(probe: Probe) -> float:
    """Match a database with the tables of Crush."""
    return 0.95 if probe.shape == "sqlite" and set(probe.rows) >= _TABLES else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    if log.sibling(f"{log.path.name}-wal") is not None:
        report.note(UNREAD_LOG.format(name=log.path.name))
    with opened(log.path, log.root) as connection:
        for session in list(records(connection, _SESSIONS)):
            messages = (_message(message) for message in records(connection, _MESSAGES, session["id"]))
            yield from build_session_run(
                (message for message in messages if message["content"]),
                report,
                agent="crush",
                session=session["id"],
                parent=nonblank(session.get("parent_session_id")),
                about={"title": session.get("title")},
            )


IMPORTER = Importer("crush", "Crush sessions", _detect, _read)


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message and its parts as a chat API has them."""
    parts = dicts_in(parse_json_text(message["parts"]))
    blocks = [_block(as_text(part.get("type")), as_dict(part.get("data"))) for part in parts]
    content = [block for block in blocks if block["type"] != "finish"]
    known = {"role": message["role"], "content": content, "timestamp": message["created_at"]}
    return known | ({"model": message["model"]} if message["role"] == "assistant" else {})


def _block(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    if kind == "reasoning":
        return {"type": "thinking", "thinking": as_text(data.get("thinking"))}
    if kind == "tool_call":
        return {"type": "tool_use", "id": data.get("id"), "name": data.get("name"), "input": data.get("input")}
    if kind == "tool_result":
        failed, content = data.get("is_error") is True, as_text(data.get("content"))
        return {"type": "tool_result", "tool_use_id": data.get("tool_call_id"), "content": content, "is_error": failed}
    return {**data, "type": kind}
