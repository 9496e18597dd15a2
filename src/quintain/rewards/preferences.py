"""Preference pairs and reward groups, mined from the values of runs of one task.

Runs of different tasks are never compared: a hard task would make every run of it look bad. A run of unknown value is no
candidate at all: missing is not failure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations
from typing import NamedTuple

from quintain.errors import InvalidInput
from quintain.records.seeds import stable_seed

_DECIMALS = 9
"""Values are compared to so many decimals: mixes of scores are sums of floats, and their rounding is no preference."""


class Candidate(NamedTuple):
    """A run that may be preferred to another one."""

    task: str
    trajectory_id: str
    value: float
    """What the run is worth, higher is better."""
    content: str | None = None
    """Digest of what the agent wrote; two runs of equal content make no pair. None: not known."""


class Preference(NamedTuple):
    """The ids of two runs of one task, the better one first."""

    task: str
    chosen: str
    rejected: str
    margin: float | None
    """Value of the chosen run less that of the rejected one; None: not known."""


class Group(NamedTuple):
    """Runs of one task, each with its reward."""

    task: str
    trajectory_ids: tuple[str, ...]
    rewards: tuple[float, ...]


class MinedPairs(NamedTuple):
    """What `mine_pairs` found; the ids in `pairs` and the counts of `runs_left_out` add up to all candidates."""

    pairs: list[Preference]
    runs_left_out: Counter[str]
    """Reason -> candidates in no pair: those of `tasks_left_out`, and `pair_limit`, by the limit for each task."""
    tasks_left_out: Counter[str]
    """Reason -> tasks without a pair: `group_of_one`, `no_contrast`, `below_margin` or `equal_sides`."""


class FormedGroups(NamedTuple):
    """What `form_groups` found."""

    groups: list[Group]
    runs_left_out: Counter[str]
    """Reason -> candidates in no group: `group_of_one` or `no_variance`."""
    tasks_left_out: Counter[str]
    """Reason -> tasks without a group."""


def mine_pairs(
    candidates: Iterable[Candidate], *, margin: float = 0.0, max_pairs_per_task: int, seed: int = 0
) -> MinedPairs:
    """Pair better runs with worse ones of the same task.

    A pair needs chosen value > rejected value + margin. Within a task, pairs of runs that are used least come first, so
    that the pairs spread over distinct runs, then the widest margins, then chance by the seed. The order of the
    candidates of a task does not matter.

    Args:
        candidates: Runs with a value each; ids are distinct.
        margin: Difference that is not enough; 0: any difference is.
        max_pairs_per_task: Bound of the pairs of one task, at least 1.
        seed: Breaks ties.

    Raises:
        InvalidInput: a margin below 0 or not finite, or a limit below 1.
    """
    if not (math.isfinite(margin) and margin >= 0):
        raise InvalidInput(f"margin is {margin}; it must be finite and at least 0")
    if max_pairs_per_task < 1:
        raise InvalidInput(f"max_pairs_per_task is {max_pairs_per_task}; it must be at least 1")
    mined = MinedPairs([], Counter(), Counter())
    for runs in _by_task(candidates):
        pairs = _of_task(runs, margin, max_pairs_per_task, seed)
        if pairs:
            used = {run for pair in pairs for run in (pair.chosen, pair.rejected)}
            unused = [run for run in runs if run.trajectory_id not in used]
            mined.runs_left_out.update(_why_unused(run, runs, margin) for run in unused)
            mined.pairs.extend(pairs)
        else:
            reason = _why_no_pair(runs, margin)
            mined.tasks_left_out[reason] += 1
            mined.runs_left_out[reason] += len(runs)
    return mined


def form_groups(candidates: Iterable[Candidate]) -> FormedGroups:
    """Gather all runs of each task with their values as rewards; a group whose rewards are all equal teaches nothing."""
    formed = FormedGroups([], Counter(), Counter())
    for runs in _by_task(candidates):
        if len(runs) == 1 or not _contrast(runs):
            reason = "group_of_one" if len(runs) == 1 else "no_variance"
            formed.tasks_left_out[reason] += 1
            formed.runs_left_out[reason] += len(runs)
        else:
            ids = tuple(run.trajectory_id for run in runs)
            formed.groups.append(Group(runs[0].task, ids, tuple(run.value for run in runs)))
    return formed


def _by_task(candidates: Iterable[Candidate]) -> Iterable[list[Candidate]]:
    tasks: defaultdict[str, list[Candidate]] = defaultdict(list)
    for run in candidates:
        tasks[run.task].append(run)
    return tasks.values()


def _of_task(runs: Sequence[Candidate], margin: float, limit: int, seed: int) -> list[Preference]:
    """The pairs of one task. As wide margins lie at the ends, a large task is searched from its ends inwards."""
    ordered = sorted(runs, key=lambda run: (run.value, stable_seed(seed, run.trajectory_id)))
    window = limit
    while True:
        ends = ordered if 2 * window >= len(ordered) else ordered[:window] + ordered[-window:]
        found = [
            Preference(worse.task, better.trajectory_id, worse.trajectory_id, _gap(better, worse))
            for worse, better in combinations(ends, 2)
            if _beats(better, worse, margin) and _differ(better, worse)
        ]
        pairs = _spread(found, limit, seed)
        if len(pairs) == limit or len(ends) == len(ordered):
            return pairs
        window *= 2


def _spread(pairs: Iterable[Preference], limit: int, seed: int) -> list[Preference]:
    """At most `limit` pairs: least used runs first, then the widest margin, then by the seed."""
    uses: Counter[str] = Counter()
    # Uses only grow, so an entry that is out of date comes up too early and is put back with its present rank.
    queue = [(0, -(pair.margin or 0.0), stable_seed(seed, pair.chosen, pair.rejected), pair) for pair in pairs]
    heapify(queue)
    taken: list[Preference] = []
    while queue and len(taken) < limit:
        ranked, width, tie, pair = heappop(queue)
        used = uses[pair.chosen] + uses[pair.rejected]
        if used > ranked:
            heappush(queue, (used, width, tie, pair))
            continue
        uses.update((pair.chosen, pair.rejected))
        taken.append(pair)
    return taken


def _gap(better: Candidate, worse: Candidate) -> float:
    return round(better.value - worse.value, _DECIMALS)


def _beats(better: Candidate, worse: Candidate, margin: float) -> bool:
    return _gap(better, worse) > round(margin, _DECIMALS)


def _differ(one: Candidate, other: Candidate) -> bool:
    return one.content is None or one.content != other.content


def _contrast(runs: Sequence[Candidate]) -> float:
    values = [run.value for run in runs]
    return round(max(values) - min(values), _DECIMALS)


def _why_no_pair(runs: Sequence[Candidate], margin: float) -> str:
    if len(runs) == 1:
        return "group_of_one"
    contrast = _contrast(runs)
    if not contrast:
        return "no_contrast"
    return "equal_sides" if contrast > round(margin, _DECIMALS) else "below_margin"


def _why_unused(run: Candidate, runs: Sequence[Candidate], margin: float) -> str:
    reason = "below_margin"
    for other in runs:
        if _beats(run, other, margin) or _beats(other, run, margin):
            if _differ(run, other):
                return "pair_limit"
            reason = "equal_sides"
    return reason
