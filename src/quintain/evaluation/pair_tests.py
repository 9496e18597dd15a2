"""Tests of differences between evaluations, paired by task: of verdicts or, where these tell nothing, of losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from quintain.errors import InvalidInput
from quintain.evaluation.statistics.significance import (
    mcnemar_exact,
    mcnemar_mid_p,
    sign_flip_exact,
    sign_flip_interval,
)
from quintain.evaluation.statistics.success_rates import ClusteredMean, Interval, mcnemar_interval
from quintain.evaluation.summary import LOSS, TOKENS, TRUNCATED, run_clusters, verdicts_by_task
from quintain.records.evaluation import Evaluation, Measure

SIGNIFICANCE = 0.05
"""Family-wise error rate. A corrected p-value below it is significant."""


class PairTest(NamedTuple):
    """Difference and test of a pair, before correction."""

    interval: Interval
    simultaneous: Interval
    ci_method: str
    p: float
    p_mid: float | None
    p_method: str
    solved: list[tuple[int, int]]  # (successes of a, successes of b) per task
    n_excluded: int
    n_distinct: int | None = None
    measure: Measure = "success"


def paired_tests(pairs: Sequence[tuple[Evaluation, Evaluation]], error: float = SIGNIFICANCE) -> list[PairTest | None]:
    """Test the difference of each pair, paired by task: of successes or, without verdicts, of losses.

    Where no agent solved a task, the losses decide for all pairs that have them: the test of successes then never rejects, so
    to go on to another one keeps the error rate.

    Args:
        pairs: Evaluations of one suite.
        error: That of the simultaneous interval: 0.05 divided by the number of pairs (Bonferroni; Dunn 1961).

    Returns:
        A test for each pair; None where neither verdicts nor losses can be paired.
    """
    successes = [_test_successes(a, b, error) for a, b in pairs]
    losses = [_test_losses(a, b, error) for a, b in pairs]
    if all(losses) and not any(sum(pair) for test in successes if test is not None for pair in test.solved):
        return losses
    return [one or other for one, other in zip(successes, losses, strict=True)]


def nothing_to_pair(a: Evaluation, b: Evaluation) -> InvalidInput:
    """Return the error for a pair without a test."""
    failed = [f"{side.id}: {side.n_unknown} without a verdict, {side.n_error} with an error" for side in (a, b)]
    return InvalidInput(
        f"expected a task of {a.id} and {b.id} with verdicts from both in every repeat, or two rows with losses over the same "
        f"tokens, got neither ({'; '.join(failed)}); "
        + (
            "read the errors, and evaluate again"
            if a.n_error or b.n_error
            else "evaluate both on tasks whose outcome is judged, or agents with one tokenizer on a dataset"
        ),
        code="nothing_to_pair",
    )


def _test_losses(a: Evaluation, b: Evaluation, error: float) -> PairTest | None:
    """Test the difference of losses in nats a token, b - a, with rows as clusters of tokens.

    Rows that exceed the context of either agent are excluded. None if fewer than two rows are left, or the numbers of tokens
    of a row differ: losses a token of different tokenizers do not compare.
    """
    rows = [{r.task_id: r.metrics for r in side.results if LOSS in r.metrics} for side in (a, b)]
    pairs = [(rows[0][task], rows[1][task]) for task in sorted(rows[0].keys() & rows[1].keys())]
    whole = [(x, y) for x, y in pairs if not (x.get(TRUNCATED) or y.get(TRUNCATED))]
    if len(whole) < 2 or any(x[TOKENS] != y[TOKENS] for x, y in whole):
        return None
    differences = [(y[LOSS] - x[LOSS]) * x[TOKENS] for x, y in whole]
    mean = ClusteredMean.of(differences, [round(x[TOKENS]) for x, _ in whole])
    lower = [(int(d > 0), int(d < 0)) for d in differences]
    intervals, unit = (mean.interval(), mean.interval(error)), "over rows as clusters of tokens"
    n_excluded = max(a.n_tasks, b.n_tasks) - len(whole)
    return PairTest(
        *intervals, f"t interval {unit}", mean.p(), None, f"t test {unit}", lower, n_excluded, measure="loss"
    )


def _test_successes(a: Evaluation, b: Evaluation, error: float) -> PairTest | None:
    """Pair two evaluations by task and repeat, and test their difference of successes with tasks as the unit.

    A task counts if every repeat has a verdict from both agents. If the repeats of a task always agree (as with one
    repeat), it is one binary outcome per agent: exact McNemar test with its interval. Otherwise repeats are not
    independent, so the repeats of a task are summed for the test, which the interval inverts. Tasks that both agents
    played greedily in the same words are one cluster, whose differences are summed. None without such a task.
    """
    solved, clusters, n_excluded = _paired_successes(a, b)
    if not solved:
        return None
    repeats = a.repeats
    if len(set(clusters)) < len(clusters):
        return _test_clusters(solved, clusters, repeats, error, n_excluded)
    if all(count in {0, repeats} for pair in solved for count in pair):
        only_a, only_b = sum(x > y for x, y in solved), sum(y > x for x, y in solved)
        counts = only_a, only_b, len(solved)
        intervals = mcnemar_interval(*counts), mcnemar_interval(*counts, error)
        p, p_mid = mcnemar_exact(only_a, only_b), mcnemar_mid_p(only_a, only_b)
        ci_method, p_method = "Fay & Lumbard 2021, of the exact test", "McNemar's exact test"
        return PairTest(*intervals, ci_method, p, p_mid, p_method, solved, n_excluded)
    differences = [y - x for x, y in solved]
    intervals = sign_flip_interval(differences, repeats), sign_flip_interval(differences, repeats, error)
    p, test = sign_flip_exact(differences), "exact sign-flip test over tasks"
    return PairTest(*intervals, f"inverted {test}", p, None, test, solved, n_excluded)


def _test_clusters(
    solved: list[tuple[int, int]], clusters: Sequence[tuple[str, str]], repeats: int, error: float, n_excluded: int
) -> PairTest:
    """Test with clusters of tasks as the unit."""
    members: dict[tuple[str, str], list[int]] = {}
    for cluster, (x, y) in zip(clusters, solved, strict=True):
        members.setdefault(cluster, []).append(y - x)
    sums, sizes = [sum(found) for found in members.values()], [len(found) for found in members.values()]
    intervals = sign_flip_interval(sums, repeats, 0.05, sizes), sign_flip_interval(sums, repeats, error, sizes)
    p, test = sign_flip_exact(sums), "exact sign-flip test over different runs"
    return PairTest(*intervals, f"inverted {test}", p, None, test, solved, n_excluded, len(sums))


def _paired_successes(a: Evaluation, b: Evaluation) -> tuple[list[tuple[int, int]], list[tuple[str, str]], int]:
    """Return the successes of both per fully judged task, the clusters of both per task, and the number of excluded tasks."""
    by_task_a, by_task_b = verdicts_by_task(a.results), verdicts_by_task(b.results)
    clusters_a, clusters_b = run_clusters(a.results), run_clusters(b.results)
    solved, clusters, n_excluded = [], [], 0
    for task_id in sorted(by_task_a.keys() | by_task_b.keys()):
        verdicts = [side.get(task_id, []) for side in (by_task_a, by_task_b)]
        if all(len(side) == a.repeats for side in verdicts):
            solved.append((sum(verdicts[0]), sum(verdicts[1])))
            clusters.append((clusters_a[task_id], clusters_b[task_id]))
        else:
            n_excluded += 1
    return solved, clusters, n_excluded
