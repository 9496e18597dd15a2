"""LibreChat conversations: what "Export conversation" writes as JSON, its messages in a tree or in a list.

The branch of the last message is the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from quintain.importers.chat_apps.branches import branch_of, note_others
from quintain.importers.chat_apps.open_webui import answer_turns
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import matching_share, row_importer
from quintain.importers.run_builder import build_session_run
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank
from quintain.records.trajectory import DESIRABLE

_RATINGS = {"thumbsUp": True, "thumbsDown": False}


def _detect(probe: Probe) -> float:
    """Match conversations whose messages state whether the user created them."""
    return 0.97 if matching_share(probe, lambda row: bool(_tree(row)), "messages", "messagesTree") >= 0.5 else 0.0


def _read_row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    tree, options = _tree(row), as_dict(row.get("options"))
    shown = branch_of(tree, None, "parentMessageId")
    note_others(len(tree) - len(shown), report)
    system = nonblank(options.get("promptPrefix"), options.get("instructions"))
    opening = [{"role": "system", "content": system}] if system else []
    labels = {_RATINGS.get(as_text(as_dict(message.get("feedback")).get("rating"))) for message in shown.values()} - {
        None
    }
    yield from build_session_run(
        chain(opening, *(_messages(message, report) for message in shown.values())),
        report,
        line,
        agent=None,
        model=None if any(message.get("model") for message in shown.values()) else options.get("model"),
        session=row.get("conversationId"),
        about={"title": row.get("title"), "endpoint": row.get("endpoint")},
        extra={DESIRABLE: labels.pop()} if len(labels) == 1 else {},
    )


IMPORTER = row_importer("librechat", "LibreChat conversations", _detect, _read_row)


def _tree(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the messages by their ids; {} where a row has no such messages."""
    found, waiting = list[dict[str, Any]](), dicts_in(row.get("messagesTree")) or dicts_in(row.get("messages"))
    while waiting:
        found += waiting
        waiting = [child for message in waiting for child in dicts_in(message.get("children"))]
    is_known = all(isinstance(message.get("isCreatedByUser"), bool) for message in found)
    return {as_text(message.get("messageId")): message for message in found} if is_known else {}


def _messages(message: dict[str, Any], report: Report) -> Iterator[dict[str, Any]]:
    """Yield a message of the user, or the turns of an answer with their results."""
    if message["isCreatedByUser"]:
        yield {"role": "user", "content": as_text(message.get("text")), "timestamp": message.get("createdAt")}
        return
    if message.get("error") is True:
        report.skip("answer that failed")
        return
    parts = dicts_in(message.get("content")) or [{"type": "text", "text": as_text(message.get("text"))}]
    items = chain.from_iterable(map(_items, parts))
    yield from answer_turns(list(items), nonblank(message.get("model")), message.get("createdAt"))


def _items(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a part of an answer as items of OpenAI's Responses API."""
    call = as_dict(part.get("tool_call"))
    if call:
        names = {"call_id": nonblank(call.get("id")), "name": call.get("name")}
        yield {"type": "function_call", "arguments": call.get("args"), **names}
        if call.get("output") is not None:
            yield {"type": "function_call_output", "output": call["output"], **names}
    elif thought := nonblank(part.get("think")):
        yield {"type": "reasoning", "content": [{"text": thought}]}
    elif text := nonblank(part.get("text"), as_dict(part.get("text")).get("value")):
        yield {"type": "message", "role": "assistant", "content": text}
