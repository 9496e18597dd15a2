"""Claude conversations: `conversations.json` of claude.ai's data export, and single conversations as its web application has them.

The blocks of one answer are texts, thoughts, calls and results; a turn of the agent ends with its calls and their
results.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.chat_apps.branches import branch_of, note_others
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import matching_share, row_importer
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.message_parts import CALLS, RESULTS, part_kind
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank

_ROLES = {"human": "user", "assistant": "assistant"}
_FILES = "attached files are not in the export: only their names are kept"


def _detect(probe: Probe) -> float:
    """Match conversations whose messages name their sender."""
    return 0.97 if matching_share(probe, _fits, "chat_messages", "conversations") >= 0.5 else 0.0


def _read_row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    for conversation in _conversations(row):
        yield from _conversation(conversation, line, report)


def _conversation(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    yield from build_session_run(
        (each for message in _branch(row, report) for each in _messages(message, report)),
        report,
        line,
        agent="claude.ai",
        model=row.get("model"),
        session=row.get("uuid"),
        about={"title": row.get("name"), "project": as_dict(row.get("project")).get("name")},
    )


IMPORTER = row_importer("claude_web", "Claude conversations", _detect, _read_row)


def _conversations(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the conversations of a row: it is one, or lists them, as export tools write it."""
    return dicts_in(row.get("conversations")) if "chat_messages" not in row else [row]


def _fits(row: dict[str, Any]) -> bool:
    conversations = _conversations(row)
    return bool(conversations) and all(map(_is_conversation, conversations))


def _is_conversation(row: dict[str, Any]) -> bool:
    messages = row.get("chat_messages")
    if not isinstance(messages, list) or "uuid" not in row:
        return False
    return all(as_text(as_dict(message).get("sender")) in _ROLES for message in messages)


def _branch(row: dict[str, Any], report: Report) -> list[dict[str, Any]]:
    """Return the messages in order; where they name their parents, those of the branch with the current message."""
    messages = dicts_in(row.get("chat_messages"))
    known = {as_text(message.get("uuid")): message for message in messages}
    if not any(as_text(message.get("parent_message_uuid")) in known for message in messages):
        return messages
    shown = branch_of(known, row.get("current_leaf_message_uuid"), "parent_message_uuid")
    note_others(len(messages) - len(shown), report)
    return list(shown.values())


def _messages(message: dict[str, Any], report: Report) -> Iterator[dict[str, Any]]:
    """Yield a turn of the user, or the turns of the agent with their results."""
    role = _ROLES.get(as_text(message.get("sender")))
    if role is None:
        report.skip(f"sender:{message.get('sender')}")
        return
    blocks = as_list(message.get("content")) or [{"type": "text", "text": as_text(message.get("text"))}]
    turns: list[list[Any]] = [[]]
    for block in blocks:
        kind, before = part_kind(block), part_kind(turns[-1][-1]) if turns[-1] else ""
        if (before in RESULTS and kind not in RESULTS) or (before in CALLS and kind not in CALLS | RESULTS):
            turns.append([])
        turns[-1].append(block)
    for place, parts in enumerate(turns):
        rest = [part for part in parts if part_kind(part) not in RESULTS]
        attached = _attached(message, report) if role == "user" and place == 0 else {}
        texts = attached.pop("texts", [])
        if any(rest) or any(texts):
            began = nonblank(*(as_dict(part).get("start_timestamp") for part in rest)) or message.get("created_at")
            yield {"role": role, "content": [*rest, *texts], "timestamp": began, **attached}
        yield from ({"role": "tool", "content": [part]} for part in parts if part_kind(part) in RESULTS)


def _attached(message: dict[str, Any], report: Report) -> dict[str, Any]:
    """Return the texts that the application extracted from attachments, and the names of files."""
    attached = dicts_in(message.get("attachments"))
    names = [name for item in (*attached, *dicts_in(message.get("files"))) if (name := nonblank(item.get("file_name")))]
    if message.get("files"):
        report.note(_FILES)
    texts = [text for item in attached if (text := as_text(item.get("extracted_content")))]
    return {"texts": texts, **({"files": names[:100]} if names else {})}
