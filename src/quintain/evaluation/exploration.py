"""How attempts at a task are made to differ: a schedule of temperatures, and more of it where attempts repeat each other.

With n attempts at a task, attempt i of 0..n-1 is sampled at `low + (high - low) i / (n - 1)`; with one attempt the same runs
over the tasks. Temperature is a knob of exploration alone: recorded log-probs stay those of the model at temperature 1.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from quintain.records.agent import MAX_TEMPERATURE
from quintain.records.trajectory import OutcomeStatus, Trajectory, text_of


def scheduled(bounds: tuple[float, float], attempt: int, attempts: int, place: int, n_tasks: int) -> float:
    """The temperature of an episode.

    Args:
        bounds: Of the first and the last attempt, or task.
        attempt: Which attempt at its task, from 0.
        attempts: At each task.
        place: Which task, from 0.
        n_tasks: All of them.
    """
    i, n = (attempt, attempts) if attempts > 1 else (place, n_tasks)
    low, high = bounds
    return low if n < 2 else low + (high - low) * i / (n - 1)


def action_sequence(run: Trajectory) -> str:
    """A hash of all that the agent did, in order: tools with their arguments, and what it said in turns without a call."""
    done: list[list[Any]] = [
        [(call.tool, call.raw_args if call.args is None else call.args) for call in step.actions]
        or [step.thought, text_of(step.message)]
        for step in run.agent_steps
    ]
    return hashlib.sha256(json.dumps(done, sort_keys=True, default=str).encode()).hexdigest()


def repetition(sequences: Sequence[str]) -> float:
    """How much n attempts repeated each other, `(n - distinct) / (n - 1)`: 0 all differ, 1 all alike; 0 for fewer than two."""
    n = len(sequences)
    return 0.0 if n < 2 else (n - len(set(sequences))) / (n - 1)


@dataclass
class Attempts:
    """What the agent did in its attempts at each task; episodes that an environment broke do not count."""

    _sequences: dict[str, dict[int, str]] = field(default_factory=dict)

    def add(self, task: str, attempt: int, run: Trajectory) -> None:
        """Note an attempt that is over."""
        if run.outcome.status is not OutcomeStatus.ERROR:
            self._sequences.setdefault(task, {})[attempt] = action_sequence(run)

    def heated(self, temperature: float, diversity: float, task: str, attempt: int) -> float:
        """The temperature of the next attempt: `temperature (1 + diversity r)`, r the `repetition` of those before it.

        At most `MAX_TEMPERATURE`; greedy decoding stays greedy.
        """
        before = [done for number, done in self._sequences.get(task, {}).items() if number < attempt]
        return min(MAX_TEMPERATURE, temperature * (1.0 + diversity * repetition(before)))

    def distinct_share(self) -> float | None:
        """The share of distinct action sequences among the attempts at a task, averaged over tasks with two or more."""
        shares = [len(set(found.values())) / len(found) for found in self._sequences.values() if len(found) > 1]
        return math.fsum(shares) / len(shares) if shares else None
