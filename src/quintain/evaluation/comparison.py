"""Paired comparison of agents on the same tasks, with confidence intervals and correction for multiple tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import combinations

from quintain.errors import InvalidInput
from quintain.evaluation.pair_tests import SIGNIFICANCE, PairTest, nothing_to_pair, paired_tests
from quintain.evaluation.statistics.sequential import sequential_test
from quintain.evaluation.statistics.significance import (
    benjamini_hochberg,
    bonferroni,
    cohens_dz,
    compact_letter_display,
    equivalence,
    holm,
    paired_t,
    required_tasks,
    t_interval,
    wilcoxon,
)
from quintain.evaluation.statistics.success_rates import (
    Interval,
)
from quintain.evaluation.summary import run_clusters, verdicts_by_task
from quintain.records.evaluation import (
    Comparison,
    Correction,
    EpisodeResult,
    Evaluation,
    Flip,
    LeaderboardRow,
    PairedComparison,
    RewardDifference,
    SequentialTest,
)

_Named = tuple[str, Evaluation]
"""The display name of an agent, and its evaluation."""

_EQUIVALENCE_MARGIN = 0.05
"""Smallest difference of success rates considered relevant, for equivalence and power."""


def compare(
    evaluations: Sequence[Evaluation],
    names: Sequence[str],
    comparison_id: str,
    now: datetime | None,
    correction: Correction = "holm",
    sequential: SequentialTest | None = None,
) -> Comparison:
    """Compare all pairs of two or more evaluations of the same suite.

    Args:
        evaluations: At least two, with equal suite hashes.
        names: Unique display name of each evaluation's agent.
        comparison_id: Id of the result.
        now: Creation time.
        correction: Correction of p-values for the number of pairs.
        sequential: The test by which two evaluations were stopped. It replaces interval and p-value, which assume a number of
            tasks that was fixed in advance; equivalence and rewards are left out for that reason.

    Raises:
        InvalidInput: Fewer than two evaluations, names that do not match, different suites, or no task with two verdicts and
            fewer than two rows with comparable losses.
    """
    _require_comparable(evaluations, names)
    named = list(zip(names, evaluations, strict=True))
    pairs = list(combinations(named, 2))
    tests = []
    for ((_, a), (_, b)), test in zip(pairs, _tests(pairs, SIGNIFICANCE / len(pairs)), strict=True):
        if test is None:
            raise nothing_to_pair(a, b)
        tests.append(test if sequential is None else _at_any_time(test, sequential))
    corrected = _CORRECTIONS[correction]([test.p for test in tests])
    compared = tuple(_pair(*pair, test, p) for pair, test, p in zip(pairs, tests, corrected, strict=True))
    if sequential is not None:
        compared = tuple(pair.model_copy(update=dict.fromkeys(_FIXED_SIZE)) for pair in compared)
    return Comparison(
        id=comparison_id,
        environment=evaluations[0].environment,
        suite_hash=evaluations[0].suite_hash,
        comparisons=compared,
        leaderboard=_leaderboard(named, [(pair.a, pair.b) for pair in compared if pair.significant]),
        flips=tuple(flip for pair in pairs for flip in _flips(*pair)),
        correction=correction,
        sequential=sequential,
        notes=(
            *_notes(named),
            *_forbidden_calls(named),
            *(() if sequential else _left_out(compared, evaluations)),
            *_partial_rewards(compared),
        ),
        created_at=now,
    )


def decide(
    a: Iterable[EpisodeResult], b: Iterable[EpisodeResult], order: Sequence[str], repeats: int, planned: int
) -> SequentialTest:
    """Test two agents that are still being evaluated.

    Args:
        a: Results so far.
        b: Results so far.
        order: Tasks played by both, in the order of play. Those without a verdict from both in every repeat are left out, and
            those whose greedy runs repeat the runs of an earlier task.
        repeats: Episodes per task, averaged into one outcome.
        planned: Tasks at most.
    """
    sides = list(a), list(b)
    by_task_a, by_task_b = map(verdicts_by_task, sides)
    clusters_a, clusters_b = map(run_clusters, sides)
    first: dict[tuple[str, str], str] = {}
    for task in order:
        first.setdefault((clusters_a.get(task, task), clusters_b.get(task, task)), task)
    pairs = [(by_task_a.get(task, []), by_task_b.get(task, [])) for task in first.values()]
    whole = [(sum(x), sum(y)) for x, y in pairs if len(x) == len(y) == repeats]
    differences = [(y - x) / repeats for x, y in whole]
    planned -= len(order) - len(whole)
    return sequential_test(differences, planned, _EQUIVALENCE_MARGIN, is_binary=repeats == 1)


def _at_any_time(test: PairTest, sequential: SequentialTest) -> PairTest:
    interval = Interval(sequential.difference, sequential.ci_low, sequential.ci_high)
    return test._replace(
        interval=interval,
        simultaneous=interval,
        ci_method="betting confidence sequence",
        p=min(1.0, 1 / sequential.e_value),
        p_mid=None,
        p_method="1 / e-value, valid at any stopping time",
    )


def leaderboard(evaluations: Sequence[Evaluation], names: Sequence[str]) -> tuple[LeaderboardRow, ...]:
    """Rank agents that ran the same suite, with letter groups of agents that do not differ significantly (Holm).

    A pair without common tasks with verdicts or losses does not differ significantly either.
    """
    named = list(zip(names, evaluations, strict=True))
    pairs = [(one, other) for one, other in combinations(named, 2) if one[1].suite_hash == other[1].suite_hash]
    tested = [(pair, test.p) for pair, test in zip(pairs, _tests(pairs), strict=True) if test is not None]
    corrected = zip(tested, holm([p for _, p in tested]), strict=True)
    return _leaderboard(named, [(one[0], other[0]) for ((one, other), _), p in corrected if p < SIGNIFICANCE])


def _tests(pairs: Sequence[tuple[_Named, _Named]], error: float = SIGNIFICANCE) -> list[PairTest | None]:
    return paired_tests([(a, b) for (_, a), (_, b) in pairs], error)


_FIXED_SIZE = ("reward", "p_equivalent", "tasks_for_5_points")
"""Figures of a pair that assume verdicts on independent tasks, of a number that was fixed in advance."""


def _left_out(pairs: Sequence[PairedComparison], evaluations: Sequence[Evaluation]) -> Iterator[str]:
    """Yield a note for each pair that lacks tasks of the suite: where one agent fails more often, the others are a selection."""
    suite = len({result.task_id for evaluation in evaluations for result in evaluation.results})
    for pair in pairs:
        if pair.measure == "success" and pair.n_tasks < suite:
            yield (
                f"{pair.a} and {pair.b}: {suite - pair.n_tasks} of {suite} tasks are left out, where a run of one or both ended without "
                "a verdict."
            )


def _partial_rewards(pairs: Sequence[PairedComparison]) -> Iterator[str]:
    """Yield a note for each pair whose rewards cover fewer tasks than its successes: the two differences may disagree."""
    for pair in pairs:
        if pair.reward is not None and pair.measure == "success" and pair.reward.n_tasks < pair.n_tasks:
            yield (
                f"{pair.a} and {pair.b}: `reward` covers {pair.reward.n_tasks} of {pair.n_tasks} tasks; in the others a run that was "
                "cut off or failed has no reward."
            )


def _notes(named: Sequence[_Named]) -> tuple[str, ...]:
    """Return notes on sampling settings that differ between evaluations of one suite."""
    sampled = {name: evaluation.sampling for name, evaluation in named}
    if len(set(sampled.values())) == 1:
        return ()
    settings = "; ".join(f"{name}: {s.summary}, max_new_tokens {s.max_new_tokens}" for name, s in sampled.items())
    return (f"The agents used different sampling settings ({settings}), which may contribute to differences.",)


def _forbidden_calls(named: Sequence[_Named]) -> tuple[str, ...]:
    """Return a note on forbidden calls, which success does not count."""
    found = [(name, evaluation.forbidden) for name, evaluation in named]
    rates = [f"{name} {one.episodes.successes} of {one.episodes.n}" for name, one in found if one is not None]
    return (f"Episodes with a forbidden call: {', '.join(rates)}.",) if rates else ()


_CORRECTIONS: dict[Correction, Callable[[Sequence[float]], list[float]]] = {
    "holm": holm,
    "benjamini_hochberg": benjamini_hochberg,
    "bonferroni": bonferroni,
}


def _pair(named_a: _Named, named_b: _Named, test: PairTest, p_corrected: float) -> PairedComparison:
    (name_a, a), (name_b, b) = named_a, named_b
    n = len(test.solved)
    differences = [(y - x) / a.repeats for x, y in test.solved]
    pair = PairedComparison(
        a=name_a,
        b=name_b,
        evaluation_a=a.id,
        evaluation_b=b.id,
        measure=test.measure,
        difference=test.interval.value,
        ci_low=test.interval.low,
        ci_high=test.interval.high,
        ci_method=test.ci_method,
        simultaneous_low=test.simultaneous.low,
        simultaneous_high=test.simultaneous.high,
        p=test.p,
        p_method=test.p_method,
        p_mid=test.p_mid,
        p_corrected=p_corrected,
        significant=p_corrected < SIGNIFICANCE,
        n_tasks=n,
        only_a=sum(x > y for x, y in test.solved),
        only_b=sum(y > x for x, y in test.solved),
        n_excluded=test.n_excluded,
        n_distinct=test.n_distinct,
        reward=_reward(a, b),
        p_equivalent=equivalence(differences, _EQUIVALENCE_MARGIN) if n > 1 else None,
        tasks_for_5_points=required_tasks(_EQUIVALENCE_MARGIN, math.fsum(map(abs, differences)) / n),
    )
    is_plain = test.n_distinct is None and test.measure == "success"
    return pair if is_plain else pair.model_copy(update=dict.fromkeys(_FIXED_SIZE))


def _reward(a: Evaluation, b: Evaluation) -> RewardDifference | None:
    """Return the difference of mean rewards with tasks as the unit."""
    rewards_a, rewards_b = _mean_rewards(a), _mean_rewards(b)
    differences = [rewards_b[task] - rewards_a[task] for task in sorted(rewards_a.keys() & rewards_b.keys())]
    if len(differences) < 2:
        return None
    low, high, method = t_interval(differences)
    return RewardDifference(
        difference=math.fsum(differences) / len(differences),
        ci_low=low,
        ci_high=high,
        ci_method=method,
        n_tasks=len(differences),
        p_t=paired_t(differences),
        p_wilcoxon=wilcoxon(differences),
        effect=cohens_dz(differences),
    )


def _mean_rewards(evaluation: Evaluation) -> dict[str, float]:
    """Return task -> mean reward, for tasks with a reward in every repeat."""
    rewards: dict[str, list[float]] = {}
    for result in evaluation.results:
        if result.reward is not None:
            rewards.setdefault(result.task_id, []).append(result.reward)
    full = evaluation.repeats
    return {task: math.fsum(values) / full for task, values in rewards.items() if len(values) == full}


def _require_comparable(evaluations: Sequence[Evaluation], names: Sequence[str]) -> None:
    if len(evaluations) < 2:
        raise InvalidInput(f"expected at least 2 evaluations, got {len(evaluations)}; evaluate another agent")
    if len(names) != len(evaluations) or len(set(names)) != len(names):
        raise InvalidInput(f"expected {len(evaluations)} different names, got {list(names)!r}; name each evaluation")
    first = evaluations[0]
    for other in evaluations[1:]:
        if other.suite_hash != first.suite_hash:
            tasks = [{result.task_id for result in evaluation.results} for evaluation in (first, other)]
            raise InvalidInput(
                f"expected evaluations of one suite, got {first.suite_hash} of {first.id} ({len(tasks[0])} tasks) and "
                f"{other.suite_hash} of {other.id} ({len(tasks[1])} tasks), with {len(tasks[0] & tasks[1])} common tasks; evaluate "
                "both with the same `environment`, `split`, `n_tasks`, `repeats`, `seed` and `max_turns`",
                code="different_suites",
            )


def _flips(named_a: _Named, named_b: _Named) -> Iterable[Flip]:
    """Yield the episodes that one agent solved and the other failed, on the same task and repeat."""
    (name_a, a), (name_b, b) = named_a, named_b
    others: dict[tuple[str, int], EpisodeResult] = {(result.task_id, result.repeat): result for result in b.results}
    for result in a.results:
        other = others.get((result.task_id, result.repeat))
        if other is None or None in {result.success, other.success} or result.success == other.success:
            continue
        winner, loser = (result, other) if result.success else (other, result)
        yield Flip(
            task_id=result.task_id,
            solved_by=name_a if winner is result else name_b,
            failed_by=name_b if winner is result else name_a,
            trajectory_solved=winner.trajectory_id,
            trajectory_failed=loser.trajectory_id,
        )


def _leaderboard(named: Sequence[_Named], different: Sequence[tuple[str, str]]) -> tuple[LeaderboardRow, ...]:
    """Rank by success rate, then mean reward, then lower loss. Ties share a rank; unknown values rank last."""
    merits = [merit(evaluation) for _, evaluation in named]
    ordered = sorted(named, key=lambda pair: merit(pair[1]), reverse=True)
    groups = compact_letter_display([name for name, _ in ordered], different)
    return tuple(
        LeaderboardRow(
            rank=1 + sum(other > merit(evaluation) for other in merits),
            agent=name,
            evaluation_id=evaluation.id,
            success_rate=evaluation.rate.value,
            ci_low=evaluation.rate.ci_low,
            ci_high=evaluation.rate.ci_high,
            n=evaluation.rate.n,
            mean_reward=evaluation.mean_reward,
            loss=evaluation.held_out and evaluation.held_out.loss,
            group=groups[name],
        )
        for name, evaluation in ordered
    )


def merit(evaluation: Evaluation) -> tuple[float, ...]:
    """Return the key by which a leaderboard ranks: success rate, mean reward, lower loss; unknown ones come last."""
    loss = evaluation.held_out.loss if evaluation.held_out is not None else None
    known = evaluation.rate.value, evaluation.mean_reward, None if loss is None else -loss
    return tuple(-math.inf if value is None else value for value in known)
