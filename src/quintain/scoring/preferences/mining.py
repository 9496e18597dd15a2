"""Preference pairs and reward groups, mined from the values of runs of one task.

Runs of different tasks are never compared: a hard task would make every run of it look bad. A run of unknown value is no
candidate at all: missing is not failure. Runs of equal value make a tie where ties are asked for, and never a pair: nobody
said which of them is better. Runs of equal content form neither.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import combinations, pairwise
from typing import Literal, NamedTuple, Protocol, TypeVar

from quintain.errors import InvalidInput
from quintain.records.seeds import stable_seed

_DECIMALS = 9
"""Values are compared to so many decimals: mixes of scores are sums of floats, and their rounding is not a preference."""

Mode = Literal["all_pairs", "outside_in", "adjacent", "best_worst"]
"""Which runs of a task are compared: all; best with worst, second best with second worst, ...; neighbours by value; or the
best with the worst of each agent's own runs (best-of-n against worst-of-n)."""


class _OfTask(Protocol):
    @property
    def task(self) -> str: ...


Member = TypeVar("Member", bound=_OfTask)


class Candidate(NamedTuple):
    """A run that may be preferred to another one."""

    task: str
    trajectory_id: str
    value: float
    """Value of the run, higher is better."""
    content: str | None = None
    """Digest of what the agent wrote; two runs of equal content make no pair. None: not known."""
    agent: str = ""
    """Who acted; mode `best_worst` compares an agent with itself only."""


class Pair(NamedTuple):
    """The ids of two runs of one task, the better one first."""

    task: str
    chosen: str
    rejected: str
    margin: float | None
    """Value of the chosen run less that of the rejected one; None: not known."""
    step: int | None = None
    """The agent's step that is compared, all before it being shared; None: the whole runs."""
    weight: float = 1.0
    """Share of raters in agreement."""


class Tie(NamedTuple):
    """The ids of two runs of one task that are worth the same, in order."""

    task: str
    a: str
    b: str


class Group(NamedTuple):
    """Runs of one task, each with its reward."""

    task: str
    trajectory_ids: tuple[str, ...]
    rewards: tuple[float, ...]


class MinedPairs(NamedTuple):
    """Result of `mine_pairs`; the ids in `pairs` and `ties` and the counts of `runs_left_out` add up to all candidates."""

    pairs: list[Pair]
    ties: list[Tie]
    runs_left_out: Counter[str]
    """Reason -> candidates in no pair or tie: those of `tasks_left_out`; `pair_limit`, by the limit for each task; and
    `unpaired`, which the mode compares with none."""
    tasks_left_out: Counter[str]
    """Reason -> tasks without a pair or tie: `group_of_one`, `no_contrast`, `below_margin` or `equal_sides`."""


class FormedGroups(NamedTuple):
    """Result of `form_groups`."""

    groups: list[Group]
    runs_left_out: Counter[str]
    """Reason -> candidates in no group: `group_of_one` or `no_variance`."""
    tasks_left_out: Counter[str]
    """Reason -> tasks without a group."""


@dataclass(frozen=True)
class Bounds:
    """Bounds on the pairs of a task."""

    margin: float = 0.0
    """Difference that is not enough; 0: any difference is."""
    limit: int | None = None
    """Most pairs and ties of one task; None: no limit."""
    ties: bool = False
    """Also give ties of runs that are worth the same; pairs come first in the limit."""
    seed: int = 0
    """Breaks ties of rank, so that the order of the input does not."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise InvalidInput(f"expected margin to be finite and at least 0, got {self.margin}")
        if self.limit is not None and self.limit < 1:
            raise InvalidInput(f"expected `max_pairs_per_task` to be at least 1, got {self.limit}")

    def beats(self, better: float, worse: float) -> bool:
        """Whether the difference exceeds the margin."""
        return gap(better, worse) > round(self.margin, _DECIMALS)


def mine_pairs(
    candidates: Iterable[Candidate],
    *,
    mode: Mode = "all_pairs",
    margin: float = 0.0,
    max_pairs_per_task: int | None = None,
    ties: bool = False,
    seed: int = 0,
) -> MinedPairs:
    """Pair better runs with worse ones of the same task.

    A pair needs chosen value > rejected value + margin. Where the limit does not take all that the mode compares, pairs of
    runs that are used least come first, so that the pairs spread over distinct runs, then the widest margins, then chance
    by the seed. The order of the candidates of a task does not matter.

    Args:
        candidates: Runs with a value each; ids are distinct.
        mode: Which runs of a task are compared.
        margin: Difference that is not enough; 0: any difference is.
        max_pairs_per_task: Bound of the pairs (and ties) of one task, at least 1; None: no bound.
        ties: Also give ties, of what the mode compares and is worth the same.
        seed: Breaks ties of rank.
    """
    bounds = Bounds(margin, max_pairs_per_task, ties, seed)
    mined = MinedPairs([], [], Counter(), Counter())
    for runs in group_by_task(candidates):
        found = _of_task(runs, mode, bounds)
        used = {run for pair in found.pairs for run in (pair.chosen, pair.rejected)}
        used.update(run for tie in found.ties for run in (tie.a, tie.b))
        mined.pairs.extend(found.pairs)
        mined.ties.extend(found.ties)
        if used:
            unused = [run for run in runs if run.trajectory_id not in used]
            mined.runs_left_out.update(_why_unused(run, found, bounds) for run in unused)
        else:
            reason = _why_not_apart(found.compared, bounds) if found.compared else "group_of_one"
            mined.tasks_left_out[reason] += 1
            mined.runs_left_out[reason] += len(runs)
    return mined


def form_groups(candidates: Iterable[Candidate]) -> FormedGroups:
    """Gather all runs of each task with their values as rewards; a group whose rewards are all equal teaches nothing."""
    formed = FormedGroups([], Counter(), Counter())
    for runs in group_by_task(candidates):
        values = [run.value for run in runs]
        if len(runs) == 1 or not gap(max(values), min(values)):
            reason = "group_of_one" if len(runs) == 1 else "no_variance"
            formed.tasks_left_out[reason] += 1
            formed.runs_left_out[reason] += len(runs)
        else:
            ids = tuple(run.trajectory_id for run in runs)
            formed.groups.append(Group(runs[0].task, ids, tuple(values)))
    return formed


def group_by_task(members: Iterable[Member]) -> Iterable[list[Member]]:
    """The members of each task, tasks in the order in which they come first."""
    tasks: defaultdict[str, list[Member]] = defaultdict(list)
    for member in members:
        tasks[member.task].append(member)
    return tasks.values()


def gap(better: float, worse: float) -> float:
    """Difference of two values, without the noise of floats."""
    return round(better - worse, _DECIMALS)


def spread(pairs: Iterable[Pair], limit: int | None, seed: int) -> list[Pair]:
    """At most `limit` pairs: least used runs first, then the widest margin, then by the seed."""
    uses: Counter[str] = Counter()
    # Uses only grow, so an entry that is out of date comes up too early and is put back with its present rank.
    queue = [(0, -(pair.margin or 0.0), stable_seed(seed, pair.chosen, pair.rejected), pair) for pair in pairs]
    heapify(queue)
    taken: list[Pair] = []
    while queue and (limit is None or len(taken) < limit):
        ranked, width, tie, pair = heappop(queue)
        used = uses[pair.chosen] + uses[pair.rejected]
        if used > ranked:
            heappush(queue, (used, width, tie, pair))
            continue
        uses.update((pair.chosen, pair.rejected))
        taken.append(pair)
    return taken


_Compared = tuple[Candidate, Candidate]
"""The run of the lower value, and that of the higher one."""


class _Found(NamedTuple):
    """Result for one task."""

    pairs: list[Pair]
    ties: list[Tie]
    compared: list[_Compared]
    """What the mode compared, one of these for each run that it did compare; of all pairs those at the ends will do."""
    is_all: bool
    """Whether every run was compared with every other one."""


def _of_task(runs: Sequence[Candidate], mode: Mode, bounds: Bounds) -> _Found:
    ordered = sorted(runs, key=lambda run: (run.value, stable_seed(bounds.seed, run.trajectory_id)))
    if mode == "all_pairs":
        pairs = _all_pairs(ordered, bounds)
        compared = _at_the_ends(ordered)
        equals = _equals(ordered, bounds) if bounds.ties else []
    else:
        compared = _compared(ordered, mode)
        pairs = spread((_pair(*two) for two in compared if _is_pair(*two, bounds)), bounds.limit, bounds.seed)
        equals = [two for two in compared if bounds.ties and not gap(two[1].value, two[0].value) and _differ(*two)]
    ties = _ties(equals, pairs, bounds) if equals else []
    return _Found(pairs, ties, compared, mode == "all_pairs")


def _compared(ordered: Sequence[Candidate], mode: Mode) -> list[_Compared]:
    """Return the pairs that a mode compares, of runs ordered by value."""
    if mode == "outside_in":
        return [(ordered[i], ordered[-1 - i]) for i in range(len(ordered) // 2)]
    if mode == "adjacent":
        return list(pairwise(ordered))
    agents: defaultdict[str, list[Candidate]] = defaultdict(list)
    for run in ordered:
        agents[run.agent].append(run)
    own = [_at_the_ends(agents[agent]) for agent in sorted(agents)]
    # The widest of those that differ in content; where none differs, the widest gives the reason.
    return [max(ends, key=lambda two: (_differ(*two), gap(two[1].value, two[0].value))) for ends in own if ends]


def _all_pairs(ordered: Sequence[Candidate], bounds: Bounds) -> list[Pair]:
    """As wide margins lie at the ends, a large task is searched from its ends inwards."""
    if not any(_is_pair(*two, bounds) for two in _at_the_ends(ordered)):
        return []
    window = bounds.limit or len(ordered)
    while True:
        ends = ordered if 2 * window >= len(ordered) else [*ordered[:window], *ordered[-window:]]
        found = [_pair(*two) for two in combinations(ends, 2) if _is_pair(*two, bounds)]
        pairs = spread(found, bounds.limit, bounds.seed)
        if len(pairs) == bounds.limit or len(ends) == len(ordered):
            return pairs
        window *= 2


def _at_the_ends(ordered: Sequence[Candidate]) -> list[_Compared]:
    """The lowest run and the lowest of other content, each with the highest and the highest of other content.

    Whatever run of the task: the one that it differs from in content and most in value is one of these four.
    """
    low, high = _first_two(ordered), _first_two(ordered[::-1])
    return [(worse, better) for worse in low for better in high if worse is not better and worse.value <= better.value]


def _first_two(ordered: Sequence[Candidate]) -> list[Candidate]:
    other = next((run for run in ordered[1:] if _differ(run, ordered[0])), None)
    return [ordered[0]] if other is None else [ordered[0], other]


def _equals(ordered: Sequence[Candidate], bounds: Bounds) -> list[_Compared]:
    """Runs of one value and different content, two and two; no more of each value than the limit can use."""
    classes: list[list[Candidate]] = []
    for run in ordered:
        if not classes or gap(run.value, classes[-1][0].value):
            classes.append([])
        classes[-1].append(run)
    found: list[_Compared] = []
    for runs in classes:
        distinct = list({run.content or f"run:{run.trajectory_id}": run for run in runs}.values())
        most = len(distinct) if bounds.limit is None else 2 * bounds.limit
        found.extend(combinations(distinct[:most], 2))
    return found


def _ties(equals: Iterable[_Compared], pairs: Sequence[Pair], bounds: Bounds) -> list[Tie]:
    """As many ties as the limit leaves room for."""
    room = None if bounds.limit is None else bounds.limit - len(pairs)
    return [
        Tie(pair.task, *sorted((pair.chosen, pair.rejected)))
        for pair in spread((_pair(*two) for two in equals), room, bounds.seed)
    ]


def _pair(worse: Candidate, better: Candidate) -> Pair:
    return Pair(worse.task, better.trajectory_id, worse.trajectory_id, gap(better.value, worse.value))


def _is_pair(worse: Candidate, better: Candidate, bounds: Bounds) -> bool:
    return bounds.beats(better.value, worse.value) and _differ(better, worse)


def _differ(one: Candidate, other: Candidate) -> bool:
    return one.content is None or one.content != other.content


def _why_not_apart(compared: Sequence[_Compared], bounds: Bounds) -> str:
    if any(bounds.beats(better.value, worse.value) for worse, better in compared):
        return "equal_sides"
    return "below_margin" if any(gap(better.value, worse.value) for worse, better in compared) else "no_contrast"


def _why_unused(run: Candidate, found: _Found, bounds: Bounds) -> str:
    if found.is_all:
        ends = [end for two in found.compared for end in two]
        tried = [(run, end) if run.value <= end.value else (end, run) for end in ends]
    else:
        tried = [two for two in found.compared if run in two]
        if not tried:
            return "unpaired"
    if any(_is_pair(*two, bounds) for two in tried):
        return "pair_limit"
    return _why_not_apart(tried, bounds)
