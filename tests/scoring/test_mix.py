"""Mixes, lower bounds and caps with numbers derived by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.errors import InvalidInput
from quintain.records.labels.reward import Combine
from quintain.records.score import Score, StepScore
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.scoring.mix import MixScorer, WeightedScorer, cap_score
from quintain.scoring.outcomes.whole_run_scores import scored, unscored
from quintain.scoring.registry import scorer
from trajectory_runs import run


class Fixed:
    """Says one value of every run, and of its steps; None: unscored."""

    def __init__(self, name: str, value: float | None, *steps: float | None) -> None:
        self.name, self.value = name, value
        self.steps = tuple(StepScore(step=place, value=one) for place, one in enumerate(steps))

    def score(self, trajectory: Trajectory) -> Score:
        if self.value is None:
            return unscored(trajectory, self.name, "cannot tell")
        return scored(trajectory, self.name, self.value, f"{self.name} says {self.value}.", steps=self.steps)


def test_a_mix_is_the_weighted_mean_its_lower_bound_takes_the_spread_off_and_a_cap_bounds_it() -> None:
    """Worked examples.

    - (3 x 1 + 1 x 1/2) / 4 = 7/8.
    - Shares 3/4 and 1/4, values 1 and 1/2: mean 7/8, variance 3/4 (1/8)^2 + 1/4 (3/8)^2 = 3/64, so 7/8 - sqrt(3)/8.
    """
    score = MixScorer([WeightedScorer(Fixed("b", 0.5), 1), WeightedScorer(Fixed("a", 1.0), 3)]).score(run())
    assert score.value == pytest.approx(7 / 8)
    assert [(p.name, p.weight, p.value) for p in score.components] == [("a", 0.75, 1.0), ("b", 0.25, 0.5)]
    assert (score.scorer, score.feedback) == ("mix(a=3, b=1)", "a says 1.0. b says 0.5.")

    parts = [WeightedScorer(Fixed("a", 1.0), 3), WeightedScorer(Fixed("b", 0.5), 1)]
    score = MixScorer(parts, "lower_bound").score(run())
    assert score.value == pytest.approx(7 / 8 - math.sqrt(3) / 8)
    assert score.scorer == "mix(a=3, b=1, lower_bound)"
    agreed = MixScorer([WeightedScorer(Fixed("a", 0.6), 1), WeightedScorer(Fixed("b", 0.6), 5)], "lower_bound").score(
        run()
    )
    assert agreed.value == pytest.approx(0.6)

    high, low = scored(run(), "rules", 0.95, "Good."), scored(run(), "mix(a=1, b=1)", 0.5)
    assert (cap_score(high, 0.8).value, cap_score(high, 0.8).scorer) == (0.8, "mix(rules=1, cap=0.8)")
    assert cap_score(high, 0.8).feedback == "Capped at 0.8 from 0.95. Good."
    assert (cap_score(low, 0.8).value, cap_score(low, 0.8).scorer) == (0.5, "mix(a=1, b=1, cap=0.8)")
    assert cap_score(unscored(run(), "rules", "no"), 0.8).value is None


def test_weights_and_caps_that_differ_in_the_seventh_digit_have_names_of_their_own() -> None:
    def named(weight: float, cap: float) -> str:
        parts = [WeightedScorer(Fixed("a", 1.0), weight), WeightedScorer(Fixed("b", 0.5), 1)]
        return cap_score(MixScorer(parts).score(run()), cap).scorer

    assert named(0.25, 0.5) == "mix(a=0.25, b=1, cap=0.5)"
    assert len({named(1 / 3, 0.5), named(0.333333, 0.5), named(1 / 3, 0.5000001)}) == 3


def test_a_product_earns_nothing_where_a_factor_is_0_and_weights_are_exponents() -> None:
    """1/4 x (1/4)^(1/2) = 1/8; a known 0 settles the value, whatever an unscored factor is worth."""
    parts = [
        WeightedScorer(Fixed("a", 0.25), 1),
        WeightedScorer(Fixed("b", 0.25), 0.5),
        WeightedScorer(Fixed("c", 0), 0),
    ]
    score = MixScorer(parts, "product").score(run())
    assert (score.value, score.scorer) == (0.125, "mix(a=1, b=0.5, c=0, product)")
    assert [(p.name, p.weight, p.value) for p in score.components] == [("a", 1, 0.25), ("b", 0.5, 0.25), ("c", 0, 0)]
    unknown = WeightedScorer(Fixed("short", None), 1)
    wrong, right = WeightedScorer(Fixed("outcome", 0), 1), WeightedScorer(Fixed("outcome", 1), 1)
    assert MixScorer([wrong, unknown], "product").score(run()).value == 0
    assert MixScorer([right, unknown], "product").score(run()).reason == "short: cannot tell"
    with pytest.raises(InvalidInput, match="exponent of at most 10 for 'outcome'"):
        scorer({"outcome": 11, "length": 1}, combine="product")


@pytest.mark.parametrize("combine", ["lower_bound", "product"])
def test_a_lower_bound_or_product_of_one_part_is_refused(combine: Combine) -> None:
    for parts in (
        [WeightedScorer(Fixed("a", 1.0), 1)],
        [WeightedScorer(Fixed("a", 1.0), 1), WeightedScorer(Fixed("b", 0.5), 0)],
    ):
        with pytest.raises(InvalidInput, match="at least two"):
            MixScorer(parts, combine)
    with pytest.raises(InvalidInput, match="at least two"):
        scorer("outcome", combine=combine)


def test_steps_of_a_mix_have_the_weighted_mean_of_the_parts_that_value_them_and_count() -> None:
    """Weights 3 and 1: (3 x 1 + 1 x 1/2) / 4 = 7/8; the second step has one value, the third none; a part of weight 0 is logged."""
    whole, logged = WeightedScorer(Fixed("c", 1.0), 2), WeightedScorer(Fixed("d", 1.0, 0.1, 0.2, 0.3), 0)
    first, second = Fixed("a", 1.0, 1.0, None, None), Fixed("b", 1.0, 0.5, 0.25)
    both = MixScorer([WeightedScorer(first, 3), WeightedScorer(second, 1), whole, logged]).score(run())
    assert [(step.step, step.value) for step in both.steps] == [(0, 7 / 8), (1, 0.25), (2, None)]
    assert MixScorer([WeightedScorer(second, 1), whole, logged]).score(run()).steps == second.steps
    assert MixScorer([whole, logged]).score(run()).steps == ()


def test_a_mix_with_an_unscored_part_is_unscored_and_names_it() -> None:
    known, unknown = Fixed("a", 1.0), Fixed("b", None)
    score = MixScorer([WeightedScorer(known, 0.4), WeightedScorer(unknown, 0.6)]).score(run())
    assert (score.status, score.value, score.reason) == ("unscored", None, "b: cannot tell")
    assert MixScorer([WeightedScorer(known, 0.4), WeightedScorer(unknown, 0)]).score(run()).value == 1.0

    score = scorer({"outcome": 0.4, "rules": 0.6}).score(run(status=OutcomeStatus.UNKNOWN))
    assert (score.status, score.reason) == ("unscored", "outcome: the outcome is unknown, which is not a verdict")


@given(st.floats(0, 1e6), st.floats(1e-6, 1e6), st.floats(0, 1), st.floats(0, 1))
def test_a_mix_stays_in_bounds_and_its_lower_bound_below_it(first: float, second: float, a: float, b: float) -> None:
    parts = [WeightedScorer(Fixed("a", a), first), WeightedScorer(Fixed("b", b), second)]
    mean = MixScorer(parts).score(run())
    assert mean.value is not None
    assert 0 <= mean.value <= 1
    assert math.fsum(part.weight for part in mean.components) == pytest.approx(1)
    if first:
        bound = MixScorer(parts, "lower_bound").score(run()).value
        assert bound is not None
        assert 0 <= bound <= mean.value + 1e-9


@pytest.mark.parametrize("mix", [{}, {"outcome": 0}, {"outcome": -1}, {"outcome": float("nan")}])
def test_a_mix_with_senseless_weights_is_refused(mix: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        scorer(mix)
