"""Select an agent's own runs to learn from: the best share, all above a threshold, or each with its reward as the probability.

Pure and seeded: the same runs and seed give the same selection in any order. A run without a verdict is never selected. An empty
selection is a valid result, with the reasons counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from quintain.records.evolve import Rule
from quintain.records.seeds import stable_seed


class ScoredRun(NamedTuple):
    """A candidate."""

    key: str
    """Unique among the candidates, and equal whenever the run is played again."""
    task: str
    score: float | None
    """Higher is better; None: without a verdict."""


class Selection(NamedTuple):
    """The result of `select_runs`."""

    kept: list[str]
    """Keys, in the order in which the runs came."""
    left_out: Counter[str]
    """Reason -> runs: `no_verdict`, `below_threshold`, `below_ratio` or `not_drawn`; with `kept` they add up to all."""


def select_runs(
    runs: Sequence[ScoredRun], rule: Rule, *, ratio: float = 1.0, threshold: float | None = None, seed: int = 0
) -> Selection:
    """Select runs to learn from.

    Args:
        runs: With distinct keys.
        rule: `top_k`: the best `ratio` of the runs with a verdict, a part of a run counting as a whole one, of those that earned
            `threshold`; among equal scores runs of tasks that have fewer chosen come first, then chance. `threshold`: all that
            earned it. `rejection`: each with probability min(max(score, 0), 1), independently.
        ratio: Of `top_k`, above 0, at most 1.
        threshold: Least score; None: none. Of `top_k` and `threshold`.
        seed: Of the chance.
    """
    left_out = Counter[str]()
    known: list[tuple[ScoredRun, float]] = []
    for run in runs:
        if run.score is None:
            left_out["no_verdict"] += 1
        else:
            known.append((run, run.score))
    if rule == "rejection":
        chosen = {run.key for run, score in known if _chance(seed, run.key) < score}
        left_out["not_drawn"] = len(known) - len(chosen)
    else:
        good = [(run, score) for run, score in known if threshold is None or score >= threshold]
        left_out["below_threshold"] = len(known) - len(good)
        most = len(good) if rule == "threshold" else min(len(good), math.ceil(ratio * len(known) - 1e-9))
        chosen = {run.key for run in _ranked(good, seed)[:most]}
        left_out["below_ratio"] = len(good) - most
    return Selection([run.key for run in runs if run.key in chosen], +left_out)


def _ranked(runs: Sequence[tuple[ScoredRun, float]], seed: int) -> list[ScoredRun]:
    """Return the best first; among equals the first of each task before the second of any."""
    drawn = sorted(runs, key=lambda pair: (-pair[1], _chance(seed, pair[0].key)))
    before = Counter[str]()
    ranked = list[tuple[float, int, int, ScoredRun]]()
    for run, score in drawn:
        ranked.append((-score, before[run.task], len(ranked), run))
        before[run.task] += 1
    return [run for *_, run in sorted(ranked)]


def _chance(seed: int, key: str) -> float:
    """Return a number in [0, 1) for a run."""
    return (stable_seed(seed, key) >> 10) / 2**53
