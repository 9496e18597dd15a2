"""Families of generated tasks, in which a task follows from its id alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from quintain.errors import InvalidInput
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Task

SPLITS = ("train", "held_out")


class TaskKey(NamedTuple):
    """Parts of a task's id."""

    family: str
    split: str
    type: str
    difficulty: str
    number: int

    @property
    def id(self) -> str:
        """The id, such as `inventory/train/lookup/easy/00123`."""
        return f"{self.family}/{self.split}/{self.type}/{self.difficulty}/{self.number:05d}"


@dataclass(frozen=True)
class Family:
    """The tasks of one environment: `numbers` of each type and difficulty in each split."""

    name: str
    """First part of every id."""
    environment: str
    """Id of the environment."""
    version: str
    """Part of every task's seed and every suite's hash; raise it when a change alters a task."""
    types: tuple[str, ...]
    difficulties: tuple[str, ...] = ("easy", "medium", "hard")
    numbers: int = 100_000

    def parse(self, task_id: str | None) -> TaskKey:
        """Return the parts of a task's id.

        Raises:
            InvalidInput: no task of this family has this id.
        """
        parts = (task_id or "").split("/")
        if len(parts) == 5 and re.fullmatch("[0-9]{5}", parts[4]):
            name, split, kind, difficulty, number = parts
            if name == self.name and split in SPLITS and kind in self.types and difficulty in self.difficulties:
                return TaskKey(name, split, kind, difficulty, int(number))
        example = TaskKey(self.name, SPLITS[0], self.types[0], self.difficulties[0], 123).id
        raise InvalidInput(
            f"expected the id of a task of {self.environment}, such as {example!r}, got {task_id!r}; take tasks from the "
            "environment's own splits",
            code="unknown_task",
        )

    def rng(self, key: TaskKey) -> Random:
        """Return the random generator from which a task is built."""
        return Random(stable_seed(self.environment, self.version, key.id))

    def tasks(
        self,
        split: str,
        n: int,
        seed: int,
        prompt: Callable[[TaskKey], str],
        *,
        types: Sequence[str] | None = None,
        difficulties: Sequence[str] | None = None,
    ) -> list[Task]:
        """Return `n` distinct tasks, types and difficulties in turn; fewer tasks with the same seed are a prefix of more.

        Args:
            split: `train` or `held_out`.
            n: Number of tasks.
            seed: Seed of the draw.
            prompt: Returns the prompt of a task.
            types: Task types to draw from; None: all.
            difficulties: Difficulties to draw from; None: all.

        Raises:
            InvalidInput: an unknown split, or more tasks than the family has.
        """
        return [
            Task(
                id=key.id,
                prompt=prompt(key),
                type=key.type,
                difficulty=key.difficulty,
                environment=self.environment,
                metadata={"split": split, "seed": seed},
            )
            for key in self._draw(split, n, seed, types or self.types, difficulties or self.difficulties)
        ]

    def _draw(self, split: str, n: int, seed: int, types: Sequence[str], difficulties: Sequence[str]) -> list[TaskKey]:
        if split not in SPLITS:
            raise InvalidInput(f"expected split to be {' or '.join(SPLITS)}, got {split!r} for {self.environment}")
        bound = len(types) * len(difficulties) * self.numbers
        if not 0 <= n <= bound:
            raise InvalidInput(f"expected n_tasks from 0 to {bound:,} for {self.environment}, got {n}")
        rng = Random(stable_seed(self.environment, self.version, split, seed))
        keys: dict[TaskKey, None] = {}
        while len(keys) < n:
            i = len(keys)
            kind, difficulty = types[i % len(types)], difficulties[i // len(types) % len(difficulties)]
            keys[TaskKey(self.name, split, kind, difficulty, rng.randrange(self.numbers))] = None
        return list(keys)
