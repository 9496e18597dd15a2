"""Consensus of preferences: the majority on each pair, and circles that no order of the runs satisfies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from statistics import fmean
from typing import NamedTuple

from quintain.records.labels.preference import Preference
from quintain.scoring.preferences.mining import Pair


class Consensus(NamedTuple):
    """The verdict on each pair of runs."""

    pairs: list[Pair]
    """Pairs with a winner; `weight` is the share of raters in agreement, `margin` the mean of the known margins."""
    ties: list[tuple[str, str]]
    """Pairs that most call a tie."""
    undecided: list[tuple[str, str]]
    """Pairs without a majority."""
    disagreements: int
    """Pairs that raters do not agree on, decided or not."""


def consensus(preferences: Iterable[Preference], tasks: Mapping[str, str]) -> Consensus:
    """Return the word that most raters give on each pair of runs (and step), one vote each; `tasks` has each run's task key."""
    found = Consensus([], [], [], 0)
    disagreements = 0
    for (a, b, step), votes_of_pair in _by_pair(preferences).items():
        votes = Counter(preference.chosen for preference in votes_of_pair)
        disagreements += len(votes) > 1
        winner, n = votes.most_common(1)[0]
        if list(votes.values()).count(n) > 1:
            found.undecided.append((a, b))
        elif winner is None:
            found.ties.append((a, b))
        else:
            margins = [p.margin for p in votes_of_pair if p.chosen == winner and p.margin is not None]
            loser = b if winner == a else a
            margin = fmean(margins) if margins else None
            found.pairs.append(Pair(tasks.get(winner, ""), winner, loser, margin, step, n / len(votes_of_pair)))
    return found._replace(disagreements=disagreements)


def disagreements(preferences: Iterable[Preference]) -> int:
    """Pairs of runs (and step) on which raters disagree."""
    return sum(len({preference.chosen for preference in votes}) > 1 for votes in _by_pair(preferences).values())


def circles(preferences: Iterable[Preference], limit: int = 20) -> list[tuple[str, ...]]:
    """Runs that are preferred in a circle: each to the next, and the last to the first.

    Whole runs only, by the majority on each pair. Circles that share a run are merged; at most `limit` of them.
    """
    worse_than: defaultdict[str, set[str]] = defaultdict(set)
    for pair in consensus((p for p in preferences if p.step is None), {}).pairs:
        worse_than[pair.rejected].add(pair.chosen)
    found: list[tuple[str, ...]] = []
    graph = {run: sorted(worse_than[run]) for run in sorted(worse_than)}
    while len(found) < limit:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = tuple(error.args[1][:-1])
            found.append(circle)
            gone = set(circle)
            graph = {run: [other for other in more if other not in gone] for run, more in graph.items()
                     if run not in gone}  # fmt: skip
        else:
            break
    return found


def _by_pair(preferences: Iterable[Preference]) -> dict[tuple[str, str, int | None], list[Preference]]:
    pairs: defaultdict[tuple[str, str, int | None], list[Preference]] = defaultdict(list)
    for preference in preferences:
        a, b = sorted((preference.a, preference.b))
        pairs[a, b, preference.step].append(preference)
    return pairs
