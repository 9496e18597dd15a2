"""Families of generated tasks, in which a task follows from its id alone, and their sources."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator

from quintain.errors import InvalidInput
from quintain.records.protocols import SPLITS, Environment
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Task
from quintain.records.wording import clip, nearest

if TYPE_CHECKING:
    from quintain.environments.tasks.task_files import TaskFile


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


Difficulty = Literal["easy", "medium", "hard", "all"]


def _split(value: Any) -> Any:
    return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
"""Names, separated by commas in a reference; `all` selects every known name."""


class FamilySource(ABC):
    """The task source of a family, whose tasks are chosen by difficulty and type."""

    family: ClassVar[Family]
    _file: TaskFile | None = None

    def __init__(self, difficulty: Difficulty = "all", types: Names = ("all",)) -> None:
        """Choose one difficulty, or `all`, and some types, or `all`."""
        self.id, self.version = self.family.environment, self.family.version
        self._difficulties = self.family.difficulties if difficulty == "all" else (difficulty,)
        self._types = chosen_names("types", types, self.family.types)

    @abstractmethod
    def prompt(self, key: TaskKey) -> str:
        """Return the prompt of a task."""

    @abstractmethod
    def make(self) -> Environment:
        """Return a fresh environment."""

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        """Return `n` distinct tasks, types and difficulties in turn; fewer tasks with the same seed are a prefix of more.

        Args:
            split: `train` or `held_out`.
            n: Number of tasks.
            seed: Seed of the draw.
        """
        if self._file is not None:
            return [task.model_copy(update={"environment": self.id}) for task in self._file.draw(split, n, seed)]
        return [
            Task(
                id=key.id,
                prompt=self.prompt(key),
                type=key.type,
                difficulty=key.difficulty,
                environment=self.id,
                metadata={"split": split, "seed": seed},
            )
            for key in self._draw(split, n, seed)
        ]

    def _play_file(self, file: TaskFile, version: str) -> None:
        """Draw the tasks of a file, which the options do not select from, instead of generating tasks."""
        if (self._difficulties, self._types) != (self.family.difficulties, self.family.types):
            raise InvalidInput(
                "difficulty and types choose among generated tasks; leave them out if a file gives the tasks",
                code="bad_option",
            )
        self._file, self.version = file, file.version_of(version)

    def _draw(self, split: str, n: int, seed: int) -> list[TaskKey]:
        family, types, difficulties = self.family, self._types, self._difficulties
        if split not in SPLITS:
            raise InvalidInput(f"expected split to be {' or '.join(SPLITS)}, got {split!r} for {self.id}")
        bound = len(types) * len(difficulties) * family.numbers
        if not 0 <= n <= bound:
            raise InvalidInput(f"expected `n_tasks` from 0 to {bound:,} for {self.id}, got {n}")
        rng = Random(stable_seed(family.environment, family.version, split, seed))
        keys: dict[TaskKey, None] = {}
        while len(keys) < n:
            i = len(keys)
            kind, difficulty = types[i % len(types)], difficulties[i // len(types) % len(difficulties)]
            keys[TaskKey(family.name, split, kind, difficulty, rng.randrange(family.numbers))] = None
        return list(keys)


def chosen_names(option: str, names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the names that an option selects, without duplicates and in the order of `known`.

    Raises:
        InvalidInput: an unknown name, or no name.
    """
    if "all" in names:
        return tuple(known)
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None or not names:
        raise InvalidInput(
            f"expected {option} to be all or names separated by commas, got {clip(unknown or '')!r}"
            f"{nearest(unknown or '', known)}; valid names: {', '.join(known)}",
            code="bad_option",
        )
    return tuple(name for name in known if name in names)
