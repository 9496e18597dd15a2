from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.errors import InvalidInput
from quintain.records.hyperparameters import CurriculumConfig
from quintain.trainers.data.curriculum import difficulty, epoch_indices, epoch_share, epoch_sizes, epoch_steps


def test_difficulty_is_steps_less_reward_and_an_unknown_reward_is_none() -> None:
    assert difficulty(4, 0.75) == 3.25
    assert difficulty(4, None) == 4 == difficulty(4, 0.0)
    assert difficulty(4, -1.0) == 5


def test_the_share_grows_linearly_to_all_of_the_examples() -> None:
    """0.3 + 0.7 e / 2 for epochs 0, 1, 2: 0.3, 0.65, 1; then all."""
    assert [round(epoch_share(epoch, 0.3, 2), 9) for epoch in range(4)] == [0.3, 0.65, 1.0, 1.0]
    assert epoch_share(0, 1.0, 5) == 1.0


def test_an_epoch_holds_the_easiest_first_and_ties_in_their_order() -> None:
    assert epoch_indices([3.0, 1.0, 2.0, 1.0, 5.0], 0.6) == [1, 3, 2]
    assert epoch_indices([3.0, 1.0, 2.0, 1.0, 5.0], 1.0) == [1, 3, 2, 0, 4]
    assert epoch_indices([2.0, 1.0], 0.01) == [1]
    assert len(epoch_indices([0.0] * 100, 0.07)) == 7, "100 * 0.07 is 7.000000000000001 in floating point"


def test_the_plan_counts_what_really_runs() -> None:
    """10 examples: 3, 7 (ceil of 6.5), 10, 10; in batches of 4: 1, 2, 3 and half of 3 rounded up, 2."""
    config = CurriculumConfig(start_ratio=0.3, warmup_epochs=2)
    assert epoch_sizes(10, 3.5, config) == [3, 7, 10, 10]
    assert epoch_steps(10, 4, 3.5, config) == [1, 2, 3, 2]
    assert epoch_steps(10, 4, 3.0, None) == [3, 3, 3]
    # 0.1 of 30 steps are 3, though 0.1 * 30 is 3.0000000000000004 in some orders of multiplication.
    assert epoch_steps(30, 1, 0.1, None) == [3]
    assert epoch_steps(10, 1, 2.3, None) == [10, 10, 3]


@settings(max_examples=25)
@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=40),
    st.floats(0.01, 1),
    st.integers(1, 5),
    st.floats(0.1, 6),
    st.integers(1, 7),
)
def test_planned_epochs_are_those_that_the_indices_give(
    difficulties: list[float], start: float, warmup: int, epochs: float, batch: int
) -> None:
    config = CurriculumConfig(start_ratio=start, warmup_epochs=warmup)
    sizes = epoch_sizes(len(difficulties), epochs, config)
    shown = [epoch_indices(difficulties, epoch_share(epoch, start, warmup)) for epoch in range(len(sizes))]
    assert [len(indices) for indices in shown] == sizes == sorted(sizes)
    assert len(sizes) == math.ceil(epochs)
    assert all(set(a) <= set(b) for a, b in pairwise(shown))
    steps = epoch_steps(len(difficulties), batch, epochs, config)
    assert all(1 <= s <= math.ceil(size / batch) for s, size in zip(steps, sizes, strict=True))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: epoch_share(-1, 0.3, 1), "epoch -1"),
        (lambda: epoch_share(0, 0.0, 1), "start_ratio 0.0"),
        (lambda: epoch_share(0, 0.5, 0), "at least 1 warm-up epoch"),
        (lambda: epoch_indices([1.0], 1.5), "expected a share above 0 and at most 1, got 1.5"),
        (lambda: epoch_indices([1.0, math.nan], 1.0), "difficulty of example 1, got NaN"),
        (lambda: epoch_sizes(3, 0.0, None), "more than 0 epochs, got 3 and 0.0"),
        (lambda: epoch_steps(3, 0, 1.0, None), "batch_size of at least 1, got 0"),
    ],
)
def test_what_makes_no_plan_is_refused(call: object, words: str) -> None:
    assert callable(call)
    with pytest.raises(InvalidInput, match=words):
        call()
