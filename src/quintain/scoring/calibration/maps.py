"""The maps of a calibration: isotonic regression, Platt's sigmoid, and no change at all. All are non-decreasing."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from quintain.records.calibration import CalibrationMap

UNCHANGED = CalibrationMap(method="isotonic", x=(0.0, 1.0), y=(0.0, 1.0))
"""The map that leaves every score as it is."""

_NEWTON_STEPS = 100
_RIDGE = 1e-12
_SMALLEST_STEP = 1e-10


def method_of(map: CalibrationMap) -> str:
    """How a map came about: isotonic, platt, or unchanged."""
    return "unchanged" if map == UNCHANGED else map.method


def value_of(map: CalibrationMap, score: float) -> float:
    """The map at a score; both in 0..1."""
    if map.method == "platt":
        return _sigmoid((map.slope or 0.0) * score + (map.intercept or 0.0))
    place = bisect_right(map.x, score)
    if place == 0:
        return map.y[0]
    if place == len(map.x):
        return map.y[-1]
    (x0, x1), (y0, y1) = map.x[place - 1 : place + 1], map.y[place - 1 : place + 1]
    return y0 + (y1 - y0) * (score - x0) / (x1 - x0)


def fit_isotonic(scores: Sequence[float], labels: Sequence[float]) -> CalibrationMap:
    """Isotonic regression by pooling adjacent violators (Ayer et al. 1955; for scores, Zadrozny and Elkan 2002).

    Runs with the same score count as one with their mean label and their number as weight. Knots are the ends of the pooled
    blocks, the map is linear between them and flat outside.
    """
    from scipy.optimize import isotonic_regression

    by_score: dict[float, list[float]] = {}
    for score, label in sorted(zip(scores, labels, strict=True)):
        by_score.setdefault(score, []).append(label)
    x = list(by_score)
    found = isotonic_regression(
        [math.fsum(values) / len(values) for values in by_score.values()],
        weights=[len(values) for values in by_score.values()],
    )
    y = [min(1.0, max(0.0, float(value))) for value in found.x]
    last = len(x) - 1
    ends = [i for i in range(len(x)) if i in {0, last} or y[i] != y[i - 1] or y[i] != y[i + 1]]
    return CalibrationMap(method="isotonic", x=tuple(x[i] for i in ends), y=tuple(y[i] for i in ends))


def fit_platt(scores: Sequence[float], labels: Sequence[float]) -> CalibrationMap:
    """Platt's sigmoid (Platt 1999) by Newton steps with backtracking (Lin, Lin and Weng 2007), the slope bounded to >= 0.

    Platt's targets (N+ + 1) / (N+ + 2) and 1 / (N- + 2) keep the sigmoid from saturating. A label between 0 and 1 counts
    for both sides by its share, so that labels 0 and 1 give exactly his.
    """
    import numpy as np

    x, y = np.asarray(scores, dtype=float), np.asarray(labels, dtype=float)
    high, low = (y.sum() + 1) / (y.sum() + 2), 1 / (len(y) - y.sum() + 2)
    targets = y * high + (1 - y) * low
    mean = float(targets.mean())

    def loss(slope: float, intercept: float) -> float:
        z = slope * x + intercept
        return float(np.sum(np.logaddexp(0.0, z) - targets * z))

    slope, intercept = 0.0, _logit(mean)
    for _ in range(_NEWTON_STEPS):
        predicted = np.exp(-np.logaddexp(0.0, -(slope * x + intercept)))
        off, weights = predicted - targets, predicted * (1 - predicted)
        gradient = np.array([off @ x, off.sum()])
        if np.abs(gradient).max() < 1e-9 * len(x):
            break
        hessian = np.array([[weights @ (x * x), weights @ x], [weights @ x, weights.sum()]]) + _RIDGE * np.eye(2)
        move = np.linalg.solve(hessian, gradient)
        size, least = 1.0, loss(slope, intercept)
        while size > _SMALLEST_STEP and loss(slope - size * move[0], intercept - size * move[1]) > least:
            size /= 2
        if size <= _SMALLEST_STEP:
            break
        slope, intercept = float(slope - size * move[0]), float(intercept - size * move[1])
    if slope < 0:  # the loss is convex: the best slope that is not negative is then 0
        slope, intercept = 0.0, _logit(mean)
    return CalibrationMap(method="platt", slope=slope, intercept=intercept)


def _sigmoid(z: float) -> float:
    if z >= 0:
        return 1 / (1 + math.exp(-z))
    grown = math.exp(z)
    return grown / (1 + grown)


def _logit(p: float) -> float:
    return math.log(p / (1 - p))
