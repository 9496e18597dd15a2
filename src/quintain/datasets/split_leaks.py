"""Tasks with equal or similar prompts under different names: keep them on one side of a split, and count leaks."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

from quintain.datasets.near_duplicates import KINDS, NearDuplicateIndex, words
from quintain.datasets.rows import task_of
from quintain.datasets.splits import KeyedRow
from quintain.records.dataset import Row, SplitName


class LeakCheck:
    """Counts tasks outside train whose prompt has the same words as a task in train."""

    def __init__(self) -> None:
        self._prompts: dict[bytes, bytes] = {}
        self._tasks: dict[bytes, Counter[SplitName]] = {}

    def add(self, key: str, row: Row, split: SplitName) -> None:
        """Add a row and the split of its task."""
        task, digest = task_of(row), _digest(key)
        if task is None or digest in self._prompts:
            return
        prompt_words = words(task.prompt)
        prompt = self._prompts[digest] = _digest(" ".join(prompt_words)) if prompt_words else b""
        if prompt:
            self._tasks.setdefault(prompt, Counter())[split] += 1

    def move(self, key: str, source: SplitName, target: SplitName) -> None:
        """Count a task for another split."""
        if prompt := self._prompts.get(_digest(key)):
            self._tasks[prompt].update({source: -1, target: 1})

    @property
    def tasks(self) -> int:
        """Number of leaking tasks so far."""
        return sum(n.total() - n["train"] for n in self._tasks.values() if n["train"])


def split_leak_remedy(kind: str) -> str:
    """Return the remedy for leaking tasks in a dataset of this kind."""
    if kind in KINDS:
        return "export again with `curation.near_duplicates=1.0`, which keeps such tasks in one split"
    return "give tasks with equal prompts the same task.id, and export again: a task stays in one split"


def near_prompts_together(lines: Iterable[KeyedRow], threshold: float) -> Iterator[KeyedRow]:
    """Stream the rows with each task keyed to the oldest task with a similar prompt.

    A task keeps its side when newer ones are added, as long as those that are older than it stay in.
    """
    prompts, keys, oldest = NearDuplicateIndex(threshold), list[str](), dict[str, str]()
    for key, row in lines:
        task = task_of(row)
        if key not in oldest and task is not None and task.prompt.strip():
            found = prompts.find(task.prompt)
            if found is None:
                keys.append(key)
            oldest[key] = key if found is None else keys[found]
        yield KeyedRow(oldest.get(key, key), row)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
