"""verl's Parquet files: multi-turn rows for SFT, and tasks for reinforcement learning.

Arguments and parameters of tools are JSON text: as nested columns they would get the keys of other tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from quintain.errors import InvalidInput
from quintain.exporters.chat_turns import (
    MASKS,
    Losses,
    Turn,
    chat_message,
    count_lost_values,
    count_masked,
    count_thoughts,
    tool_with_text_parameters,
    turns_of,
)
from quintain.exporters.formats.parquet import write_structs
from quintain.exporters.formats.trl import answer_of, prompt_of
from quintain.exporters.protocol import Export, Exporter, Rows
from quintain.exporters.split_files import Line, splits_of, write_splits
from quintain.records.dataset import BenchmarkRow, Dataset, DatasetRow, GroupRow, Row, SplitName
from quintain.records.protocols import tool_function
from quintain.records.trajectory import Task

_CALL = {"id": "", "type": "", "function": {"name": "", "arguments": ""}}
_MESSAGE = {"role": "", "content": "", "reasoning_content": "", "tool_calls": [_CALL], "tool_call_id": "", "name": ""}
_TOOL = {"type": "", "function": {"name": "", "description": "", "parameters": ""}}
_AS_TEXT = "arguments and parameters are JSON text: templates that dump arguments again (Qwen 2.5's, not Qwen 3's) quote them twice"
_NULLS = "Parquet has no absent keys: templates that ask whether a message has `tool_calls` (Llama 3's, not Qwen's) find it in all"
_NO_ANSWER = (
    "tasks without a recorded answer have an empty ground_truth: give verl a reward function that does not need it"
)
_ATTEMPTS = "recorded attempts and rewards are left out: verl samples its own"


def _write(dataset: Dataset, rows: Rows, folder: Path) -> Export:
    """Write one file a split; tasks name every tool of the dataset, so that all rows have equal columns."""
    is_chat = dataset.kind == "sft"
    splits = splits_of(dataset)
    tools = [] if is_chat else sorted({name for split in splits for name in _tools_in(rows(split))})
    keys = {key for split in splits for key in _keys_in(rows(split))} if is_chat else set()
    example = _chat_example(keys) if is_chat else _row(Task(), [{"role": "", "content": ""}], "", tools, "")

    def convert(row: Row, losses: Losses) -> Iterator[Line]:
        return _chat(row, losses) if is_chat else _task(row, dataset, tools, losses)

    def write(lines: Iterable[Line], split: SplitName) -> tuple[str, int]:
        name = f"{split}.parquet"
        return name, write_structs(lines if is_chat else _numbered(lines, split), folder / name, example)

    export = write_splits(dataset, rows, convert, write)
    if "tool_calls" in keys:
        export.notes |= {_AS_TEXT: None, _NULLS: None}
    return export


EXPORTER = Exporter("verl", frozenset({"sft", "grpo", "benchmark"}), _write)


def _chat_example(keys: set[str]) -> Line:
    message = {key: value for key, value in _MESSAGE.items() if key in keys}
    return {"messages": [message], "tools": [_TOOL], "enable_thinking": True}


def _keys_in(rows: Iterable[Row]) -> Iterator[str]:
    """Yield the keys that messages have."""
    for row in rows:
        for turn in turns_of(row.trajectory, Losses()) if isinstance(row, DatasetRow) else ():
            yield from chat_message(turn, as_text=True)


def _chat(row: Row, losses: Losses) -> Iterator[Line]:
    if not isinstance(row, DatasetRow):
        raise InvalidInput("expected rows of kind sft")
    count_lost_values(row, losses)
    turns = turns_of(row.trajectory, losses)
    losses[MASKS] += count_masked(turns)
    tools = [_tool(tool) for tool in row.trajectory.tools]
    yield {
        "messages": [_message(turn) for turn in turns],
        "tools": tools or None,
        "enable_thinking": count_thoughts(turns) > 0,
    }


def _message(turn: Turn) -> dict[str, Any]:
    for call in turn.calls:
        call.arguments()
    message = chat_message(turn, as_text=True)
    # A list, not null: some templates go through it without a look.
    return {**message, "tool_calls": message.get("tool_calls", [])} if turn.role == "assistant" else message


def _task(row: Row, dataset: Dataset, tools: list[str], losses: Losses) -> Iterator[Line]:
    if isinstance(row, GroupRow):
        task, prompt = row.trajectories[0].task, prompt_of(row.trajectories[0], losses)
        task = task if task.id else task.model_copy(update={"id": row.key})
        losses[_ATTEMPTS] += len(row.trajectories)
    elif isinstance(row, BenchmarkRow):
        task, prompt = row.task, [{"role": "user", "content": row.task.prompt}]
    else:
        raise InvalidInput("expected rows of kind grpo or benchmark")
    if not any(message["content"] for message in prompt):
        raise InvalidInput("the task has no prompt")
    answer = answer_of(task)
    losses[_NO_ANSWER] += answer is None
    yield _row(task, prompt, answer or "", tools, dataset.name)


def _row(task: Task, prompt: list[dict[str, Any]], answer: str, tools: list[str], source: str) -> dict[str, Any]:
    created = {"create_kwargs": {"task_id": task.id or "", "ground_truth": answer}}
    about: dict[str, Any] = {
        "split": "",
        "index": 0,
        "task_id": task.id or "",
        "metadata": json.dumps(task.metadata, ensure_ascii=False, sort_keys=True),
        "need_tools_kwargs": bool(tools),
    }
    return {
        "data_source": task.environment or source,
        "prompt": prompt,
        "ability": task.type or "agent",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {**about, **({"tools_kwargs": dict.fromkeys(tools, created)} if tools else {})},
    }


def _numbered(lines: Iterable[Line], split: SplitName) -> Iterator[Line]:
    for index, line in enumerate(lines):
        yield {**line, "extra_info": {**line["extra_info"], "split": split, "index": index}}


def _tools_in(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        tools = (
            row.trajectories[0].tools
            if isinstance(row, GroupRow)
            else row.tools
            if isinstance(row, BenchmarkRow)
            else ()
        )
        yield from (str(tool_function(tool).get("name")) for tool in tools)


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    found = tool_with_text_parameters(tool)
    return {**found, "function": {"description": "", **found["function"]}}
