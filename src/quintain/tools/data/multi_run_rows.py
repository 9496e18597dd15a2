"""Dataset rows that hold several runs: fetch the runs from the store in batches and build pairs and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from quintain.datasets.splits import KeyedRow, task_key
from quintain.errors import Conflict
from quintain.records.dataset import GroupRow, PairRow, StepValues
from quintain.records.trajectory import Trajectory
from quintain.scoring.preferences.mining import Group, Pair
from quintain.tools.services import Services

BATCH_RUNS = 50
"""Runs held in memory at once, unless a single row needs more."""

T = TypeVar("T")


def pair_lines(
    services: Services, pairs: Iterable[Pair], parts: Mapping[str, dict[str, float]] | None = None
) -> Iterator[KeyedRow]:
    """Stream the rows of preference pairs; each side is the whole run, with the values of its parts by run id."""
    of_run = parts or {}
    for pair, (chosen, rejected) in with_runs(services, ((pair, (pair.chosen, pair.rejected)) for pair in pairs)):
        yield KeyedRow(
            task_key(chosen),
            PairRow(
                chosen=chosen,
                rejected=rejected,
                margin=pair.margin,
                chosen_parts=of_run.get(pair.chosen, {}),
                rejected_parts=of_run.get(pair.rejected, {}),
            ),
        )


def logged_margin(chosen: Mapping[str, float], rejected: Mapping[str, float]) -> float | None:
    """Return the margin in the logged scores of both sides of a pair: that of the chosen side, else the difference of their scores."""
    if "margin" in chosen:
        return chosen["margin"]
    ours, theirs = chosen.get("score"), rejected.get("score")
    return None if ours is None or theirs is None else ours - theirs


def group_lines(
    services: Services, groups: Iterable[Group], step_values: Mapping[str, StepValues] | None = None
) -> Iterator[KeyedRow]:
    """Stream the rows of groups with their rewards, and the values of their runs' steps by run id."""
    of_run = step_values or {}
    for group, runs in with_runs(services, ((group, group.trajectory_ids) for group in groups)):
        key = task_key(runs[0])
        steps = tuple(of_run.get(run.id or "", ()) for run in runs)
        row = GroupRow(key=key, trajectories=runs, rewards=group.rewards, step_values=steps if any(steps) else ())
        yield KeyedRow(key, row)


def with_runs(
    services: Services, wanted: Iterable[tuple[T, tuple[str, ...]]]
) -> Iterator[tuple[T, tuple[Trajectory, ...]]]:
    """Yield each item with its runs, fetched from the store in batches."""
    batch, held = list[tuple[T, tuple[str, ...]]](), set[str]()  # a run of several items is fetched once
    for item, ids in wanted:
        batch.append((item, ids))
        held.update(ids)
        if len(held) >= BATCH_RUNS:
            yield from _filled(services, batch)
            batch, held = [], set()
    if batch:
        yield from _filled(services, batch)


def _filled(services: Services, batch: list[tuple[T, tuple[str, ...]]]) -> Iterator[tuple[T, tuple[Trajectory, ...]]]:
    ids = list(dict.fromkeys(run for _, members in batch for run in members))
    found = {run.id: run for run in services.store.trajectories.iterate(ids=ids)}
    for item, members in batch:
        if gone := [run for run in members if run not in found]:
            raise Conflict(f"{gone[0]} was forgotten meanwhile; call this again")
        yield item, tuple(found[run] for run in members)
