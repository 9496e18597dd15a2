"""`quintain/benchmark`: the tasks of an exported benchmark, each played in the environment that recorded it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from quintain.environments.mixture import PartSource
from quintain.environments.references import Reference, parse_reference, write_reference
from quintain.environments.registry import PATH_OPTIONS, open_source
from quintain.environments.tasks.task_files import ALL, read_tasks
from quintain.errors import InvalidInput
from quintain.records.protocols import TaskSource
from quintain.records.trajectory import Task
from quintain.records.wording import clip

ENVIRONMENT_ID = "quintain/benchmark"
VERSION = "1"


class Benchmark(PartSource):
    """The tasks of a file, whose rows name their environments. All of them are for evaluation."""

    id = ENVIRONMENT_ID

    def __init__(self, file: Path | None = None) -> None:
        """Read the file; without one there are no tasks to draw. Environments are opened when tasks are drawn."""
        self._file = None if file is None else read_tasks(file)
        if self._file is not None:
            self._file.require(lambda task: None if task.environment else "its task names no environment")
        self.references = tuple(sorted({part_of(task) for task in self._file.tasks})) if self._file else ()

    @cached_property
    def parts(self) -> dict[str, TaskSource]:  # type: ignore[override] # opened when first used
        """Source of each environment that the rows name."""
        return {reference: open_source(reference) for reference in self.references}

    @property
    def version(self) -> str:
        """Version of the rules, of each environment and of the file's contents."""
        if self._file is None:
            return VERSION
        return self._file.version_of(",".join([VERSION, *(part.version for part in self.parts.values())]))

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        """Return `n` tasks of the file.

        Raises:
            InvalidInput: no file, too few tasks in it, or the split `train`: a benchmark is never trained on.
        """
        if self._file is None:
            raise InvalidInput(
                f"expected the file of a benchmark for {ENVIRONMENT_ID}, got none; name it as {ENVIRONMENT_ID}?file=PATH",
                code="no_task_file",
            )
        if split == "train":
            raise InvalidInput(
                f"expected split held_out or {ALL} for {ENVIRONMENT_ID}, got 'train'; its tasks are for evaluation"
            )
        drawn = self._file.draw(ALL, n, seed)
        return [task.model_copy(update={"environment": part_of(task)}) for task in drawn]


def part_of(task: Task) -> str:
    """Return the environment of a task, without files: the task itself has the fields of their row.

    Raises:
        InvalidInput: the task names no environment, or an unreadable one.
    """
    if not task.environment:
        raise InvalidInput(f"expected a task that names its environment, got {clip(task.name)!r}")
    name, options = parse_reference(task.environment)
    kept = {option: value for option, value in sorted(options.items()) if option not in PATH_OPTIONS}
    return write_reference(Reference(name, kept))
