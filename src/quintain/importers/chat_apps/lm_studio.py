"""LM Studio chats: `~/.lmstudio/conversations/**/<time>.conversation.json`.

Of the versions of a message the selected one is read. The steps of an answer are texts, thoughts, calls and results.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from quintain.importers.chat_apps.open_webui import answer_turns
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import matching_share, row_importer
from quintain.importers.run_builder import build_session_run
from quintain.importers.values import as_dict, as_name, as_text, dicts_in, nonblank

_VERSIONS = "of several versions of a message the selected one is imported: the others are left out"


def _detect(probe: Probe) -> float:
    """Match a list of messages with versions."""
    fits = matching_share(probe, lambda row: any(map(_versions, dicts_in(row.get("messages")))), "messages") >= 0.5
    return 0.97 if fits else 0.0


def _read_row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    system = nonblank(row.get("systemPrompt"))
    opening = [{"role": "system", "content": system}] if system else []
    yield from build_session_run(
        chain(opening, *(_turns(message, report) for message in dicts_in(row.get("messages")))),
        report,
        line,
        agent=None,
        model=as_dict(row.get("lastUsedModel")).get("identifier"),
        about={"title": row.get("name")},
    )


IMPORTER = row_importer("lm_studio", "LM Studio chats", _detect, _read_row)


def _versions(message: dict[str, Any]) -> list[dict[str, Any]]:
    return dicts_in(message.get("versions")) if "currentlySelected" in message else []


def _turns(message: dict[str, Any], report: Report) -> Iterator[dict[str, Any]]:
    """Yield a message of the user or system, or the turns of an answer with their results."""
    versions, place = _versions(message), message.get("currentlySelected")
    if len(versions) > 1:
        report.note(_VERSIONS)
    if not isinstance(place, int) or not 0 <= place < len(versions):
        report.skip("message without a selected version")
        return
    version = versions[place]
    if version.get("role") != "assistant":
        yield {"role": version.get("role"), "content": version.get("content")}
        return
    steps = dicts_in(version.get("steps")) or [version]
    items = [item for step in steps for part in dicts_in(step.get("content")) for item in _items(step, part)]
    about = next((info for step in steps if (info := as_dict(step.get("genInfo")))), {})
    named = nonblank(about.get("identifier"), as_dict(version.get("senderInfo")).get("senderName"))
    stats = as_dict(about.get("stats"))
    usage = {"input_tokens": stats.get("promptTokensCount"), "output_tokens": stats.get("predictedTokensCount")}
    yield from answer_turns(items, named, None, usage)


def _items(step: dict[str, Any], part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a part of a step as an item of OpenAI's Responses API."""
    kind = part.get("type")
    called = next((name for key in ("callId", "toolCallId", "id") if (name := as_name(part.get(key)))), None)
    if kind == "toolCallRequest":
        yield {
            "type": "function_call",
            "call_id": called,
            "name": part.get("name"),
            "arguments": part.get("parameters"),
        }
    elif kind == "toolCallResult":
        yield {"type": "function_call_output", "call_id": called, "output": part.get("content")}
    elif as_dict(step.get("style")).get("type") == "thinking":
        yield {"type": "reasoning", "content": [{"text": as_text(part.get("text"))}]}
    elif text := nonblank(part.get("text")):
        yield {"type": "message", "role": "assistant", "content": text}
