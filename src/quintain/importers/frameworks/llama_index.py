"""Chat stores of LlamaIndex (`SimpleChatStore`): what `persist()` writes, and `chat_store.json()` written as JSON once more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer
from quintain.importers.run_builder import build_run
from quintain.importers.transcripts.vendor_messages import parse_vendor_messages
from quintain.importers.values import as_dict, dicts_in, parse_json_text
from quintain.records.trajectory import AgentInfo

_WRITTEN_TWICE = '"{\\"store\\"'


def _detect(probe: Probe) -> float:
    """Match an object of chats by their keys that names its class, or the text of one."""
    if probe.document is not None:
        return 0.96 if _is_store(probe.document) else 0.0
    return 0.9 if probe.text.startswith(_WRITTEN_TWICE) else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    store = as_dict(parse_json_text(log.document()))
    if not _is_store(store):
        raise InvalidInput("expected a chat store with `store` and `class_name`")
    for number, (key, messages) in enumerate(store["store"].items(), 1):
        turns = parse_vendor_messages([_message(message) for message in dicts_in(messages)], report)
        yield from build_run(turns, report, number, session_id=key[:200] or None, agent=AgentInfo(name="llama-index"))


IMPORTER = Importer("llama_index", "LlamaIndex chat store", _detect, _read)


def _is_store(value: dict[str, Any]) -> bool:
    return isinstance(value.get("store"), dict) and value.get("class_name") == "SimpleChatStore"


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the vendor's fields beside the role and, since version 0.12, its blocks as content."""
    blocks = [{**block, "type": block.get("block_type")} for block in dicts_in(message.get("blocks"))]
    return {**as_dict(message.get("additional_kwargs")), **message, **({"content": blocks} if blocks else {})}
