"""Temperatures of a rollout job's episodes, and scores of its runs as they finish."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from quintain.evaluation.episodes import TEMPERATURE, EpisodePlan
from quintain.evaluation.temperature_schedule import Attempts, scheduled_temperature
from quintain.jobs.directory import output_records, output_records_at
from quintain.records.job import RolloutSpec
from quintain.records.protocols import Reporter
from quintain.records.reward import RewardPart, RewardSpec
from quintain.records.score import Score
from quintain.records.trajectory import Task, Trajectory
from quintain.scoring.calibration.calibrated import without_calibration
from quintain.worker.job_rewards import Rewards
from quintain.worker.run_inputs import read_scores

_REASONS = 20
_GROUPS = 16
"""Tasks whose runs models value together."""


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
        self._directory = directory
        reward = spec.reward or _earlier(spec.scorer)
        self._rewards = None if reward is None else Rewards(reward, directory, reporter.should_stop, spec.seed)
        self._verdicts = _Verdicts()
        self._scored: set[str] = set()
        for score in read_scores(directory):
            self._note(score)

    def record(self, run: Trajectory, attempt: int) -> None:
        """Record a finished episode, and score it unless an earlier attempt of the job has; models score at the end."""
        self._attempts.add(task_name(run.task), attempt, run)
        if isinstance(temperature := run.extra.get(TEMPERATURE), float | int):
            self._temperatures.add(float(temperature))
        if self._rewards is not None and not self._rewards.uses_models:
            self._score([[run]])

    def finish(self) -> bool:
        """Score what models have to value, whole groups of a task at a time; return False if the job was asked to stop."""
        if self._rewards is None or not self._rewards.uses_models:
            return True
        self._reporter.phase("scoring")
        try:
            groups = iter(_by_task(self._directory))
            while batch := list(islice(groups, _GROUPS)):
                if not self._score(batch):
                    return False
            return True
        finally:
            self._rewards.close()

    def _score(self, groups: Sequence[Sequence[Trajectory]]) -> bool:
        assert self._rewards is not None
        runs = [[run.identified() for run in group] for group in groups]
        left = [group for group in runs if any(run.id not in self._scored for run in group)]
        scores = self._rewards.score(left)
        for score in (scores or {}).values():
            if score.trajectory_id not in self._scored:
                self._reporter.output("score", without_calibration(score))
                self._note(score)
        return scores is not None

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
        if self._rewards is not None:
            details = self._rewards.report()
            kept = {name: details[name] for name in ("parts", "judges") if details.get(name)}
            for warning in self._rewards.constant_parts():
                self._reporter.warn("constant_reward_part", warning)
            report["scores"] = {"scorer": self._rewards.name, **self._verdicts.summary(), **kept}
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


def _by_task(directory: Path) -> Iterator[list[Trajectory]]:
    """Yield the episodes that a job has output, all of a task together; one task at a time is in memory."""
    places: dict[str, list[int]] = {}
    for offset, fields in output_records(directory, "trajectory"):
        places.setdefault(task_name(Trajectory.model_validate(fields).task), []).append(offset)
    for of_task in places.values():
        yield [Trajectory.model_validate(run) for run in output_records_at(directory, "trajectory", of_task)]


def _earlier(scorer: str | dict[str, float] | None) -> RewardSpec | None:
    """Return the reward of a job of an earlier version."""
    if scorer is None:
        return None
    parts = {scorer: 1.0} if isinstance(scorer, str) else scorer
    return RewardSpec(parts=tuple(RewardPart(scorer=name, weight=weight) for name, weight in parts.items()))


def task_name(task: Task) -> str:
    """Return the name that identifies a task within a job."""
    return task.id or task.prompt
