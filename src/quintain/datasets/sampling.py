"""Reduce datasets: the best share of the runs, and seeded samples by task class, independent of row order."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, get_args

from quintain.datasets.row_files import value_inside
from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import task_key
from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.dataset import Curation, TaskClass
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Actor, Trajectory
from quintain.records.wording import counted, shown


class RunValue(NamedTuple):
    """A candidate run without its content."""

    trajectory_id: str
    value: float | None
    """Value of the run; higher is better."""
    task_class: TaskClass | None = None
    task: str = ""
    fields: tuple[str | None, ...] = ()
    """Its value of each field of `Curation.best_per`; None: its log states none."""


def run_value(run: Trajectory, value: float | None, task_class: TaskClass | None, curation: Curation) -> RunValue:
    """Return a run as a candidate, with what it shares with those among which the curation picks the best."""
    task = "" if curation.best_per_task is None else task_key(run)
    return RunValue(run.identified().id or "", value, task_class, task, _stated(run, curation.best_per or ()))


def best_runs(picks: Sequence[RunValue], curation: Curation, seed: int, tally: ExportCounts) -> list[RunValue]:
    """Return the best runs of each task and of each value of a field, then the best share of those, as the curation asks.

    Raises:
        InvalidInput: No run states a field of `best_per`.
    """
    stay = list(picks)
    if curation.best_per_task is not None:
        stay = _best_of_each(stay, [pick.task for pick in stay], curation.best_per_task, seed)
        _count(tally, "not_best_of_task", len(picks) - len(stay))
    for place, (name, most) in enumerate((curation.best_per or {}).items()):
        before, values = len(stay), [pick.fields[place] for pick in stay]
        if unknown := values.count(None):
            _note_unknown(name, unknown, before, tally)
        stay = _best_of_each(stay, values, most, seed)
        _count(tally, "not_best_per_value", before - len(stay))
    return stay if curation.top_share is None else top_share(stay, curation.top_share, seed, tally)


def _best_of_each(picks: Sequence[RunValue], groups: Sequence[str | None], most: int, seed: int) -> list[RunValue]:
    """Return at most so many runs of each group, the best, in their order, and all that are in none.

    A run of unknown value counts as one of 0; the seed decides which of several that are worth the same stay.
    """
    taken: Counter[str] = Counter()
    group_of = {pick.trajectory_id: group for pick, group in zip(picks, groups, strict=True)}
    kept = set[str]()
    for pick in _ranked(picks, seed):
        group = group_of[pick.trajectory_id]
        if group is None or taken[group] < most:
            taken.update([] if group is None else [group])
            kept.add(pick.trajectory_id)
    return [pick for pick in picks if pick.trajectory_id in kept]


def _count(tally: ExportCounts, reason: str, n: int) -> None:
    if n:
        tally.dropped[reason] += n


def _note_unknown(name: str, unknown: int, n: int, tally: ExportCounts) -> None:
    if unknown == n:
        raise InvalidInput(
            Hint(
                f"curation.best_per: expected a field that the log of a run states, got {shown(name)}, which none of {n} does; ",
                call("get_trajectory", trajectory_id=...),
                " shows the fields under `extra` and `task.metadata`",
            )
        )
    tally.notes.append(
        f"`curation.best_per`: {unknown} of {counted(n, 'run')} state no {shown(name)}, and all of them stay"
    )


def _stated(run: Trajectory, names: Iterable[str]) -> tuple[str | None, ...]:
    """Return the values of fields as text, None where the log of the run states none.

    A name is a key of the row that the run was read from, of its `extra` or of its task's metadata, or
    `OUTER.INNER` for one inside; else it is one that a filter has: environment, task_type or session_id.
    """
    task, row = run.task, run.extra.get("row")
    own = {"environment": task.environment, "task_type": task.type, "session_id": run.session_id}
    about = {**own, "task": {"metadata": task.metadata}, "metadata": task.metadata, **task.metadata, **run.extra}
    about |= row if isinstance(row, Mapping) else {}
    found = (value_inside(about, [name]) or value_inside(about, name.split(".")) for name in names)
    return tuple(None if values in ([], [None]) else str(values[0]) for values in found)


def _ranked(picks: Sequence[RunValue], seed: int) -> list[RunValue]:
    return sorted(picks, key=lambda pick: (-(pick.value or 0.0), stable_seed(seed, pick.trajectory_id)))


def top_share(picks: Sequence[RunValue], share: float, seed: int, tally: ExportCounts) -> list[RunValue]:
    """Return the best share of the runs in their order, at least one, and count the others.

    Args:
        picks: Each of known value.
        share: Above 0, at most 1; a part of a run counts as a whole one.
        seed: Decides which of several runs that are worth the same stay.
        tally: Counts those that are left out as `below_top_share`, and notes a choice among equal ones.
    """
    n = math.ceil(share * len(picks) - 1e-9)
    ranked = _ranked(picks, seed)
    kept = {pick.trajectory_id for pick in ranked[:n]}
    if len(picks) > len(kept):
        tally.dropped["below_top_share"] += len(picks) - len(kept)
    bound = ranked[n - 1].value if ranked else None
    equal = sum(pick.value == bound for pick in ranked)
    if (taken := sum(pick.value == bound for pick in ranked[:n])) < equal:
        tally.notes.append(
            f"`curation.top_share={share:g}` takes {n} of {len(picks)} runs, {taken} of them by the seed among {equal} of equal value "
            f"({bound:.4g}); `curation.top_share={(n - taken + equal) / len(picks):.3g}` takes all of those"
        )
    return [pick for pick in picks if pick.trajectory_id in kept]


class SampleMember(NamedTuple):
    """A row that may be drawn."""

    key: str
    """Unique key; with the seed it decides whether the row is drawn, independent of other rows."""
    group: str
    """Task class."""


def draw_sample(
    members: Sequence[SampleMember], weights: Mapping[str, float] | None, most: int | None, seed: int
) -> list[int]:
    """Return the indices of the drawn rows in order.

    Each class gives its share of the sample by weight; a class that is used up gives all it has, and the others
    fill the sample by their weights. Without `most` the sample is as large as the weights can be met exactly.

    Args:
        members: All rows; keys are distinct.
        weights: Class -> relative weight, at least 0; a class that is not named has none. None: all rows are one class.
        most: Rows of the sample; None: until the first class is used up.
        seed: Another seed, another sample.
    """
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for index, member in enumerate(members):
        groups["" if weights is None else member.group].append(index)
    weights = {"": 1.0} if weights is None else weights
    sizes = {name: len(groups[name]) for name, weight in weights.items() if weight > 0 and groups[name]}
    taken: list[int] = []
    for name, n in _quotas(sizes, weights, most).items():
        taken += sorted(groups[name], key=lambda i: stable_seed(seed, members[i].key))[:n]
    return sorted(taken)


def distribution(
    members: Sequence[SampleMember], drawn: Sequence[int], wanted: Iterable[str] = ()
) -> dict[str, dict[str, int]]:
    """Return class -> rows before and after sampling, including empty classes in `wanted`."""
    before, after = Counter(member.group for member in members), Counter(members[i].group for i in drawn)
    before.update(dict.fromkeys(wanted, 0))
    return {name: {"before": n, "after": after[name]} for name, n in sorted(before.items())}


def _quotas(sizes: Mapping[str, int], weights: Mapping[str, float], most: int | None) -> dict[str, int]:
    """Return class -> rows to draw, at most the size of the class."""
    # Only ratios matter; weights next to the largest neither overflow a division nor vanish in one.
    largest = max((weights[name] for name in sizes), default=1.0)
    weights = {name: weights[name] / largest for name in sizes}
    sizes = {name: n for name, n in sizes.items() if weights[name] > 0}
    if most is None:
        # A hair more than the exact total, so that 0.3 of 10 rows are 3 in floating point too.
        total = min((n / weights[name] for name, n in sizes.items()), default=0.0) * (1 + 1e-12)
        return {name: min(n, math.floor(weights[name] * total)) for name, n in sizes.items()}
    quotas: dict[str, int] = {}
    left, open_ = min(most, sum(sizes.values())), dict(sizes)
    while open_:
        # Classes that cannot fill their share give all; what they leave goes to the others, until every share can be filled.
        unit = left / math.fsum(weights[name] for name in open_)
        short = {name: n for name, n in open_.items() if n <= weights[name] * unit}
        if not short:
            return quotas | rounded_shares({name: weights[name] * unit for name in open_}, left)
        quotas |= short
        left -= sum(short.values())
        open_ = {name: n for name, n in open_.items() if name not in short}
    return quotas


def rounded_shares(shares: Mapping[str, float], total: int) -> dict[str, int]:
    """Round shares to integers that sum to the total, by largest remainder; of equal remainders the first name gains."""
    whole = {name: math.floor(share) for name, share in shares.items()}
    rest = sorted(shares, key=lambda name: (whole[name] - shares[name], name))
    for name in rest[: total - sum(whole.values())]:
        whole[name] += 1
    return whole


_CLASSES: tuple[TaskClass, ...] = get_args(TaskClass)
_PLANNING_TOOLS = 3
_PLANNING_TURNS = 8


def task_class(run: Trajectory, known: Mapping[str, TaskClass] | None = None) -> TaskClass:
    """Return the class of a run's task: as `known`, its type or its metadata state it, else by tools and turns.

    The classes are those of SAGE's agent fine-tuning (`agent_training/data_formatter.py`, v0.2.4.13), without its
    English keywords.

    Args:
        run: Its task, its turns and the tools that the agent called.
        known: Task id or type -> class.
    """
    task = run.task
    for name in (task.id, task.type):
        if known and name is not None and name in known:
            return known[name]
    for stated in (task.type, task.metadata.get("task_type")):
        for name in _CLASSES:
            if stated == name:
                return name
    tools = {action.tool for step in run.steps for action in step.actions}
    turns = sum(step.actor is not Actor.SYSTEM for step in run.steps)
    is_planning = len(tools) >= _PLANNING_TOOLS or turns >= _PLANNING_TURNS
    return "multi_step_planning" if is_planning else "tool_selection"
