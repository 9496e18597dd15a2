"""Task suites: the tasks and repeats of an evaluation, and a hash that shows whether two evaluations can be paired."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from typing import NamedTuple

from quintain.evaluation.episodes import EpisodePlan
from quintain.records.protocols import TaskSource
from quintain.records.trajectory import Task


class Suite(NamedTuple):
    """Planned episodes and their hash."""

    plans: tuple[EpisodePlan, ...]
    hash: str


def plan_suite(
    source: TaskSource,
    *,
    split: str,
    n_tasks: int,
    repeats: int,
    seed: int,
    max_turns: int | None = None,
    excluded: Collection[str] = (),
    opponent: str | None = None,
) -> Suite:
    """Plan the episodes of an evaluation: all tasks once, then all again, `repeats` times.

    The hash covers the environment's id and version, the task ids, the repeats and the turn limit (None for that of the
    environment), and the opponent of games. Equal hashes mean equal tasks, repeats and rules. Tasks whose ids are `excluded` are
    replaced by others.
    """
    drawn = source.tasks(split, n_tasks + len(excluded), seed)
    tasks = [task for task in drawn if task.id not in excluded][:n_tasks]
    return suite_of(source, tasks, repeats=repeats, max_turns=max_turns, opponent=opponent)


def suite_of(
    source: TaskSource,
    tasks: Sequence[Task],
    *,
    repeats: int,
    max_turns: int | None = None,
    opponent: str | None = None,
) -> Suite:
    """Return the suite of these tasks; see `plan_suite`."""
    content: list[object] = [
        source.id,
        source.version,
        repeats,
        max_turns,
        sorted(task.name for task in tasks),
    ]
    content += [] if opponent is None else [opponent]
    encoded = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    plans = tuple(EpisodePlan(task, attempt) for attempt in range(repeats) for task in tasks)
    return Suite(plans, hashlib.sha256(encoded).hexdigest())
