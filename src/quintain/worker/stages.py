"""Stages within a job: each in its folder below `stages/`, and final once it contains a result.

A restarted job continues with the unfinished stage: earlier results are read, and the stage resumes from its own files. An evolution
counts the steps and episodes of its stages.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from quintain.jobs.directory import STAGE_RESULT, STAGES, open_appending, write_atomically, write_line
from quintain.records.agent import Agent
from quintain.records.evaluation import Evaluation
from quintain.records.jobs.job import EvaluateSpec, JobResult, RolloutSpec, TrainSpec
from quintain.records.jobs.job_events import Activity
from quintain.records.protocols import Reporter
from quintain.records.record import Record
from quintain.worker.job_kinds import rollouts
from quintain.worker.job_kinds import train as training
from quintain.worker.rollouts.earlier_episodes import take_over_stage


class StageResult(Record):
    """Result of a stage."""

    steps: int
    result: JobResult
    agent: Agent | None = None
    evaluation: Evaluation | None = None


class Span(NamedTuple):
    """Position of a stage within the job, in steps. Later stages count as planned."""

    before: int
    planned: int
    after: int


class StageReporter:
    """Forwards a stage's events as part of the whole job, and keeps the stage's agent, which the job outputs.

    Trajectories are also written to the stage's `outputs/`, where the stage looks for finished episodes.

    Args:
        reporter: Reporter of the whole job.
        folder: The stage's folder.
        span: Position of the stage within the job.
        prefix: Prefix of the stage's metric names.
    """

    def __init__(self, reporter: Reporter, folder: Path, span: Span, prefix: str = "") -> None:
        self._reporter, self._folder = reporter, folder
        self._span, self._prefix = span, prefix
        self._trajectories: int | None = None
        self.step: int | None = None
        self.agent: Agent | None = None
        self.evaluation: Evaluation | None = None

    def phase(self, name: str) -> None:
        """Report the start of a phase of the stage."""
        self._reporter.phase(f"{self._folder.name} {name}")

    def progress(
        self,
        step: int,
        total_steps: int,
        metrics: dict[str, float | None],
        totals: dict[str, float | None] | None = None,
    ) -> None:
        """Report a finished step of the stage. The total includes the planned steps of later stages."""
        self.step = step
        before, after = self._span.before, self._span.after
        named = totals and self._named(totals)
        self._reporter.progress(before + step, before + total_steps + after, self._named(metrics), named)

    def acting(self, activity: Activity) -> None:
        """Report the turns of the stage's episodes."""
        self._reporter.acting(activity)

    def checkpoint(self, step: int, path: Path) -> None:
        """Report a complete checkpoint of the stage."""
        self._reporter.checkpoint(self._span.before + step, path)

    def warn(self, code: str, message: str) -> None:
        """Report a problem together with the stage's name."""
        self._reporter.warn(code, f"{self._folder.name}: {message}")

    def output(self, kind: str, record: Record) -> None:
        """Output a record for the store."""
        if isinstance(record, Agent):
            self.agent = record
            return
        if isinstance(record, Evaluation):
            self.evaluation = record
        self._reporter.output(kind, record)
        if kind == "trajectory":
            if self._trajectories is None:
                self._trajectories = open_appending(self._folder / "outputs" / "trajectory.jsonl")
            write_line(self._trajectories, f'{{"kind":"trajectory","record":{record.model_dump_json()}}}')

    def should_stop(self) -> bool:
        """Whether the job was asked to stop."""
        return self._reporter.should_stop()

    def _named(self, figures: dict[str, float | None]) -> dict[str, float | None]:
        return {f"{self._prefix}{name}": value for name, value in figures.items()}

    def close(self) -> None:
        """Close the stage's files."""
        if self._trajectories is not None:
            os.close(self._trajectories)


StageWork = TrainSpec | RolloutSpec | EvaluateSpec | Callable[[StageReporter], JobResult]


def read_stage(folder: Path) -> StageResult | None:
    """Return the result of a finished stage, or None."""
    try:
        return StageResult.model_validate_json((folder / STAGE_RESULT).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def run_stage(
    work: StageWork,
    folder: Path,
    reporter: Reporter,
    span: Span,
    *,
    prefix: str = "",
    named: Callable[[Agent], Agent] = lambda agent: agent,
) -> StageResult | None:
    """Run a stage unless it is finished. Return None if the job was asked to stop.

    Args:
        work: The stage as a job spec, or the function that runs it.
        folder: The stage's folder.
        reporter: Reporter of the whole job.
        span: Position of the stage within the job.
        prefix: Prefix of the stage's metric names.
        named: Maps the trained agent to the one that is stored.
    """
    if (finished := read_stage(folder)) is not None:
        if not _is_own(folder):
            take_over_stage(folder, reporter)
        return finished
    if reporter.should_stop():
        return None
    folder.mkdir(parents=True, exist_ok=True)
    inner = StageReporter(reporter, folder, span, prefix)
    try:
        if isinstance(work, TrainSpec):
            result = training.run(work, folder, inner)
        elif isinstance(work, RolloutSpec | EvaluateSpec):
            result = rollouts.run(work, folder, inner)
        else:
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


class EvolutionStopped(Exception):
    """The job was asked to stop."""


@dataclass
class EvolutionStages:
    """The stages of an evolution, run one after the other; the result of a finished stage is read from its folder."""

    directory: Path
    reporter: Reporter
    steps: int = 0
    """Steps of finished stages."""
    episodes: int = 0
    """Episodes that this job played."""
    taken_over: int = 0
    """Episodes of the job that this one resumes."""

    def folder(self, name: str) -> Path:
        """Return the folder of a stage."""
        return self.directory / STAGES / name

    def run(
        self,
        work: StageWork,
        folder: Path,
        steps: int,
        after: int,
        prefix: str = "",
        named: Callable[[Agent], Agent] = lambda agent: agent,
    ) -> StageResult:
        """Run a stage, and count its steps and episodes.

        Args:
            work: Spec of the stage, or the function that runs it.
            folder: Folder of the stage.
            steps: Planned steps.
            after: Planned steps of later stages.
            prefix: Prefix of its metrics.
            named: Maps the trained agent to the one that the job outputs.

        Raises:
            EvolutionStopped: The job was asked to stop.
        """
        span = Span(self.steps, steps, after)
        finished = run_stage(work, folder, self.reporter, span, prefix=prefix, named=named)
        if finished is None:
            raise EvolutionStopped
        self.steps += finished.steps
        played = finished.result.trajectories.count if finished.result.trajectories else 0
        taken = finished.result.report.get("taken_over", {}).get("episodes", 0) if _is_own(folder) else played
        self.taken_over += taken
        self.episodes += played - taken
        return finished


def drop_results_without_runs(*folders: Path) -> None:
    """Remove results whose runs are missing, as in stages copied from a resumed job."""
    for folder in folders:
        if not _is_own(folder):
            (folder / STAGE_RESULT).unlink(missing_ok=True)


def _is_own(folder: Path) -> bool:
    """Whether this job ran the stage. The runs of another job's stages are not copied."""
    return (folder / "outputs").exists()
