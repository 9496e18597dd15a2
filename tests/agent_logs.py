"""Logs for tests of the readers: written to files, read as an import does, and outlined."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quintain.importers.files.probing import probe
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.registry import Detection, detect, importer
from quintain.records.trajectory import Step, Trajectory, text_of
from small_logs import log_path


class Read(NamedTuple):
    """Result of reading a file."""

    format: str | None
    runs: list[Run]
    report: Report

    @property
    def all(self) -> list[Trajectory]:
        """The trajectories."""
        return [run.trajectory for run in self.runs]

    @property
    def only(self) -> Trajectory:
        """The one trajectory."""
        assert len(self.runs) == 1, (len(self.runs), self.report.rejected)
        return self.runs[0].trajectory


def write(path: Path, value: Any) -> Path:
    """Write bytes, the items of a list as lines (`.jsonl`), or any other value as JSON; return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.suffix == ".jsonl" and isinstance(value, list)
    text = value if isinstance(value, bytes) else "\n".join(map(json.dumps, value)) if lines else json.dumps(value)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return a message as chat APIs write it."""
    return {"role": role, "content": content, **more}


def function_call(name: str, arguments: str, call_id: str) -> dict[str, Any]:
    """Return a call as OpenAI's chat API writes it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def read(path: Path, root: Path) -> Read:
    """Read a file by the reader that detection finds."""
    found = detect(probe(path, root)).importer
    assert found is not None, f"{path.name} is taken by no reader"
    report = Report()
    return Read(found.name, list(found.read(LogFile(path, root), report)), report)


def read_as(format: str, path: Path, root: Path) -> tuple[list[Run], Report]:
    """Read a file, which detection must give to the named reader."""
    found = read(path, root)
    assert found.format == format
    return found.runs, found.report


def read_one(format: str, path: Path, root: Path) -> tuple[Run, Report]:
    """Read a file of one run, which detection must give to the named reader."""
    runs, report = read_as(format, path, root)
    assert len(runs) == 1, report
    return runs[0], report


def read_log(format: str) -> tuple[Run, Report]:
    """Read the log of one run that stands for the format, which detection must give to its reader."""
    path = log_path(format)
    return read_one(format, path, path.parent)


def read_rows(folder: Path, name: str, rows: Sequence[Any]) -> tuple[list[Trajectory], Report]:
    """Read these rows, one a line, by the reader of this name."""
    write(folder / "rows.jsonl", list(rows))
    return read_file(folder, name, "rows.jsonl")


def read_file(folder: Path, name: str, file: str) -> tuple[list[Trajectory], Report]:
    """Read a file below the folder by the reader of this name."""
    report = Report()
    return [run.trajectory for run in importer(name).read(LogFile(folder / file, folder), report)], report


def detected(rows: Sequence[Any], shape: str = "lines") -> Detection:
    """Detect the reader of a file with these rows; of shape `object` the first is the document."""
    if shape == "object":
        return detect(Probe(("rows.json",), "object", rows[0]))
    return detect(Probe(("rows",), shape, None, tuple(rows)))  # type: ignore[arg-type]


def counts(runs: Sequence[Trajectory]) -> tuple[int, int, int, int]:
    """Count runs, turns of the agent, calls and observations."""
    steps = [step for run in runs for step in run.steps]
    agent = sum(len(run.agent_steps) for run in runs)
    return len(runs), agent, sum(len(s.actions) for s in steps), sum(len(s.observations) for s in steps)


def tokens(step: Step) -> tuple[int | None, int | None] | None:
    """Return the counts of tokens in and out of a step, if its log has any."""
    return step.usage and (step.usage.input_tokens, step.usage.output_tokens)


def moment(step: Step) -> float | None:
    """Return the time of a step in seconds, if its log has it."""
    return step.timestamp and step.timestamp.timestamp()


def outline(run: Run | Trajectory) -> list[str]:
    """Return each step as `actor: text > tool(call id) < result(call id)`; failed results begin with `!`."""
    steps = run.trajectory.steps if isinstance(run, Run) else run.steps
    lines = []
    for step in steps:
        calls = "".join(f" > {call.tool}({call.call_id})" for call in step.actions)
        seen = "".join(f" < {'!' if o.is_error else ''}{text_of(o.content)}({o.call_id})" for o in step.observations)
        lines.append(f"{step.actor.value}: {text_of(step.message)}{calls}{seen}")
    return lines
