"""Calibration: the maps are the textbook's, errors are held out, and a map that does not help is not used."""

from __future__ import annotations

import math
import random

import pytest
from benchmarks.rewards.calibration import JUDGES, error_ratio

from quintain.errors import InvalidInput
from quintain.records.labels.calibration import Calibration, CalibrationMap
from quintain.scoring.calibration.fitting import (
    ALL,
    MIN_DOMAIN_LABELS,
    apply,
    fit_all,
    rater_warnings,
    reliability,
)
from quintain.scoring.calibration.maps import UNCHANGED, fit_isotonic, fit_platt, value_of
from quintain.scoring.rank_statistics import ranks, separation, spearman, stratified_spearman


def noisy(n: int, seed: int = 0, bias: float = 0.4) -> tuple[list[float], list[float]]:
    """Scores that are the label squeezed into the upper part of the scale."""
    chance = random.Random(seed)
    labels = [chance.random() for _ in range(n)]
    return [min(1.0, max(0.0, bias + 0.5 * y + chance.gauss(0, 0.05))) for y in labels], labels


def calibration(*domains: tuple[str, CalibrationMap]) -> Calibration:
    scores, labels = noisy(60)
    (found,) = fit_all(scores, labels, [ALL] * 60).domains.values()
    fits = {name: found.model_copy(update={"map": map}) for name, map in domains}
    return Calibration(id="cal-judge-1", scorer="judge", version=1, labels="people", domains=fits)


def test_isotonic_regression_equals_scipy_and_is_linear_between_its_knots() -> None:
    """Labels 0, 1, 0, 1 at 0.1, 0.4, 0.6, 0.9: the middle two pool to 0.5, so at 0.25 it is half way between 0 and 0.5."""
    found = fit_isotonic([0.6, 0.1, 0.9, 0.4], [0, 0, 1, 1])
    assert (found.x, found.y) == ((0.1, 0.4, 0.6, 0.9), (0.0, 0.5, 0.5, 1.0))
    assert [value_of(found, x) for x in (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)] == pytest.approx([0, 0, 0.25, 0.5, 0.75, 1])

    import numpy as np
    from scipy.optimize import isotonic_regression

    chance = random.Random(3)
    scores = [round(chance.random(), 1) for _ in range(200)]
    labels = [float(chance.random() < x) for x in scores]
    found = fit_isotonic(scores, labels)
    distinct = sorted(set(scores))
    means = [np.mean([y for x, y in zip(scores, labels, strict=True) if x == at]) for at in distinct]
    expected = isotonic_regression(means, weights=[scores.count(at) for at in distinct]).x
    assert [value_of(found, at) for at in distinct] == pytest.approx(list(expected), abs=1e-12)
    assert list(found.y) == sorted(found.y)


def test_platt_scaling_is_the_minimum_of_the_cross_entropy_with_his_targets() -> None:
    """With 3 positives and 2 negatives the targets are 4/5 and 1/4 (Platt 1999, eq. 3.1)."""
    import numpy as np
    from scipy.optimize import minimize

    scores, labels = [0.1, 0.35, 0.3, 0.8, 0.9], [0, 0, 1, 1, 1]
    x, targets = np.array(scores), np.array([0.25, 0.25, 0.8, 0.8, 0.8])

    def loss(parameters: np.ndarray) -> float:
        z = parameters[0] * x + parameters[1]
        return float(np.sum(np.logaddexp(0, z) - targets * z))

    expected = minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-10})
    found = fit_platt(scores, labels)
    assert (found.slope, found.intercept) == pytest.approx(tuple(expected.x), abs=1e-5)


def test_a_sigmoid_never_falls() -> None:
    """Labels against the scores: the best slope that is not negative is 0, and the value is the mean target, 1/2 by symmetry."""
    found = fit_platt([0.1, 0.2, 0.8, 0.9], [1, 1, 0, 0])
    assert found.slope == 0
    assert value_of(found, 0.3) == pytest.approx(0.5)


@pytest.mark.parametrize("scores", [[0.5] * 20, [0.0] * 10 + [1.0] * 10])
def test_platt_scaling_ends_on_data_that_could_make_it_run_away(scores: list[float]) -> None:
    found = fit_platt(scores, [0.0] * 10 + [1.0] * 10)
    assert math.isfinite(found.slope or 0)
    assert 0 < value_of(found, 0.5) < 1


def test_the_error_that_is_reported_is_that_on_fresh_runs() -> None:
    scores, labels = noisy(300)
    found = fit_all(scores, labels, [ALL] * 300)
    fresh_scores, fresh_labels = noisy(3000, seed=1)
    made = calibration((ALL, found.domains[ALL].map))
    fresh = sum((apply(made, x, ALL) - y) ** 2 for x, y in zip(fresh_scores, fresh_labels, strict=True)) / 3000
    assert found.error_after == pytest.approx(fresh, rel=0.2)
    assert found.error_before == pytest.approx(sum((x - y) ** 2 for x, y in zip(scores, labels, strict=True)) / 300)


@pytest.mark.parametrize("judge", JUDGES)
def test_calibration_halves_the_error_of_a_biased_judge_on_fresh_runs(judge: str) -> None:
    assert error_ratio(JUDGES[judge], 1) < 0.5
    assert error_ratio(JUDGES[judge], 3, 40) < 0.5


def test_the_runs_of_a_task_stay_in_one_fold() -> None:
    """Each task has its own score and a label that is chance, so knowing the task's other runs looks like skill."""
    chance = random.Random(0)
    scores, labels, tasks = [], [], []
    for task in range(40):
        score, label = chance.random(), float(chance.random() < 0.5)
        scores += [score] * 5
        labels += [label] * 5
        tasks += [str(task)] * 5
    leaking = fit_all(scores, labels, [ALL] * 200, "isotonic").error_after
    honest = fit_all(scores, labels, [ALL] * 200, "isotonic", groups=tasks).error_after
    assert leaking + 0.02 < honest


def test_a_map_that_does_not_help_is_not_used() -> None:
    chance = random.Random(2)
    labels = [chance.random() for _ in range(100)]
    found = fit_all(labels, labels, [ALL] * 100)
    assert found.domains[ALL].map == UNCHANGED
    assert found.error_after == found.error_before == 0
    assert any("stay as they are" in warning for warning in found.warnings)
    forced = fit_all(labels, [1 - y for y in labels], [ALL] * 100, "isotonic")
    assert forced.error_after <= forced.error_before
    assert any("wrong way" in warning for warning in forced.warnings)


def test_a_domain_gets_a_map_of_its_own_only_where_it_predicts_better() -> None:
    high, low = noisy(80, 1, bias=0.45), noisy(80, 2, bias=0.0)
    few = noisy(MIN_DOMAIN_LABELS - 1, 3)
    scores, labels = high[0] + low[0] + few[0], high[1] + low[1] + few[1]
    domains = ["coding"] * 80 + ["browser"] * 80 + ["crew"] * len(few[0])
    found = fit_all(scores, labels, domains)
    assert set(found.domains) == {ALL, "coding", "browser"}
    assert any("crew (29 labels of 30)" in warning for warning in found.warnings)
    assert found.error_after < found.domains[ALL].error_after
    made = Calibration(id="c", scorer="judge", version=1, labels="people", domains=found.domains)
    assert apply(made, 0.5, "coding") < 0.3 < 0.8 < apply(made, 0.5, "browser")
    assert apply(made, 0.5, "crew") == apply(made, 0.5, ALL)

    scores, labels = noisy(400)
    domains = ["coding"] * 360 + ["browser"] * 40
    assert "browser" not in fit_all(scores, labels, domains).domains


def test_few_labels_one_task_and_raters_at_odds_are_told() -> None:
    """Two raters 0.8 apart have a standard deviation of 0.8 / sqrt(2) = 0.57 within the run."""
    scores, labels = noisy(20)
    assert any("Only 20 labels" in warning for warning in fit_all(scores, labels, [ALL] * 20).warnings)
    with pytest.raises(InvalidInput, match=r"\[too_few_labels\] 9 runs .* at least 10"):
        fit_all(scores[:9], labels[:9], [ALL] * 9)

    scores, labels = noisy(60)
    found = fit_all(scores, labels, [ALL] * 60, groups=["one"] * 60)
    assert any("one task" in warning for warning in found.warnings)

    assert "person:ann" in rater_warnings([{"person:ann": 0.5}])[0]
    assert "agreement is unknown" in rater_warnings([{"a": 0.5}, {"b": 0.5}])[0]
    assert "0.57" in rater_warnings([{"a": 0.1, "b": 0.9}] * 3)[0]
    assert rater_warnings([{"a": 0.5, "b": 0.6}] * 3) == []


@pytest.mark.parametrize(("scores", "labels", "what"), [(0.5, None, "score"), (None, 1.0, "label")])
def test_constant_scores_or_labels_change_nothing_and_are_told(
    scores: float | None, labels: float | None, what: str
) -> None:
    x, y = noisy(60)
    found = fit_all([scores] * 60 if scores else x, [labels] * 60 if labels else y, [ALL] * 60)
    assert found.domains[ALL].map == UNCHANGED
    assert found.domains[ALL].spearman is None
    assert any(f"Every {what} is" in warning for warning in found.warnings)


@pytest.mark.parametrize("bad", [1.2, -0.1, math.nan])
def test_values_outside_of_the_scale_are_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match=r"must be in 0\.\.1"):
        fit_all([bad] * 10, [0.5] * 10, [ALL] * 10)
    with pytest.raises(InvalidInput, match=r"0\.\.1"):
        apply(calibration((ALL, UNCHANGED)), bad, ALL)


def test_reliability_bins_hold_every_run_once() -> None:
    bins = reliability([0.0, 0.05, 0.95, 1.0], [0.0, 1.0, 1.0, 1.0])
    assert [(b.low, b.high, b.n, b.mean_label) for b in bins] == [(0.0, 0.1, 2, 0.5), (0.9, 1.0, 2, 1.0)]


def test_rank_statistics_are_those_of_scipy_and_delong() -> None:
    """Worked examples.

    - Positives 1, 3 and negatives 0, 2: shares of negatives below are 1/2, 1; of positives above 1, 1/2; the area
      is 3/4, both variances are 1/8, so the standard error is sqrt(1/16 + 1/16) and the lower end 0.75 - 1.96 *
      0.3536.
    - Inside of each stratum the relation falls, over both it rises.
    """
    from scipy import stats

    chance = random.Random(0)
    a = [round(chance.random(), 1) for _ in range(60)]
    b = [round(x + chance.random(), 1) for x in a]
    assert ranks(a) == list(stats.rankdata(a))
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    u = stats.mannwhitneyu(a[:20], b[20:]).statistic
    assert separation(a[:20], b[20:]).auc == pytest.approx(u / (20 * 40))
    assert spearman([1.0] * 5, [1, 2, 3, 4, 5]) is None

    found = separation([1.0, 3.0], [0.0, 2.0])
    assert found.auc == 0.75
    assert found.low == pytest.approx(0.75 - 1.96 * math.sqrt(1 / 8))
    assert found.high == 1.0

    strata = [([1.0, 2, 3, 4], [4.0, 3, 2, 1]), ([11.0, 12, 13, 14], [14.0, 13, 12, 11])]
    found = stratified_spearman(strata, permutations=99, seed=0)
    assert found is not None
    assert found[0] == pytest.approx(-1)
    assert found[1] == 1.0
