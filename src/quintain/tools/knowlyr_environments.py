"""knowlyr's environments for Python programs: `make` and wrappers, over the environments and wrappers of this program.

    from quintain.tools.knowlyr import RecorderWrapper, make
    env = RecorderWrapper(make("knowlyr/conversation"), agent_name="my-agent")

An action is `{"tool": NAME, "params": {...}}`. Trajectories are rows of knowlyr's recorder, which the importer reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from quintain.environments import wrappers
from quintain.environments.registry import environment_ids, task_source
from quintain.errors import Conflict, InvalidInput
from quintain.records.protocols import Environment, TaskSource
from quintain.records.protocols import TimeStep as EnvironmentStep
from quintain.records.trajectory import Action, AgentInfo, Observation, Step, Task, Trajectory, text_of
from quintain.records.wording import shown

RewardFunction = Callable[[Sequence[Mapping[str, Any]], Mapping[str, Any]], float]
"""From the steps so far, the last one included, and its action to the reward of the step."""


@dataclass(frozen=True)
class TimeStep:
    """Answer of an environment."""

    observation: str = ""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated


class AgentEnv:
    """An environment with one tool call a step; subclasses implement `reset`, `step` and `available_tools`."""

    domain = "generic"

    def reset(self, *, task: Any = None, seed: int | None = None) -> TimeStep:
        """Begin an episode."""
        raise NotImplementedError

    def step(self, action: dict[str, Any]) -> TimeStep:
        """Carry out `{"tool", "params"}`."""
        raise NotImplementedError

    def close(self) -> None:
        """Free resources."""

    @property
    def available_tools(self) -> list[str]:
        """Names of the tools."""
        return []

    @property
    def inner(self) -> Environment:
        """This environment as those of this program, for their wrappers."""
        return _Adapted(self)

    @property
    def unwrapped(self) -> AgentEnv:
        """The environment without wrappers."""
        inner = getattr(self, "env", None)
        return inner.unwrapped if isinstance(inner, AgentEnv) else self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


@dataclass
class _Adapted:
    """An `AgentEnv` of a program as an environment of this one."""

    outside: AgentEnv
    id: str = ""
    system_prompt: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    max_turns: int = 1000

    def __post_init__(self) -> None:
        self.id = type(self.outside).__name__
        empty = {"type": "object", "properties": {}}
        functions = ({"name": name, "parameters": empty} for name in self.outside.available_tools)
        self.tools = tuple({"type": "function", "function": function} for function in functions)

    def reset(self, task: Task) -> EnvironmentStep:
        return self._step(self.outside.reset(task=task.metadata.get("given")), ())

    def step(self, actions: Sequence[Action]) -> EnvironmentStep:
        (action,) = actions
        return self._step(self.outside.step({"tool": action.tool, "params": action.args or {}}), actions)

    def close(self) -> None:
        self.outside.close()

    def _step(self, answer: TimeStep, actions: Sequence[Action]) -> EnvironmentStep:
        shared = {"terminated": answer.terminated, "truncated": answer.truncated, "info": answer.info}
        if not actions:
            return EnvironmentStep(message=answer.observation, **shared)
        return EnvironmentStep(
            observations=(Observation(content=answer.observation),), reward=answer.reward or None, **shared
        )


@dataclass
class _WithFreeTexts(wrappers.WrappedEnvironment):
    """An environment that also takes a text in place of a task: to be answered, without data for other tools and without a verdict."""

    is_free: bool = False

    def reset(self, task: Task) -> EnvironmentStep:
        self.is_free = bool(task.prompt) and not _ID.fullmatch(task.id or "")
        return EnvironmentStep(message=task.prompt) if self.is_free else super().reset(task)

    def step(self, actions: Sequence[Action]) -> EnvironmentStep:
        if not self.is_free:
            return super().step(actions)
        if all(action.tool in _ENDING for action in actions):
            return EnvironmentStep(observations=(Observation(content="Sent."),), terminated=True)
        known = ", ".join(tool["function"]["name"] for tool in self.tools if tool["function"]["name"] in _ENDING)
        fault = f"expected {known} on a free text, which has no data for other tools; answer it"
        return EnvironmentStep(observations=(Observation(content=fault, is_error=True),))


_ID = re.compile(r"[\w.-]+(?:/[\w.-]+)+")
"""Ids of tasks have parts between slashes, such as conversation/train/question/easy/00123."""
_ENDING = frozenset({"respond", "submit", "finish"})
"""Tools that end an episode in knowlyr's environments."""


class _Face(AgentEnv):
    """An environment of this program with knowlyr's methods."""

    def __init__(self, environment: Environment, source: TaskSource | None = None) -> None:
        self._environment, self._source = environment, source
        self._played: set[str | None] = set()

    @property
    def inner(self) -> Environment:
        return self._environment

    @property
    def available_tools(self) -> list[str]:
        return [tool["function"]["name"] for tool in self._environment.tools]

    def reset(self, *, task: Any = None, seed: int | None = None) -> TimeStep:
        """Begin a task.

        Args:
            task: Id, object with `task_id` and `description`, or a text to answer, which gets no verdict; None: the next of the
                training tasks.
            seed: Of the training tasks.

        Raises:
            InvalidInput: the environment has no such task.
        """
        if task is None and self._source is not None:
            drawn = self._source.tasks("train", len(self._played) + 1, seed or 0)
            task = next(one for one in drawn if one.id not in self._played)
            self._played.add(task.id)
        return self._answer(self._environment.reset(_task(task)))

    def step(self, action: Mapping[str, Any]) -> TimeStep:
        tool, params = action.get("tool"), action.get("params", {})
        if not isinstance(tool, str) or not isinstance(params, Mapping):
            raise InvalidInput(f"action: expected {{'tool': name, 'params': object}}, got {shown(action)}; correct it")
        if tool == "finish" and tool not in self.available_tools:
            tool = "submit"
        return self._answer(self._environment.step((Action(tool=tool, args=dict(params)),)))

    def close(self) -> None:
        self._environment.close()

    def _answer(self, step: EnvironmentStep) -> TimeStep:
        texts = [text_of(one.content) for one in step.observations] + [step.message or ""]
        text = "\n".join(filter(None, texts))
        return TimeStep(text, step.reward or 0.0, step.terminated, step.truncated, step.info)


def _task(task: Any) -> Task:
    if isinstance(task, Task):
        return task
    named = task if isinstance(task, Mapping) else getattr(task, "__dict__", None) or {}
    text = task if isinstance(task, str) else named.get("description", "")
    return Task(id=str(named.get("task_id") or text) or None, prompt=text, metadata={"given": task} if task else {})


class EnvWrapper(_Face):
    """An environment around another one."""

    def __init__(self, env: AgentEnv, wrapper: wrappers.Wrapper) -> None:
        super().__init__(wrapper(env.inner), getattr(env, "_source", None))
        self.domain, self.env = env.domain, env


class MaxStepsWrapper(EnvWrapper):
    """Truncates an episode after `max_steps` steps."""

    def __init__(self, env: AgentEnv, max_steps: int = 30) -> None:
        super().__init__(env, wrappers.max_steps(max_steps))


class TimeoutWrapper(EnvWrapper):
    """Truncates an episode after the step that exceeds `timeout_seconds`."""

    def __init__(self, env: AgentEnv, timeout_seconds: float = 300) -> None:
        super().__init__(env, wrappers.time_limit(timeout_seconds))


class EpisodeStatisticsWrapper(EnvWrapper):
    """Adds `info["episode"]` to the last step: `r` sum of rewards, `l` steps, `t` seconds."""

    def __init__(self, env: AgentEnv) -> None:
        super().__init__(env, wrappers.episode_statistics())


class ObservationTruncateWrapper(EnvWrapper):
    """Cuts observations of more than `max_chars` characters."""

    def __init__(self, env: AgentEnv, max_chars: int = 8000) -> None:
        super().__init__(env, wrappers.shorter_observations(max_chars))


class RewardWrapper(EnvWrapper):
    """Replaces the rewards of steps by those of a function."""

    def __init__(self, env: AgentEnv, reward_fn: RewardFunction) -> None:
        self._steps: list[dict[str, Any]] = []

        def reward(actions: Sequence[Action], step: EnvironmentStep) -> float:
            action = {"tool": actions[0].tool, "params": actions[0].args or {}}
            output = "\n".join(text_of(one.content) for one in step.observations)
            self._steps.append({**action, "output": output, "thought": ""})
            return reward_fn(self._steps, action)

        super().__init__(env, wrappers.shaped_reward(reward))

    def reset(self, *, task: Any = None, seed: int | None = None) -> TimeStep:
        """Begin a task, as the environment inside does."""
        self._steps.clear()
        return super().reset(task=task, seed=seed)


class RecorderWrapper(EnvWrapper):
    """Keeps the last episode as a row of knowlyr's recorder."""

    def __init__(self, env: AgentEnv, agent_name: str = "agent", model_name: str = "") -> None:
        self._runs: list[Trajectory] = []
        super().__init__(
            env, wrappers.recorder(AgentInfo(name=agent_name, model=model_name or None), self._runs.append)
        )

    def get_trajectory(self) -> dict[str, Any]:
        """Return the last episode that has ended."""
        if not self._runs:
            raise InvalidInput("expected an episode that has ended, got none; play it to its end, or close it")
        return recorded_row(self._runs[-1], self.domain)


def recorded_row(run: Trajectory, domain: str = "generic") -> dict[str, Any]:
    """Return a run as a row of knowlyr's recorder; a success that is not known is left out."""
    steps = [_recorded_step(number, step) for number, step in enumerate(run.agent_steps, 1)]
    verdict = run.outcome.status.verdict
    outcome = {"total_steps": len(steps)} | ({} if verdict is None else {"success": verdict == 1})
    return {
        "task": {"task_id": run.task.id or "", "description": run.task.prompt or run.first_user_text},
        "agent": run.agent.name,
        "model": run.agent.model or "",
        "steps": steps,
        "outcome": outcome,
        "reward": run.outcome.reward,
        "metadata": {"domain": domain},
    }


def _recorded_step(number: int, step: Step) -> dict[str, Any]:
    action = step.actions[0] if step.actions else None
    return {
        "step_id": number,
        "thought": step.thought or text_of(step.message),
        "tool": "" if action is None else action.tool,
        "params": {} if action is None else dict(action.args or {}),
        "output": "\n".join(text_of(one.content) for one in step.observations),
        "exit_code": int(any(one.is_error for one in step.observations)),
        "reward": step.reward or 0.0,
    }


_OURS, _THEIRS = "quintain/", "knowlyr/"
_registered: dict[str, tuple[type[AgentEnv], dict[str, Any]]] = {}


def register(env_id: str, env_class: type[AgentEnv], *, domain: str = "generic", **options: Any) -> None:
    """Make a class usable by `make` and `collect` in this program, under an id that is free; jobs need an entry point."""
    if env_id in _registered:
        raise Conflict(f"environment id {env_id!r} is taken; choose another id")
    env_class.domain = domain
    _registered[env_id] = (env_class, options)


def environment_name(env_id: str) -> str:
    """Return our id of an environment of knowlyr, such as quintain/sandbox for knowlyr/sandbox."""
    return f"{_OURS}{env_id.removeprefix(_THEIRS)}" if env_id.startswith(_THEIRS) else env_id


def make(env_id: str, **options: Any) -> AgentEnv:
    """Return an environment by its id."""
    if env_id in _registered:
        env_class, defaults = _registered[env_id]
        return env_class(**{**defaults, **options})
    query = "&".join(f"{name}={value}" for name, value in options.items())
    source = task_source(environment_name(env_id) + (f"?{query}" if query else ""))
    face = _Face(_WithFreeTexts(source.make()), source)
    face.domain = _domain(env_id)
    return face


def list_envs(domain: str | None = None) -> list[str]:
    """Return the ids that `make` takes, of a domain or all, sorted."""
    own = {env_id: env_class.domain for env_id, (env_class, _) in _registered.items()}
    ours = (env_id for env_id in environment_ids() if env_id.startswith(_OURS))
    known = {f"{_THEIRS}{env_id.removeprefix(_OURS)}": _domain(env_id) for env_id in ours} | own
    return sorted(env_id for env_id, of in known.items() if domain in (None, of))


def _domain(env_id: str) -> str:
    name = env_id.rpartition("/")[2]
    return "coding" if name == "sandbox" else name
