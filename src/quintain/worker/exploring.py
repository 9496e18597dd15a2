"""What a rollout job does beside playing: temperatures of its episodes, and scores as soon as a run is over."""

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
from quintain.records.score import Score
from quintain.records.seams import Reporter
from quintain.records.trajectory import Task, Trajectory
from quintain.scoring.registry import scorer as find_scorer
from quintain.worker.run_lines import scores_of

_REASONS = 20


class Exploring:
    """Of one job; everything follows from seed, task and attempt, so a resumed job explores as an uninterrupted one."""

    def __init__(self, spec: RolloutSpec, plans: Sequence[EpisodePlan], directory: Path, reporter: Reporter) -> None:
        """Take what is planned, in the order of a suite, and what an earlier attempt has scored.

        Raises:
            NotFound: there is no such scorer.
            Unavailable: an installed scorer is broken.
        """
        self._spec, self._reporter = spec, reporter
        self._places = {key_of(plan.task): place for place, plan in enumerate(plans[: len(plans) // spec.attempts])}
        self._attempts = Attempts()
        self._temperatures: set[float] = set()
        self._scorer = None if spec.scorer is None else find_scorer(spec.scorer)
        self._verdicts = _Verdicts()
        self._scored: set[str] = set()
        for score in scores_of(directory):
            self._note(score)

    def take_in(self, run: Trajectory, attempt: int) -> None:
        """Note an episode that is over, and score it unless an earlier attempt of the job has."""
        self._attempts.add(key_of(run.task), attempt, run)
        if isinstance(heat := run.extra.get(TEMPERATURE), float | int):
            self._temperatures.add(float(heat))
        if self._scorer is not None and run.id not in self._scored:
            score = self._scorer.score(run)
            self._reporter.output("score", score)
            self._note(score)

    def waves(self, plans: Iterable[EpisodePlan]) -> Iterator[list[EpisodePlan]]:
        """The plans with their temperatures: all at once, or attempt by attempt where one depends on those before it."""
        if not self._spec.diversity:
            yield [self._warm(plan) for plan in plans]
            return
        for _, wave in groupby(plans, key=lambda plan: plan.attempt):
            yield [self._warm(plan) for plan in wave]

    def report(self) -> dict[str, Any]:
        """For the result: temperatures from lowest to highest, how much attempts differ, and what the scorer said."""
        told: dict[str, Any] = {}
        if len(self._temperatures) > 1:
            told["temperatures"] = [min(self._temperatures), max(self._temperatures)]
        if (share := self._attempts.distinct_share()) is not None:
            told["distinct_action_sequences"] = share
        if self._scorer is not None:
            told["scores"] = {"scorer": self._scorer.name, **self._verdicts.told()}
        return told

    def _warm(self, plan: EpisodePlan) -> EpisodePlan:
        spec, task = self._spec, key_of(plan.task)
        bounds = spec.temperatures or (spec.sampling.temperature,) * 2
        planned = scheduled_temperature(bounds, plan.attempt, spec.attempts, self._places[task], len(self._places))
        return replace(plan, temperature=self._attempts.temperature_for(planned, spec.diversity, task, plan.attempt))

    def _note(self, score: Score) -> None:
        self._scored.add(score.trajectory_id)
        self._verdicts.add(score)


class _Verdicts:
    """What a scorer has said so far, in memory that does not grow."""

    def __init__(self) -> None:
        self._n, self._total, self._reasons = 0, 0.0, Counter[str]()

    def add(self, score: Score) -> None:
        if score.value is not None:
            self._n, self._total = self._n + 1, self._total + score.value
        else:
            reason = score.reason or "no reason given"
            self._reasons[reason if reason in self._reasons or len(self._reasons) < _REASONS else "other reasons"] += 1

    def told(self) -> dict[str, Any]:
        mean = self._total / self._n if self._n else None
        return {"scored": self._n, "mean": mean, "unscored": dict(self._reasons.most_common())}


def key_of(task: Task) -> str:
    """By what the tasks of a job are told apart."""
    return task.id or task.prompt
