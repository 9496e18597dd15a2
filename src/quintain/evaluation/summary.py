"""Summary of results, overall and by kind of task: of the episodes of a suite, or of the rows of a dataset, which are its tasks."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, TypeVar

from quintain.evaluation.episode_state import COST
from quintain.evaluation.reference_metrics import SHARES
from quintain.evaluation.statistics.success_rates import (
    estimate_over_k,
    mean_over_tasks,
    mean_share,
    pass_at_k,
    pass_hat_k,
    rate_over_tasks,
)
from quintain.evaluation.suites import Suite
from quintain.records.agent import Sampling
from quintain.records.evaluation import (
    EpisodeResult,
    Estimate,
    Evaluation,
    FailureKind,
    Failures,
    Forbidden,
    HeldOut,
    Means,
    Rate,
)
from quintain.records.jobs.job import EvaluateDatasetSpec, EvaluateSpec
from quintain.records.trajectory import OutcomeStatus

R = TypeVar("R")

_EXAMPLES = 3


def summarize(spec: EvaluateSpec, suite: Suite, results: Sequence[EpisodeResult], *, job_id: str) -> Evaluation:
    """Summarize the results of an evaluation job, given in any order. Its id is `eval-` and the job's hex.

    Rates count episodes with a verdict only; unknown and errored ones are counted separately. The mean reward covers
    episodes with a reward, plus truncated episodes as 0: leaving these out would favor agents that do not finish.
    """
    results = sorted(results, key=lambda result: (result.repeat, result.task_id))
    whole, by_task = mean_results(results), verdicts_by_task(results)
    repeated = [(sum(verdicts), spec.repeats) for verdicts in by_task.values() if len(verdicts) == spec.repeats]
    return Evaluation(
        id=f"eval-{job_id.removeprefix('job-')}",
        agent_id=spec.agent.id_or_name,
        environment=spec.environment,
        suite_hash=suite.hash,
        split=spec.split,
        seed=spec.seed,
        repeats=spec.repeats,
        sampling=spec.sampling,
        max_turns=spec.max_turns,
        dataset_id=spec.dataset_id,
        purpose=spec.purpose,
        opponent_id=None if spec.opponent is None else spec.opponent.id_or_name,
        job_id=job_id,
        results=tuple(results),
        rate=success_rate(results),
        by_type=_group_by(results, "task_type", success_rate),
        by_difficulty=_group_by(results, "difficulty", success_rate),
        by_environment=_rates_by_environment(results, suite),
        n_unknown=whole.n_unknown,
        n_error=whole.n_error,
        mean_reward=whole.reward,
        mean_turns=whole.turns,
        mean_output_tokens=whole.output_tokens,
        mean_duration_s=whole.duration_s,
        cost_usd=whole.cost_usd and whole.cost_usd * len(results),
        means_by_type=_group_by(results, "task_type", mean_results),
        means_by_difficulty=_group_by(results, "difficulty", mean_results),
        pass_at_k=estimate_over_k(pass_at_k, repeated),
        pass_hat_k=estimate_over_k(pass_hat_k, repeated),
        failures=_failures(results),
        forbidden=_forbidden_summary(results),
        metrics=metric_estimates(results),
    )


def success_rate(results: Iterable[EpisodeResult]) -> Rate:
    """Return the success rate of episodes with a verdict, with tasks of different runs as the unit."""
    results = list(results)
    verdicts, clusters = verdicts_by_task(results), run_clusters(results)
    found: dict[str, list[bool]] = defaultdict(list)
    for task, known in verdicts.items():
        if known:
            found[clusters[task]] += known
    rate = rate_over_tasks([(sum(known), len(known)) for known in found.values()])
    is_repeated = len(found) < sum(map(bool, verdicts.values()))
    return rate.model_copy(update={"n_distinct": len(found)}) if is_repeated else rate


def run_clusters(results: Iterable[EpisodeResult]) -> dict[str, str]:
    """Return task -> cluster: tasks whose greedy runs are equal word for word, repeat for repeat, share one.

    A greedy run that is equal to another shows nothing new, as in a game with few positions. Equal sampled runs are independent.
    """
    digests: dict[str, list[str | None]] = defaultdict(list)
    for result in results:
        digests[result.task_id].append(result.digest)
    return {task: task if None in runs else "/".join(map(str, runs)) for task, runs in digests.items()}


def verdicts_by_task(results: Iterable[EpisodeResult]) -> dict[str, list[bool]]:
    """Return task -> verdicts of its repeats. A task without a verdict has an empty list."""
    verdicts: dict[str, list[bool]] = {}
    for result in results:
        found = verdicts.setdefault(result.task_id, [])
        if result.success is not None:
            found.append(result.success)
    return verdicts


def mean_results(results: Sequence[EpisodeResult]) -> Means:
    """Return means over episodes. A truncated one without a reward counts as 0; errored ones count for the reward only."""
    rewards = [
        0.0 if result.reward is None else result.reward
        for result in results
        if result.reward is not None or result.status is OutcomeStatus.TRUNCATED
    ]
    whole = [result for result in results if result.status is not OutcomeStatus.ERROR]
    costs = [result.metrics[COST] for result in results if COST in result.metrics]
    return Means(
        reward=mean(rewards),
        turns=mean([result.turns for result in whole]),
        output_tokens=mean([result.output_tokens for result in whole]),
        duration_s=mean([result.duration_s for result in whole]),
        cost_usd=mean(costs) if len(costs) == len(results) else None,
        n_unknown=sum(result.status is OutcomeStatus.UNKNOWN for result in results),
        n_error=sum(result.status is OutcomeStatus.ERROR for result in results),
    )


def metric_estimates(results: Iterable[EpisodeResult]) -> dict[str, Estimate]:
    """Return every metric of the episodes: repeats averaged per task, then over tasks that have the metric."""
    by_task: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        for name, value in result.metrics.items():
            by_task[name][result.task_id].append(value)
    return {name: _estimate(name, tasks.values()) for name, tasks in sorted(by_task.items()) if name != COST}


def _estimate(name: str, tasks: Collection[Sequence[float]]) -> Estimate:
    """Return the mean of a metric over tasks from the values of each; a share's interval lies in 0..1."""
    values = [math.fsum(found) / len(found) for found in tasks]
    if name not in SHARES:
        return mean_over_tasks(values)
    value, low, high = mean_share(values, sum(map(len, tasks)))
    return Estimate(value=value, ci_low=low, ci_high=high, n=len(values))


def _failures(results: Iterable[EpisodeResult]) -> dict[FailureKind, Failures]:
    """Return kind -> number and examples, most frequent first."""
    kinds: dict[FailureKind, list[EpisodeResult]] = defaultdict(list)
    for result in results:
        if result.failure is not None:
            kinds[result.failure].append(result)
    ordered = sorted(kinds.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return {
        kind: Failures(n=len(found), examples=tuple(r.trajectory_id for r in found if r.trajectory_id)[:_EXAMPLES])
        for kind, found in ordered
    }


def _forbidden_summary(results: Iterable[EpisodeResult]) -> Forbidden | None:
    """Return the forbidden calls over episodes with forbidden tools, or None if there are none."""
    under = [result for result in results if result.forbidden is not None]
    if not under:
        return None
    by_task: dict[str, list[bool]] = defaultdict(list)
    for result in under:
        by_task[result.task_id].append(bool(result.forbidden))
    return Forbidden(
        forbidden_calls=sum(result.forbidden or 0 for result in under),
        calls=sum(result.calls for result in under),
        episodes=rate_over_tasks([(sum(found), len(found)) for found in by_task.values()]),
    )


def _group_by(
    results: Iterable[EpisodeResult], label: Literal["task_type", "difficulty"], of: Callable[[list[EpisodeResult]], R]
) -> dict[str, R]:
    groups: dict[str, list[EpisodeResult]] = defaultdict(list)
    for result in results:
        if (name := getattr(result, label)) is not None:
            groups[name].append(result)
    return {name: of(group) for name, group in sorted(groups.items())}


def _rates_by_environment(results: Iterable[EpisodeResult], suite: Suite) -> dict[str, Rate]:
    """Return environment -> success rate, for a suite of several."""
    played = {plan.task.name: plan.task.environment for plan in suite.plans}
    groups: dict[str, list[EpisodeResult]] = defaultdict(list)
    for result in results:
        if (name := played.get(result.task_id)) is not None:
            groups[name].append(result)
    return {name: success_rate(group) for name, group in sorted(groups.items())} if len(groups) > 1 else {}


def mean(values: Sequence[float]) -> float | None:
    """Return the mean of some values; None of none."""
    return math.fsum(values) / len(values) if values else None


LOSS, ACCURACY, TOKENS = "loss", "token_accuracy", "tokens"
TOOLS, ACTIONS, STEPS, TRUNCATED = "tool_match", "action_match", "steps", "truncated_turns"
ANSWERS = "answer_match"
"""Metrics of a row."""

_AVERAGED = (LOSS, ACCURACY, TOOLS, ACTIONS, ANSWERS)


def summarize_rows(spec: EvaluateDatasetSpec, results: Sequence[EpisodeResult], *, job_id: str) -> Evaluation:
    """Summarize an evaluation on a dataset. Each row counts as a task.

    A row is a success if every next action matched; its reward is the share that matched. A run in words alone is a success if
    the answer is right. Plain text has no verdict.
    The suite hash covers the split's content and the evaluated rows.
    """
    rows = sorted(result.task_id for result in results)
    content = [spec.dataset_files[f"{spec.split}.jsonl"], spec.dataset_kind, rows]
    whole = mean_results(results)
    return Evaluation(
        id=f"eval-{job_id.removeprefix('job-')}",
        agent_id=spec.agent.id_or_name,
        environment=f"dataset:{spec.dataset_id}",
        suite_hash=hashlib.sha256(json.dumps(content).encode()).hexdigest(),
        split=spec.split,
        seed=spec.seed,
        sampling=Sampling(temperature=0.0, max_new_tokens=spec.max_new_tokens),
        job_id=job_id,
        results=tuple(results),
        rate=success_rate(results),
        n_unknown=whole.n_unknown,
        n_error=whole.n_error,
        mean_reward=whole.reward,
        mean_turns=whole.turns,
        mean_duration_s=whole.duration_s,
        metrics={name: found for name, found in metric_estimates(results).items() if name in _AVERAGED},
        dataset_id=spec.dataset_id,
        held_out=held_out(results),
    )


def held_out(results: Sequence[EpisodeResult]) -> HeldOut:
    """Aggregate loss and accuracy over tokens, and matches over steps with rows as the unit."""
    n_tokens = _total(results, TOKENS)
    nll, first = (math.fsum(_count(r, name, TOKENS) for r in results) for name in (LOSS, ACCURACY))
    loss = nll / n_tokens if n_tokens else None
    return HeldOut(
        loss=loss,
        perplexity=math.exp(loss) if loss is not None and loss < 700 else None,
        token_accuracy=first / n_tokens if n_tokens else None,
        n_tokens=round(n_tokens),
        tool_match=_match_rate(results, TOOLS),
        action_match=_match_rate(results, ACTIONS),
        answer_match=_answer_rate(results),
        n_steps=round(_total(results, STEPS)),
        dropped=dict(Counter(result.error for result in results if result.error is not None)),
        truncated_turns=round(_total(results, TRUNCATED)),
    )


def _total(results: Sequence[EpisodeResult], name: str) -> float:
    return math.fsum(result.metrics.get(name, 0.0) for result in results)


def _count(result: EpisodeResult, share: str, of: str) -> float:
    return result.metrics.get(share, 0.0) * result.metrics.get(of, 0.0)


def _answer_rate(results: Sequence[EpisodeResult]) -> Rate | None:
    known = [result for result in results if ANSWERS in result.metrics]
    return success_rate(known) if known else None


def _match_rate(results: Sequence[EpisodeResult], share: str) -> Rate | None:
    known = [result for result in results if share in result.metrics]
    rate = rate_over_tasks([(round(_count(r, share, STEPS)), round(r.metrics[STEPS])) for r in known])
    return rate if rate.n else None
