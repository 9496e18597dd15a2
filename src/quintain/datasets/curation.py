"""Quality filters of a dataset: reward, length, and the best share of the runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from quintain.datasets.selection import Tally
from quintain.records.dataset import TaskClass
from quintain.records.seeds import stable_seed


class Pick(NamedTuple):
    """A run that may go into a dataset, without its text."""

    trajectory_id: str
    value: float | None
    """What it is worth, higher is better."""
    task_class: TaskClass | None = None


def best(picks: Sequence[Pick], share: float, seed: int, tally: Tally) -> list[Pick]:
    """The best share of the runs, at least one, in their order; the others are counted.

    Args:
        picks: Each of known value.
        share: Above 0, at most 1; a part of a run counts as a whole one.
        seed: Decides which of several runs that are worth the same stay.
        tally: Counts those that are left out as `below_top_share`.
    """
    n = math.ceil(share * len(picks) - 1e-9)
    ranked = sorted(picks, key=lambda pick: (-(pick.value or 0.0), stable_seed(seed, pick.trajectory_id)))
    kept = {pick.trajectory_id for pick in ranked[:n]}
    if len(picks) > len(kept):
        tally.dropped["below_top_share"] += len(picks) - len(kept)
    return [pick for pick in picks if pick.trajectory_id in kept]
