"""verifiers 0.4: the tasks of a taskset that one answer solves, scored by the taskset's own reward functions.

The answer becomes the assistant message of a `Trace`, and `Task.score` sums the weighted rewards, as `verifiers replay` does without a
runtime. Tasksets with tools, a container, an environment of their own or rewards that need a runtime are refused: they need the
library's own rollouts.
"""

from __future__ import annotations

import asyncio
import inspect
from importlib.metadata import version
from itertools import islice
from typing import Any

from quintain.environments.foreign.adapter import Turn, library

_MAX_TASKS = 100_000


def open_adapter(settings: dict[str, Any]) -> Verifiers:
    """Load a taskset.

    Raises:
        ValueError: its tasks cannot be scored from one answer.
    """
    vf, loaders = library("verifiers.v1"), library("verifiers.v1.utils.loaders")
    name = settings["taskset"]
    config = loaders.taskset_config_type(name).model_validate({**settings["config"], "id": name})
    taskset = loaders.load_taskset(config)
    task_type = taskset.task_type()
    reasons = {
        "its tasks need a container": task_type.NEEDS_CONTAINER,
        "its tasks have tools": task_type.toolsets(config.task) or type(taskset).toolsets(config),
        "it has its own environment class": loaders.environment_class(name) is not vf.SingleAgentEnv,
    }
    tasks = list(islice(taskset, settings["n_tasks"] or _MAX_TASKS))
    for hook in tasks[0].hooks("reward") if tasks else ():
        runtime = inspect.signature(hook).parameters.get("runtime")
        reasons[f"its reward {hook.__name__} needs a runtime"] = (
            runtime is not None and runtime.default is runtime.empty
        )
    if found := [reason for reason, holds in reasons.items() if holds]:
        raise ValueError(f"expected a taskset that one answer solves, got {name!r}: {'; '.join(found)}")
    return Verifiers(vf, settings, tasks)


class Verifiers:
    """A taskset; a task is an index."""

    takes_text = True
    players = ()
    tools: tuple[dict[str, Any], ...] = ()
    max_turns = 1
    system_prompt = ""

    def __init__(self, vf: Any, settings: dict[str, Any], tasks: list[Any]) -> None:
        self._vf, self._tasks, self._own_prompt = vf, tasks, settings["system_prompt"] or ""
        self._task: Any = None
        self.n_tasks = len(tasks)
        self.version = f"1-verifiers-{version('verifiers')}"

    def prompt(self, number: int) -> str:
        """Return the prompt of a task."""
        return str(self._tasks[number].data.prompt_text)

    def reset(self, number: int) -> Turn:
        """Return the prompt of a task."""
        self._task = self._tasks[number]
        self.system_prompt = self._task.data.system_prompt or self._own_prompt
        return Turn(self.prompt(number))

    def act(self, tool: str, arguments: dict[str, Any]) -> Turn:
        """Score the answer."""
        vf, task = self._vf, self._task
        messages = [vf.SystemMessage(content=task.data.system_prompt)] if task.data.system_prompt else []
        messages += [vf.UserMessage(content=task.data.prompt_text), vf.AssistantMessage(content=arguments["action"])]
        last = len(messages) - 1
        trace = vf.Trace(
            task=vf.TraceTask(type=type(task).__name__, data=task.data),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
            nodes=[
                vf.MessageNode(message=message, parent=place - 1 if place else None, sampled=place == last)
                for place, message in enumerate(messages)
            ],
        )
        asyncio.run(task.score(trace))
        scored = [reward for reward in trace.rewards.values() if reward is not None]
        metrics = {name: value for name, value in trace.metrics.items() if value is not None}
        return Turn("", float(trace.reward) if scored else None, terminated=True, info={"metrics": metrics})

    def close(self) -> None:
        """Forget the task."""
        self._task = None
