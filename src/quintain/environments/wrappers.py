"""Wrappers of environments: limits, shaped rewards, statistics, shorter observations, recording.

A wrapper sees each step of the environment, and returns the step that the agent sees. All other attributes come from the wrapped
environment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from quintain.records.protocols import Environment, TaskSource, TimeStep
from quintain.records.trajectory import (
    Action,
    Actor,
    AgentInfo,
    Observation,
    Outcome,
    OutcomeStatus,
    Step,
    Task,
    TextPart,
    Trajectory,
    text_of,
)

Wrapper = Callable[[Environment], Environment]


@dataclass
class WrappedEnvironment:
    """An environment whose steps a subclass changes."""

    inside: Environment

    def __getattr__(self, name: str) -> Any:
        if name == "inside":  # not set yet while being copied or unpickled
            raise AttributeError(name)
        found = getattr(self.inside, name)
        return partial(self._take_answer, found) if name == "take_answer" else found

    def _take_answer(self, take_answer: Callable[[str], TimeStep], text: str) -> TimeStep:
        return self.shown((), take_answer(text), text)

    @property
    def unwrapped(self) -> Environment:
        """The innermost environment."""
        inner: Environment = getattr(self.inside, "unwrapped", self.inside)
        return inner

    def reset(self, task: Task) -> TimeStep:
        """Begin a task."""
        return self.inside.reset(task)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Carry out the agent's actions."""
        return self.shown(actions, self.inside.step(actions))

    def shown(self, actions: Sequence[Action], step: TimeStep, text: str = "") -> TimeStep:
        """Return the step that the agent sees after its actions, or after an answer in text."""
        return step

    def close(self) -> None:
        """Release the episode's resources."""
        self.inside.close()


def wrap(source: TaskSource, *wrappers: Wrapper) -> TaskSource:
    """Return a source of the same tasks whose environments have these wrappers, the last one outermost."""
    return _WrappedSource(source, wrappers)


@dataclass(frozen=True)
class _WrappedSource:
    source: TaskSource
    wrappers: tuple[Wrapper, ...]

    def __getattr__(self, name: str) -> Any:
        if name in {"source", "wrappers"}:
            raise AttributeError(name)
        return getattr(self.source, name)

    def make(self) -> Environment:
        environment = self.source.make()
        for wrapper in self.wrappers:
            environment = wrapper(environment)
        return environment


Change = Callable[[Sequence[Action], TimeStep], TimeStep]
"""Returns the step that the agent sees after its actions; one for each episode."""


@dataclass
class _Changed(WrappedEnvironment):
    begin: Callable[[], Change]
    _change: Change | None = None

    def reset(self, task: Task) -> TimeStep:
        first = super().reset(task)
        self._change = self.begin()
        return first

    def shown(self, actions: Sequence[Action], step: TimeStep, text: str = "") -> TimeStep:
        self._change = self._change or self.begin()
        return self._change(actions, step)


def max_steps(most: int) -> Wrapper:
    """Truncate an episode after so many steps, unless the last one ends it with a verdict."""

    def begin() -> Change:
        taken = count(1)
        return lambda actions, step: _truncated(step) if next(taken) >= most else step

    return partial(_Changed, begin=begin)


def time_limit(seconds: float, clock: Callable[[], float] = time.monotonic) -> Wrapper:
    """Truncate an episode after the step that exceeds its time; a step that hangs needs a child process (`isolated`)."""

    def begin() -> Change:
        began = clock()
        return lambda actions, step: _truncated(step) if clock() - began > seconds else step

    return partial(_Changed, begin=begin)


def _truncated(step: TimeStep) -> TimeStep:
    return step if step.terminated else step.model_copy(update={"truncated": True})


def shaped_reward(reward: Callable[[Sequence[Action], TimeStep], float | None]) -> Wrapper:
    """Replace each step's reward by the function's value; None: no reward.

    `info["environment_reward"]` keeps the environment's own, by which `recorder` decides whether the run succeeded.
    """

    def change(actions: Sequence[Action], step: TimeStep) -> TimeStep:
        info = {"environment_reward": step.reward, **step.info}
        return step.model_copy(update={"reward": reward(actions, step), "info": info})

    return partial(_Changed, begin=lambda: change)


def episode_statistics(clock: Callable[[], float] = time.monotonic) -> Wrapper:
    """Add `info["episode"]` to the last step: `r` sum of rewards, `l` steps, `t` seconds, as in Gymnasium."""

    def begin() -> Change:
        rewards, began = list[float](), clock()

        def change(actions: Sequence[Action], step: TimeStep) -> TimeStep:
            rewards.append(step.reward or 0.0)
            if not (step.terminated or step.truncated):
                return step
            episode = {"r": sum(rewards), "l": len(rewards), "t": clock() - began}
            return step.model_copy(update={"info": {**step.info, "episode": episode}})

        return change

    return partial(_Changed, begin=begin)


def shorter_observations(most_chars: int = 8000) -> Wrapper:
    """Cut the text of long observations, with a note of the number of characters."""

    def shortened(observation: Observation) -> Observation:
        text = text_of(observation.content)
        if len(text) <= most_chars:
            return observation
        cut = f"{text[:most_chars]}\n[{len(text) - most_chars} more characters were cut]"
        parts = () if isinstance(observation.content, str) else observation.content
        pictures = tuple(part for part in parts if not isinstance(part, TextPart))
        return observation.model_copy(update={"content": (TextPart(text=cut), *pictures) if pictures else cut})

    def change(actions: Sequence[Action], step: TimeStep) -> TimeStep:
        return step.model_copy(update={"observations": tuple(map(shortened, step.observations))})

    return partial(_Changed, begin=lambda: change)


def recorder(agent: AgentInfo, keep: Callable[[Trajectory], object]) -> Wrapper:
    """Pass each episode to `keep` as a trajectory, for custom loops; it contains the agent's actions without its text.

    An episode that is closed before its end is passed on with an unknown outcome.
    """
    return partial(_Recorded, agent=agent, keep=keep)


@dataclass
class _Recorded(WrappedEnvironment):
    agent: AgentInfo
    keep: Callable[[Trajectory], object]
    _task: Task | None = None
    _steps: list[Step] = field(default_factory=list)
    _reward: float | None = None

    def reset(self, task: Task) -> TimeStep:
        self._finish(OutcomeStatus.UNKNOWN)
        first = super().reset(task)
        self._task, self._reward, self._steps = task, None, []
        if self.inside.system_prompt:
            self._steps.append(Step(actor=Actor.SYSTEM, message=self.inside.system_prompt))
        self._add_user_step(first.message or task.prompt)
        return first

    def shown(self, actions: Sequence[Action], step: TimeStep, text: str = "") -> TimeStep:
        self._steps.append(
            Step(
                actor=Actor.AGENT,
                message=text,
                actions=tuple(actions),
                observations=step.observations,
                reward=step.reward,
                model=self.agent.model,
            )
        )
        self._add_user_step(step.message)
        reward = step.info.get("environment_reward", step.reward)
        self._reward = self._reward if reward is None else reward
        if step.terminated:
            self._finish(_verdict(self._reward))
        elif step.truncated:
            self._finish(OutcomeStatus.TRUNCATED)
        return step

    def close(self) -> None:
        self._finish(OutcomeStatus.UNKNOWN)
        super().close()

    def _add_user_step(self, text: str | None) -> None:
        if text:
            self._steps.append(Step(actor=Actor.USER, message=text))

    def _finish(self, status: OutcomeStatus) -> None:
        task, self._task = self._task, None
        if task is not None and any(step.actor is Actor.AGENT for step in self._steps):
            run = Trajectory(
                agent=self.agent,
                task=task,
                tools=self.inside.tools,
                steps=tuple(self._steps),
                outcome=Outcome(status=status, reward=self._reward),
            )
            self.keep(run.identified())


def _verdict(reward: float | None) -> OutcomeStatus:
    if reward is None:
        return OutcomeStatus.UNKNOWN
    return OutcomeStatus.SUCCESS if reward >= 1 else OutcomeStatus.FAILURE
