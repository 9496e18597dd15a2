"""Mining pairs and groups: only inside a task, only where values differ, spread over runs, everything else counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from quintain.errors import InvalidInput
from quintain.scoring.preferences.mining import Candidate, Group, MinedPairs, form_groups, mine_pairs


def _task(*values: float, task: str = "t", contents: str | None = None) -> list[Candidate]:
    """Runs `t0`, `t1`, ... of one task with these values."""
    return [Candidate(task, f"{task}{i}", value, contents[i] if contents else None) for i, value in enumerate(values)]


def _mined(candidates: Sequence[Candidate], **options: Any) -> MinedPairs:
    return mine_pairs(candidates, **({"max_pairs_per_task": 100} | options))


def _pairs(mined: MinedPairs) -> set[tuple[str, str]]:
    return {(pair.chosen, pair.rejected) for pair in mined.pairs}


def test_every_better_run_is_preferred_where_the_margin_is_passed() -> None:
    """Worked examples.

    - Task a: 1 > 0.5 > 0 makes 3 pairs. Task b holds two equal runs: a tie is no preference.
    - 0.8 - 0.7 is 0.10000000000000009 in floats, but not more than 0.1; 0.8 - 0.6 is.
    """
    mined = _mined(_task(0.5, 1.0, 0.0, task="a") + _task(1.0, 1.0, task="b"))
    assert _pairs(mined) == {("a1", "a0"), ("a1", "a2"), ("a0", "a2")}
    assert {pair.chosen + pair.rejected: pair.margin for pair in mined.pairs} == {"a1a0": 0.5, "a1a2": 1.0, "a0a2": 0.5}
    assert mined.tasks_left_out == {"no_contrast": 1}
    assert mined.runs_left_out == {"no_contrast": 2}

    mined = _mined(_task(0.8, 0.7, 0.6), margin=0.1)
    assert _pairs(mined) == {("t0", "t2")}
    assert mined.runs_left_out == {"below_margin": 1}
    assert _mined(_task(0.1 + 0.2, 0.3)).tasks_left_out == {"no_contrast": 1}


def test_why_a_task_has_no_pair() -> None:
    """Of 7 runs none is in a pair, each for the reason of its task."""
    candidates = [
        *_task(1.0, task="single"),
        *_task(0.5, 0.5, task="tied"),
        *_task(0.5, 0.6, task="near"),
        *_task(1.0, 0.0, task="same", contents="xx"),
    ]
    mined = _mined(candidates, margin=0.2)
    assert mined.pairs == []
    assert mined.tasks_left_out == {"group_of_one": 1, "no_contrast": 1, "below_margin": 1, "equal_sides": 1}
    assert mined.runs_left_out == {"group_of_one": 1, "no_contrast": 2, "below_margin": 2, "equal_sides": 2}


def test_the_limit_takes_the_widest_margins_over_distinct_runs() -> None:
    """Widest of all is 1.0 > 0.0; of the runs not used yet then 0.9 > 0.1, though 1.0 > 0.1 would be wider."""
    mined = _mined(_task(0.9, 0.0, 1.0, 0.1), max_pairs_per_task=2)
    assert [(pair.chosen, pair.rejected, pair.margin) for pair in mined.pairs] == [("t2", "t1", 1.0), ("t0", "t3", 0.8)]
    assert _mined(_task(0.9, 0.0, 1.0, 0.1), max_pairs_per_task=1).runs_left_out == {"pair_limit": 2}


@pytest.mark.parametrize("seed", range(5))
def test_one_good_run_is_repeated_only_as_often_as_it_must_be(seed: int) -> None:
    """2 good runs, 4 bad ones, 4 pairs: each bad run once, each good one twice."""
    mined = _mined(_task(1.0, 1.0, 0.0, 0.0, 0.0, 0.0), max_pairs_per_task=4, seed=seed)
    assert Counter(pair.rejected for pair in mined.pairs) == {"t2": 1, "t3": 1, "t4": 1, "t5": 1}
    assert Counter(pair.chosen for pair in mined.pairs) == {"t0": 2, "t1": 2}


def test_runs_of_equal_content_make_no_pair_and_take_no_place_in_the_limit() -> None:
    """The best and the worst run wrote the same; searching inwards from both ends finds the pairs that do teach."""
    mined = _mined(_task(1.0, 0.9, 0.1, 0.0, contents="xyzx"), max_pairs_per_task=1)
    assert _pairs(mined) <= {("t0", "t2"), ("t1", "t3")}
    assert mined.pairs[0].margin == 0.9
    runs = _task(*[1.0] * 5, *[0.0] * 5, 0.5, contents="x" * 10 + "y")
    assert len(_mined(runs, max_pairs_per_task=1).pairs) == 1
    assert _mined(_task(1.0, 0.0, 0.0, contents="xxy")).runs_left_out == {"equal_sides": 1}


@pytest.mark.parametrize(("options", "said"), [({"margin": -0.1}, "got -0.1"), ({"margin": float("nan")}, "nan")])
def test_a_senseless_bound_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        _mined([], **options)
    with pytest.raises(InvalidInput, match="max_pairs_per_task to be at least 1, got 0"):
        _mined([], max_pairs_per_task=0)


def test_a_large_task_gives_the_same_margins_as_the_search_of_all_its_pairs() -> None:
    """400 runs worth i / 400: the k-th widest pair of unused runs is (399 - k) / 400 over k / 400."""
    mined = _mined(_task(*[i / 400 for i in range(400)]), max_pairs_per_task=3)
    assert [(pair.chosen, pair.rejected) for pair in mined.pairs] == [("t399", "t0"), ("t398", "t1"), ("t397", "t2")]
    assert mined.runs_left_out == {"pair_limit": 394}


def test_groups_hold_all_runs_of_a_task_and_need_two_different_rewards() -> None:
    """Of 7 runs 3 make the one group; a single run and three equal ones teach nothing."""
    runs = _task(1.0, 0.0, task="a") + _task(0.5, task="b") + _task(0.3, 0.3, 0.3, task="c")
    formed = form_groups([*runs, Candidate("a", "a2", 0.0)])
    assert formed.groups == [Group("a", ("a0", "a1", "a2"), (1.0, 0.0, 0.0))]
    assert formed.tasks_left_out == {"group_of_one": 1, "no_variance": 1}
    assert formed.runs_left_out == {"group_of_one": 1, "no_variance": 3}
