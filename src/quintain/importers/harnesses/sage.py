"""SAGE's agent dialogs: a goal, its tools, and turns; calls are text, and only results are separate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import first_name, matching_share, read_one, row_importer
from quintain.importers.run_builder import build_run
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_dict, as_list, as_text, nonblank
from quintain.records.trajectory import Task, Trajectory


def _detect(probe: Probe) -> float:
    """Match rows with `dialog_id`, `goal` and `turns`."""
    return 0.96 * matching_share(probe, _is_dialog, "dialog_id")


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    transcript = Transcript()
    for turn in map(as_dict, as_list(row.get("turns"))):
        role = turn.get("role")
        if role == "assistant":
            transcript.add_agent_turn(as_text(turn.get("content")))
        elif role == "tool":
            _see(transcript, turn)
            report.note("the agent's calls are text; the arguments of the tools are not recorded")
        elif role in ("user", "system"):
            transcript.add_message(role, as_text(turn.get("content")))
        else:
            report.skip(f"role:{role}")
    meta = as_dict(row.get("metadata"))
    small = {k: v for k, v in meta.items() if isinstance(v, str | int | float) and k != "difficulty"}
    tools = [tool for tool in as_list(row.get("target_tools")) if isinstance(tool, str)]
    task = Task(
        id=first_name(row, ("dialog_id",)),
        prompt=as_text(row.get("goal")),
        difficulty=nonblank(meta.get("difficulty")),
        metadata={**({"target_tools": tools} if tools else {}), **small},
    )
    split = nonblank(row.get("split"))
    tags = (f"split:{split}",) if split else ()
    yield from build_run(transcript, report, line, task=task, tags=tags)


def read_dialog(row: dict[str, Any]) -> Trajectory:
    """Return the run of a dialog; errors as of `read_one`."""
    return read_one("sage", _row, row)


IMPORTER = row_importer("sage", "SAGE agent dialogs", _detect, _row)


def _see(transcript: Transcript, turn: dict[str, Any]) -> None:
    """Add a tool's result to the turn that asked for it in text, with the tool's name."""
    content, result = as_text(turn.get("content")), turn.get("result")
    result = result if isinstance(result, str) or result is None else json.dumps(result, ensure_ascii=False)
    known = transcript.add_result("\n".join(dict.fromkeys(filter(None, [content, result]))))
    transcript.orphans -= not known
    tool = nonblank(turn.get("tool_id"))
    acted = [step for step in transcript.steps if step["actor"] == "agent"]
    if tool and acted:
        acted[-1].setdefault("extra", {}).setdefault("tools_used", []).append(tool)


def _is_dialog(row: dict[str, Any]) -> bool:
    return {"dialog_id", "goal", "turns"} <= row.keys() and isinstance(row["turns"], list)
