"""Jobs within a job: each in a folder of its own below `stages/`, and done for good when its result stands there.

What dies goes on at the stage where it was: those before are read back, the one under way goes on from its own files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pydantic import ValidationError

from quintain.jobs.directory import STAGE_RESULT, open_appending, write_atomically
from quintain.records.agent import Agent
from quintain.records.evaluation import Evaluation
from quintain.records.job import EvaluateSpec, JobResult, RolloutSpec, TrainSpec
from quintain.records.record import Record
from quintain.records.seams import Reporter
from quintain.worker import rollouts
from quintain.worker import train as training


class StageResult(Record):
    """What a stage came to."""

    steps: int
    result: JobResult
    agent: Agent | None = None
    """The agent that it trained."""
    evaluation: Evaluation | None = None
    """What it measured."""


class Span(NamedTuple):
    """Where a stage lies in the whole job, in steps; those of later stages are what they plan."""

    before: int
    planned: int
    after: int


class StageReporter:
    """Passes on what a stage tells, as part of the whole job. It keeps the stage's agent: the job hands it over.

    Trajectories are written to the stage's own `outputs/` too, where the stage looks for what it has done.

    Args:
        reporter: Of the whole job.
        folder: Of the stage.
        span: Where the stage lies in the whole.
        prefix: Stands before the names of the stage's metrics.
    """

    def __init__(self, reporter: Reporter, folder: Path, span: Span, prefix: str = "") -> None:
        self._reporter, self._folder = reporter, folder
        self._span, self._prefix = span, prefix
        self._trajectories: BinaryIO | None = None
        self.step: int | None = None
        self.agent: Agent | None = None
        self.evaluation: Evaluation | None = None

    def phase(self, name: str) -> None:
        """A new phase of the stage begins."""
        self._reporter.phase(f"{self._folder.name} {name}")

    def progress(self, step: int, total_steps: int, metrics: dict[str, float | None]) -> None:
        """A step of the stage is done; the total holds what the later stages plan."""
        self.step = step
        named = {f"{self._prefix}{name}": value for name, value in metrics.items()}
        self._reporter.progress(self._span.before + step, self._span.before + total_steps + self._span.after, named)

    def checkpoint(self, step: int, path: Path) -> None:
        """A complete checkpoint of the stage stands at `path`."""
        self._reporter.checkpoint(self._span.before + step, path)

    def warn(self, code: str, message: str) -> None:
        """Something that the user should know, with the stage that says it."""
        self._reporter.warn(code, f"{self._folder.name}: {message}")

    def output(self, kind: str, record: Record) -> None:
        """Hand over a record for the store."""
        if isinstance(record, Agent):
            self.agent = record
            return
        if isinstance(record, Evaluation):
            self.evaluation = record
        self._reporter.output(kind, record)
        if kind == "trajectory":
            if self._trajectories is None:
                self._trajectories = os.fdopen(open_appending(self._folder / "outputs" / "trajectory.jsonl"), "ab")
            self._trajectories.write(f'{{"kind":"trajectory","record":{record.model_dump_json()}}}\n'.encode())
            self._trajectories.flush()

    def should_stop(self) -> bool:
        """Was the job asked to stop?"""
        return self._reporter.should_stop()

    def close(self) -> None:
        """The stage has ended."""
        if self._trajectories is not None:
            self._trajectories.close()


def read_stage(folder: Path) -> StageResult | None:
    """The result of a stage that is done."""
    try:
        return StageResult.model_validate_json((folder / STAGE_RESULT).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def carry_out(
    spec: TrainSpec | RolloutSpec | EvaluateSpec,
    folder: Path,
    reporter: Reporter,
    span: Span,
    *,
    prefix: str = "",
    named: Callable[[Agent], Agent] = lambda agent: agent,
) -> StageResult | None:
    """Run what a stage is, unless it is done; None where the job was asked to stop.

    Args:
        spec: The stage as a job of its own.
        folder: Of the stage.
        reporter: Of the whole job.
        span: Where the stage lies in the whole.
        prefix: Stands before the names of the stage's metrics.
        named: The agent that the stage trained as the store shall know it.
    """

    def work(inner: StageReporter) -> JobResult:
        if isinstance(spec, TrainSpec):
            return training.run(spec, folder, inner)
        return rollouts.run(spec, folder, inner)

    return stage(work, folder, reporter, span, prefix=prefix, named=named)


def stage(
    work: Callable[[StageReporter], JobResult],
    folder: Path,
    reporter: Reporter,
    span: Span,
    *,
    prefix: str = "",
    named: Callable[[Agent], Agent] = lambda agent: agent,
) -> StageResult | None:
    """As `carry_out`, for work that is no kind of job."""
    if (finished := read_stage(folder)) is not None:
        return finished
    if reporter.should_stop():
        return None
    folder.mkdir(parents=True, exist_ok=True)
    inner = StageReporter(reporter, folder, span, prefix)
    try:
        result = work(inner)
    finally:
        inner.close()
    if reporter.should_stop() and result.is_partial:
        return None
    finished = StageResult(
        steps=span.planned if inner.step is None else inner.step,
        result=result,
        agent=None if inner.agent is None else named(inner.agent),
        evaluation=inner.evaluation,
    )
    write_atomically(folder / STAGE_RESULT, finished.model_dump_json().encode())
    return finished
