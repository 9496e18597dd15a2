"""SAGE's files of dialogs and pairs, and its text of a dialog."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from quintain.datasets.sampling import task_class
from quintain.errors import NotFound
from quintain.importers.harnesses.sage import read_dialog
from quintain.records.trajectory import Step, text_of
from quintain.settings import read_settings
from quintain.tools.data.row_references import ROW_SUFFIXES
from quintain.tools.dict_calls.trainers import call, read_objects


class AgentSFTFormatter:
    """Writes dialogs as text with SAGE's marks, for programs that read it; a training renders the model's own template."""

    def format_dialog(self, dialog: Mapping[str, Any]) -> dict[str, Any]:
        """Return `input`, `output`, `task_type` and `metadata` of a row of dialogs.

        Raises:
            InvalidInput: nobody acts in it.
        """
        run = read_dialog(dict(dialog))
        tools = ", ".join(run.task.metadata.get("target_tools", ()))
        return {
            "input": f"<|system|>\nTools: {tools}\n<|user|>\n{run.first_user_text}\n<|assistant|>\n",
            "output": "\n".join(part for step in run.agent_steps for part in _marked(step)),
            "task_type": task_class(run),
            "metadata": dict(dialog.get("metadata") or {}),
        }


def _marked(step: Step) -> Iterator[str]:
    """Yield the parts of a turn: what the agent wrote, and each tool with its result."""
    if text := text_of(step.message):
        yield f"<think>{text}</think>"
    for tool, seen in zip(step.extra.get("tools_used", ()), step.observations, strict=False):
        yield f"<tool_call>{tool}</tool_call>\n<tool_result>{text_of(seen.content)}</tool_result>"


class AgentTrainingUsage:
    """The rows of SAGE's files in the inbox by their use."""

    def __init__(self, home: str | Path | None = None) -> None:
        """Name the home folder; None: that of the environment."""
        self._home = None if home is None else Path(home)

    def get_sft_data(self, split: str = "train") -> Iterator[dict[str, Any]]:
        """Yield the dialogs of a split of `agent_sft` as text."""
        return map(AgentSFTFormatter().format_dialog, rows_of(f"agent_sft:{split}", split, self._home))

    def get_preference_data(self) -> Iterator[dict[str, Any]]:
        """Yield the pairs of `agent_benchmark` for training."""
        return iter(rows_of("agent_benchmark:train", "train", self._home))

    def get_evaluation_data(self, split: str = "test") -> Iterator[dict[str, Any]]:
        """Yield the rows of a split of `agent_benchmark`."""
        return iter(rows_of(f"agent_benchmark:{split}", split, self._home))


def rows_of(data: str, side: str, home: Path | None) -> list[dict[str, Any]]:
    """Return the rows of a split; rows without one are for training."""
    name, _, split = data.partition(":")
    rows, without = read_objects(_file_of(name, home)), split if side == "train" else None
    return [row for row in rows if not split or row.get("split", without) == split]


def frozen(
    kind: str, name: str, rows: Sequence[Mapping[str, Any]], more: Mapping[str, Any], home: Path | None
) -> dict[str, Any]:
    """Freeze rows as a dataset; see `export_dataset`."""
    with TemporaryDirectory(prefix="rows-") as aside:
        path = Path(aside, f"{name}.jsonl")
        path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
        asked = {"action": "export", "kind": kind, "name": name, "path": str(path), "validation_share": 0}
        return call({**asked, **more}, home)


def _file_of(name: str, home: Path | None) -> Path:
    """Return a file of dialogs: a path, or one in the inbox, where the ending may be left out."""
    inbox = read_settings(home).inbox_dir
    for path in (Path(name), inbox / name, *(inbox / f"{name}{suffix}" for suffix in ROW_SUFFIXES[:2])):
        if path.is_file():
            return path
    raise NotFound(f"expected a file of dialogs, got {name!r}; put it into {str(inbox)!r} as {name}.jsonl")
