"""Sources whose tasks are played elsewhere: several environments as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quintain.datasets.sampling import rounded_shares
from quintain.environments.scripted_policy import expert_of_parts
from quintain.errors import InvalidInput
from quintain.records.protocols import Environment, Policy, TaskSource, TimeStep
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Action, Task
from quintain.records.wording import clip


class PartSource:
    """A source whose tasks are played in the sources of its parts."""

    parts: Mapping[str, TaskSource]
    """Reference -> source."""

    @property
    def waits(self) -> bool:
        """Whether a part waits for other processes."""
        return any(getattr(part, "waits", False) for part in self.parts.values())

    @property
    def at_once(self) -> int | None:
        """Maximum number of concurrent episodes: the lowest limit of a part, if one has a limit."""
        return min((limit for part in self.parts.values() if (limit := getattr(part, "at_once", None))), default=None)

    def make(self) -> Environment:
        """Return an environment that delegates to the part of its task."""
        return PartEnvironment(self.parts)

    def expert(self, tasks: Sequence[Task]) -> Policy:
        """Return a policy that leaves each task to the expert of its part."""
        return expert_of_parts(self.parts, tasks)


class Mixture(PartSource):
    """A source that draws tasks from several sources by weight."""

    def __init__(self, mixture_id: str, sources: Mapping[str, TaskSource], weights: Mapping[str, int]) -> None:
        """Combine the sources.

        Args:
            mixture_id: Text of the mixture, as `references.write_mixture` writes it.
            sources: Reference -> source, at least one.
            weights: Reference -> relative weight, above 0.
        """
        self.id, self.parts, self._weights = mixture_id, sources, weights
        self.version = ",".join(source.version for source in sources.values())
        games = [reference for reference, source in sources.items() if getattr(source, "players", ())]
        if games:
            raise InvalidInput(
                f"expected environments for one player in a mixture, got {games[0]}; use it alone", code="players"
            )

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        """Return `n` tasks, apportioned to the parts by largest remainder and interleaved; each names its part."""
        total = sum(self._weights.values())
        counts = rounded_shares({part: n * self._weights[part] / total for part in self.parts}, n)
        placed: list[tuple[float, Task]] = []
        taken: dict[str, Task] = {}
        for reference, count in counts.items():
            part = self._distinct(reference, split, count, stable_seed(seed, reference), taken)
            taken |= {task.name: task for task in part}
            # The i-th of k tasks gets position (i + 1/2) / k, so that every prefix has about the shares of the whole.
            placed += [((i + 0.5) / count, task) for i, task in enumerate(part)]
        return [task for _, task in sorted(placed, key=lambda placed: placed[0])]

    def _distinct(self, reference: str, split: str, count: int, seed: int, taken: Mapping[str, Task]) -> list[Task]:
        """Return tasks of a part that no other part has given: parts may overlap, such as one level of a family and all of it."""
        wanted = count
        while True:
            drawn = self.parts[reference].tasks(split, wanted, seed) if count else []
            new = [task for task in drawn if not _is_taken(task, reference, taken)][:count]
            if len(new) == count or len(drawn) < wanted:
                return [task.model_copy(update={"environment": reference}) for task in new]
            wanted += count - len(new)


def _is_taken(task: Task, reference: str, taken: Mapping[str, Task]) -> bool:
    other = taken.get(task.name)
    if other is not None and task.model_copy(update={"environment": other.environment}) != other:
        raise InvalidInput(
            f"expected distinct task ids in a mixture, got {clip(task.name)!r} for different tasks of "
            f"{other.environment} and {reference}; change the ids in one of them",
            code="ambiguous_task",
        )
    return other is not None


class PartEnvironment:
    """The part of a mixture that a task belongs to; known from `reset` on."""

    id = "mix"
    system_prompt = ""
    tools: tuple[dict[str, Any], ...] = ()
    max_turns = 1

    def __init__(self, sources: Mapping[str, TaskSource]) -> None:
        """Keep the source of each reference."""
        self._sources = sources
        self._environment: Environment | None = None

    def reset(self, task: Task) -> TimeStep:
        """Begin a task in its part.

        Raises:
            InvalidInput: the task is of no part.
        """
        source = self._sources.get(task.environment or "")
        if source is None:
            raise InvalidInput(
                f"expected a task of {', '.join(self._sources)}, got {task.id!r} of {task.environment!r}; draw tasks from the mixture"
            )
        self._environment = environment = source.make()
        first = environment.reset(task)
        self.id, self.system_prompt = environment.id, environment.system_prompt
        self.tools, self.max_turns = environment.tools, environment.max_turns
        return first

    def __getattr__(self, name: str) -> Any:
        if name != "take_answer":
            raise AttributeError(name)
        return getattr(self._environment, name)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Carry out the actions in the part."""
        assert self._environment is not None, "reset comes before step"
        return self._environment.step(actions)

    def close(self) -> None:
        """Close the episode of the part."""
        if self._environment is not None:
            self._environment.close()
