"""Several judges as one: weights and biases on designs whose least squares are known by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from quintain.scoring.calibration.panel import JudgedRun, choose_panel, fit_panel, panel_value

N = 16


def sign(i: int, bit: int) -> int:
    """Column of a Hadamard matrix: orthogonal to every other one and to a constant."""
    return 1 if i >> bit & 1 else -1


def runs_of(judges: Mapping[str, Sequence[float]], labels: Sequence[float], chars: Sequence[int]) -> list[JudgedRun]:
    return [
        JudgedRun({judge: values[i] for judge, values in judges.items()}, labels[i], chars[i], f"t{i}")
        for i in range(len(labels))
    ]


def two_judges() -> tuple[dict[str, list[float]], list[float]]:
    """Errors of 0.05 and of sqrt(3) 0.05, orthogonal to each other and to the values."""
    small, large = 0.05, 0.05 * math.sqrt(3)
    shared = [0.5 + 0.1 * sign(i, 0) for i in range(N)]
    good = [shared[i] + large * sign(i, 1) for i in range(N)]
    poor = [shared[i] + small * sign(i, 2) for i in range(N)]
    return {"good": good, "poor": poor}, [shared[i] + large * sign(i, 1) + small * sign(i, 2) for i in range(N)]


def test_weights_are_inverse_to_the_variances_of_independent_errors() -> None:
    judges, labels = two_judges()
    panel = fit_panel(runs_of(judges, labels, [100] * N))
    assert panel is not None
    assert {judge: fit.weight for judge, fit in panel.raters.items()} == pytest.approx({"good": 0.75, "poor": 0.25})
    assert [(fit.slope, fit.intercept) for fit in panel.raters.values()] == [pytest.approx((1, 0))] * 2
    both = {judge: values[3] for judge, values in judges.items()}
    assert panel_value(panel, both, 100, 0.0) == pytest.approx(0.75 * both["good"] + 0.25 * both["poor"])
    assert panel_value(panel, {"poor": 0.3, "unknown": 1.0}, 100, 0.0) == pytest.approx(0.3)
    assert panel_value(panel, {"unknown": 1.0}, 100, 0.4) == 0.4


def test_judges_that_err_alike_share_one_weight() -> None:
    judges, labels = two_judges()
    panel = fit_panel(runs_of({**judges, "again": judges["good"]}, labels, [100] * N))
    assert panel is not None
    assert panel.raters["poor"].weight == pytest.approx(0.25, abs=1e-3)
    assert panel.raters["good"].weight + panel.raters["again"].weight == pytest.approx(0.75, abs=1e-3)


def test_what_a_judge_gives_for_length_at_equal_labels_is_subtracted() -> None:
    """Values are the label, 0.5 or 0.7, halved, and 0.1 for each doubling, with a small error of their own.

    Length is not related to the label here; where it is, as in the second case, the label's own relation stays.
    """
    error = [0.01 * sign(i, 2) for i in range(N)]
    for related in (False, True):
        chars = [128 if sign(i, 3) > 0 or (related and sign(i, 0) > 0 and sign(i, 1) > 0) else 64 for i in range(N)]
        labels = [0.6 + 0.1 * sign(i, 0) for i in range(N)]
        values = [0.5 * labels[i] + 0.1 * math.log2(chars[i] / 64) + error[i] for i in range(N)]
        panel = fit_panel(runs_of({"judge": values}, labels, chars))
        assert panel is not None
        (fit,) = panel.raters.values()
        assert fit.length_taken_out
        assert fit.length_bias == pytest.approx(0.1)
        assert fit.length_low < 0.1 < fit.length_high
        long, short = panel_value(panel, {"judge": 0.4}, 128, 0), panel_value(panel, {"judge": 0.3}, 64, 0)
        assert long == pytest.approx(short)


def test_a_bias_whose_interval_contains_0_is_reported_and_not_subtracted() -> None:
    judges, labels = two_judges()
    values = [value + 0.01 * sign(i, 3) for i, value in enumerate(judges["good"])]
    chars = [128 if sign(i, 3) > 0 else 64 for i in range(N)]
    panel = fit_panel(runs_of({"good": values}, labels, chars))
    assert panel is not None
    (fit,) = panel.raters.values()
    assert fit.length_bias == pytest.approx(0.02)
    assert fit.length_low < 0 < fit.length_high
    assert not fit.length_taken_out


def test_a_panel_is_compared_with_equal_weights_on_tasks_that_it_was_not_fitted_to() -> None:
    """The poor judge answers by chance, so the mean of both is worse; two equally good judges gain nothing."""
    labels = [round((7 * i % 40) / 40, 3) for i in range(40)]
    chance = [(11 * i % 40) / 40 for i in range(40)]
    good = [0.2 + 0.6 * y + 0.05 * sign(i, 1) for i, y in enumerate(labels)]
    chosen = choose_panel(runs_of({"good": good, "chance": chance}, labels, [100] * 40))
    assert chosen is not None
    assert chosen.better
    assert chosen.panel.raters["good"].weight > 0.9
    assert (chosen.panel.error_weighted or 1) < (chosen.panel.error_equal or 0) / 3
    assert chosen.panel.alpha is not None
    twins = choose_panel(runs_of({"good": good, "again": good}, labels, [100] * 40))
    assert twins is not None
    assert twins.panel.alpha == pytest.approx(1)
    assert choose_panel(runs_of({"good": good}, labels, [100] * 40)) is None
    assert choose_panel(runs_of({"good": good[:9]}, labels[:9], [100] * 9)) is None
