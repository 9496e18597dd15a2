"""Split by task: rows of one task share a split, and a task keeps its split when data is added."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from quintain.errors import InvalidInput
from quintain.records.dataset import Row, SplitName
from quintain.records.trajectory import Trajectory

_SEEDS = 100
"""Seeds that are tried for a split that meets its shares."""


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

    Raises:
        InvalidInput: a share that is not in 0..1, or a sum that is not below 1.
    """
    for name, share in shares.items():
        if not (math.isfinite(share) and 0 <= share < 1):
            raise InvalidInput(f"expected a share of {name} from 0 to below 1, got {share}")
    if math.fsum(shares.values()) >= 1:
        raise InvalidInput(
            f"expected shares whose sum is below 1, got {dict(shares)}; leave a part of the tasks to train"
        )


def split_of(key: str, shares: Mapping[SplitName, float], seed: int) -> SplitName:
    """Return the split of a task by a stable hash of seed and key, independent of other tasks."""
    position = _position(key, seed)
    for name in sorted(shares):
        if position < shares[name]:
            return name
        position -= shares[name]
    return "train"


def _position(key: str, seed: int) -> float:
    """Return the hash of seed and key, uniform in [0, 1)."""
    digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def stratifying_moves(
    sides: Mapping[str, SplitName], labels: Mapping[str, Set[bool]], shares: Iterable[SplitName], seed: int
) -> dict[str, SplitName]:
    """Return the tasks to move so that every split has rows of both labels, where enough tasks have them.

    Without a missing label nothing moves. A split that lacks one gets the task whose hash is nearest to it; a task stays
    where it is if its split would then lack a label.
    """
    counts = Counter((split, label) for key, split in sides.items() for label in labels[key])
    targets: tuple[SplitName, ...] = (*sorted(shares), "train")
    missing = [(target, label) for target in targets for label in (True, False) if not counts[target, label]]
    ascending = sorted(sides, key=lambda key: (_position(key, seed), key)) if missing else []
    placed = dict(sides)
    for target, label in missing:
        if counts[target, label]:
            continue
        order = ascending[::-1] if target == "train" else ascending
        free = (k for k in order if label in labels[k] and all(counts[placed[k], one] > 1 for one in labels[k]))
        if (key := next(free, None)) is not None:
            counts.subtract((placed[key], one) for one in labels[key])
            placed[key] = target
            counts.update((target, one) for one in labels[key])
    return {key: split for key, split in placed.items() if split != sides[key]}


def uneven_split(sides: Mapping[str, SplitName], shares: Mapping[SplitName, float], seed: int) -> str | None:
    """Return a warning if a split is empty or has far fewer or more tasks than its share, with a seed that meets it.

    Hashes meet the shares on average only, because a task's split may not depend on other tasks.
    """
    n, counts = len(sides), Counter(sides.values())
    wanted = {name: share * n for name, share in shares.items()}
    far = [
        name for name, aim in sorted(wanted.items()) if not counts[name] or abs(counts[name] - aim) > max(aim / 2, 1.5)
    ]
    if not far:
        return None
    named = " and ".join(
        f"{shares[name]:g} of {n} tasks ({wanted[name]:.3g}) in {name}, got {counts[name]}" for name in far
    )
    fitting = next(
        (other for other in range(seed + 1, seed + 1 + _SEEDS) if _meets(sides, shares, wanted, other)), None
    )
    remedy = "take another seed or more tasks" if fitting is None else f"seed={fitting} meets it"
    return f"expected {named}: the split of a task is a hash of its own name, so that it stays when tasks are added; {remedy}"


def _meets(
    keys: Iterable[str], shares: Mapping[SplitName, float], wanted: Mapping[SplitName, float], seed: int
) -> bool:
    counts = Counter(split_of(key, shares, seed) for key in keys)
    return all(counts[name] == max(1, round(n)) for name, n in wanted.items()) and counts["train"] > 0
