"""Agreement of raters over what is stored: values of runs, preferences between runs, and the order of showing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from statistics import fmean

from quintain.records.labels.judging import JudgingBatch, Vote
from quintain.records.labels.preference import Preference
from quintain.scoring.calibration.agreement import cohen_kappa, krippendorff_alpha, order_effect, point
from quintain.tools.labels.judging.results import Agreement, OrderReport, PairOfRaters
from quintain.tools.services import Services

_DIGITS = 4
_MOST_PAIRS = 10
"""Pairs of raters that an answer lists: those with most runs in common."""

_Values = dict[str, dict[Hashable, float]]
"""Rater -> run (with the criteria that it was judged by) -> value."""


def agreement(services: Services, batches: Iterable[JudgingBatch], rater: str | None = None) -> Agreement | None:
    """Return how far raters agree on the runs of some batches; None for a single rater without a pair shown in both orders.

    Values are each rater's newest; they are combined only where the criteria are the same.
    With a rater only pairs of this rater with others count.
    """
    batches = list(batches)
    ids = list(dict.fromkeys(run for batch in batches for item in batch.items for run in item.trajectory_ids))
    values = _values(services, ids)
    preferences = _preference_values(services.store.preferences.among(ids))
    pairs = [
        found
        for a, b in combinations(sorted(values), 2)
        if rater in {None, a, b} and (found := _pair(a, b, values)) is not None
    ]
    order = _orders(batches, rater)
    shared, compared = _shared(values), _shared(preferences)
    if not (pairs or compared or order):
        return None
    return Agreement(
        raters={name: len(found) for name, found in sorted(values.items())},
        shared_runs=shared,
        alpha=_rounded(krippendorff_alpha(values)),
        pairs=tuple(sorted(pairs, key=lambda pair: -pair.n)[:_MOST_PAIRS]),
        shared_preferences=compared,
        preference_alpha=_rounded(krippendorff_alpha(preferences, level="nominal")),
        order=tuple(order),
    )


def _values(services: Services, ids: Sequence[str]) -> _Values:
    values: _Values = defaultdict(dict)
    for run, scores in services.store.scores.by_scorers(("judge", "people"), ids).items():
        for score in scores:  # newest first
            criteria = frozenset(part.name for part in score.components)
            if score.value is not None and score.rater is not None:
                values[score.rater].setdefault((run, criteria), score.value)
    return dict(values)


def _preference_values(preferences: Iterable[Preference]) -> _Values:
    """Rater -> pair of runs (stored in the order of their ids) -> -1, 0 or 1."""
    values: _Values = defaultdict(dict)
    for one in preferences:
        if one.rater is not None and one.step is None:
            values[one.rater][one.a, one.b] = {"a": 1.0, "tie": 0.0, "b": -1.0}[one.better]
    return dict(values)


def _shared(values: _Values) -> int:
    """Units that several raters judged."""
    return sum(n > 1 for n in Counter(unit for units in values.values() for unit in units).values())


def _pair(a: str, b: str, values: _Values) -> PairOfRaters | None:
    both = [unit for unit in values[a] if unit in values[b]]
    if not both:
        return None
    one, other = ([values[rater][unit] for unit in both] for rater in (a, b))
    points = [point(value) for value in one], [point(value) for value in other]
    return PairOfRaters(
        a=a,
        b=b,
        n=len(both),
        kappa=_rounded(cohen_kappa(*points)),
        kappa_weighted=_rounded(cohen_kappa(*points, weights="quadratic")),
        mean_difference=round(fmean(one) - fmean(other), _DIGITS),
    )


def _orders(batches: Iterable[JudgingBatch], rater: str | None) -> list[OrderReport]:
    votes: defaultdict[str, list[tuple[Vote, ...]]] = defaultdict(list)
    for batch in batches:
        if batch.mode != "pairwise" or rater not in {None, batch.rater}:
            continue
        again = {item.repeats: item.item_id for item in batch.items if item.repeats is not None}
        for item in batch.items:
            if item.repeats is None:
                cast = (batch.votes.get(item.item_id), batch.votes.get(again.get(item.item_id, "")))
                votes[batch.rater].append(tuple(found[-1] for found in cast if found))
    reports = []
    for name, rows in sorted(votes.items()):
        effect = order_effect(row for row in rows if row)
        if effect.swapped:
            reports.append(
                OrderReport(
                    rater=name,
                    swapped=effect.swapped,
                    consistent=effect.consistent,
                    first=effect.first,
                    second=effect.second,
                    p=_rounded(effect.p),
                )
            )
    return reports


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
