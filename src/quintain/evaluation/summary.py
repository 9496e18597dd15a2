"""From the results of a suite to an evaluation: rates with intervals, overall and by kind of task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from quintain.evaluation.statistics import wilson
from quintain.evaluation.suites import Suite
from quintain.records.evaluation import EpisodeResult, Evaluation, Rate
from quintain.records.job import EvaluateSpec
from quintain.records.trajectory import OutcomeStatus


def summarize(
    spec: EvaluateSpec, suite: Suite, results: Sequence[EpisodeResult], *, job_id: str, now: datetime | None = None
) -> Evaluation:
    """The evaluation that a job made: `eval-` and the job's hex is its id. Results may come in any order.

    Rates count episodes with a verdict only; unknown and errored ones are counted apart. The mean reward is over
    episodes with a reward, and a truncated episode without one earned 0: leaving it out would favour agents that
    do not finish.
    """
    results = sorted(results, key=lambda result: (result.repeat, result.task_id))
    rewards = [
        0.0 if result.reward is None else result.reward
        for result in results
        if result.reward is not None or result.status is OutcomeStatus.TRUNCATED
    ]
    turns = [result.turns for result in results if result.status is not OutcomeStatus.ERROR]
    return Evaluation(
        id=f"eval-{job_id.removeprefix('job-')}",
        agent_id=spec.agent.id or spec.agent.name,
        environment=spec.environment,
        suite_hash=suite.hash,
        split=spec.split,
        seed=spec.seed,
        repeats=spec.repeats,
        sampling=spec.sampling,
        job_id=job_id,
        results=tuple(results),
        rate=_rate(results),
        by_type=_rates_by((result.task_type, result) for result in results),
        by_difficulty=_rates_by((result.difficulty, result) for result in results),
        n_unknown=sum(result.status is OutcomeStatus.UNKNOWN for result in results),
        n_error=sum(result.status is OutcomeStatus.ERROR for result in results),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        mean_turns=sum(turns) / len(turns) if turns else None,
        created_at=now,
    )


def _rate(results: Iterable[EpisodeResult]) -> Rate:
    verdicts = [result.success for result in results if result.success is not None]
    return wilson(sum(verdicts), len(verdicts))


def _rates_by(labelled: Iterable[tuple[str | None, EpisodeResult]]) -> dict[str, Rate]:
    groups: dict[str, list[EpisodeResult]] = defaultdict(list)
    for label, result in labelled:
        if label is not None:
            groups[label].append(result)
    return {label: _rate(group) for label, group in sorted(groups.items())}
