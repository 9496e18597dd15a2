"""Families of generated tasks: a task's id says all of it, so that the id alone gives back the task."""

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
    """The parts of a task's id."""

    family: str
    split: str
    type: str
    difficulty: str
    number: int

    @property
    def id(self) -> str:
        """Such as `inventory/train/lookup/easy/00123`."""
        return f"{self.family}/{self.split}/{self.type}/{self.difficulty}/{self.number:05d}"


@dataclass(frozen=True)
class Family:
    """The tasks of one environment: of each type and difficulty as many as five digits can number."""

    name: str
    """What ids begin with."""
    environment: str
    """The environment's id."""
    version: str
    """Goes into every task's seed and every suite's hash; raise it when a change alters any task."""
    types: tuple[str, ...]
    difficulties: tuple[str, ...] = ("easy", "medium", "hard")
    numbers: int = 100_000

    def parse(self, task_id: str | None) -> TaskKey:
        """Read a task's id.

        Raises:
            InvalidInput: it is not the id of a task of this family.
        """
        parts = (task_id or "").split("/")
        if len(parts) == 5 and re.fullmatch("[0-9]{5}", parts[4]):
            name, split, kind, difficulty, number = parts
            if name == self.name and split in SPLITS and kind in self.types and difficulty in self.difficulties:
                return TaskKey(name, split, kind, difficulty, int(number))
        example = TaskKey(self.name, SPLITS[0], self.types[0], self.difficulties[0], 123).id
        raise InvalidInput(
            f"{task_id!r} is not a task of {self.environment}; ids look like {example!r}: take "
            "tasks from the environment's own splits",
            code="unknown_task",
        )

    def rng(self, key: TaskKey) -> Random:
        """The stream of chance that a task is made from."""
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
        """`n` distinct tasks, types and difficulties in turn; fewer tasks of the same seed are a prefix of more.

        Args:
            split: `train` or `held_out`.
            n: How many.
            seed: Of the draw.
            prompt: What the task of a key asks.
            types: Some of the family's; None: all.
            difficulties: Some of the family's; None: all.

        Raises:
            InvalidInput: an unknown split, or more tasks than there are.
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
            raise InvalidInput(f"split {split!r} does not exist in {self.environment}; valid: {', '.join(SPLITS)}")
        bound = len(types) * len(difficulties) * self.numbers
        if not 0 <= n <= bound:
            raise InvalidInput(f"n_tasks is {n}; {self.environment} has between 0 and {bound:,} tasks in a split")
        rng = Random(stable_seed(self.environment, self.version, split, seed))
        keys: dict[TaskKey, None] = {}
        while len(keys) < n:
            i = len(keys)
            kind, difficulty = types[i % len(types)], difficulties[i // len(types) % len(difficulties)]
            keys[TaskKey(self.name, split, kind, difficulty, rng.randrange(self.numbers))] = None
        return list(keys)
