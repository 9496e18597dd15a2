"""Several judges as one: each judge's bias for length taken out, and weights learned against people's labels.

For each judge r with values x, labels y and z, the doublings of length above the mean:

- x = a + b y + g z (least squares). g is the bias for length: what a judge gives for a doubling at equal labels. It is subtracted where
  its 95 % interval does not contain 0. Noise in the labels leaves some of their own relation to length in g.
- y = c + d (x - g z), d >= 0 puts the judges on one scale.
- The weights minimize the variance of the weighted mean of these predictions, w' S w with sum(w) = 1 and w >= 0, where S_rs is the mean
  product of the errors of r and s on the runs that both judged (Bates and Granger 1969, Oper. Res. Quart. 20:451-468). Two judges that
  err alike share one weight.

A run that some judges left out gets the weighted mean of the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from quintain.records.labels.calibration import Panel, RaterFit
from quintain.scoring.calibration.agreement import krippendorff_alpha
from quintain.scoring.calibration.fitting import MIN_LABELS, squared_error, task_folds
from quintain.scoring.calibration.maps import fit_platt, value_of

if TYPE_CHECKING:
    import numpy as np

CONFIDENCE = 0.95
MIN_LENGTH_EFFECT = 0.01
"""Least change of a value by one standard deviation of the length that is subtracted."""

_RIDGE = 1e-6
"""Relative to the mean squared error of the judges; keeps their errors' products regular."""


class JudgedRun(NamedTuple):
    """A run with verdicts and a label."""

    verdicts: Mapping[str, float]
    """Judge -> value in 0..1."""
    label: float
    chars: int
    """Characters that the agent wrote."""
    task: str


class PanelChoice(NamedTuple):
    """A panel, and whether it is better than the plain mean of the judges."""

    panel: Panel
    better: bool
    held_out: list[float]
    """The panel's value of each run, from judges fitted on runs of other tasks."""


def choose_panel(runs: Sequence[JudgedRun]) -> PanelChoice | None:
    """Fit a panel, and compare it with equal weights on runs of tasks that neither was fitted to.

    Both are followed by Platt's sigmoid, so that the comparison is of weights and lengths and not of scales.

    Returns:
        None where no judge has `MIN_LABELS` labelled runs, or there is nothing to weight or to subtract.
    """
    panel = fit_panel(runs)
    if panel is None or (len(panel.raters) < 2 and not any(fit.length_taken_out for fit in panel.raters.values())):
        return None
    values = [fmean(run.verdicts.values()) for run in runs]
    weighted, equal, held_out = ([0.0] * len(runs) for _ in range(3))
    for fold in task_folds([run.task for run in runs]):
        rest = sorted(set(range(len(runs))) - set(fold))
        trained = fit_panel([runs[i] for i in rest]) or Panel(raters={}, doublings=panel.doublings)
        combined = {i: panel_value(trained, runs[i].verdicts, runs[i].chars, values[i]) for i in range(len(runs))}
        labels = [runs[i].label for i in rest]
        of_panel, of_mean = fit_platt([combined[i] for i in rest], labels), fit_platt([values[i] for i in rest], labels)
        for i in fold:
            held_out[i] = combined[i]
            weighted[i], equal[i] = value_of(of_panel, combined[i]), value_of(of_mean, values[i])
    true = [run.label for run in runs]
    by_panel, by_mean = squared_error(weighted, true), squared_error(equal, true)
    measured = {"error_equal": by_mean, "error_weighted": by_panel, "alpha": _alpha(runs)}
    return PanelChoice(panel.model_copy(update=measured), by_panel < by_mean, held_out)


def panel_value(panel: Panel, verdicts: Mapping[str, float], chars: int, mean: float) -> float:
    """Return the panel's value of a run, in 0..1; `mean` where no judge of the panel has a verdict."""
    known = {judge: panel.raters[judge] for judge in verdicts if judge in panel.raters}
    if not known:
        return mean
    total = math.fsum(fit.weight for fit in known.values())
    shares = {judge: fit.weight / total if total else 1 / len(known) for judge, fit in known.items()}
    longer = _doublings(chars) - panel.doublings
    value = math.fsum(shares[judge] * _predicted(known[judge], verdicts[judge], longer) for judge in known)
    return min(1.0, max(0.0, value))


def fit_panel(runs: Sequence[JudgedRun]) -> Panel | None:
    """Fit biases and weights of the judges with `MIN_LABELS` labelled runs; None where there is none."""
    doublings = math.fsum(_doublings(run.chars) for run in runs) / max(1, len(runs))
    fits: dict[str, RaterFit] = {}
    for judge in sorted({judge for run in runs for judge in run.verdicts}):
        own = [run for run in runs if judge in run.verdicts]
        if len(own) >= MIN_LABELS:
            fits[judge] = _fit_rater(judge, own, doublings)
    if not fits:
        return None
    weights = _weights(fits, runs, doublings)
    weighted = {judge: fit.model_copy(update={"weight": weights[judge]}) for judge, fit in fits.items()}
    return Panel(raters=weighted, doublings=doublings)


def _fit_rater(judge: str, runs: Sequence[JudgedRun], doublings: float) -> RaterFit:
    import numpy as np

    x = np.array([run.verdicts[judge] for run in runs])
    y = np.array([run.label for run in runs])
    z = np.array([_doublings(run.chars) for run in runs]) - doublings
    bias, low, high = _length_bias(x, y, z)
    taken_out = not low <= 0 <= high and abs(bias) * float(z.std()) >= MIN_LENGTH_EFFECT
    corrected = x - bias * z if taken_out else x
    spread = corrected - corrected.mean()
    slope = max(0.0, float(spread @ y) / float(spread @ spread)) if spread.any() else 0.0
    return RaterFit(
        n_labels=len(runs),
        length_bias=bias,
        length_low=low,
        length_high=high,
        length_taken_out=taken_out,
        slope=slope,
        intercept=float(y.mean() - slope * corrected.mean()),
    )


def _length_bias(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> tuple[float, float, float]:
    """Return the coefficient of z in the regression of x on y and z, with its interval by Student's t."""
    import numpy as np
    from scipy.stats import t

    design = np.stack([np.ones_like(x), y, z], axis=1)
    freedom = len(x) - 3
    if np.linalg.matrix_rank(design) < 3 or freedom < 1:
        return 0.0, 0.0, 0.0
    inverse = np.linalg.inv(design.T @ design)
    found = inverse @ design.T @ x
    error = x - design @ found
    half = float(t.ppf((1 + CONFIDENCE) / 2, freedom) * math.sqrt(error @ error / freedom * inverse[2, 2]))
    return float(found[2]), float(found[2]) - half, float(found[2]) + half


def _weights(fits: Mapping[str, RaterFit], runs: Sequence[JudgedRun], doublings: float) -> dict[str, float]:
    """Minimize w' S w with sum(w) = 1 and w >= 0: w = v / sum(v), v the least v' S v / 2 - sum(v) with v >= 0."""
    import numpy as np
    from scipy.optimize import nnls

    judges = list(fits)
    errors = np.full((len(runs), len(judges)), np.nan)
    for n, run in enumerate(runs):
        longer = _doublings(run.chars) - doublings
        for k, judge in enumerate(judges):
            if judge in run.verdicts:
                errors[n, k] = run.label - _predicted(fits[judge], run.verdicts[judge], longer)
    known = np.isfinite(errors)
    filled = np.where(known, errors, 0.0)
    common = known.T.astype(float) @ known
    products = filled.T @ filled / np.maximum(common, 1)
    values, vectors = np.linalg.eigh(products)
    least = _RIDGE * max(float(np.trace(products)) / len(judges), 1e-12)
    root = vectors * np.sqrt(np.maximum(values, least))  # root @ root.T is the nearest regular matrix of products
    found, _ = nnls(root.T, np.linalg.solve(root, np.ones(len(judges))))
    return dict(zip(judges, (found / found.sum()).tolist(), strict=True))


def _predicted(fit: RaterFit, value: float, longer: float) -> float:
    return fit.intercept + fit.slope * (value - fit.length_bias * longer * fit.length_taken_out)


def _doublings(chars: int) -> float:
    return math.log2(max(1, chars))


def _alpha(runs: Sequence[JudgedRun]) -> float | None:
    ratings: dict[str, dict[object, float]] = {}
    for n, run in enumerate(runs):
        for judge, value in run.verdicts.items():
            ratings.setdefault(judge, {})[n] = value
    return krippendorff_alpha(ratings)
