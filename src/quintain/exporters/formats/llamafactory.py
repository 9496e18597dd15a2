"""LLaMA-Factory's sharegpt rows (v0) with their `dataset_info.json`.

Users and results have odd places, the agent even ones. Consecutive user messages are joined, and so are the results of
parallel calls. A call is JSON; text beside it comes before `<tool_call>`, a thought in `<think>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from quintain.errors import InvalidInput
from quintain.exporters.chat_turns import (
    MASKS,
    Losses,
    Turn,
    count_lost_values,
    count_masked,
    count_thoughts,
    last_turns,
    require_answers,
    turns_of,
    until_last_agent_turn,
)
from quintain.exporters.protocol import Export, Exporter, Rows
from quintain.exporters.split_files import Line, json_lines, write_splits
from quintain.importers.transcripts.tool_tags import RESULT_SEPARATOR
from quintain.records.dataset import Dataset, DatasetKind, DatasetRow, LabelledRow, PairRow, Row, TextRow
from quintain.records.protocols import tool_function
from quintain.records.trajectory import Trajectory

_TAG = re.compile(r"<(?=/?(?:tool_call|think)>)")
_COLUMNS = {"messages": "conversations", "system": "system", "tools": "tools"}
_OF_KIND: dict[DatasetKind, dict[str, Any]] = {
    "sft": {"columns": _COLUMNS},
    "kto": {"columns": {**_COLUMNS, "kto_tag": "kto_tag"}},
    "dpo": {"ranking": True, "columns": {**_COLUMNS, "chosen": "chosen", "rejected": "rejected"}},
    "reward": {"ranking": True, "columns": {**_COLUMNS, "chosen": "chosen", "rejected": "rejected"}},
    "text": {"columns": {"prompt": "text"}},
}
_LAST = "LLaMA-Factory trains only the last turn of a labelled run; the earlier turns are its prompt"
_TEXT_BESIDE_CALL = (
    "turns with text or a thought beside a call need a LLaMA-Factory with `tool_call_words` (2025 and later)"
)
_RESULTS_JOINED = "results of parallel calls are joined to one observation"
_USERS_JOINED = "neighbouring messages of the user are joined"


def _write(dataset: Dataset, rows: Rows, folder: Path) -> Export:
    """One file a split, and `dataset_info.json`, which names each `<dataset>_<split>`."""
    export = write_splits(dataset, rows, _lines, json_lines(folder))
    shape: dict[str, Any] = {"formatting": "alpaca" if dataset.kind == "text" else "sharegpt", **_OF_KIND[dataset.kind]}
    entries = {f"{dataset.name}_{Path(name).stem}": {"file_name": name, **shape} for name in export.rows}
    (folder / "dataset_info.json").write_text(
        json.dumps(entries, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    named = ", ".join(entries)
    export.notes[
        f"set dataset_dir to this folder and dataset to {named}; `mask_history: true` trains only last turns"
    ] = None
    return export


EXPORTER = Exporter("llamafactory", frozenset(_OF_KIND), _write)


def _lines(row: Row, losses: Losses) -> Iterator[Line]:
    if isinstance(row, TextRow):
        count_lost_values(row, losses)
        yield {"text": row.text}
    elif isinstance(row, PairRow):
        shared, chosen, rejected = last_turns(row, losses)
        count_lost_values(row, losses)
        *_, other = _conversation([*shared, rejected], row.rejected, Losses())["conversations"]
        line = _conversation([*shared, chosen], row.chosen, losses)
        *before, best = line["conversations"]
        yield {**line, "conversations": before, "chosen": best, "rejected": other}
    elif isinstance(row, LabelledRow):
        turns = until_last_agent_turn(turns_of(row.trajectory, losses), losses)
        count_lost_values(row, losses)
        losses[_LAST] += sum(turn.role == "assistant" for turn in turns) > 1
        yield {**_conversation(turns, row.trajectory, losses), "kto_tag": row.desirable}
    elif isinstance(row, DatasetRow):
        count_lost_values(row, losses)
        turns = until_last_agent_turn(turns_of(row.trajectory, losses), losses)
        losses[MASKS] += count_masked(turns)
        yield _conversation(turns, row.trajectory, losses)


def _conversation(turns: Sequence[Turn], run: Trajectory, losses: Losses) -> dict[str, Any]:
    """Return the row of a run that ends with an agent turn."""
    require_answers(turns)
    n = next((i for i, turn in enumerate(turns) if turn.role != "system"), len(turns))
    entries: list[dict[str, str]] = []
    for turn in _in_order(turns[n:]):
        if turn.role == "system":
            raise InvalidInput("a system message inside the run is not supported")
        name, value = _turn(turn, losses)
        if entries and entries[-1]["from"] == name and name in {"human", "observation"}:
            losses[_USERS_JOINED if name == "human" else _RESULTS_JOINED] += 1
            entries[-1]["value"] += ("\n\n" if name == "human" else RESULT_SEPARATOR) + value
        else:
            entries.append({"from": name, "value": value})
    for place, entry in enumerate(entries):
        if (entry["from"] in {"human", "observation"}) != (place % 2 == 0):
            raise InvalidInput("the user and the agent do not alternate")
    tools = [tool_function(tool) for tool in run.tools]
    return {
        "conversations": entries,
        "system": "\n\n".join(turn.text for turn in turns[:n]),
        "tools": json.dumps(tools, ensure_ascii=False) if tools else "",
    }


def _in_order(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns with results in the order of their parallel calls, which alone identifies them."""
    ordered = list(turns)
    for place, turn in enumerate(ordered):
        end = place + 1 + len(turn.calls)
        asked = [call.id for call in turn.calls]
        if end <= len(ordered):
            ordered[place + 1 : end] = sorted(
                ordered[place + 1 : end], key=lambda result: asked.index(result.answered.id) if result.answered else 0
            )
    return ordered


def _turn(turn: Turn, losses: Losses) -> tuple[str, str]:
    if turn.role == "user":
        return "human", turn.text
    if turn.role == "tool":
        return "observation", turn.text
    before = f"<think>\n{turn.thought}\n</think>\n\n" if turn.thought else ""
    if not turn.calls:
        return "gpt", before + turn.text
    losses[_TEXT_BESIDE_CALL] += bool(count_thoughts([turn]) or turn.text)
    if _TAG.search(turn.text) or _TAG.search(turn.thought):
        raise InvalidInput("the text beside a call contains the marks of a call")
    calls = [{"name": call.tool, "arguments": call.arguments()} for call in turn.calls]
    written = json.dumps(calls if len(calls) > 1 else calls[0], ensure_ascii=False)
    written = _TAG.sub(r"\\u003c", written)
    return "function_call", f"{before}{turn.text}<tool_call>{written}</tool_call>" if turn.text else before + written
