"""Runs that every writer of a downstream format has to hold or to refuse, and datasets of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from quintain.datasets.dataset_writer import ExportOptions, write_dataset
from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import KeyedRow
from quintain.exporters.dataset_conversion import convert_dataset
from quintain.exporters.protocol import Export
from quintain.exporters.registry import exporter
from quintain.records.dataset import (
    BenchmarkRow,
    Dataset,
    DatasetKind,
    DatasetRow,
    GroupRow,
    LabelledRow,
    PairRow,
    Reference,
    Row,
    StepLabelRow,
    TextRow,
)
from quintain.records.trajectory import (
    Action,
    Actor,
    AgentInfo,
    Observation,
    Outcome,
    OutcomeStatus,
    Step,
    Task,
    Trajectory,
)
from trajectory_runs import NOW

TOOLS = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} an item",
            "parameters": {"type": "object", "properties": {argument: {"type": kind}}, "required": [argument]},
        },
    }
    for name, argument, kind in (("search", "query", "string"), ("open", "id", "integer"))
)


def system(text: str = "You sell fruit.") -> Step:
    return Step(actor=Actor.SYSTEM, message=text)


def asks(text: str = "What does the mango cost?") -> Step:
    return Step(actor=Actor.USER, message=text)


def acts(*calls: tuple[str, dict[str, Any], str], text: str = "", thought: str | None = None, **fields: Any) -> Step:
    """An agent step that calls tools with these arguments and gets these results; ids are given."""
    named = [(f"{tool}-{i}-{json.dumps(args)}", tool, args, result) for i, (tool, args, result) in enumerate(calls)]
    return Step(
        actor=Actor.AGENT,
        message=text,
        thought=thought,
        actions=tuple(Action(tool=tool, args=args, call_id=name) for name, tool, args, _ in named),
        observations=tuple(Observation(content=result, call_id=name) for name, _, _, result in named),
        **fields,
    )


def says(text: str, **fields: Any) -> Step:
    return Step(actor=Actor.AGENT, message=text, **fields)


def trajectory(*steps: Step, task_id: str = "mango", **fields: Any) -> Trajectory:
    """A run of the task; without steps: a search, two calls at once with a remark, an answer."""
    fields.setdefault("tools", TOOLS)
    fields.setdefault("outcome", Outcome(status=OutcomeStatus.SUCCESS, reward=1.0))
    fields.setdefault("agent", AgentInfo(name="clerk", model="qwen3-4b"))
    fields.setdefault(
        "task", Task(id=task_id, prompt="What does the mango cost?", environment="shop", metadata={"answer": "7"})
    )
    return Trajectory(steps=steps or DEFAULT, **fields).identified()


DEFAULT = (
    system(),
    asks(),
    acts(("search", {"query": "mango"}, "mango has id 12"), thought="First I look it up."),
    acts(("open", {"id": 12}, "price 7"), ("search", {"query": "offers"}, "none"), text="Two things at once."),
    says("It costs 7."),
)

SHORT = (system(), asks(), acts(("open", {"id": 12}, "price 7")), says("It costs 7."))
"""A run without thoughts, remarks or parallel calls: every format holds all of its text."""


def rows_of(kind: DatasetKind, n: int = 4) -> list[Row]:
    """Rows of a kind, every one with a task of its own."""
    made: list[Row] = []
    for i in range(n):
        run = trajectory(*SHORT[:-1], says(f"It costs {i}."), task_id=f"t{i}")
        worse = trajectory(
            *SHORT[:-1], says("No idea."), task_id=f"t{i}", outcome=Outcome(status=OutcomeStatus.FAILURE)
        )
        if kind == "sft":
            made.append(DatasetRow(trajectory=run, reward=1.0))
        elif kind in {"dpo", "reward"}:
            made.append(PairRow(chosen=run, rejected=worse, margin=0.5))
        elif kind == "kto":
            made.append(LabelledRow(trajectory=run if i % 2 else worse, desirable=bool(i % 2)))
        elif kind == "grpo":
            made.append(GroupRow(key=f"t{i}", trajectories=(run, worse), rewards=(1.0, 0.0)))
        elif kind == "prm":
            made.append(StepLabelRow(trajectory=run, labels=(1.0, 0.0)))
        elif kind == "benchmark":
            reference = Reference(trajectory_id=run.id or "", agent="clerk", success=True, reward=1.0, steps=2)
            made.append(BenchmarkRow(task=run.task, tools=TOOLS, references=(reference,), reward_range=(0.0, 1.0)))
        else:
            made.append(TextRow(text=f"The mango costs {i}."))
    return made


def plain_pairs(n: int) -> list[PairRow]:
    """Pairs of two answers, without tools."""
    return [
        PairRow(chosen=trajectory(asks(), says(f"{i}."), tools=()), rejected=trajectory(asks(), says("8?"), tools=()))
        for i in range(n)
    ]


def frozen(rows: Sequence[Row], kind: DatasetKind, folder: Path, *, validation: float = 0.0) -> Dataset:
    """A dataset folder of these rows."""
    options = ExportOptions(
        dataset_id="ds-1",
        name="fruit",
        kind=kind,
        shares={"validation": validation} if validation else {},
        created_at=NOW,
    )
    lines = (KeyedRow(f"task-{i}", row) for i, row in enumerate(rows))
    return write_dataset(lines, folder / "dataset", options, ExportCounts()).dataset


def exported(
    format: str, rows: Sequence[Row], kind: DatasetKind, folder: Path, *, validation: float = 0.0
) -> tuple[Export, Path]:
    """The rows frozen, then written in a format: what became of them, and where."""
    out = folder / format
    return convert_dataset(frozen(rows, kind, folder, validation=validation), exporter(format), out), out


def lines_in(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def arguments_in(value: Any) -> Iterator[Any]:
    """All arguments of calls, at any depth."""
    if isinstance(value, dict):
        if "arguments" in value:
            yield value["arguments"]
        for inner in value.values():
            yield from arguments_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from arguments_in(inner)
