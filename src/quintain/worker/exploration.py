"""Temperatures of a rollout job's episodes, and scores of its runs as they finish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from quintain.evaluation.episodes import TEMPERATURE, EpisodePlan
from quintain.evaluation.temperature_schedule import Attempts, scheduled_temperature
from quintain.records.job import RolloutSpec
from quintain.records.protocols import Reporter
from quintain.records.score import Score
from quintain.records.trajectory import Task, Trajectory
from quintain.scoring.registry import scorer as find_scorer
from quintain.worker.run_inputs import read_scores

_REASONS = 20


class Exploration:
    """Exploration state of one job, a function of seed, task and attempt, so that a resumed job behaves identically."""

    def __init__(self, spec: RolloutSpec, plans: Sequence[EpisodePlan], directory: Path, reporter: Reporter) -> None:
        """Set up from the suite's plans and the scores of an earlier attempt.

        Raises:
            NotFound: The scorer does not exist.
            Unavailable: An installed scorer is broken.
        """
        self._spec, self._reporter = spec, reporter
        self._places = {task_name(plan.task): place for place, plan in enumerate(plans[: len(plans) // spec.attempts])}
        self._attempts = Attempts()
        self._temperatures: set[float] = set()
        self._scorer = None if spec.scorer is None else find_scorer(spec.scorer)
        self._verdicts = _Verdicts()
        self._scored: set[str] = set()
        for score in read_scores(directory):
            self._note(score)

    def record(self, run: Trajectory, attempt: int) -> None:
        """Record a finished episode, and score it unless an earlier attempt of the job has."""
        self._attempts.add(task_name(run.task), attempt, run)
        if isinstance(temperature := run.extra.get(TEMPERATURE), float | int):
            self._temperatures.add(float(temperature))
        if self._scorer is not None and run.id not in self._scored:
            score = self._scorer.score(run)
            self._reporter.output("score", score)
            self._note(score)

    def waves(self, plans: Iterable[EpisodePlan]) -> Iterator[list[EpisodePlan]]:
        """Yield the plans with temperatures: all at once, or one attempt at a time if temperatures depend on earlier ones."""
        if not self._spec.diversity:
            yield [self._with_temperature(plan) for plan in plans]
            return
        for _, wave in groupby(plans, key=lambda plan: plan.attempt):
            yield [self._with_temperature(plan) for plan in wave]

    def report(self) -> dict[str, Any]:
        """Return the range of temperatures, the diversity of attempts and the scores, for the job's result."""
        report: dict[str, Any] = {}
        if len(self._temperatures) > 1:
            report["temperatures"] = [min(self._temperatures), max(self._temperatures)]
        if (share := self._attempts.distinct_share()) is not None:
            report["distinct_action_sequences"] = share
        if self._scorer is not None:
            report["scores"] = {"scorer": self._scorer.name, **self._verdicts.summary()}
        return report

    def _with_temperature(self, plan: EpisodePlan) -> EpisodePlan:
        spec, task = self._spec, task_name(plan.task)
        bounds = spec.temperatures or (spec.sampling.temperature,) * 2
        planned = scheduled_temperature(bounds, plan.attempt, spec.attempts, self._places[task], len(self._places))
        return replace(plan, temperature=self._attempts.temperature_for(planned, spec.diversity, task, plan.attempt))

    def _note(self, score: Score) -> None:
        self._scored.add(score.trajectory_id)
        self._verdicts.add(score)


class _Verdicts:
    """Running statistics of a scorer, in bounded memory."""

    def __init__(self) -> None:
        self._n, self._total, self._reasons = 0, 0.0, Counter[str]()

    def add(self, score: Score) -> None:
        if score.value is not None:
            self._n, self._total = self._n + 1, self._total + score.value
        else:
            reason = score.reason or "no reason given"
            self._reasons[reason if reason in self._reasons or len(self._reasons) < _REASONS else "other reasons"] += 1

    def summary(self) -> dict[str, Any]:
        mean = self._total / self._n if self._n else None
        return {"scored": self._n, "mean": mean, "unscored": dict(self._reasons.most_common())}


def task_name(task: Task) -> str:
    """Return the name that identifies a task within a job."""
    return task.id or task.prompt
