"""OpenAI's fine-tuning files, which Azure, Together and Fireworks read too: chat rows with weights, and preferences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from quintain.errors import InvalidInput
from quintain.exporters.chat_turns import (
    THOUGHTS,
    Losses,
    Turn,
    chat_message,
    count_lost_values,
    count_thoughts,
    last_turns,
    prompt_length,
    require_answers,
    turns_of,
    until_last_agent_turn,
)
from quintain.exporters.protocol import Export, Exporter, Rows
from quintain.exporters.split_files import Line, json_lines, write_splits
from quintain.records.dataset import Dataset, DatasetRow, PairRow, Row
from quintain.records.protocols import tool_function

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Valid names of functions there."""


def _write(dataset: Dataset, rows: Rows, folder: Path) -> Export:
    return write_splits(dataset, rows, _lines, json_lines(folder))


EXPORTER = Exporter("openai", frozenset({"sft", "dpo"}), _write)


def _lines(row: Row, losses: Losses) -> Iterator[Line]:
    if isinstance(row, PairRow):
        shared, chosen, rejected = last_turns(row, losses)
        count_lost_values(row, losses)
        preferred, other = _messages([*shared, chosen], losses), _messages([*shared, rejected], losses)
        yield {
            "input": {"messages": preferred[:-1], **_tools(row.chosen.tools, [*shared, chosen, rejected])},
            "preferred_output": preferred[-1:],
            "non_preferred_output": other[-1:],
        }
    elif isinstance(row, DatasetRow):
        count_lost_values(row, losses)
        turns = until_last_agent_turn(turns_of(row.trajectory, losses), losses)
        prompt_length(turns)
        messages = _messages(turns, losses)
        for message, turn in zip(messages, turns, strict=True):
            if turn.role == "assistant":
                message["weight"] = int(turn.trained)
        if not any(turn.trained for turn in turns):
            raise InvalidInput("no agent turn is trainable")
        yield {"messages": messages, **_tools(row.trajectory.tools, turns)}


def _messages(turns: Sequence[Turn], losses: Losses) -> list[dict[str, Any]]:
    require_answers(turns)
    losses[THOUGHTS] += count_thoughts(turns)
    return [_message(turn) for turn in turns]


def _message(turn: Turn) -> dict[str, Any]:
    message = chat_message(turn, as_text=True, thoughts=False)
    message.pop("name", None)
    if turn.role == "assistant" and not turn.text:
        if not turn.calls:
            raise InvalidInput("an agent turn with only a thought is not supported")
        message["content"] = None
    return message


def _tools(tools: Sequence[Mapping[str, Any]], turns: Sequence[Turn]) -> dict[str, Any]:
    """The tools, with names that are allowed."""
    calls = [call.tool for turn in turns for call in turn.calls]
    functions = [tool_function(dict(tool)) for tool in tools]
    for name in [*calls, *(function.get("name") for function in functions)]:
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise InvalidInput("a tool name must have 1 to 64 letters, digits, _ or -")
    if not functions:
        if calls:
            raise InvalidInput("the agent calls tools without schemas in the run")
        return {}
    parallel = any(len(turn.calls) > 1 for turn in turns)
    return {
        "tools": [{"type": "function", "function": function} for function in functions],
        "parallel_tool_calls": parallel,
    }
