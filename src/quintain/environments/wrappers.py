"""Wrappers of environments: limits, shaped rewards, statistics, shorter observations, recording.

A wrapper gets a step's actions and a function that carries them out, and returns the step that the agent sees. All other attributes
come from the wrapped environment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
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

Carry = Callable[[Sequence[Action]], TimeStep]
"""Carries out actions in the wrapped environment."""

Wrapper = Callable[[Environment], Environment]


@dataclass
class WrappedEnvironment:
    """An environment whose steps pass through a function."""

    inside: Environment
    around: Callable[[Sequence[Action], Carry], TimeStep]
    begin: Callable[[Task, TimeStep], TimeStep] = lambda task, first: first
    changed: dict[str, Any] = field(default_factory=dict)
    """Attributes that replace those of the wrapped environment."""

    def __getattr__(self, name: str) -> Any:
        if name in {"inside", "changed"}:  # not set yet while being copied or unpickled
            raise AttributeError(name)
        found = self.changed[name] if name in self.changed else getattr(self.inside, name)
        return partial(self._around_answer, found) if name == "take_answer" else found

    def _around_answer(self, take_answer: Callable[[str], TimeStep], text: str) -> TimeStep:
        return self.around((), lambda actions: take_answer(text))

    @property
    def unwrapped(self) -> Environment:
        """The innermost environment."""
        inner: Environment = getattr(self.inside, "unwrapped", self.inside)
        return inner

    def reset(self, task: Task) -> TimeStep:
        """Begin a task."""
        return self.begin(task, self.inside.reset(task))

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Carry out the agent's actions."""
        return self.around(actions, self.inside.step)

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


def max_steps(most: int) -> Wrapper:
    """Truncate an episode after so many steps, unless the last one ends it with a verdict."""

    def wrapper(environment: Environment) -> Environment:
        taken = 0

        def begin(task: Task, first: TimeStep) -> TimeStep:
            nonlocal taken
            taken = 0
            return first

        def around(actions: Sequence[Action], carry: Carry) -> TimeStep:
            nonlocal taken
            step, taken = carry(actions), taken + 1
            return step if step.terminated or taken < most else step.model_copy(update={"truncated": True})

        return WrappedEnvironment(environment, around, begin)

    return wrapper


def time_limit(seconds: float, clock: Callable[[], float] = time.monotonic) -> Wrapper:
    """Truncate an episode after the step that exceeds its time; a step that hangs needs a child process (`isolated`)."""

    def wrapper(environment: Environment) -> Environment:
        began = 0.0

        def begin(task: Task, first: TimeStep) -> TimeStep:
            nonlocal began
            began = clock()
            return first

        def around(actions: Sequence[Action], carry: Carry) -> TimeStep:
            step = carry(actions)
            late = clock() - began > seconds and not step.terminated
            return step.model_copy(update={"truncated": True}) if late else step

        return WrappedEnvironment(environment, around, begin)

    return wrapper


def shaped_reward(reward: Callable[[Sequence[Action], TimeStep], float | None]) -> Wrapper:
    """Replace each step's reward by the function's value; None: no reward.

    `info["environment_reward"]` keeps the environment's own, by which `recorder` decides whether the run succeeded.
    """

    def wrapper(environment: Environment) -> Environment:
        def around(actions: Sequence[Action], carry: Carry) -> TimeStep:
            step = carry(actions)
            info = {"environment_reward": step.reward, **step.info}
            return step.model_copy(update={"reward": reward(actions, step), "info": info})

        return WrappedEnvironment(environment, around)

    return wrapper


def episode_statistics(clock: Callable[[], float] = time.monotonic) -> Wrapper:
    """Add `info["episode"]` to the last step: `r` sum of rewards, `l` steps, `t` seconds, as in Gymnasium."""

    def wrapper(environment: Environment) -> Environment:
        sums = {"r": 0.0, "l": 0, "began": 0.0}

        def begin(task: Task, first: TimeStep) -> TimeStep:
            sums.update(r=0.0, l=0, began=clock())
            return first

        def around(actions: Sequence[Action], carry: Carry) -> TimeStep:
            step = carry(actions)
            sums["r"] += step.reward or 0.0
            sums["l"] += 1
            if not (step.terminated or step.truncated):
                return step
            episode = {"r": sums["r"], "l": sums["l"], "t": clock() - sums["began"]}
            return step.model_copy(update={"info": {**step.info, "episode": episode}})

        return WrappedEnvironment(environment, around, begin)

    return wrapper


def shorter_observations(most_chars: int = 8000) -> Wrapper:
    """Cut the text of long observations, with a note of the number of characters."""

    def shortened(observation: Observation) -> Observation:
        text = text_of(observation.content)
        if len(text) <= most_chars:
            return observation
        cut = f"{text[:most_chars]}\n[{len(text) - most_chars} more characters were cut]"
        pictures = (
            ()
            if isinstance(observation.content, str)
            else tuple(p for p in observation.content if not isinstance(p, TextPart))
        )
        return observation.model_copy(update={"content": (TextPart(text=cut), *pictures) if pictures else cut})

    def wrapper(environment: Environment) -> Environment:
        def around(actions: Sequence[Action], carry: Carry) -> TimeStep:
            step = carry(actions)
            return step.model_copy(update={"observations": tuple(map(shortened, step.observations))})

        return WrappedEnvironment(environment, around)

    return wrapper


def recorder(agent: AgentInfo, keep: Callable[[Trajectory], object]) -> Wrapper:
    """Pass each episode to `keep` as a trajectory, for custom loops; it contains the agent's actions without its text.

    An episode that is closed before its end is passed on with an unknown outcome.
    """

    def wrapper(environment: Environment) -> Environment:
        return _Recorded(environment, agent, keep)

    return wrapper


@dataclass
class _Recorded:
    inside: Environment
    agent: AgentInfo
    keep: Callable[[Trajectory], object]
    _task: Task | None = None
    _steps: list[Step] = field(default_factory=list)
    _reward: float | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "inside":
            raise AttributeError(name)
        found = getattr(self.inside, name)
        return partial(self._take_answer, found) if name == "take_answer" else found

    def _take_answer(self, take_answer: Callable[[str], TimeStep], text: str) -> TimeStep:
        return self._record((), take_answer(text), text)

    @property
    def unwrapped(self) -> Environment:
        inner: Environment = getattr(self.inside, "unwrapped", self.inside)
        return inner

    def reset(self, task: Task) -> TimeStep:
        self._finish(OutcomeStatus.UNKNOWN)
        first = self.inside.reset(task)
        self._task, self._reward, self._steps = task, None, []
        if self.inside.system_prompt:
            self._steps.append(Step(actor=Actor.SYSTEM, message=self.inside.system_prompt))
        self._add_user_step(first.message or task.prompt)
        return first

    def step(self, actions: Sequence[Action]) -> TimeStep:
        return self._record(actions, self.inside.step(actions))

    def _record(self, actions: Sequence[Action], step: TimeStep, text: str = "") -> TimeStep:
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
        self.inside.close()

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
