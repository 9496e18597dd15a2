"""Rank statistics of a few thousand values at most, without heavy libraries; equal to scipy's where it has the same."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Separation(NamedTuple):
    """How well values separate two classes."""

    auc: float
    """Share of pairs in which the positive is above the negative, ties half: 1 is perfect, 0.5 is chance."""
    low: float
    high: float


def ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, ties at their mean rank."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for i in order[start:end]:
            found[i] = (start + 1 + end) / 2
        start = end
    return found


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None where one side is constant or there are fewer than two values."""
    try:
        return statistics.correlation(ranks(a), ranks(b))
    except statistics.StatisticsError:
        return None


def stratified_spearman(
    strata: Sequence[tuple[Sequence[float], Sequence[float]]], *, permutations: int, seed: int
) -> tuple[float, float] | None:
    """Rank correlation inside of strata, and how often chance gives as much.

    Ranks are taken in each stratum and centred there, so that what differs between strata does not count; the p value is
    one-sided, by shuffling inside of the strata, (1 + hits) / (1 + permutations) (Phipson and Smyth 2010).

    Returns:
        Correlation and p; None where no stratum varies on both sides.
    """
    pairs = [(_centred(a), _centred(b)) for a, b in strata]
    scale = math.sqrt(math.fsum(x * x for a, _ in pairs for x in a) * math.fsum(y * y for _, b in pairs for y in b))
    if scale < 1e-12:
        return None

    def total() -> float:
        return math.fsum(x * y for a, b in pairs for x, y in zip(a, b, strict=True)) / scale

    found = total()
    chance = random.Random(seed)
    hits = 0
    for _ in range(permutations):
        for _, b in pairs:
            chance.shuffle(b)
        hits += total() >= found - 1e-12
    return found, (1 + hits) / (1 + permutations)


def separation(positive: Sequence[float], negative: Sequence[float]) -> Separation:
    """The area under the ROC curve with its 95 % interval by DeLong, DeLong and Clarke-Pearson 1988.

    Both have at least two values; the positive ones should be high.
    """
    m, n = len(positive), len(negative)
    joint = ranks([*positive, *negative])
    own, others = ranks(positive), ranks(negative)
    above = [(joint[i] - own[i]) / n for i in range(m)]
    below = [1 - (joint[m + j] - others[j]) / m for j in range(n)]
    auc = math.fsum(above) / m
    spread = math.sqrt(variance(above) / m + variance(below) / n)
    return Separation(auc, max(0.0, auc - 1.96 * spread), min(1.0, auc + 1.96 * spread))


def _centred(values: Sequence[float]) -> list[float]:
    found = ranks(values)
    mean = (len(values) + 1) / 2
    return [rank - mean for rank in found]


def variance(values: Sequence[float]) -> float:
    """Return the sample variance of at least two values (divisor n - 1)."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
