"""Are several judges better when their weights are learned, and is their bias for length found and taken out? Simulated.

Errors are on fresh runs that no fit has seen. Run as `python -m benchmarks.judge_panel [--quick]`; one JSON line a figure.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.figures import report, summarize
from quintain.evaluation.bradley_terry import ELO_SCALE, Game, fit_games
from quintain.records.labels.calibration import Calibration
from quintain.scoring.calibration.fitting import ALL, apply, fit_all
from quintain.scoring.calibration.panel import JudgedRun, choose_panel, fit_panel, panel_value

FRESH, RUNS_OF_A_TASK, ROUNDS = 2000, 4, 20
BIAS = 0.06
"""Value that the verbose judge gives for a doubling."""

Judge = Callable[[float, float, random.Random], float]
"""What a judge says of a run of some worth and of some doublings above the mean length."""

UNEQUAL: dict[str, Judge] = {
    "fair": lambda worth, longer, chance: 0.3 + 0.5 * worth + chance.gauss(0, 0.06),
    "verbose": lambda worth, longer, chance: 0.2 + 0.5 * worth + BIAS * longer + chance.gauss(0, 0.08),
    "random": lambda worth, longer, chance: 0.5 + 0.1 * worth + chance.gauss(0, 0.2),
}
EQUAL: dict[str, Judge] = dict.fromkeys(("one", "two", "three"), UNEQUAL["fair"])


class _Errors(NamedTuple):
    equal: float
    panel: float
    used: bool


def judged(judges: Mapping[str, Judge], n: int, seed: int) -> list[JudgedRun]:
    """Runs whose better ones are a little longer; people see the worth with noise."""
    chance, found = random.Random(seed), []
    for task in range(n // RUNS_OF_A_TASK):
        ease = chance.random()
        for _ in range(RUNS_OF_A_TASK):
            worth = _cut(ease + chance.gauss(0, 0.2))
            longer = 0.5 * (worth - 0.5) + chance.gauss(0, 1)
            verdicts = {name: _cut(judge(worth, longer, chance)) for name, judge in judges.items()}
            chars = round(1000 * 2**longer)
            found.append(JudgedRun(verdicts, _cut(worth + chance.gauss(0, 0.08)), chars, f"{seed}.{task}"))
    return found


def errors(judges: Mapping[str, Judge], labels: int, seed: int) -> _Errors:
    """Mean squared errors on fresh runs, of the plain mean and of what fit_calibration uses, both calibrated."""
    known, fresh = judged(judges, labels, 2 * seed), judged(judges, FRESH, 2 * seed + 1)
    tasks, truth = [run.task for run in known], [run.label for run in known]
    by_mean = _calibration([_mean(run) for run in known], truth, tasks)
    equal = _error([apply(by_mean, _mean(run), ALL) for run in fresh], fresh)
    chosen = choose_panel(known)
    if chosen is None or not chosen.better:
        return _Errors(equal, equal, False)
    by_panel = _calibration(chosen.held_out, truth, tasks)
    values = [panel_value(chosen.panel, run.verdicts, run.chars, _mean(run)) for run in fresh]
    return _Errors(equal, _error([apply(by_panel, value, ALL) for value in values], fresh), True)


def figures(quick: bool = False) -> None:
    """Error of a panel over that of equal weights, coverage of the bias for length, and Elo without it."""
    rounds = 3 if quick else ROUNDS
    for name, judges, labels in (
        ("unequal_200_labels", UNEQUAL, 200),
        ("unequal_40_labels", UNEQUAL, 40),
        ("equal_200_labels", EQUAL, 200),
        ("equal_40_labels", EQUAL, 40),
    ):
        found = [errors(judges, labels, seed) for seed in range(rounds)]
        report(
            f"judge_panel_error_ratio_{name}",
            [one.panel / one.equal for one in found],
            "panel/equal weights",
            0.7 if judges is UNEQUAL else 1.05,
            "lower",
            used=sum(one.used for one in found),
        )
    covered, biases = 0, []
    n = 40 if quick else 400
    for seed in range(n):
        panel = fit_panel(judged({"verbose": UNEQUAL["verbose"]}, 100, seed))
        assert panel is not None
        fit = panel.raters["verbose"]
        covered += fit.length_low <= BIAS <= fit.length_high
        biases.append(fit.length_bias)
    mean = round(statistics.fmean(biases), 4)
    report("judge_length_bias_coverage", [100 * covered / n], "%", 92, mean=mean, true=BIAS, simulations=n)
    _elo(quick)


def _elo(quick: bool) -> None:
    """Two equal agents, one twice as wordy; a judge with log odds of 0.5 a doubling compares 400 pairs."""
    n, plain, controlled, inside = 20 if quick else 200, [], [], 0
    for seed in range(n):
        chance, games = random.Random(seed), []
        for _ in range(400):
            longer = 1 + chance.gauss(0, 1)
            won = chance.random() < 1 / (1 + math.exp(-0.5 * longer))
            games.append(Game(0, 1, float(won), float(not won), (longer,)))
        plain.append(ELO_SCALE * fit_games(2, [game._replace(covariates=()) for game in games]).difference(0, 1)[0])
        found, low, high = fit_games(2, games).difference(0, 1)
        controlled.append(ELO_SCALE * found)
        inside += low <= 0 <= high
    report("tournament_elo_lead_by_length", [statistics.fmean(plain)], "Elo points", None, simulations=n)
    report("tournament_elo_lead_without_length", [abs(statistics.fmean(controlled))], "Elo points", 5, "lower")
    report("tournament_interval_coverage", [100 * inside / n], "%", 92)


def _calibration(scores: Sequence[float], labels: Sequence[float], tasks: Sequence[str]) -> Calibration:
    fitted = fit_all(scores, labels, [ALL] * len(scores), groups=tasks)
    return Calibration(id="cal-simulated-1", scorer="judge", version=1, labels="people", domains=fitted.domains)


def _mean(run: JudgedRun) -> float:
    return statistics.fmean(run.verdicts.values())


def _error(values: Sequence[float], runs: Sequence[JudgedRun]) -> float:
    return statistics.fmean((value - run.label) ** 2 for value, run in zip(values, runs, strict=True))


def _cut(value: float) -> float:
    return min(1.0, max(0.0, value))


if __name__ == "__main__":
    figures("--quick" in sys.argv)
    summarize()
