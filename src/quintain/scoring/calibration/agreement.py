"""How far raters agree, and whether the order of showing sways them. Undefined is None, never a number.

- Cohen's kappa of two raters, unweighted or weighted: (p_o - p_e) / (1 - p_e), Cohen 1960 and 1968.
- Krippendorff's alpha of any number of raters, some of whom left units out: 1 - D_o / D_e, Krippendorff 2004, ch. 11.
- The order effect of pairs that one rater saw in both orders, with an exact binomial test of the first place.

1 is full agreement, 0 what chance gives, below 0 less than chance.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from math import comb
from typing import Literal, NamedTuple

from quintain.errors import InvalidInput
from quintain.records.labels.judging import Vote

Weights = Literal["none", "quadratic"]
Level = Literal["nominal", "interval"]
POINTS = 5
"""Points of the scale that values in 0..1 are put on before kappa: 0, 0.25, 0.5, 0.75, 1."""


class OrderEffect(NamedTuple):
    """Effect of the order of showing on a rater's choices."""

    swapped: int
    """Pairs that were answered in both orders."""
    consistent: int
    """Of these: the same run was preferred, or both were ties."""
    first: int
    """Votes for the run that was shown first, over all pairs."""
    second: int
    """Votes for the run that was shown second."""
    ties: int
    p: float | None
    """Two-sided exact binomial test that first and second are equally likely; None: no vote but ties."""


def point(value: float) -> int:
    """The point of the scale, from 0, that is nearest to a value in 0..1."""
    return round(value * (POINTS - 1))


def cohen_kappa(a: Sequence[int], b: Sequence[int], *, weights: Weights = "none") -> float | None:
    """Agreement of two raters on the same units, less what chance gives.

    Args:
        a: The first rater's category of each unit, as a whole number.
        b: The second rater's, in the same order.
        weights: none: any disagreement counts 1; quadratic: the square of the distance of the categories.

    Returns:
        At most 1; None where it is not defined: no unit, or both raters gave one and the same category to all.

    Raises:
        InvalidInput: the two are of different length.
    """
    if len(a) != len(b):
        raise InvalidInput(f"the raters have {len(a)} and {len(b)} units; give both raters' word on the same units")
    cost = _apart if weights == "none" else _squared
    left, right = Counter(a), Counter(b)
    expected = sum(cost(x, y) * n * m for x, n in left.items() for y, m in right.items())
    if not expected:
        return None
    return 1 - sum(map(cost, a, b)) * len(a) / expected


def krippendorff_alpha(ratings: Mapping[str, Mapping[Hashable, float]], *, level: Level = "interval") -> float | None:
    """Agreement of any number of raters, on whatever units two of them have in common.

    Args:
        ratings: Rater -> unit -> value; units that a rater left out are missing, not zero.
        level: How far apart two values are: nominal 0 or 1, interval the square of their difference.

    Returns:
        At most 1; None where it is not defined: no unit with two raters, or all values equal.
    """
    units: defaultdict[Hashable, list[float]] = defaultdict(list)
    for values in ratings.values():
        for unit, value in values.items():
            units[unit].append(value)
    shared = [values for values in units.values() if len(values) > 1]
    cost = _apart if level == "nominal" else _squared
    everything = Counter(chain.from_iterable(shared))
    n = everything.total()
    # Ordered pairs; each unit's are divided by its raters less one, so that every value counts once.
    observed = sum(_all_pairs(Counter(values), cost) / (len(values) - 1) for values in shared)
    expected = _all_pairs(everything, cost)
    if not expected:
        return None
    return 1 - observed * (n - 1) / expected


def order_effect(votes: Iterable[Sequence[Vote]]) -> OrderEffect:
    """Measure the effect of showing a pair in the other order, for one rater.

    Args:
        votes: One entry a pair: its vote, and where it was shown again in the other order, that vote too. Each names the
            better one by its place in that order.
    """
    rows = [tuple(row) for row in votes]
    both = [row for row in rows if len(row) > 1]
    places = Counter(chain.from_iterable(rows))
    first, second = places["a"], places["b"]
    return OrderEffect(
        swapped=len(both),
        consistent=sum(one == flipped(other) for one, other, *_ in both),
        first=first,
        second=second,
        ties=places["tie"],
        p=even_odds(first, second),
    )


def flipped(vote: Vote) -> Vote:
    """The same word on the same two runs, shown in the other order."""
    flips: dict[Vote, Vote] = {"a": "b", "b": "a", "tie": "tie"}
    return flips[vote]


def even_odds(k: int, m: int) -> float | None:
    """Two-sided exact binomial p of k against m under equal odds, where both tails are alike."""
    n = k + m
    if not n:
        return None
    tail = sum(comb(n, i) for i in range(min(k, m) + 1))
    return min(1.0, float(Fraction(2 * tail, 2**n)))


def _all_pairs(values: Counter[float], cost: Callable[[float, float], float]) -> float:
    """The summed distance over all ordered pairs of values."""
    return sum(cost(x, y) * n * m for x, n in values.items() for y, m in values.items())


def _apart(x: float, y: float) -> float:
    return float(x != y)


def _squared(x: float, y: float) -> float:
    return (x - y) ** 2
