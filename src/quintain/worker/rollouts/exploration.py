"""Temperatures of a rollout job's episodes, and scores of its runs as they finish."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.evaluation.episodes import TEMPERATURE, EpisodePlan
from quintain.jobs.directory import output_records, output_records_at
from quintain.records.agent import MAX_TEMPERATURE
from quintain.records.jobs.job import RolloutSpec
from quintain.records.labels.reward import RewardPart, RewardSpec
from quintain.records.protocols import Reporter
from quintain.records.trajectory import OutcomeStatus, Trajectory, text_of
from quintain.scoring.calibration.calibrated import without_calibration
from quintain.worker.job_inputs import note_reason, read_scores, scored_runs

if TYPE_CHECKING:
    from quintain.worker.rollouts.job_rewards import Rewards


class Exploration:
    """Exploration state of one job, a function of seed, task and attempt, so that a resumed job behaves identically."""

    def __init__(self, spec: RolloutSpec, plans: Sequence[EpisodePlan], directory: Path, reporter: Reporter) -> None:
        """Set up from the suite's plans and the scores of an earlier attempt."""
        self._spec, self._reporter = spec, reporter
        self._places = {plan.task.name: place for place, plan in enumerate(plans[: len(plans) // spec.attempts])}
        self._attempts = Attempts()
        self._temperatures: set[float] = set()
        self._directory = directory
        reward = spec.reward or _earlier(spec.scorer)
        self._rewards: Rewards | None = None
        if reward is not None:
            from quintain.worker.rollouts.job_rewards import Rewards

            self._rewards = Rewards(reward, directory, reporter.should_stop, spec.seed)
        self._scored = {run for run, _ in scored_runs(directory)}

    def record(self, run: Trajectory, attempt: int) -> None:
        """Record a finished episode, and score it unless an earlier attempt of the job has; models score at the end."""
        self._attempts.add(run.task.name, attempt, run)
        if isinstance(temperature := run.extra.get(TEMPERATURE), float | int):
            self._temperatures.add(float(temperature))
        if self._rewards is not None and not self._rewards.uses_models:
            self._score([[run]])

    def finish(self) -> bool:
        """Score what models have to value, whole groups of a task at a time; return False if the job was asked to stop."""
        if self._rewards is None or not self._rewards.uses_models:
            return True
        from quintain.worker.rollouts.job_rewards import batches_of

        self._reporter.phase("scoring")
        try:
            return all(map(self._score, batches_of(_by_task(self._directory))))
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
                self._scored.add(score.trajectory_id)
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
            report["scores"] = {"scorer": self._rewards.name, **_summary(self._directory), **kept}
        return report

    def _with_temperature(self, plan: EpisodePlan) -> EpisodePlan:
        spec, task = self._spec, plan.task.name
        bounds = spec.temperatures or (spec.sampling.temperature,) * 2
        planned = scheduled_temperature(bounds, plan.attempt, spec.attempts, self._places[task], len(self._places))
        return replace(plan, temperature=self._attempts.temperature_for(planned, spec.diversity, task, plan.attempt))


def _summary(directory: Path) -> dict[str, Any]:
    """Return number and mean of the values that a job has output, and why runs have none."""
    n, total, reasons = 0, 0.0, Counter[str]()
    for score in read_scores(directory):
        if score.value is None:
            note_reason(reasons, score.reason)
        else:
            n, total = n + 1, total + score.value
    return {"scored": n, "mean": total / n if n else None, "unscored": dict(reasons.most_common())}


def _by_task(directory: Path) -> Iterator[list[Trajectory]]:
    """Yield the episodes that a job has output, all of a task together; one task at a time is in memory."""
    places: dict[str, list[int]] = {}
    for offset, fields in output_records(directory, "trajectory"):
        places.setdefault(Trajectory.model_validate(fields).task.name, []).append(offset)
    for of_task in places.values():
        yield [Trajectory.model_validate(run) for run in output_records_at(directory, "trajectory", of_task)]


def _earlier(scorer: str | dict[str, float] | None) -> RewardSpec | None:
    """Return the reward of a job of an earlier version."""
    if scorer is None:
        return None
    parts = {scorer: 1.0} if isinstance(scorer, str) else scorer
    return RewardSpec(parts=tuple(RewardPart(scorer=name, weight=weight) for name, weight in parts.items()))


def scheduled_temperature(bounds: tuple[float, float], attempt: int, attempts: int, place: int, n_tasks: int) -> float:
    """Return the temperature of an episode.

    Args:
        bounds: Temperatures of the first and the last attempt, or task.
        attempt: Index of the attempt at its task.
        attempts: Number of attempts per task.
        place: Index of the task.
        n_tasks: Number of tasks.
    """
    i, n = (attempt, attempts) if attempts > 1 else (place, n_tasks)
    low, high = bounds
    return low if n < 2 else low + (high - low) * i / (n - 1)


def action_sequence(run: Trajectory) -> str:
    """Hash the agent's actions in order: tools with arguments, and the text of turns without a call."""
    done: list[list[Any]] = [
        [(call.tool, call.raw_args if call.args is None else call.args) for call in step.actions]
        or [step.thought, text_of(step.message)]
        for step in run.agent_steps
    ]
    return hashlib.sha256(json.dumps(done, sort_keys=True, default=str).encode()).hexdigest()


def repetition(sequences: Sequence[str]) -> float:
    """Return how much n attempts repeat each other, `(n - distinct) / (n - 1)`, in 0..1; 0 for fewer than two."""
    n = len(sequences)
    return 0.0 if n < 2 else (n - len(set(sequences))) / (n - 1)


@dataclass
class Attempts:
    """Action sequences of the attempts at each task. Episodes with an environment error do not count."""

    _sequences: dict[str, dict[int, str]] = field(default_factory=dict)

    def add(self, task: str, attempt: int, run: Trajectory) -> None:
        """Record a finished attempt."""
        if run.outcome.status is not OutcomeStatus.ERROR:
            self._sequences.setdefault(task, {})[attempt] = action_sequence(run)

    def temperature_for(self, temperature: float, diversity: float, task: str, attempt: int) -> float:
        """Return the temperature of the next attempt: `temperature (1 + diversity r)`.

        r is the `repetition` of the previous attempts. The result is at most `MAX_TEMPERATURE`; greedy decoding stays greedy.
        """
        before = [done for number, done in self._sequences.get(task, {}).items() if number < attempt]
        return min(MAX_TEMPERATURE, temperature * (1.0 + diversity * repetition(before)))

    def distinct_share(self) -> float | None:
        """Return the share of distinct action sequences per task, averaged over tasks with two or more attempts."""
        shares = [len(set(found.values())) / len(found) for found in self._sequences.values() if len(found) > 1]
        return math.fsum(shares) / len(shares) if shares else None
