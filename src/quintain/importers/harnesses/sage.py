"""SAGE's agent dialogs: a goal, the tools it takes, and turns; calls are written as text, only their results are told apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quintain.importers.logfile import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.runs import run_of
from quintain.importers.training_data.rows import likeness, name_of, runs
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.transcripts.values import items, label, record, text
from quintain.records.trajectory import Task


@dataclass(frozen=True)
class Sage:
    """Reads SAGE's dialogs."""

    name: str = "sage"
    title: str = "SAGE agent dialogs"

    def detect(self, probe: Probe) -> float:
        """Rows with `dialog_id`, `goal` and `turns`."""
        return 0.96 * likeness(probe, _is_dialog, "dialog_id")

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """One run a row."""
        return runs(log, report, self._row)

    def _row(self, row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
        transcript = Transcript()
        for turn in map(record, items(row.get("turns"))):
            role = turn.get("role")
            if role == "assistant":
                transcript.act(text(turn.get("content")))
            elif role == "tool":
                _see(transcript, turn)
                report.note("the agent's calls are written as text; what arguments the tools got is not recorded")
            elif role in ("user", "system"):
                transcript.say(role, text(turn.get("content")))
            else:
                report.skip(f"role:{role}")
        meta = record(row.get("metadata"))
        small = {k: v for k, v in meta.items() if isinstance(v, str | int | float) and k != "difficulty"}
        tools = [tool for tool in items(row.get("target_tools")) if isinstance(tool, str)]
        task = Task(
            id=name_of(row, ("dialog_id",)),
            prompt=text(row.get("goal")),
            difficulty=label(meta.get("difficulty")),
            metadata={**({"target_tools": tools} if tools else {}), **small},
        )
        split = label(row.get("split"))
        tags = (f"split:{split}",) if split else ()
        yield from run_of(transcript, report, line, format=self.name, task=task, tags=tags)


def _see(transcript: Transcript, turn: dict[str, Any]) -> None:
    """A tool's result goes to the turn that asked in its text; the tool's name is kept beside it."""
    said, result = text(turn.get("content")), turn.get("result")
    result = result if isinstance(result, str) or result is None else json.dumps(result, ensure_ascii=False)
    known = transcript.observe("\n".join(dict.fromkeys(filter(None, [said, result]))))
    transcript.orphans -= not known
    tool = label(turn.get("tool_id"))
    acted = [step for step in transcript.steps if step["actor"] == "agent"]
    if tool and acted:
        acted[-1].setdefault("extra", {}).setdefault("tools_used", []).append(tool)


def _is_dialog(row: dict[str, Any]) -> bool:
    return {"dialog_id", "goal", "turns"} <= row.keys() and isinstance(row["turns"], list)
