"""Session traces of the Hugging Face Hub (STS): a file a session, which its viewer shows turn by turn.

Described at hf.co/docs/hub/session-traces-format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from quintain.datasets.rows import trajectories_of
from quintain.exporters.chat_turns import Losses, Turn, turns_of
from quintain.exporters.protocol import Export, Exporter, Rows
from quintain.exporters.split_files import Line, write_splits
from quintain.records.dataset import Dataset, DatasetRow, Row, SplitName
from quintain.records.trajectory import Trajectory
from quintain.records.wording import clip

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_ROWS = "labels, weights, pairs and groups are lost: the folder contains the runs only, each once"
_REST = "outcomes, rewards, masks and schemas of tools are lost"


def _write(dataset: Dataset, rows: Rows, folder: Path) -> Export:

    def write(lines: Iterable[Line], split: SplitName) -> tuple[str, int]:
        return split, _write_sessions(lines, folder / split)

    export = write_splits(dataset, rows, _sessions, write)
    export.notes[_REST] = None
    return export


EXPORTER = Exporter("hf_sts", frozenset({"sft", "dpo", "reward", "kto", "grpo", "prm"}), _write)


def _sessions(row: Row, losses: Losses) -> Iterator[Line]:
    losses[_ROWS] += not isinstance(row, DatasetRow) or row.weight != 1
    for run in trajectories_of(row):
        run = run.identified()
        yield {"id": run.id, "lines": [_header(run), *(_message(turn, run) for turn in turns_of(run, losses))]}


def _header(run: Trajectory) -> dict[str, Any]:
    title = clip(run.task.prompt.strip()) if run.task.prompt.strip() else run.task.id or run.id
    version = {"version": run.agent.version} if run.agent.version else {}
    return {"type": "session", "harness": run.agent.name, "id": run.session_id or run.id, "name": title, **version}


def _message(turn: Turn, run: Trajectory) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role, "content": turn.text}
    if turn.thought:
        message["reasoningContent"] = turn.thought
    if turn.calls:
        message["toolCalls"] = [
            {"id": call.id, "function": {"name": call.tool, "arguments": call.raw}} for call in turn.calls
        ]
    if turn.answered is not None:
        message["toolCallId"] = turn.answered.id
    if turn.step is not None:
        if model := turn.step.model or run.agent.model:
            message["model"] = model
        if turn.step.timestamp is not None:
            message["timestamp"] = round(turn.step.timestamp.timestamp() * 1000)
    return {"type": "message", "message": message}


def _write_sessions(sessions: Iterable[Line], folder: Path) -> int:
    """Write one file a session; a run in several rows is written once."""
    folder.mkdir()
    n = 0
    for session in sessions:
        path = folder / f"{_UNSAFE.sub('_', str(session['id']))}.jsonl"
        if not path.exists():
            path.write_text(
                "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in session["lines"]), encoding="utf-8"
            )
            n += 1
    if not n:
        folder.rmdir()
    return n
