"""verifiers 0.4: the tasks of a taskset that an answer ends, scored by the taskset's own reward functions, and its tools.

The conversation becomes a `Trace`, and `Task.score` sums the weighted rewards, as `verifiers replay` does without a runtime. Tool
servers of Python run in this process, with the state of the trace, which a condition may read to end the run behind a call.
Tasksets with a container, servers elsewhere, an environment of their own, or rewards that need a runtime are refused: they need the
library's own rollouts.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from importlib.metadata import version
from itertools import islice
from typing import Any

from quintain.environments.foreign.adapter import Turn, library, tool

_MAX_TASKS = 100_000


def open_adapter(settings: dict[str, Any]) -> Verifiers:
    """Load a taskset.

    Raises:
        ValueError: its tasks cannot be scored without a runtime, or have tools that do not run here.
    """
    vf, loaders = library("verifiers.v1"), library("verifiers.v1.utils.loaders")
    name = settings["taskset"]
    config = loaders.taskset_config_type(name).model_validate({**settings["config"], "id": name})
    taskset = loaders.load_taskset(config)
    task_type, shared = taskset.task_type(), type(taskset).toolsets(config)
    servers = [*task_type.toolsets(config.task), *shared]
    tasks = list(islice(taskset, settings["n_tasks"] or _MAX_TASKS))
    rewards, stops = ([hook for task in tasks[:1] for hook in task.hooks(kind)] for kind in ("reward", "stop"))
    reasons = {
        "its tasks need a container": task_type.NEEDS_CONTAINER,
        "its tools run elsewhere": any(s.config.url or s.config.runtime.type != "subprocess" for s in servers),
        "its tasks set up a runtime": servers and task_type.setup is not vf.Task.setup,
        "it has its own environment class": loaders.environment_class(name) is not vf.SingleAgentEnv,
        **{f"its reward {hook.__name__} needs a runtime": _needs_runtime(hook) for hook in rewards},
        **{f"its condition {hook.__name__} reads requests": servers and not _reads_trace(hook) for hook in stops},
    }
    if found := [reason for reason, holds in reasons.items() if holds]:
        raise ValueError(f"expected a taskset that is scored without a runtime, got {name!r}: {'; '.join(found)}")
    return Verifiers(vf, settings, tasks, shared)


def _needs_runtime(hook: Any) -> bool:
    runtime = inspect.signature(hook).parameters.get("runtime")
    return runtime is not None and runtime.default is runtime.empty


def _reads_trace(hook: Any) -> bool:
    boundary: type = library("verifiers.v1.session").hook_boundary(hook, allow_trace=True)
    return boundary is library("verifiers.v1").Trace


class Verifiers:
    """A taskset; a task is an index."""

    takes_text = True
    players = ()
    max_turns = 1
    system_prompt = ""

    def __init__(self, vf: Any, settings: dict[str, Any], tasks: list[Any], shared: list[Any]) -> None:
        self._vf, self._tasks, self._own_prompt = vf, tasks, settings["system_prompt"] or ""
        self._loop = asyncio.Runner()  # one for all, as what a server opens belongs to its loop
        self._shared, self._own = shared, list[Any]()
        for server in shared:
            self._loop.run(server.setup())
        self._task: Any = None
        self._state: Any = None
        self._messages: list[Any] = []
        self._calls: dict[str, tuple[Any, str]] = {}
        self.tools: list[dict[str, Any]] = []
        self.n_tasks = len(tasks)
        self.version = f"1-verifiers-{version('verifiers')}"

    def prompt(self, number: int) -> str:
        """Return the prompt of a task."""
        return str(self._tasks[number].data.prompt_text)

    def reset(self, number: int) -> Turn:
        """Start the tool servers of a task and return its prompt."""
        self.close()
        vf, task = self._vf, self._tasks[number]
        self._task, data = task, task.data
        self.system_prompt = data.system_prompt or self._own_prompt
        self._messages = [vf.SystemMessage(content=data.system_prompt)] if data.system_prompt else []
        self._messages.append(vf.UserMessage(content=data.prompt_text))
        self._state = library("verifiers.v1.state").state_cls(type(task))()
        self._loop.run(self._serve())
        return Turn(self.prompt(number))

    def act(self, tool: str, arguments: dict[str, Any]) -> Turn:
        """Call a tool, or score the answer."""
        if tool in self._calls:
            return self._called(tool, arguments)
        self._messages.append(self._vf.AssistantMessage(content=arguments["action"]))
        return self._scored(self._trace(), "")

    def _trace(self) -> Any:
        vf, task = self._vf, self._task
        return vf.Trace(
            task=vf.TraceTask(type=type(task).__name__, data=task.data),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
            nodes=[
                vf.MessageNode(
                    message=message, parent=place - 1 if place else None, sampled=message.role == "assistant"
                )
                for place, message in enumerate(self._messages)
            ],
            state=self._state,
        )

    def _scored(self, trace: Any, text: str, *, is_error: bool = False) -> Turn:
        self._loop.run(self._task.score(trace))
        scored = [reward for reward in trace.rewards.values() if reward is not None]
        metrics = {name: value for name, value in trace.metrics.items() if value is not None}
        reward = float(trace.reward) if scored else None
        return Turn(text, reward, terminated=True, is_error=is_error, info={"metrics": metrics})

    async def _stops(self, trace: Any) -> bool:
        """Whether a condition of the task ends the run."""
        hook = library("verifiers.v1.session").call_hook
        return any([await hook(stop, {self._vf.Trace: trace}) for stop in self._task.hooks("stop")])

    def close(self) -> None:
        """Forget the task and stop its tool servers."""
        servers, self._own, self._task = self._own, [], None
        for server in servers:
            self._loop.run(server._exit_stack.aclose())

    async def _serve(self) -> None:
        """Start the servers of the task, and list the tools of all under the names that the library gives them."""
        self._own = self._task.toolsets(self._task.config)
        self._calls, self.tools = {}, []
        for server in self._own:
            await server.setup()
            await server.setup_task(self._task)
        for server in (*self._own, *self._shared):
            server._pull_state, server._push_state = self._shared_state, _nothing  # instead of by HTTP
            served = library("mcp.server.mcpserver", "verifiers").MCPServer(server.server_name or type(server).__name__)
            server.register(served)
            for one in await served.list_tools():
                name = f"{server.server_name}_{one.name}" if server.server_name else one.name
                self._calls[name] = served, one.name
                self.tools.append(tool(one.input_schema, one.description or "", name))

    async def _shared_state(self) -> Any:
        return self._state

    def _called(self, tool: str, arguments: dict[str, Any]) -> Turn:
        served, name = self._calls[tool]
        call_id = f"call_{len(self._messages)}"
        types = library("verifiers.v1.types")
        call = types.ToolCall(id=call_id, name=tool, arguments=json.dumps(arguments))
        try:
            result = self._loop.run(served.call_tool(name, arguments))
            text, is_error = "\n".join(_texts(result.content)), bool(result.is_error)
        except Exception as error:  # what a tool raises is its answer, as the library's server sends it
            text, is_error = str(error), True
        self._messages += [
            types.AssistantMessage(tool_calls=[call]),
            types.ToolMessage(tool_call_id=call_id, content=text, name=tool),
        ]
        trace = self._trace()
        if self._loop.run(self._stops(trace)):
            return self._scored(trace, text, is_error=is_error)
        return Turn(text, is_error=is_error)


async def _nothing(before: bytes) -> None:
    """Push no state: the servers share one object."""


def _texts(content: list[Any]) -> Iterator[str]:
    for part in content:
        yield part.text if part.type == "text" else f"[{part.type}]"
