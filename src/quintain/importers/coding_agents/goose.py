"""Goose sessions: `~/.local/share/goose/sessions/*.jsonl`, and what `goose session export --format json` writes since 1.10.

A session begins with its record and then has a message a line; an export has the messages in `conversation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.run_builder import COMPACTED, build_session_run, transcript_of
from quintain.importers.values import (
    as_dict,
    as_list,
    as_text,
    dicts_in,
    nonblank,
)

_PARTS = frozenset({"toolRequest", "toolResponse", "frontendToolRequest"})
_APPLICATION = frozenset({"toolConfirmationRequest", "actionRequired", "systemNotification", "contextLengthExceeded"})
"""Parts for the person, which the model does not get."""


def _detect(probe: Probe) -> float:
    """Match a session's record with its folder, before messages with the second of their creation."""
    if probe.document is not None:
        held = dicts_in(probe.document.get("conversation"))
        return 0.97 if "working_dir" in probe.document and any(map(_is_message, held)) else 0.0
    rows = [row for row in probe.rows if isinstance(row, dict)]
    if probe.shape != "lines" or not rows or not any(map(_is_message, rows)):
        return 0.0
    if "working_dir" in rows[0] and "message_count" in rows[0]:
        return 0.97 if all(map(_is_message, rows[1:])) else 0.6
    return if_most(0.95, probe, _is_message) if any(map(_has_call, rows)) else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    about: dict[str, Any] = {}

    def messages() -> Iterator[dict[str, Any]]:
        for line, row in object_rows(log, report):
            if _is_message(row):
                yield from _messages(row, report)
            elif "working_dir" in row:
                about.update((key, value) for key, value in row.items() if key != "conversation")
                for message in dicts_in(row.get("conversation")):
                    yield from _messages(message, report)
            else:
                report.reject(line, "expected a message or the record of a session")

    script = transcript_of(messages(), report)
    yield from build_session_run(
        script,
        report,
        agent="goose",
        model=as_dict(about.get("model_config")).get("model_name"),
        session=nonblank(about.get("id"), log.path.stem),
        about={
            "cwd": about.get("working_dir"),
            "title": nonblank(about.get("name"), about.get("description")),
            "provider": about.get("provider_name"),
        },
    )


IMPORTER = Importer("goose", "Goose session", _detect, _read)


def _is_message(row: dict[str, Any]) -> bool:
    return row.get("role") in ("user", "assistant") and "created" in row and isinstance(row.get("content"), list)


def _has_call(row: dict[str, Any]) -> bool:
    return any(as_text(part.get("type")) in _PARTS for part in dicts_in(row.get("content")))


def _messages(message: dict[str, Any], report: Report) -> Iterator[dict[str, Any]]:
    """Yield the results in a message, and the rest of it, as a chat API has them."""
    about, role = as_dict(message.get("metadata")), message.get("role")
    if about.get("agentVisible") is False:
        if about.get("userVisible") is False:
            report.skip("message for nobody")
            return
        report.note(COMPACTED)  # a summary has taken its place for the model
    parts = [part for part in as_list(message.get("content")) if not _is_for_person(part, report)]
    results = [part for part in parts if as_dict(part).get("type") == "toolResponse"]
    yield from ({"role": "tool", **_result(part)} for part in results)
    others = [_block(part) for part in parts if part not in results]
    if any(others):
        known = {"role": role, "content": others, "timestamp": message.get("created")}
        inference = as_dict(about.get("inference"))
        if role == "assistant":
            known["model"] = nonblank(inference.get("resolvedModel"), inference.get("requestedModel"))
            known["usage"] = about.get("usage")
        elif about.get("userVisible") is False:
            known["context"] = True
        yield known


def _is_for_person(part: Any, report: Report) -> bool:
    kind = as_text(as_dict(part).get("type"))
    if kind in _APPLICATION:
        report.skip(f"part:{kind}")
    return kind in _APPLICATION


def _block(part: Any) -> Any:
    """Return a call as a content block; other parts are returned as they are."""
    held = as_dict(part)
    if as_text(held.get("type")) not in ("toolRequest", "frontendToolRequest"):
        return part
    call = as_dict(held.get("toolCall"))
    value = as_dict(call.get("value")) or call
    return {"type": "tool_use", "id": held.get("id"), "name": nonblank(value.get("name")) or "unknown"} | (
        {"input": value["arguments"]} if isinstance(value.get("arguments"), dict) else {}
    )


def _result(part: dict[str, Any]) -> dict[str, Any]:
    """Return a result as a chat API has it; content meant for the person alone is left out."""
    outcome = as_dict(part.get("toolResult"))
    value = outcome.get("value")
    items: Iterable[Any] = as_list(as_dict(value).get("content") if isinstance(value, dict) else value)
    shown = [item for item in items if "assistant" in _audience(item)]
    failed = outcome.get("status") == "error" or as_dict(value).get("isError") is True
    body = shown if shown or outcome.get("status") != "error" else as_text(outcome.get("error"))
    return {"tool_call_id": part.get("id"), "content": body, "is_error": failed}


def _audience(item: Any) -> list[Any]:
    stated = as_dict(as_dict(item).get("annotations")).get("audience")
    return stated if isinstance(stated, list) else ["assistant"]
