"""OpenAI chat messages in all common layouts: bare lists, rows with chats under any name, requests and replies.

Calls written as text (`<function=..>`, `<tool_call>{..}</tool_call>`) and their observations in user messages stay
text, because that is the protocol to train on. Tagged calls that tool turns answer become calls
(`transcripts.tool_tags`).
"""

from __future__ import annotations

from typing import Any

from quintain.importers.protocol import Probe
from quintain.importers.row_reader import Importer, matching_share
from quintain.importers.training_data.chat_records import (
    FIELDS,
    carried,
    chats_by_name,
    has_blocks,
    is_chat,
    is_message,
    is_plain,
    messages_of,
    read_chats,
    records_of,
)
from quintain.importers.transcripts.responses_api import is_item, is_items
from quintain.importers.values import transpose_columns

_PAIRS = ("chosen", "rejected")


def _detect(probe: Probe) -> float:
    """Match rows with messages of role and content; lower confidence beside marks of other formats."""
    if probe.shape in {"array", "lines"} and probe.rows:
        if any(map(is_item, probe.rows)) and all(is_item(row) or is_message(row) for row in probe.rows):
            return 0.8
        if all(is_message(carried(row)) for row in probe.rows):
            if any("content" not in row and {"text", "message"} & row.keys() for row in probe.rows):
                return 0.5  # lines of other programs name a role and a message too
            return 0.5 if has_blocks(probe.rows) or not all(map(is_plain, probe.rows)) else 0.85
        if all(is_chat(row) for row in probe.rows):
            return 0.5 if any(has_blocks(row) for row in probe.rows) else 0.8
    named = max(0.85 * matching_share(probe, _is_plain, *FIELDS), 0.7 * matching_share(probe, _has_chat, *FIELDS))
    others = max(matching_share(probe, fits, *probe.fields) for fits in (_has_only_chat, _has_records))
    return max(named, 0.6 * others)


IMPORTER = Importer("openai_chat", "OpenAI chat messages", _detect, read_chats)


def _has_only_chat(row: dict[str, Any]) -> bool:
    return row.keys().isdisjoint({*FIELDS, *_PAIRS}) and (messages_of(row) is not None or bool(chats_by_name(row)))


def _has_records(row: dict[str, Any]) -> bool:
    return messages_of(row) is None and bool(records_of(row))


def _is_plain(row: dict[str, Any]) -> bool:
    messages = transpose_columns(row.get("messages"))
    marks = {"chosen", "rejected", "label", "kto_tag", "trajectory_format", "info", "system"}
    if is_chat(messages):
        return not has_blocks(messages) and not marks & row.keys()
    return is_items(row.get("output")) or (is_items(row.get("input")) and "model" in row)


def _has_chat(row: dict[str, Any]) -> bool:
    held = messages_of(row)
    return held is not None and is_chat(held[0]) and not has_blocks(held[0]) and row.keys().isdisjoint(_PAIRS)
