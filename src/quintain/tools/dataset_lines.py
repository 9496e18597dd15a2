"""The lines of each kind of dataset, made of stored runs; never more than a batch of runs in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from quintain.formats.export import ExportOptions, Line
from quintain.formats.selection import Tally, Valued, agent_digest, selected
from quintain.formats.splits import task_key
from quintain.records.dataset import DatasetRow, GroupRow, LabelledRow, PairRow
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.rewards.outcome import OutcomeScorer
from quintain.rewards.preferences import Candidate, Group, Preference, form_groups, mine_pairs
from quintain.tools.services import Services

_BATCH = 50
"""Runs held in memory at once, unless a single row needs more."""

T = TypeVar("T")


def lines_of(services: Services, runs: Iterable[Trajectory], options: ExportOptions, tally: Tally) -> Iterator[Line]:
    """Stream the lines of a dataset of stored runs.

    Args:
        services: Where scores are looked up, and runs again for rows that hold several.
        runs: The runs to choose from; read once.
        options: The kind, the criteria and what else decides the rows.
        tally: Counts what is left out while the lines are read.
    """
    stay = selected(_valued(services, runs, options), options.criteria, tally)
    making = options.making
    if options.kind == "dpo":
        mined = mine_pairs(_candidates(stay), seed=options.seed, **making)
        tally.dropped.update(mined.runs_left_out)
        tally.tasks_dropped.update(mined.tasks_left_out)
        yield from pair_lines(services, mined.pairs)
    elif options.kind == "grpo":
        formed = form_groups(_candidates(stay))
        tally.dropped.update(formed.runs_left_out)
        tally.tasks_dropped.update(formed.tasks_left_out)
        yield from group_lines(services, formed.groups)
    elif options.kind == "kto":
        for run, value in stay:
            good = value is not None and value >= making["desirable_from"]
            yield Line(task_key(run), LabelledRow(trajectory=run, desirable=good))
    else:
        for run, value in stay:
            yield Line(task_key(run), DatasetRow(trajectory=run, reward=value))


def pair_lines(services: Services, pairs: Iterable[Preference]) -> Iterator[Line]:
    """Stream the rows of preference pairs; each side is the whole run."""
    for pair, (chosen, rejected) in _with_runs(services, ((pair, (pair.chosen, pair.rejected)) for pair in pairs)):
        yield Line(task_key(chosen), PairRow(chosen=chosen, rejected=rejected, margin=pair.margin))


def group_lines(services: Services, groups: Iterable[Group]) -> Iterator[Line]:
    """Stream the rows of groups with their rewards."""
    for group, runs in _with_runs(services, ((group, group.trajectory_ids) for group in groups)):
        key = task_key(runs[0])
        yield Line(key, GroupRow(key=key, trajectories=runs, rewards=group.rewards))


def _candidates(runs: Iterable[Valued]) -> Iterator[Candidate]:
    for run, value in runs:
        if value is not None:
            yield Candidate(task_key(run), run.identified().id or "", value, agent_digest(run))


def _valued(services: Services, runs: Iterable[Trajectory], options: ExportOptions) -> Iterator[Valued]:
    scorer, stream = options.criteria.scorer, iter(runs)
    value = {"sft": _reward, "grpo": _group_reward}.get(options.kind, _verdict)
    while batch := list(islice(stream, _BATCH)):
        if scorer is None:
            yield from (Valued(run, value(run)) for run in batch)
        else:
            scores = services.store.scores.latest(scorer, [run.id for run in batch if run.id])
            yield from (Valued(run, scores[run.id].value if run.id in scores else None) for run in batch)


def _reward(run: Trajectory) -> float | None:
    return run.outcome.reward


def _verdict(run: Trajectory) -> float | None:
    """1 for success, 0 for failure and truncation; unknown and error are no verdicts."""
    return OutcomeScorer().score(run).value


def _group_reward(run: Trajectory) -> float | None:
    """The environment's reward, else the verdict; a crash of the environment says nothing of the agent."""
    if run.outcome.status is OutcomeStatus.ERROR:
        return None
    return _verdict(run) if run.outcome.reward is None else run.outcome.reward


def _with_runs(
    services: Services, wanted: Iterable[tuple[T, tuple[str, ...]]]
) -> Iterator[tuple[T, tuple[Trajectory, ...]]]:
    """Each item with its runs, fetched from the store in batches."""
    batch: list[tuple[T, tuple[str, ...]]] = []
    for item, ids in wanted:
        batch.append((item, ids))
        if sum(len(ids) for _, ids in batch) >= _BATCH:
            yield from _filled(services, batch)
            batch = []
    if batch:
        yield from _filled(services, batch)


def _filled(services: Services, batch: list[tuple[T, tuple[str, ...]]]) -> Iterator[tuple[T, tuple[Trajectory, ...]]]:
    ids = list(dict.fromkeys(run for _, members in batch for run in members))
    found = {run.id: run for run in services.store.trajectories.iterate(ids=ids)}
    for item, members in batch:
        yield item, tuple(found[run] for run in members)
