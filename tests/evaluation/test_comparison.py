from __future__ import annotations

from collections.abc import Sequence

import pytest
from scipy.stats import beta, ttest_1samp

from quintain.environments.inventory import Inventory
from quintain.errors import InvalidInput
from quintain.evaluation.comparison import compare, decide, leaderboard
from quintain.evaluation.reports.report import as_markdown, comparison_report
from quintain.evaluation.statistics.success_rates import mcnemar_interval
from quintain.evaluation.suites import Suite, plan_suite
from quintain.evaluation.summary import summarize, summarize_rows
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.evaluation import EpisodeResult, Evaluation
from quintain.records.jobs.job import EvaluateDatasetSpec, EvaluateSpec

STATUS = {"1": "success", "0": "failure", "t": "truncated", "?": "unknown", "e": "error"}


def evaluated(
    name: str, *repeats: str, suite: str = "suite", rewards: Sequence[float | None] = (), digests: str = ""
) -> Evaluation:
    """An evaluation from outcomes written as text, one string a repeat, one character a task; `digests` of the tasks' runs."""
    spec = EvaluateSpec(
        agent=Agent(id=f"agent:{name}@1", name=name, model=ModelRef(source="folder", path="/m")),
        environment="test/env",
        n_tasks=len(repeats[0]),
        repeats=len(repeats),
    )
    results = [
        EpisodeResult(
            task_id=f"t{i}",
            repeat=repeat,
            status=STATUS[outcome],
            reward=rewards[i] if rewards else {"1": 1.0, "0": 0.0}.get(outcome),
            turns=i + 1,
            task_type="even" if i % 2 == 0 else "odd",
            difficulty="easy",
            trajectory_id=f"traj-{name}-{i}-{repeat}",
            digest=digests[i] if digests else None,
        )
        for repeat, outcomes in enumerate(repeats)
        for i, outcome in enumerate(outcomes)
    ]
    return summarize(spec, Suite((), suite), results, job_id=f"job-{name}")


def test_a_summary_counts_verdicts_unknown_and_errored_episodes_separately() -> None:
    """1 1 0 t ? e: 2 of 4 with a verdict; rewards 1, 1, 0 and 0 for the truncated one; turns 1..5 without the error's."""
    unknown = evaluated("a", "?e")
    assert (unknown.rate.value, unknown.mean_reward) == (None, None)
    evaluation = evaluated("a", "110t?e")
    assert (evaluation.id, evaluation.agent_id) == ("eval-a", "agent:a@1")
    assert (evaluation.rate.successes, evaluation.rate.n, evaluation.rate.value) == (2, 4, 0.5)
    assert (evaluation.n_unknown, evaluation.n_error) == (1, 1)
    assert evaluation.mean_reward == 0.5
    assert evaluation.mean_turns == 3.0
    by_type = {kind: (rate.successes, rate.n) for kind, rate in evaluation.by_type.items()}
    assert by_type == {"even": (1, 2), "odd": (1, 2)}
    assert list(evaluation.by_difficulty) == ["easy"]
    assert evaluation.means_by_type["even"].turns == pytest.approx((1 + 3 + 5) / 3)
    assert (evaluation.means_by_type["odd"].n_error, evaluation.means_by_type["even"].n_unknown) == (1, 1)
    assert evaluation.means_by_difficulty["easy"].reward == 0.5


def test_two_agents_are_paired_by_task() -> None:
    """a alone solved 1, b alone 7, both 1, none 12 of 21 (the table in test_statistics): p = 18/256.

    With 8/21 of the tasks discordant and 5 points to show, Connor's formula gives
    (1.95996 sqrt(8/21) + 0.84162 sqrt(8/21 - 0.0025))^2 / 0.0025 = 1193.7 tasks.
    """
    a = evaluated("a", "1" + "0" * 7 + "1" + "0" * 12)
    b = evaluated("b", "0" + "1" * 7 + "1" + "0" * 12)
    comparison = compare([a, b], ["a", "b"], "cmp-1", None)
    pair = comparison.comparisons[0]
    assert (pair.a, pair.b, pair.evaluation_a, pair.evaluation_b) == ("a", "b", "eval-a", "eval-b")
    assert (pair.only_a, pair.only_b, pair.n_tasks, pair.n_excluded) == (1, 7, 21, 0)
    assert pair.difference == pytest.approx(6 / 21)
    assert (pair.ci_low, pair.ci_high) == pytest.approx((-0.0204, 0.5455), abs=1e-4), "with 0, as p is above 0.05"
    assert pair.p == pair.p_corrected == pytest.approx(18 / 256)
    assert (pair.reward.n_tasks, pair.reward.difference) == (21, pytest.approx(6 / 21))
    assert pair.reward.ci_low < 6 / 21 < pair.reward.ci_high
    assert pair.tasks_for_5_points == 1194
    assert pair.p_equivalent > 0.9
    assert pair.p_method == "McNemar's exact test"
    assert not pair.significant
    assert [row.agent for row in comparison.leaderboard] == ["b", "a"]
    assert (comparison.id, comparison.environment, comparison.suite_hash) == ("cmp-1", "test/env", "suite")


def test_flips_name_the_trajectories_to_read() -> None:
    comparison = compare([evaluated("a", "10e1"), evaluated("b", "0111")], ["old", "new"], "cmp-1", None)
    names = ("task_id", "solved_by", "failed_by", "trajectory_solved", "trajectory_failed")
    assert [tuple(flip.model_dump()[name] for name in names) for flip in comparison.flips] == [
        ("t0", "old", "new", "traj-a-0-0", "traj-b-0-0"),
        ("t1", "new", "old", "traj-b-1-0", "traj-a-1-0"),
    ]


def test_pairs_without_two_verdicts_are_left_out_and_counted() -> None:
    pair = compare([evaluated("a", "0?e00"), evaluated("b", "111?t")], ["a", "b"], "cmp-1", None).comparisons[0]
    assert (pair.n_tasks, pair.n_excluded, pair.only_b) == (2, 3, 1)
    assert pair.difference == pytest.approx(0.5)
    repeated = compare([evaluated("a", "01", "0e"), evaluated("b", "10", "10")], ["a", "b"], "c", None).comparisons[0]
    assert (repeated.n_tasks, repeated.n_excluded) == (1, 1), "a repeat is missing"
    lonely = compare([evaluated("a", "1?"), evaluated("b", "11")], ["a", "b"], "cmp-1", None).comparisons[0]
    assert (lonely.reward, lonely.p_equivalent) == (None, None)


def test_repeats_are_clustered_by_task() -> None:
    """Differences of successes over 2 repeats: 2, 1, 1, 0, -1. Of 2^4 sign patterns of the four that are not 0, those
    with |sum| >= 3: (2,1,1,+-1) = 5, 3; (2,1,-1,1) and (2,-1,1,1) = 3; and their mirrors: 8 of 16.

    Mean difference (2+1+1+0-1)/2/5 = 0.3.
    """
    a = evaluated("a", "00011", "00001")
    b = evaluated("b", "11011", "10100")
    pair = compare([a, b], ["a", "b"], "cmp-1", None).comparisons[0]
    assert pair.difference == pytest.approx(0.3)
    assert pair.p == pytest.approx(8 / 16)
    assert (pair.only_a, pair.only_b, pair.n_tasks) == (1, 3, 5)
    assert "task" in pair.p_method
    assert pair.ci_low < 0.3 < pair.ci_high


def test_repeats_that_always_agree_count_as_one_outcome_a_task() -> None:
    """3 of 3 against 0 of 3, twice: the second repeat is no new evidence, so p stays 2/8 and the interval stays open."""
    once = compare([evaluated("a", "000"), evaluated("b", "111")], ["a", "b"], "c", None).comparisons[0]
    twice = compare([evaluated("a", "000", "000"), evaluated("b", "111", "111")], ["a", "b"], "c", None).comparisons[0]
    assert once.p == twice.p == pytest.approx(0.25)
    assert (once.ci_low, once.ci_high) == (twice.ci_low, twice.ci_high)
    assert twice.ci_low < 1.0


def test_tasks_with_equal_greedy_runs_are_one_cluster() -> None:
    """Clusters of 4, 3, 2 and 1 tasks of which a solves the first and the third: 6 of 10.

    Rate: squares (4 - 2.4)^2 + 1.8^2 + (2 - 1.2)^2 + 0.6^2 = 6.8, variance 4/3 * 6.8 / 100 = 0.090667, so 0.24 / 0.090667 =
    2.6471 episodes, and t with 9 instead of 3 degrees of freedom takes (2.26216 / 3.18245)^2 of them: 1.33750.
    Difference: b solves all, so 3 and 1 of 10 tasks more, in mean 0.4. Of the 4 sign patterns of 3 and 1, two sums are at least
    as far from 0 as 4. Of 16 patterns of 4 clusters no share is below 5 %, so the interval of that test excludes nothing.
    """
    a, b = evaluated("a", "1111000110", digests="aaaabbbccd"), evaluated("b", "1" * 10, digests="aaaabbbccd")
    assert (a.rate.successes, a.rate.n, a.rate.n_distinct) == (6, 10, 4)
    expected = beta.ppf(0.025, 0.6 * 1.3375, 0.4 * 1.3375 + 1), beta.ppf(0.975, 0.6 * 1.3375 + 1, 0.4 * 1.3375)
    assert (a.rate.ci_low, a.rate.ci_high) == pytest.approx(expected, abs=1e-4)
    assert b.rate.ci_low == pytest.approx(0.025**0.25), "4 of 4"
    (pair,) = compare([a, b], ["a", "b"], "c", None).comparisons
    assert (pair.n_tasks, pair.n_distinct, pair.p) == (10, 4, 0.5)
    assert (pair.difference, pair.ci_low, pair.ci_high) == pytest.approx((0.4, -1.0, 1.0), abs=1e-4)
    assert (pair.reward, pair.p_mid, pair.p_equivalent, pair.tasks_for_5_points) == (None, None, None, None)
    test = decide(a.results, b.results, [f"t{i}" for i in range(10)], repeats=1, planned=50)
    assert (test.n_tasks, test.n_planned, test.difference) == (4, 44, 0.5), "a repeat is no new evidence"
    (mixed,) = compare([a, evaluated("b", "1" * 10)], ["a", "b"], "c", None).comparisons
    assert (mixed.n_distinct, mixed.p) == (None, 2 / 16), "b samples, so its runs are independent"


def test_all_pairs_are_corrected_together() -> None:
    """c beats a and b on 8 of 8 (p = 2/256 each), a and b are equal (p = 1); Holm: 3 * 2/256, 3 * 2/256, 1."""
    evaluations = [evaluated("a", "0" * 8), evaluated("b", "0" * 8), evaluated("c", "1" * 8)]
    comparison = compare(evaluations, ["a", "b", "c"], "c", None)
    found = {(pair.a, pair.b): (pair.p_corrected, pair.significant) for pair in comparison.comparisons}
    assert found[("a", "c")] == found[("b", "c")] == (pytest.approx(6 / 256), True)
    assert found[("a", "b")] == (1.0, False)


def test_the_leaderboard_goes_by_success_then_reward_and_shares_ranks() -> None:
    low, fair = evaluated("low", "0001"), evaluated("fair", "0011", rewards=[0.5, 0.0, 1.0, 1.0])
    names = ["low", "fair", "poor", "twin"]
    rows = compare([low, fair, evaluated("poor", "0011"), evaluated("twin", "1100")], names, "c", None).leaderboard
    assert [(row.rank, row.agent) for row in rows] == [(1, "fair"), (2, "poor"), (2, "twin"), (4, "low")]
    unpaired = r"expected a task of eval-low and eval-none with verdicts .*got neither .*eval-none: 4 without"
    with pytest.raises(InvalidInput, match=unpaired):
        compare([low, evaluated("none", "????")], ["low", "none"], "c", None)


def test_different_suites_are_refused_with_both_hashes_and_the_overlap() -> None:
    a, b = evaluated("a", "0101", suite="aaaa"), evaluated("b", "010", suite="bbbb")
    overlap = r"got aaaa .*\(4 tasks\) and bbbb .*\(3 tasks\), with 3 common tasks"
    with pytest.raises(InvalidInput, match=overlap) as caught:
        compare([a, b], ["a", "b"], "c", None)
    assert caught.value.code == "different_suites"


def test_too_few_or_unnamed_evaluations_are_refused() -> None:
    a = evaluated("a", "01")
    with pytest.raises(InvalidInput, match="at least 2 evaluations, got 1"):
        compare([a], ["a"], "c", None)
    with pytest.raises(InvalidInput, match="different names"):
        compare([a, a], ["a", "a"], "c", None)


def test_a_suite_hash_depends_on_tasks_repeats_and_turn_limit() -> None:
    def planned(**change: int | str) -> Suite:
        return plan_suite(Inventory(), **{"split": "held_out", "n_tasks": 6, "repeats": 2, "seed": 0, **change})  # type: ignore[arg-type]

    suite = planned()
    assert suite.hash == planned().hash
    changes: dict[str, int | str] = {"seed": 1, "repeats": 3, "n_tasks": 7, "split": "train", "max_turns": 3}
    assert len({suite.hash, *(planned(**{name: value}).hash for name, value in changes.items())}) == 6
    assert [plan.attempt for plan in suite.plans] == [0] * 6 + [1] * 6
    assert [plan.task for plan in suite.plans[:6]] == [plan.task for plan in suite.plans[6:]]


def test_intervals_of_all_pairs_together_stand_beside_those_of_each_pair() -> None:
    """0 of 10 against 10 of 10, at 0.05 for one pair and at 0.05 / 3."""
    names = ["a", "b", "c"]
    (pair, *_) = compare(
        [evaluated(n, o) for n, o in zip(names, ["0" * 10, "1" * 10, "1" * 10], strict=True)], names, "cmp-1", None
    ).comparisons
    assert (pair.ci_correction, pair.ci_low) == ("none", mcnemar_interval(0, 10, 10).low)
    assert pair.simultaneous_low == mcnemar_interval(0, 10, 10, 0.05 / 3).low < pair.ci_low
    assert (pair.ci_high, pair.simultaneous_high) == (1.0, 1.0)
    (alone,) = compare([evaluated("a", "01", "10"), evaluated("b", "11", "10")], ["a", "b"], "cmp-1", None).comparisons
    assert (alone.simultaneous_low, alone.simultaneous_high) == (alone.ci_low, alone.ci_high)


def test_the_correction_is_chosen_and_named() -> None:
    three = [evaluated(name, "1" * n + "0" * (12 - n)) for name, n in (("a", 12), ("b", 6), ("c", 4))]
    names = ["a", "b", "c"]
    holm, hochberg, bonferroni = (
        compare(three, names, "cmp-1", None, kind) for kind in ("holm", "benjamini_hochberg", "bonferroni")
    )
    assert [holm.correction, hochberg.correction, bonferroni.correction] == ["holm", "benjamini_hochberg", "bonferroni"]
    for found, strictest in zip(holm.comparisons, bonferroni.comparisons, strict=True):
        assert found.p <= found.p_corrected <= strictest.p_corrected == min(1.0, 3 * found.p)
    assert all(x.p_corrected <= y.p_corrected for x, y in zip(hochberg.comparisons, holm.comparisons, strict=True))


def test_rewards_of_fewer_tasks_than_the_successes_are_noted() -> None:
    """A run that was cut off failed, and has no reward: the two differences are of other tasks."""
    a, b = evaluated("a", "0101"), evaluated("b", "1101")
    cut = tuple(one.model_copy(update={"reward": None}) if place == 0 else one for place, one in enumerate(a.results))
    comparison = compare([a.model_copy(update={"results": cut}), b], ["a", "b"], "c", None)
    assert comparison.comparisons[0].n_tasks == 4
    assert comparison.notes == (
        "a and b: `reward` covers 3 of 4 tasks; in the others a run that was cut off or failed has no reward.",
    )


def test_tasks_that_a_comparison_leaves_out_are_noted_by_pair() -> None:
    three = [evaluated("a", "01?1"), evaluated("b", "11e1"), evaluated("c", "1e01")]
    found = compare(three, ["a", "b", "c"], "c", None)
    assert [pair.n_tasks for pair in found.comparisons] == [3, 2, 2]
    ended = "of 4 tasks are left out, where a run of one or both ended without a verdict."
    assert found.notes == (f"a and b: 1 {ended}", f"a and c: 2 {ended}", f"b and c: 2 {ended}")


def test_different_sampling_is_noted() -> None:
    a, b = evaluated("a", "0101"), evaluated("b", "1101")
    assert compare([a, b], ["a", "b"], "c", None).notes == ()
    warm = b.model_copy(update={"sampling": Sampling(temperature=0.7)})
    (note,) = compare([a, warm], ["a", "b"], "c", None).notes
    assert "a: temperature 0, " in note
    assert "b: temperature 0.7, " in note


def test_forbidden_calls_are_noted_beside_successes() -> None:
    """An agent that succeeds more and breaks more rules is not simply better."""
    agents = []
    for name, solved, calls in (("meek", "0001", (0, 0, 1, None)), ("bold", "1111", (2, 1, 1, None))):
        done = evaluated(name, solved)
        pairs = zip(done.results, calls, strict=True)
        results = [result.model_copy(update={"calls": 3, "forbidden": n}) for result, n in pairs]
        spec = EvaluateSpec(agent=Agent(id=f"agent:{name}@1", name=name, model=ModelRef(source="folder", path="/m")),
                            environment="test/env", n_tasks=4)  # fmt: skip
        agents.append(summarize(spec, Suite((), "suite"), results, job_id="job-1"))
    (note,) = compare(agents, ["meek", "bold"], "c", None).notes
    assert note == "Episodes with a forbidden call: meek 1 of 3, bold 3 of 3."


def test_a_leaderboard_needs_no_verdict_from_all() -> None:
    """28 and 3 of 30 differ, as McNemar's test says (p = 2 / 2^25); who has no verdict cannot be told from either."""
    good, poor, none = evaluated("a", "1" * 28 + "00"), evaluated("b", "1" * 3 + "0" * 27), evaluated("c", "?" * 30)
    rows = leaderboard([poor, none, good], ["poor", "none", "good"])
    assert [(row.rank, row.agent, row.group) for row in rows] == [(1, "good", "a"), (2, "poor", "b"), (3, "none", "ab")]


def losses(name: str, *rows: tuple[float, int], truncated: int | None = None, status: str = "unknown") -> Evaluation:
    """An evaluation of dataset rows of one verdict: the loss in nats a token and the number of tokens of each."""
    agent = Agent(id=f"agent:{name}@1", name=name, model=ModelRef(source="folder", path="/m"))
    about = {"dataset_id": "ds-1", "dataset_path": "/d", "dataset_kind": "text", "split": "train", "n_rows": len(rows)}
    spec = EvaluateDatasetSpec.model_validate({"agent": agent, "dataset_files": {"train.jsonl": "0"}, **about})
    results = [
        EpisodeResult(
            task_id=f"t{i}",
            status=status,
            metrics={"loss": loss, "tokens": float(n), "truncated_turns": float(i == truncated)},
        )
        for i, (loss, n) in enumerate(rows)
    ]
    return summarize_rows(spec, results, job_id=f"job-{name}")


def test_rows_without_verdicts_are_compared_by_their_losses_a_token() -> None:
    """The difference is that of the reported losses; with rows of equal length its test is the paired t test."""
    a = losses("a", (2.0, 10), (3.0, 30), (1.0, 60))
    b = losses("b", (1.5, 10), (2.9, 30), (1.2, 60))
    pair = compare([a, b], ["a", "b"], "cmp-1", None).comparisons[0]
    assert pair.measure == "loss"
    assert pair.difference == pytest.approx(b.held_out.loss - a.held_out.loss) == pytest.approx(0.04)
    assert (pair.only_a, pair.only_b, pair.n_tasks, pair.tasks_for_5_points) == (1, 2, 3, None)
    changes = [-0.5, -0.4, -0.6, -0.45]
    a, b = losses("a", *[(2.0, 8)] * 4), losses("b", *[(2.0 + change, 8) for change in changes])
    found = compare([a, b], ["a", "b"], "cmp-1", None)
    pair, expected = found.comparisons[0], ttest_1samp(changes, 0.0)
    assert pair.p == pytest.approx(expected.pvalue)
    assert (pair.ci_low, pair.ci_high) == pytest.approx(tuple(expected.confidence_interval()))
    assert [(row.rank, row.agent, row.loss, row.group) for row in found.leaderboard] == [
        (1, "b", pytest.approx(1.5125), "a"),
        (2, "a", 2.0, "b"),
    ]
    assert "\\-0.4875 \\[" in as_markdown(comparison_report(found))


def test_rows_that_no_agent_solves_are_compared_by_their_losses_and_those_that_one_solves_by_success() -> None:
    worse = losses("a", *[(11.0, 8)] * 4, status="failure")
    better = losses("b", *[(loss, 8) for loss in (3.1, 2.9, 3.2, 2.8)], status="failure")
    found = compare([worse, better], ["a", "b"], "cmp-1", None)
    (pair,) = found.comparisons
    assert (pair.measure, pair.difference, pair.significant) == ("loss", pytest.approx(-8.0), True)
    assert [(row.agent, row.group) for row in found.leaderboard] == [("b", "a"), ("a", "b")]
    assert [(row.agent, row.group) for row in leaderboard([worse, better], ["a", "b"])] == [("b", "a"), ("a", "b")]
    solving = losses("c", *[(9.0, 8)] * 4, status="success")
    pairs = compare([worse, better, solving], ["a", "b", "c"], "cmp-1", None).comparisons
    assert {pair.measure for pair in pairs} == {"success"}
    played = compare([evaluated("a", "000"), evaluated("b", "000")], ["a", "b"], "cmp-1", None)
    assert played.comparisons[0].measure == "success", "there are no losses to compare"


def test_losses_of_different_tokens_are_not_compared() -> None:
    """A row beyond one agent's context is left out; other tokens in a whole row are another tokenizer's."""
    a, b = losses("a", *[(2.0, 8)] * 4), losses("b", *[(1.0, 8)] * 3, (1.0, 6), truncated=3)
    pair = compare([a, b], ["a", "b"], "cmp-1", None).comparisons[0]
    assert (pair.n_tasks, pair.n_excluded, pair.difference) == (3, 1, -1.0)
    other = losses("other", *[(1.0, 9)] * 4)
    with pytest.raises(InvalidInput, match=r"4 without a verdict, 0 with an error.*one tokenizer") as refused:
        compare([a, other], ["a", "other"], "cmp-1", None)
    assert refused.value.code == "nothing_to_pair"
    assert [row.group for row in leaderboard([a, b, other], ["a", "b", "other"])] == ["a", "ab", "b"]
