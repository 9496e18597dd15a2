"""Axolotl's `chat_template` rows with a mask on each turn, and the YAML config that reads them.

Arguments and the parameters of tools are JSON text, which Axolotl parses: loaded as objects they would get the keys of
other rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from quintain.errors import InvalidInput
from quintain.exporters.chat_turns import (
    REASONING,
    THOUGHTS,
    Losses,
    Turn,
    chat_message,
    count_lost_values,
    count_thoughts,
    last_turns,
    tool_with_text_parameters,
    turns_of,
)
from quintain.exporters.protocol import Export, Exporter, Rows
from quintain.exporters.split_files import Line, json_lines, write_splits
from quintain.records.dataset import Dataset, DatasetRow, PairRow, Row, TextRow

CONFIG = "axolotl.yaml"
_CHAT = {
    "type": "chat_template",
    "chat_template": "tokenizer_default",
    "field_messages": "messages",
    "field_tools": "tools",
    "message_property_mappings": {"role": "role", "content": "content"},
    "message_field_training": "train",
    "roles_to_train": ["assistant"],
    "train_on_eos": "turn",
}
_PAIR = {
    "type": "chat_template.default",
    "chat_template": "tokenizer_default",
    "field_messages": "messages",
    "field_chosen": "chosen",
    "field_rejected": "rejected",
    "message_property_mappings": {"role": "role", "content": "content"},
}
_READING: dict[str, dict[str, Any]] = {"sft": _CHAT, "dpo": _PAIR, "text": {"type": "completion", "field": "text"}}


def _write(dataset: Dataset, rows: Rows, folder: Path) -> Export:
    """Write one file a split; the validation split, else the test split, becomes `test_datasets`."""
    export = write_splits(dataset, rows, _lines, json_lines(folder))
    (folder / CONFIG).write_text(_config(dataset.kind, list(export.rows)), encoding="utf-8")
    export.notes[f"put the entries of {CONFIG} in your config; its paths are relative to this folder"] = None
    return export


EXPORTER = Exporter("axolotl", frozenset({"sft", "dpo", "text"}), _write)


def _config(kind: str, files: Sequence[str]) -> str:
    entries = {name: {"path": name, "ds_type": "json", "split": "train", **_READING[kind]} for name in files}
    evaluated = next((name for name in ("validation.jsonl", "test.jsonl") if name in entries), None)
    config: dict[str, Any] = {"datasets": [entries[name] for name in files if name == "train.jsonl"]}
    if kind == "dpo":
        config["rl"] = "dpo"
    if kind != "text":
        config["chat_template"] = "tokenizer_default"
    if evaluated is not None:
        config["test_datasets"] = [entries[evaluated]]
    # Aliases would stand for the mappings that entries share.
    return yaml.safe_dump(json.loads(json.dumps(config)), sort_keys=False)


def _lines(row: Row, losses: Losses) -> Iterator[Line]:
    if isinstance(row, TextRow):
        count_lost_values(row, losses)
        yield {"text": row.text}
    elif isinstance(row, PairRow):
        shared, chosen, rejected = last_turns(row, losses)
        turns = [*shared, chosen, rejected]
        if row.chosen.tools or any(turn.calls for turn in turns):
            raise InvalidInput("a pair has tools, and Axolotl's preference rows hold text alone")
        if not (chosen.text and rejected.text):
            raise InvalidInput("a side of a pair is empty")
        count_lost_values(row, losses)
        losses[THOUGHTS] += count_thoughts(turns)
        *messages, best, other = (chat_message(turn, as_text=True, thoughts=False) for turn in turns)
        yield {"messages": messages, "chosen": best, "rejected": other}
    elif isinstance(row, DatasetRow):
        count_lost_values(row, losses)
        turns = turns_of(row.trajectory, losses)
        losses[REASONING] += count_thoughts(turns)
        tools = [tool_with_text_parameters(tool) for tool in row.trajectory.tools]
        yield {"messages": [_message(turn) for turn in turns], **({"tools": tools} if tools else {})}


def _message(turn: Turn) -> dict[str, Any]:
    for call in turn.calls:
        call.arguments()  # Axolotl stops at a text that is not JSON
    message = chat_message(turn, as_text=True)
    return {**message, "train": turn.trained} if turn.role == "assistant" else message
