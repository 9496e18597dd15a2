from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.records.hyperparameters import CurriculumConfig
from quintain.trainers.data.curriculum import difficulty, epoch_indices, epoch_size, epoch_steps


def test_difficulty_is_steps_less_reward_and_an_unknown_reward_is_none() -> None:
    assert difficulty(4, 0.75) == 3.25
    assert difficulty(4, None) == 4 == difficulty(4, 0.0)
    assert difficulty(4, -1.0) == 5


def test_an_epoch_shows_the_easiest_first_and_ties_in_their_order() -> None:
    """0.6 + 0.4 e of 5 examples: 3, then all."""
    config, difficulties = CurriculumConfig(start_ratio=0.6, warmup_epochs=1), [3.0, 1.0, 2.0, 1.0, 5.0]
    assert [epoch_indices(difficulties, epoch, config) for epoch in (0, 1, 9)] == [[1, 3, 2], *[[1, 3, 2, 0, 4]] * 2]
    assert epoch_indices([2.0, 1.0], 0, CurriculumConfig(start_ratio=0.01)) == [1]
    few = CurriculumConfig(start_ratio=0.07)
    assert epoch_size(100, 0, few) == 7, "100 * 0.07 is 7.000000000000001 in floating point"


def test_the_plan_counts_what_really_runs() -> None:
    """10 examples: 3, 7 (ceil of 6.5), 10, 10; in batches of 4: 1, 2, 3 and half of 3 rounded up, 2."""
    config = CurriculumConfig(start_ratio=0.3, warmup_epochs=2)
    assert [epoch_size(10, epoch, config) for epoch in range(4)] == [3, 7, 10, 10]
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
    shown = [epoch_indices(difficulties, epoch, config) for epoch in range(math.ceil(epochs))]
    sizes = [len(indices) for indices in shown]
    assert sizes == sorted(sizes)
    assert all(set(a) <= set(b) for a, b in pairwise(shown))
    steps = epoch_steps(len(difficulties), batch, epochs, config)
    assert all(1 <= s <= math.ceil(size / batch) for s, size in zip(steps, sizes, strict=True))
