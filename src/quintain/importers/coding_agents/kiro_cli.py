"""Sessions of the Kiro CLI: `sessions/cli/<id>.jsonl`, lines of a kind with their data, beside `<id>.json` about the session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank

_ROLES = {"Prompt": "user", "AssistantMessage": "assistant", "ToolResults": "user"}


def _detect(probe: Probe) -> float:
    """Match lines of a message with parts that have a kind."""
    return if_most(0.96, probe, _is_message) if any(map(_is_message, probe.objects)) else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    session = as_dict(log.sibling_document(f"{log.path.stem}.json", report))
    yield from build_session_run(
        _messages(object_rows(log, report), report),
        report,
        agent="kiro",
        session=nonblank(session.get("session_id"), log.path.stem),
        parent=nonblank(session.get("parent_session_id")),
    )


IMPORTER = Importer("kiro_cli", "Kiro CLI session", _detect, _read)


def _is_message(row: dict[str, Any]) -> bool:
    parts = dicts_in(as_dict(row.get("data")).get("content"))
    return as_text(row.get("kind")) in _ROLES and bool(parts) and all({"kind", "data"} <= part.keys() for part in parts)


def _messages(rows: Iterable[tuple[int, dict[str, Any]]], report: Report) -> Iterator[dict[str, Any]]:
    for _, row in rows:
        if _is_message(row):
            yield _message(_ROLES[row["kind"]], row["data"])
        else:
            report.skip(as_text(row.get("kind")) or "without a kind")


def _message(role: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return a message as Anthropic's API has it."""
    parts = dicts_in(data["content"])
    when = as_dict(data.get("meta")).get("timestamp")
    known: dict[str, Any] = {"role": role, "content": [_part(part) for part in parts], "timestamp": when}
    if role == "assistant":
        known["model"] = nonblank(*(as_dict(part.get("data")).get("modelId") for part in parts))
    return known


def _part(part: dict[str, Any]) -> dict[str, Any]:
    kind, data = part.get("kind"), part.get("data")
    fields = as_dict(data)
    if kind == "toolUse":
        return {**fields, "type": "tool_use", "id": fields.get("toolUseId")}
    if kind == "toolResult":
        content = [_part(inner) for inner in dicts_in(fields.get("content"))]
        failed = fields.get("status") == "error"
        return {"type": "tool_result", "tool_use_id": fields.get("toolUseId"), "content": content, "is_error": failed}
    if kind == "thinking":
        return {"type": "thinking", "thinking": fields.get("text"), "signature": fields.get("signature")}
    return {"type": "text", "text": data} if isinstance(data, str) else fields
