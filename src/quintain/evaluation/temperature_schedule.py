"""Temperature schedules that vary attempts at a task, with higher temperatures where attempts repeat each other.

Attempt i of n at a task is sampled at `low + (high - low) i / (n - 1)`. With one attempt per task, i runs over the
tasks. Temperature affects exploration only: recorded log-probs are those of the model at temperature 1.
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


def scheduled_temperature(bounds: tuple[float, float], attempt: int, attempts: int, place: int, n_tasks: int) -> float:
    """Return the temperature of an episode.

    Args:
        bounds: Temperatures of the first and the last attempt, or task.
        attempt: Index of the attempt at its task.
        attempts: Number of attempts per task.
        place: Index of the task.
        n_tasks: Number of tasks.
    """
    i, n = (attempt, attempts) if attempts > 1 else (place, n_tasks)
    low, high = bounds
    return low if n < 2 else low + (high - low) * i / (n - 1)


def action_sequence(run: Trajectory) -> str:
    """Hash the agent's actions in order: tools with arguments, and the text of turns without a call."""
    done: list[list[Any]] = [
        [(call.tool, call.raw_args if call.args is None else call.args) for call in step.actions]
        or [step.thought, text_of(step.message)]
        for step in run.agent_steps
    ]
    return hashlib.sha256(json.dumps(done, sort_keys=True, default=str).encode()).hexdigest()


def repetition(sequences: Sequence[str]) -> float:
    """Return how much n attempts repeat each other, `(n - distinct) / (n - 1)`, in 0..1; 0 for fewer than two."""
    n = len(sequences)
    return 0.0 if n < 2 else (n - len(set(sequences))) / (n - 1)


@dataclass
class Attempts:
    """Action sequences of the attempts at each task. Episodes with an environment error do not count."""

    _sequences: dict[str, dict[int, str]] = field(default_factory=dict)

    def add(self, task: str, attempt: int, run: Trajectory) -> None:
        """Record a finished attempt."""
        if run.outcome.status is not OutcomeStatus.ERROR:
            self._sequences.setdefault(task, {})[attempt] = action_sequence(run)

    def temperature_for(self, temperature: float, diversity: float, task: str, attempt: int) -> float:
        """Return the temperature of the next attempt: `temperature (1 + diversity r)`.

        r is the `repetition` of the previous attempts. The result is at most `MAX_TEMPERATURE`; greedy decoding stays greedy.
        """
        before = [done for number, done in self._sequences.get(task, {}).items() if number < attempt]
        return min(MAX_TEMPERATURE, temperature * (1.0 + diversity * repetition(before)))

    def distinct_share(self) -> float | None:
        """Return the share of distinct action sequences per task, averaged over tasks with two or more attempts."""
        shares = [len(set(found.values())) / len(found) for found in self._sequences.values() if len(found) > 1]
        return math.fsum(shares) / len(shares) if shares else None
