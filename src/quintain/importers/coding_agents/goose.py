"""Goose sessions: `sessions/*.jsonl`, `goose session export --format json`, and `goose run --output-format json` or `stream-json`.

A session begins with its record and then has a message a line; an export has the messages in `conversation`, a run in
`messages`. A stream has a message in pieces, lines with the same id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows
from quintain.importers.run_builder import COMPACTED, build_session_run, transcript_of
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank

_PARTS = frozenset({"toolRequest", "toolResponse", "frontendToolRequest"})
_APPLICATION = frozenset({"toolConfirmationRequest", "actionRequired", "systemNotification", "contextLengthExceeded"})
"""Parts for the person, which the model does not get."""
_EVENTS = frozenset({"notification", "error", "complete"})
"""Events of a stream beside its messages."""
_FAILURE = re.compile(r"\ARan into this error: .*\sPlease retry if you think this is .*\Z", re.DOTALL)
_FAILED = "messages in which Goose says that a request failed are not trained on"
_NO_TASK = "a stream of Goose does not have the task: add a prompt to the runs before training"


def _detect(probe: Probe) -> float:
    """Match a session's record with its folder, before messages with the second of their creation."""
    if probe.document is not None:
        held = dicts_in(probe.document.get("conversation"))
        if "working_dir" in probe.document and any(map(_is_message, held)):
            return 0.97
        held = dicts_in(probe.document.get("messages"))
        return 0.96 if all(map(_is_message, held)) and any(map(_is_marked, held)) else 0.0
    rows = probe.objects
    if any(_is_event(row) and _is_marked(row["message"]) for row in rows):
        return if_most(0.96, probe, lambda row: _is_event(row) or as_text(row.get("type")) in _EVENTS)
    if probe.shape != "lines" or not rows or not any(map(_is_message, rows)):
        return 0.0
    if "working_dir" in rows[0] and "message_count" in rows[0]:
        return 0.97 if all(map(_is_message, rows[1:])) else 0.6
    return if_most(0.95, probe, _is_message) if any(map(_has_call, rows)) else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    about: dict[str, Any] = {}

    def messages() -> Iterator[dict[str, Any]]:
        piece: dict[str, Any] = {}
        for line, row in object_rows(log, report):
            held = row.get("conversation", row.get("messages"))
            if _is_event(row):
                report.note(_NO_TASK)
                if not piece or nonblank(row["message"].get("id")) != nonblank(piece.get("id"), "none"):
                    yield from _messages(piece, report)
                    piece = {"content": []}
                piece = _joined(piece, row["message"])
            elif _is_message(row):
                yield from _messages(row, report)
            elif "working_dir" in row or isinstance(held, list):
                about.update((key, value) for key, value in row.items() if key not in ("conversation", "messages"))
                for message in dicts_in(held):
                    yield from _messages(message, report)
            elif as_text(row.get("type")) in _EVENTS:
                report.skip(as_text(row["type"]))
            else:
                report.reject(line, "expected a message or the record of a session")
        yield from _messages(piece, report)

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


def _is_marked(message: dict[str, Any]) -> bool:
    """Whether a message has what no other program writes: a part of a call, or who may see it."""
    return _has_call(message) or "agentVisible" in as_dict(message.get("metadata"))


def _is_event(row: dict[str, Any]) -> bool:
    """Whether a row is a message of a stream, or a piece of one."""
    message = as_dict(row.get("message"))
    return row.get("type") == "message" and "role" in message and isinstance(message.get("content"), list)


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return two pieces of a message of a stream as one; a text or thought goes on with the one before it."""
    parts = list(first["content"])
    for part in second["content"]:
        last, kind = as_dict(parts[-1]) if parts else {}, as_text(as_dict(part).get("type"))
        if kind in ("text", "thinking") and last.get("type") == kind:
            parts[-1] = {**last, kind: as_text(last.get(kind)) + as_text(part.get(kind))}
        else:
            parts.append(part)
    about = {**as_dict(first.get("metadata")), **as_dict(second.get("metadata"))}
    return {**first, **second, "content": parts, "metadata": about}


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
            if _FAILURE.match("".join(as_text(as_dict(part).get("text")) for part in others)):
                report.note(_FAILED)
                known["train"] = False
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
