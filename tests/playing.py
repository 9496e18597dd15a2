"""Environments in tests: calls, single steps, and whole episodes of a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from quintain.environments.registry import task_source
from quintain.evaluation.episodes import Episode, EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.protocols import Environment, Policy, Reply, TaskSource, TimeStep, Turn
from quintain.records.trajectory import Action, AgentInfo, Task


def call(tool: str, **args: Any) -> Action:
    return Action(tool=tool, args=args)


def act(environment: Environment, tool: str, **args: Any) -> TimeStep:
    return environment.step([call(tool, **args)])


def text_of(step: TimeStep) -> str:
    return str(step.observations[0].content)


def start(task_id: str) -> Any:
    """Return the environment of a generated task, at its beginning."""
    environment = task_source(f"quintain/{task_id.partition('/')[0]}").make()
    environment.reset(Task(id=task_id))
    return environment


class Scripted:
    """A policy that answers each turn by a function."""

    def __init__(self, answer: Callable[[Turn], Reply]) -> None:
        self._answer = answer

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        return [self._answer(turn) for turn in turns]

    def close(self, episode_id: str) -> None:
        pass


def play(source: TaskSource, policy: Policy, tasks: Iterable[Task], concurrency: int = 64) -> list[Episode]:
    settings = EpisodeSettings(seed=0, max_turns=None, concurrency=concurrency, agent=AgentInfo(name="expert"))
    return list(run_episodes(source, policy, [EpisodePlan(task) for task in tasks], settings))
