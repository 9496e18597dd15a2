"""A log written to a file and read by the reader that says that it is its own."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from quintain.errors import QuintainError
from quintain.importers.log_file import LogFile
from quintain.importers.probing import probe
from quintain.importers.protocol import Report, Run
from quintain.importers.registry import detect, importer
from quintain.records.trajectory import Step, Trajectory

WRONG: tuple[Any, ...] = (
    *(None, True, -1, 10**300, "x", [], {}, ["x"], {"a": 1}, [[None]], "attachment://x", "0001-01-01T00:00:00+05:00"),
    '[{"type": 1}]',
)
"""What stands in a field by mistake: every kind of value, and texts that are JSON or times at the edge."""


class Read(NamedTuple):
    """What came of a file."""

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


def written(folder: Path, name: str, value: Any) -> Path:
    """A file of lines (`.jsonl`, from a list), of bytes or of JSON."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, bytes):
        path.write_bytes(value)
    else:
        lines = name.endswith(".jsonl")
        path.write_text("\n".join(map(json.dumps, value)) if lines else json.dumps(value), encoding="utf-8")
    return path


def read(path: Path, root: Path, format: str | None = None) -> Read:
    """The runs of a file, by the named reader or by the one that detection finds."""
    found = detect(probe(path, root)).importer
    reader = importer(format) if format else found
    assert reader is not None, f"{path.name} is taken by no reader"
    report = Report()
    return Read(found.name if found else None, list(reader.read(LogFile(path, root), report)), report)


def outline(steps: tuple[Step, ...]) -> list[tuple[Any, ...]]:
    """Steps as (actor, text), with the names of called tools and the texts of results where there are any."""
    return [
        (
            s.actor.value,
            s.message,
            *([[a.tool for a in s.actions], [o.content for o in s.observations]] if s.actions else []),
        )
        for s in steps
    ]


def mutations(value: Any, stride: int) -> Iterator[Any]:
    """The value with one member after the other replaced, each by some of the wrong values in turn."""
    for n, path in enumerate(_paths(value)):
        for wrong in WRONG[n % stride :: stride]:
            yield _replaced(value, path, wrong)


def survives(path: Path, root: Path, format: str) -> None:
    """Detection says something, and reading ends with runs, rejections, or an error of ours; nothing else comes out."""
    detect(probe(path, root))
    with suppress(QuintainError):
        for run in importer(format).read(LogFile(path, root), Report()):
            assert run.trajectory.agent_steps


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in members:
        yield from _paths(inner, (*at, key))


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value = copy.deepcopy(value)
    at = value
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return value
