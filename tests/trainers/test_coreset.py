from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.errors import InvalidInput
from quintain.records.hyperparameters.methods import CoresetConfig
from quintain.trainers.data.coreset import coreset, distances, farthest_first, text_features, unit_rows

CORNERS = np.array([[1.0, 0.0], [0.99, 0.1], [0.0, 1.0], [-1.0, 0.0], [-0.99, -0.1]])


def choose(method: str, size: int, losses: Sequence[float] = (0.0,) * 5, features: Any = CORNERS) -> list[int]:
    config = CoresetConfig(method=method, size=size)  # type: ignore[arg-type]
    return coreset(config, losses, features, seed=0)


def test_loss_keeps_the_hardest_in_order_and_ties_in_theirs() -> None:
    assert choose("loss", 3, [0.5, 2.0, 0.1, 2.0, 1.0]) == [1, 3, 4]


def test_diversity_takes_one_of_each_cluster_first() -> None:
    """Three clusters at 0, 90 and 180 degrees, the mean near (0, 0.2): three choices, one from each."""
    chosen = choose("diversity", 3)
    assert {c in {0, 1} for c in chosen} == {True, False}
    assert 2 in chosen
    assert len({*chosen} & {3, 4}) == 1


def test_hybrid_begins_with_six_tenths_by_loss_and_goes_on_far_from_them() -> None:
    """floor(0.6 * 3) = 1 by loss: number 1, near (1, 0). The farthest from it is 4, opposite; then 2, between."""
    assert choose("hybrid", 3, [1.0, 9.0, 0.0, 0.0, 0.0]) == [1, 4, 2]
    # floor(0.6 * 5) is 3, though int(0.6 * 5.0) may differ in floating point.
    many = choose("hybrid", 5, np.arange(10.0).tolist(), np.eye(10))
    assert many[:3] == [9, 8, 7]


def test_random_depends_on_the_seed_alone() -> None:
    config = CoresetConfig(method="random", size=5)
    picks = [coreset(config, [0.0] * 50, np.eye(50), seed=seed) for seed in (1, 1, 2)]
    assert picks[0] == picks[1] != picks[2]
    assert len({*picks[0]}) == 5


def test_equal_vectors_are_chosen_last_and_none_twice() -> None:
    features = np.array([[1.0, 0.0]] * 4 + [[0.0, 1.0]])
    chosen = farthest_first(features, 5)
    assert set(chosen[:2]) == {0, 4}
    assert sorted(chosen) == [0, 1, 2, 3, 4]


def test_greedy_choices_are_farthest_first_by_brute_force() -> None:
    vectors = np.random.default_rng(0).normal(size=(20, 6))
    unit = unit_rows(vectors).astype(np.float64)
    chosen = farthest_first(vectors, 8)
    for place in range(1, 8):
        left = [i for i in range(20) if i not in chosen[:place]]
        gaps = [min(float(np.linalg.norm(unit[i] - unit[j])) for j in chosen[:place]) for i in left]
        assert gaps[left.index(chosen[place])] == pytest.approx(max(gaps), abs=1e-6)


@settings(max_examples=20)
@given(st.lists(st.text(max_size=60), min_size=2, max_size=6))
def test_distance_is_zero_to_itself_symmetric_and_bounded(texts: list[str]) -> None:
    vectors = text_features(texts, 64)
    table = np.stack([distances(vectors, vector) for vector in vectors])
    assert (table.diagonal() == 0).all()
    assert (table == table.T).all()
    assert table.max() <= 2.0001


def test_any_script_and_code_have_features_of_length_one() -> None:
    texts = ["查询芒果的价格", "查询灯的库存", "def add(a, b):\n    return a + b", "price of the mango", "x", "🙂"]
    vectors = text_features(texts)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-6)
    chinese = distances(vectors, vectors[0])
    assert 0 < chinese[1] < min(chinese[2:])  # shares 查询 and 的
    assert not text_features([""]).any()
    assert text_features([]).shape == (0, 512)


def test_a_long_text_on_the_same_subject_stays_near() -> None:
    """Vectors scaled by the sum of their entries made long texts far from all, even from themselves."""
    short = "look up the price of the mango, then submit the answer"
    vectors = text_features([short, " ".join([short] * 20), "def quicksort(items): return sorted(items)"])
    to_short = distances(vectors, vectors[0])
    assert to_short[1] < 0.7 * to_short[2]


def test_features_are_the_same_in_every_process() -> None:
    """Pinned: the hash is our own, not Python's, which is salted anew in each process."""
    fifth = 5**-0.5
    assert text_features(["mango"], 8)[0].tolist() == pytest.approx(
        [-fifth, -fifth, 0, -fifth, fifth, 0, 0, fifth], abs=1e-6
    )


def test_a_loss_that_is_not_finite_is_refused() -> None:
    with pytest.raises(InvalidInput, match="expected finite losses, got others at example 2"):
        choose("hybrid", 3, [1.0, 2.0, math.nan, 1.0, math.inf])
