"""Anthropic messages: request bodies, responses, and lists of messages whose content is blocks."""

from __future__ import annotations

from typing import Any

from quintain.importers.protocol import Probe
from quintain.importers.row_reader import Importer, matching_share
from quintain.importers.training_data.chat_records import FIELDS, has_blocks, is_message, messages_of, read_chats


def _detect(probe: Probe) -> float:
    """Match blocks unique to this style (which many agents store too), or a request body with `system` and `max_tokens`."""
    if probe.shape in {"array", "lines"} and probe.rows:
        if all(is_message(row) for row in probe.rows):
            return 0.88 if has_blocks(probe.rows) else 0.3
        if all(isinstance(row, list) and row and is_message(row[0]) for row in probe.rows):
            return 0.88 if any(has_blocks(row) for row in probe.rows) else 0.3
    return 0.88 * matching_share(probe, _is_anthropic, *FIELDS)


IMPORTER = Importer("anthropic_messages", "Anthropic messages", _detect, read_chats)


def _is_anthropic(row: dict[str, Any]) -> bool:
    held = messages_of(row)
    if held is None or not any(is_message(message) for message in held[0]):
        return False
    row = dict(held[1])
    body = "system" in row and "max_tokens" in row
    schemas = row.get("tools")
    tools = isinstance(schemas, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in schemas)
    return has_blocks(held[0]) or body or tools or (row.get("type") == "message" and row.get("role") == "assistant")
