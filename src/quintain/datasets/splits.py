"""Split by task: rows of one task share a split, and a task keeps its split when data is added."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import NamedTuple

from quintain.errors import InvalidInput
from quintain.records.dataset import Row, SplitName
from quintain.records.trajectory import Trajectory


class KeyedRow(NamedTuple):
    """A row and the task key that decides its split."""

    key: str
    row: Row


def task_key(trajectory: Trajectory) -> str:
    """Return the key of a trajectory's task: its id within its environment, else its prompt, else the run itself."""
    task = trajectory.task
    if task.id:
        return f"id:{task.environment or ''}:{task.id}"
    if task.prompt.strip():
        return f"prompt:{' '.join(task.prompt.split())}"
    return f"run:{trajectory.session_id or trajectory.identity}"


def check_shares(shares: Mapping[SplitName, float]) -> None:
    """Raise if the shares leave nothing to train on.

    Args:
        shares: Share of the tasks of each split except `train`, which gets the rest.

    Raises:
        InvalidInput: a share that is not in 0..1, or a sum that is not below 1.
    """
    for name, share in shares.items():
        if not (math.isfinite(share) and 0 <= share < 1):
            raise InvalidInput(f"share of {name} is {share}; it must be in 0..1, 1 excluded")
    if math.fsum(shares.values()) >= 1:
        raise InvalidInput(f"shares {dict(shares)} leave nothing for train; their sum must be below 1")


def split_of(key: str, shares: Mapping[SplitName, float], seed: int) -> SplitName:
    """Return the split of a task by a stable hash of seed and key, independent of other tasks.

    Args:
        key: From `task_key`.
        shares: Share of the tasks of each split except `train`, which gets the rest.
        seed: Another seed, another split.
    """
    digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
    position = int.from_bytes(digest[:8], "big") / 2**64
    for name in sorted(shares):
        if position < shares[name]:
            return name
        position -= shares[name]
    return "train"
