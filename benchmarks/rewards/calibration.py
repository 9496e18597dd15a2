"""Does calibration bring a biased judge closer to people? Simulated, with errors on fresh runs that no map has seen."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.figures import report
from quintain.records.labels.calibration import Calibration
from quintain.scoring.calibration.fitting import ALL, apply, fit_all

LABELS, FRESH, RUNS_OF_A_TASK, ROUNDS = 200, 2000, 4, 20


class Judged(NamedTuple):
    """Runs with what a judge and what people said of them."""

    scores: list[float]
    labels: list[float]
    tasks: list[str]


JUDGES: dict[str, Callable[[float, random.Random], float]] = {
    "lenient": lambda true, chance: 0.55 + 0.4 * true**0.5 + chance.gauss(0, 0.03),
    "compressed": lambda true, chance: 0.7 + 0.15 * true + chance.gauss(0, 0.02),
    "harsh": lambda true, chance: 0.6 * true**2 + chance.gauss(0, 0.05),
}
"""What a judge says of a run of some worth, before it is cut to 0..1."""


def judged(judge: Callable[[float, random.Random], float], n: int, seed: int) -> Judged:
    """Runs of tasks of different difficulty; people see the worth with a little noise, the judge with its bias."""
    chance = random.Random(seed)
    found = Judged([], [], [])
    for task in range(n // RUNS_OF_A_TASK):
        ease = chance.random()
        for _ in range(RUNS_OF_A_TASK):
            true = _cut(ease + chance.gauss(0, 0.2))
            found.scores.append(_cut(judge(true, chance)))
            found.labels.append(_cut(true + chance.gauss(0, 0.08)))
            found.tasks.append(f"{seed}.{task}")
    return found


def error_ratio(judge: Callable[[float, random.Random], float], seed: int, labels: int = LABELS) -> float:
    """Mean squared error on fresh runs after calibration, as a share of that before."""
    known, fresh = judged(judge, labels, 2 * seed), judged(judge, FRESH, 2 * seed + 1)
    fitted = fit_all(known.scores, known.labels, [ALL] * labels, groups=known.tasks)
    made = Calibration(id="cal-simulated-1", scorer="judge", version=1, labels="people", domains=fitted.domains)
    after = [apply(made, score, ALL) for score in fresh.scores]
    return _error(after, fresh.labels) / _error(fresh.scores, fresh.labels)


def figures(quick: bool = False) -> None:
    """Error after calibration over error before, for each judge the median over seeds."""
    rounds = 3 if quick else ROUNDS
    for name, judge in JUDGES.items():
        ratios = [error_ratio(judge, seed) for seed in range(rounds)]
        report(
            f"calibration_error_ratio_{name}",
            ratios,
            "after/before",
            0.5,
            "lower",
            labels=LABELS,
            worst=round(max(ratios), 4),
        )
    few = [error_ratio(JUDGES["lenient"], seed, 40) for seed in range(rounds)]
    report("calibration_error_ratio_40_labels", few, "after/before", 0.5, "lower", labels=40, worst=round(max(few), 4))


def _cut(value: float) -> float:
    return min(1.0, max(0.0, value))


def _error(predicted: Sequence[float], labels: Sequence[float]) -> float:
    return statistics.fmean((p - y) ** 2 for p, y in zip(predicted, labels, strict=True))


if __name__ == "__main__":
    figures()
