"""Which runs an agent learns from, against numbers derived by hand."""

from __future__ import annotations

import random

import pytest

from quintain.worker.evolution.round_dataset import Outline, select_runs

SCORES = [0.9, 0.2, None, 0.6, 0.5, 0.0, 0.7]
RUNS = [Outline(f"r{i}", f"t{i}", score) for i, score in enumerate(SCORES)]


def test_the_best_share_counts_runs_with_a_verdict_and_a_part_of_a_run_as_a_whole_one() -> None:
    """Six of seven have a verdict; 0.3 x 6 = 1.8, so two stay: 0.9 and 0.7. Of the others 0.6 and 0.5 earned the threshold."""
    kept, left_out = select_runs(RUNS, "top_k", ratio=0.3, threshold=0.5)
    assert kept == ["r0", "r6"]
    assert left_out == {"no_verdict": 1, "below_threshold": 2, "below_ratio": 2}


def test_the_threshold_is_good_enough_and_a_wider_share_takes_no_worse_run() -> None:
    """0.9 x 6 = 5.4, six runs, of which four earned 0.5."""
    kept, left_out = select_runs(RUNS, "threshold", ratio=0.01, threshold=0.6)
    assert kept == ["r0", "r3", "r6"]
    assert left_out == {"no_verdict": 1, "below_threshold": 3}

    assert select_runs(RUNS, "top_k", ratio=0.9, threshold=0.5).kept == ["r0", "r3", "r4", "r6"]
    assert len(select_runs(RUNS, "top_k", ratio=0.9).kept) == 6


def test_rejection_keeps_each_run_with_its_reward_as_the_chance_whatever_the_others_are() -> None:
    """2,000 runs of 0.3: 600 expected, standard deviation sqrt(2000 x 0.3 x 0.7) = 20.5; 1 and above always stay, 0 never."""
    many = [Outline(f"m{i}", "t", 0.3) for i in range(2000)]
    sure = [Outline(name, "t", score) for name, score in {"one": 1.0, "two": 2.0, "none": 0.0, "less": -1.0}.items()]
    kept, left_out = select_runs([*many, *sure], "rejection", seed=4)
    assert 540 < len(kept) - 2 < 660
    assert {"one", "two"} < set(kept)
    assert not {"none", "less"} & set(kept)
    assert left_out == {"not_drawn": 2004 - len(kept)}
    alone = select_runs(many[:50], "rejection", seed=4).kept
    assert alone == [key for key in kept if key in {run.key for run in many[:50]}]
    assert alone != select_runs(many[:50], "rejection", seed=5).kept


def test_among_equals_every_task_has_its_first_run_before_any_has_its_second() -> None:
    """Eight solved runs of two tasks, 6 and 2; a quarter of eight are two: one of each task."""
    runs = [Outline(f"a{i}", "a", 1.0) for i in range(6)] + [Outline(f"b{i}", "b", 1.0) for i in range(2)]
    assert {key[0] for key in select_runs(runs, "top_k", ratio=0.25).kept} == {"a", "b"}
    seeds = {tuple(select_runs(runs, "top_k", ratio=0.25, seed=seed).kept) for seed in range(20)}
    assert len(seeds) > 3, "which of them is left to chance"


@pytest.mark.parametrize("rule", ["top_k", "threshold", "rejection"])
def test_the_order_of_the_runs_changes_nothing_but_the_order(rule: str) -> None:
    shuffled = RUNS.copy()
    random.Random(0).shuffle(shuffled)
    given = {"ratio": 0.5, "threshold": 0.1, "seed": 2}
    one, other = (select_runs(runs, rule, **given) for runs in (RUNS, shuffled))  # type: ignore[arg-type]
    assert set(one.kept) == set(other.kept)
    assert one.left_out == other.left_out


@pytest.mark.parametrize("rule", ["top_k", "threshold", "rejection"])
def test_nothing_selected_is_an_answer(rule: str) -> None:
    """The seed divides by zero here."""
    runs = [Outline("r0", "t", 0.0), Outline("r1", "t", None)]
    kept, left_out = select_runs(runs, rule, ratio=0.3, threshold=0.5)  # type: ignore[arg-type]
    assert kept == []
    assert left_out == {"no_verdict": 1, "not_drawn" if rule == "rejection" else "below_threshold": 1}
    assert select_runs([], rule) == ([], {})  # type: ignore[arg-type]
