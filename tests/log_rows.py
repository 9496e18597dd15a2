"""Files of rows for tests of the readers: written, read back, and damaged in every place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report
from quintain.importers.registry import Detection, detect, importer
from quintain.records.trajectory import Trajectory


def read_rows(folder: Path, name: str, rows: Sequence[Any]) -> tuple[list[Trajectory], Report]:
    """What the reader of this name makes of a file with these rows, one a line."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_file(folder, name, "rows.jsonl")


def read_file(folder: Path, name: str, file: str) -> tuple[list[Trajectory], Report]:
    """What the reader of this name makes of a file below the folder."""
    report = Report()
    runs = [run.trajectory for run in importer(name).read(LogFile(folder / file, folder), report)]
    return runs, report


def detected(rows: Sequence[Any], shape: str = "lines") -> Detection:
    """Which reader takes a file of these rows; of shape `object` the first is the document."""
    if shape == "object":
        return detect(Probe(("rows.json",), "object", rows[0]))
    return detect(Probe(("rows",), shape, None, tuple(rows)))  # type: ignore[arg-type]


def counts(runs: Sequence[Trajectory]) -> tuple[int, int, int, int]:
    """Runs, turns of the agent, calls and observations."""
    steps = [step for run in runs for step in run.steps]
    agent = sum(len(run.agent_steps) for run in runs)
    return len(runs), agent, sum(len(s.actions) for s in steps), sum(len(s.observations) for s in steps)
