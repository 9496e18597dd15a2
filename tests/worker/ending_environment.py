"""An environment whose episodes end when they begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quintain.errors import InvalidInput
from quintain.records.protocols import Environment, TimeStep
from quintain.records.trajectory import Action, Task


class Ending:
    """As many tasks as there are ends: a reward, None for an unknown outcome, or the text of the environment's failure."""

    id = "test/ending"
    version = "1"
    system_prompt = "Wait."
    tools: tuple[dict[str, Any], ...] = ()
    max_turns = 3

    def __init__(self, *ends: float | str | None) -> None:
        self.ends = ends

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        if n > len(self.ends):
            raise InvalidInput(f"there are {len(self.ends)} tasks, not {n}")
        types = ("door", "gate")
        return [Task(id=f"t{i}", prompt=f"task {i}", type=types[i % 2], metadata={"number": i}) for i in range(n)]

    def make(self) -> Environment:
        return Ending(*self.ends)

    def reset(self, task: Task) -> TimeStep:
        end = self.ends[task.metadata["number"]]
        if isinstance(end, str):
            raise RuntimeError(end)
        return TimeStep(reward=end, terminated=True)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        raise AssertionError("every episode ends before its first turn")

    def close(self) -> None:
        pass
