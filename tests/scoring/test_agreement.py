"""Agreement of raters: numbers derived by hand, and parity with the textbook forms."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from scipy.stats import binomtest

from quintain.errors import InvalidInput
from quintain.scoring.calibration.agreement import OrderEffect, cohen_kappa, krippendorff_alpha, order_effect, point


def test_kappa_is_that_of_tables_by_hand_and_of_the_matrix_form_and_undefined_without_variance() -> None:
    """Worked examples.

    - 20 both yes, 15 both no, 5 yes/no, 10 no/yes: p_o = 35/50 = 0.7; p_e = (25*30 + 25*20)/2500 = 0.5; kappa =
      0.4.
    - a = 0 1 2, b = 0 1 1. Unweighted: p_o = 2/3, p_e = (1*1 + 1*2)/9 = 1/3, kappa = 1/2.  Quadratic: observed cost
      1, expected sum over a x b of squares = (0-0)^2 + 2*(0-1)^2 + (1-0)^2 + 0 + (2-0)^2 + 2*(2-1)^2 = 9, so 1 - 1
      * 3 / 9 = 2/3.
    - 1 - sum(w * O) / sum(w * E), with E the outer product of the margins divided by n (Cohen 1968).
    """
    a = [1] * 25 + [0] * 25
    b = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert cohen_kappa(a, b) == pytest.approx(0.4)
    # With two categories every disagreement is one step, so weights change nothing.
    assert cohen_kappa(a, b, weights="quadratic") == pytest.approx(0.4)

    assert cohen_kappa([0, 1, 2], [0, 1, 1]) == pytest.approx(1 / 2)
    assert cohen_kappa([0, 1, 2], [0, 1, 1], weights="quadratic") == pytest.approx(2 / 3)

    chance = random.Random(3)
    a = [chance.randrange(5) for _ in range(200)]
    b = [min(4, max(0, x + chance.choice((-1, 0, 0, 1)))) for x in a]
    pairs, left, right = Counter(zip(a, b, strict=True)), Counter(a), Counter(b)
    cells = [(i, j) for i in range(5) for j in range(5)]
    observed = sum((i - j) ** 2 * pairs[i, j] for i, j in cells)
    expected = sum((i - j) ** 2 * left[i] * right[j] / 200 for i, j in cells)
    assert cohen_kappa(a, b, weights="quadratic") == pytest.approx(1 - observed / expected)

    assert cohen_kappa([], []) is None
    assert cohen_kappa([1, 1], [1, 1]) is None
    assert cohen_kappa([1, 1], [0, 0]) == 0.0
    assert cohen_kappa([0, 1], [1, 0]) == -1.0
    with pytest.raises(InvalidInput, match="2 and 1 units"):
        cohen_kappa([1, 2], [1])


def test_alpha_is_krippendorffs_and_leaves_out_what_one_rater_alone_saw() -> None:
    """Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", example C: four observers, twelve units, seven missing.

    Published: nominal 0.743, interval 0.849.
    """
    ratings = {
        "A": {1: 1, 2: 2, 3: 3, 4: 3, 5: 2, 6: 1, 7: 4, 8: 1, 9: 2},
        "B": {1: 1, 2: 2, 3: 3, 4: 3, 5: 2, 6: 2, 7: 4, 8: 1, 9: 2, 10: 5, 12: 3},
        "C": {2: 3, 3: 3, 4: 3, 5: 2, 6: 3, 7: 4, 8: 2, 9: 2, 10: 5, 11: 1},
        "D": {1: 1, 2: 2, 3: 3, 4: 3, 5: 2, 6: 4, 7: 4, 8: 1, 9: 2, 10: 5, 11: 1},
    }
    assert krippendorff_alpha(ratings, level="nominal") == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha(ratings, level="interval") == pytest.approx(0.849, abs=5e-4)

    shared = {"A": {"u": 0.0, "v": 1.0}, "B": {"u": 0.0, "v": 1.0}}
    assert krippendorff_alpha(shared) == 1.0
    assert krippendorff_alpha({"A": {**shared["A"], "w": 0.3}, "B": shared["B"]}) == 1.0
    assert krippendorff_alpha({"A": {"u": 1.0}}) is None
    assert krippendorff_alpha({"A": {"u": 0.5, "v": 0.5}, "B": {"u": 0.5, "v": 0.5}}) is None
    assert krippendorff_alpha({}) is None


def test_a_rater_who_goes_by_place_is_found_out_and_one_who_goes_by_the_runs_is_not() -> None:
    """Six pairs in both orders, all for the first place: none consistent, 12 of 12 first, p = 2 / 2^12."""
    found = order_effect([("a", "a")] * 6)
    assert found == OrderEffect(6, 0, 12, 0, 0, pytest.approx(2 / 4096))

    found = order_effect([("a", "b"), ("b", "a"), ("tie", "tie"), ("b",)])
    assert found == OrderEffect(3, 3, 2, 3, 2, 1.0)
    assert order_effect([("tie",)]).p is None
    assert order_effect([]) == OrderEffect(0, 0, 0, 0, 0, None)


@pytest.mark.parametrize(("first", "second"), [(0, 1), (3, 9), (7, 7), (40, 21), (0, 12)])
def test_the_binomial_test_is_scipys(first: int, second: int) -> None:
    found = order_effect([("a",)] * first + [("b",)] * second)
    assert found.p == pytest.approx(binomtest(first, first + second).pvalue)


def test_values_fall_on_the_nearest_point_of_the_scale() -> None:
    assert [point(value) for value in (0.0, 0.1, 0.2, 0.5, 0.74, 0.9, 1.0)] == [0, 0, 1, 2, 3, 4, 4]
