"""Logs of coding agents for tests: writing them, reading them as an import does, and their steps at a glance."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.probing import probe
from quintain.importers.protocol import Report, Run
from quintain.importers.registry import detect, importer
from quintain.records.trajectory import text_of


def write(path: Path, value: Any) -> Path:
    """Lines for a list and `.jsonl`, else one JSON value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.suffix == ".jsonl"
    path.write_text("\n".join(map(json.dumps, value)) if lines else json.dumps(value), encoding="utf-8")
    return path


def read(name: str, path: Path, root: Path) -> tuple[list[Run], Report]:
    """All runs of a file, which detection must give to that reader."""
    report = Report()
    assert detect(probe(path, root)).importer is importer(name)
    return list(importer(name).read(LogFile(path, root), report)), report


def outline(run: Run) -> list[str]:
    """Each step as `actor: text > calls < results`."""
    told = []
    for step in run.trajectory.steps:
        calls = "".join(f" > {call.tool}({call.call_id})" for call in step.actions)
        seen = "".join(f" < {'!' if o.is_error else ''}{text_of(o.content)}({o.call_id})" for o in step.observations)
        told.append(f"{step.actor.value}: {text_of(step.message)}{calls}{seen}")
    return told


def tally(run: Run) -> tuple[int, int, int]:
    """Turns of the agent, calls, and results."""
    steps = run.trajectory.agent_steps
    return len(steps), sum(len(s.actions) for s in steps), sum(len(s.observations) for s in steps)


ODD = (
    None,
    True,
    -1,
    1.5,
    10**30,
    "",
    "x",
    [],
    {},
    [None],
    [[]],
    {"type": 3},
    [{"type": []}],
    [{"content": {"a": []}}],
)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a value with each of its keys."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def survives(name: str, rows: list[Any], folder: Path, rounds: int = 100) -> None:
    """Read a log many times with one or two of its values replaced by odd ones: only rejections may come of it."""
    rng = random.Random(7)
    for _ in range(rounds):
        broken = copy.deepcopy(rows)
        for _ in range(rng.choice((1, 2))):
            holder, key = rng.choice(list(_places(broken)))
            holder[key] = copy.deepcopy(rng.choice(ODD))
        path = write(folder / "log.jsonl", broken)
        assert not detect(probe(path, folder)).failed
        try:
            for run in importer(name).read(LogFile(path, folder), Report()):
                assert run.trajectory.identity
        except InvalidInput:
            continue
