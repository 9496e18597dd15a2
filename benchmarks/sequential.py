"""Do comparisons that are looked at all the time keep their promises? `python -m benchmarks.sequential [--quick]`.

20,000 simulated studies of up to 1,000 pairs, tested after every pair: how often a test ever finds a difference where there is none,
how often a confidence sequence ever loses the true difference, and how many tasks a study plays until it is decided.
"""

from __future__ import annotations

import argparse
import math
from functools import cache

import numpy as np
from scipy.special import gammaln, ndtri

from benchmarks.figures import report, say, summarize
from quintain.evaluation.statistics.sequential import LEVEL, log_capitals, sequential_test
from quintain.evaluation.statistics.significance import mcnemar_exact, mcnemar_mid_p

PAIRS = 1000
BLOCK = 1000
"""Studies in memory at a time."""
MARGIN = 0.05
LOOK = 16
"""Tasks between two looks of a comparison's job."""

Draw = tuple[float, float]
"""Probabilities that only a and that only b solves a task."""


def differences(rng: np.random.Generator, studies: int, draw: Draw, repeats: int = 1) -> np.ndarray:
    """Return b - a per task, shape [studies, PAIRS]; with repeats, means over independent ones of tasks of differing difficulty."""
    if repeats == 1:
        return rng.choice([-1.0, 1.0, 0.0], p=[*draw, 1 - sum(draw)], size=(studies, PAIRS))
    rate = rng.beta(1, 1, size=(studies, PAIRS)) * (1 - (draw[1] - draw[0]))
    a, b = rng.binomial(repeats, rate), rng.binomial(repeats, rate + draw[1] - draw[0])
    return (b - a) / repeats


def first(reached: np.ndarray) -> np.ndarray:
    """Return the first time that is true per study, PAIRS + 1 where none is."""
    return np.where(reached.any(-1), reached.argmax(-1) + 1, PAIRS + 1)


def e_values_reach(d: np.ndarray) -> np.ndarray:
    """Return whether the e-value of discordant tasks is at least 1 / level, per study and time."""
    a, b = np.cumsum(d < 0, -1), np.cumsum(d > 0, -1)
    log = gammaln(a + 0.5) + gammaln(b + 0.5) - gammaln(a + b + 1) - math.log(math.pi) + (a + b) * math.log(2)
    return np.asarray(log >= math.log(1 / LEVEL))


def mcnemar_z_reaches(d: np.ndarray) -> np.ndarray:
    """Return whether McNemar's z is significant at 5 %, per study and time: what peeking at a fixed-size test does."""
    n = np.maximum(np.cumsum(d != 0, -1), 1)
    return np.asarray(np.abs(np.cumsum(d, -1)) / np.sqrt(n) >= ndtri(1 - LEVEL / 2))


def rejects(d: np.ndarray, mean: float, *, mixture: bool = False) -> np.ndarray:
    """Return whether the betting test rejects a true difference of `mean`, per study and time.

    Args:
        d: Differences.
        mean: The difference.
        mixture: Whether to use the mean of the two capitals (the e-value of fractions), not the larger one (the interval).
    """
    up, down = (log[..., 0] for log in log_capitals((d + 1) / 2, np.array([(mean + 1) / 2])))
    joint = np.logaddexp(up, down) if mixture else np.maximum(up, down)
    return np.asarray(joint >= math.log(2 / LEVEL))


def blocks(rng: np.random.Generator, studies: int, draw: Draw, repeats: int = 1) -> list[np.ndarray]:
    return [differences(rng, min(BLOCK, studies - done), draw, repeats) for done in range(0, studies, BLOCK)]


def false_alarms(studies: int) -> None:
    """A/A: share of studies in which a test is ever significant within 1,000 looks."""
    rng, goal = np.random.default_rng(0), LEVEL
    for discordant in (0.02, 0.1, 0.3, 0.6):
        drawn, about = blocks(rng, studies, (discordant / 2,) * 2), f"{discordant:.0%} discordant"
        share = np.mean([e_values_reach(d).any(-1).mean() for d in drawn])
        report(f"A/A e-value, {about}, ever rejected", [float(share)], "share", goal, "lower")
        share = np.mean([rejects(d, 0.0).any(-1).mean() for d in drawn])
        report(f"A/A confidence sequence, {about}, ever rejected", [float(share)], "share", goal, "lower")
        share = np.mean([mcnemar_z_reaches(d).any(-1).mean() for d in drawn])
        report(f"A/A McNemar looked at each time, {about}", [float(share)], "share", None, "lower")
    share = np.mean([rejects(d, 0.0, mixture=True).any(-1).mean() for d in blocks(rng, studies, (0, 0), repeats=4)])
    report("A/A e-value of means of 4 repeats, ever rejected", [float(share)], "share", goal, "lower")
    for draw in ((0.05, 0.15), (0.0, 0.1), (0.3, 0.35)):
        true = draw[1] - draw[0]
        share = np.mean([rejects(d, true).any(-1).mean() for d in blocks(rng, studies, draw)])
        report(f"confidence sequence ever loses {true:+.0%}", [float(share)], "share", goal, "lower")


def savings(studies: int) -> None:
    """Tasks of a study with the e-value alone, and with all rules of a comparison's job, looked at every 16 tasks."""
    rng = np.random.default_rng(1)
    for draw in ((0.1, 0.2), (0.1, 0.15), (0.05, 0.25)):
        about = f"{draw[1]:.0%} against {draw[0]:.0%} discordant"
        stops = np.concatenate([first(e_values_reach(d)) for d in blocks(rng, studies, draw)])
        found = float((stops <= PAIRS).mean())
        report(
            f"e-value, {about}, median stop of 1,000", [float(np.median(stops))], "tasks", None, "lower", power=found
        )
    for draw in ((0.1, 0.2), (0.1, 0.15), (0.15, 0.15), (0.01, 0.01)):
        drawn = differences(rng, studies // 200, draw)
        ends = [_played(d) for d in drawn]
        names = [decision for decision, _ in ends]
        shares = {name: round(names.count(name) / len(names), 3) for name in sorted(set(names))}
        about = f"{draw[1]:.0%} against {draw[0]:.0%} discordant"
        report(
            f"all rules, {about}, tasks of 1,000",
            [float(np.mean([n for _, n in ends]))],
            "tasks",
            None,
            "lower",
            **shares,
        )


def _played(d: np.ndarray) -> tuple[str, int]:
    """Return how a study ends by all rules, and after how many tasks."""
    values = d.tolist()
    for n in range(LOOK, PAIRS + LOOK, LOOK):
        test = sequential_test(values[:n], PAIRS, MARGIN, is_binary=True)
        if test.decision != "undecided":
            break
    return test.decision, test.n_tasks


def mid_p(studies: int) -> None:
    """Share of A/A studies of a fixed size that the exact and the mid-p McNemar test reject."""
    rng = np.random.default_rng(2)
    exact, mid = cache(mcnemar_exact), cache(mcnemar_mid_p)
    for n in (30, 100, 300):
        tables = rng.multinomial(n, [0.15, 0.15, 0.7], size=studies)[:, :2].tolist()
        shares = [float(np.mean([test(a, b) < LEVEL for a, b in tables])) for test in (exact, mid)]
        report(f"A/A exact McNemar, n={n}, rejected", shares[:1], "share", None, "lower")
        report(f"A/A mid-p McNemar, n={n}, rejected", shares[1:], "share", LEVEL + 0.005, "lower")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 studies in place of 20,000")
    studies = 2000 if parser.parse_args().quick else 20_000
    for case in (false_alarms, savings, mid_p):
        say(f"{case.__name__}: {studies} studies each")
        case(studies)
    summarize()


if __name__ == "__main__":
    main()
