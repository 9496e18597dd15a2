"""One episode on a server: its tools are the actions, its results the observations, and the task's checks give the verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from quintain.environments.mcp_server.tasks import Check, calls_of, judge, needs_answer, read_checks
from quintain.environments.servers import Call, ServerProfile, ToolResult
from quintain.environments.tool_calls import refusal, tool_definition
from quintain.errors import InvalidInput
from quintain.records.protocols import TimeStep
from quintain.records.trajectory import Action, Observation, Task
from quintain.records.wording import clip, list_names, nearest, shown

if TYPE_CHECKING:
    from quintain.environments.mcp_server.connection import Connection

OBSERVATION_CHARS = 20_000
"""Maximum characters of an observation; a note replaces the rest."""

_MAX_CALLS = 16
_PROMPT = "You work with tools. Call a tool to find out or to do what is asked{end}."


class Episode:
    """A task on a server, which is started or reused when the task begins."""

    tools: tuple[dict[str, Any], ...] = ()
    """Available after `reset`."""

    def __init__(
        self, profile: ServerProfile, borrow: Callable[[], Connection], give_back: Callable[[Connection], None]
    ) -> None:
        self.id, self.max_turns = profile.id, profile.max_turns
        self.system_prompt = profile.system_prompt or ""
        self._profile, self._borrow, self._give_back = profile, borrow, give_back
        self._connection: Connection | None = None
        self._checks: tuple[Check, ...] = ()
        self._calls: list[Call] = []
        self._submit: str | None = None
        self._own_submit = False

    def reset(self, task: Task) -> TimeStep:
        """Prepare the server for the task and return the prompt."""
        self._checks = read_checks(task.metadata, f"the checker of task {clip(task.id or '')!r}")
        self._connection = connection = self._borrow()
        for call in (*self._profile.reset, *calls_of(task, "setup")):
            connection.require(call)
        self._offer(allowed_tools(self._profile, connection.tools))
        if self._profile.system_prompt is None:
            end = f"; end with {self._submit}" if self._submit else "; when it is done, say so without a call"
            self.system_prompt = _PROMPT.format(end=end)
        return TimeStep(message=task.prompt, info=self._notes())

    def _offer(self, tools: tuple[dict[str, Any], ...]) -> None:
        """Set the action space: the server's tools, and a submit tool if an answer is needed and the server has none."""
        functions = {tool["function"]["name"]: tool["function"] for tool in tools}
        if needs_answer(self._checks):
            own = functions.get("submit")
            self._own_submit = own is not None and "answer" in own["parameters"].get("properties", {})
            self._submit = "submit" if own is None or self._own_submit else "submit_answer"
            if not self._own_submit:
                tools = (*tools, _submit_tool(self._submit))
        self.tools = tools

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Carry out the calls in order; a submitted answer, or a turn without calls, ends the episode."""
        assert self._connection is not None, "reset comes before step"
        if not actions:
            if self._submit is None:
                return self._ended((), None)
            return TimeStep(message=f"You called no tool. Call one of: {self._choice}.", info=self._notes())
        observations: list[Observation] = []
        for i, action in enumerate(actions):
            if i >= _MAX_CALLS:
                observations.append(refusal(f"only {_MAX_CALLS} calls of a turn are carried out"))
                continue
            if action.tool == self._submit and action.args is not None:
                return self._submitted(action, observations, len(actions) - i - 1)
            observations.append(_observed(self._carry_out(action)))
        return TimeStep(observations=tuple(observations), info=self._notes())

    def close(self) -> None:
        """End the server, or keep it for the next episode."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._give_back(connection)

    @property
    def _names(self) -> list[str]:
        return [tool["function"]["name"] for tool in self.tools]

    @property
    def _choice(self) -> str:
        return list_names(self._names)

    def _carry_out(self, action: Action) -> ToolResult:
        assert self._connection is not None
        if action.tool not in self._names:
            near = nearest(action.tool, self._names)
            return ToolResult(
                f"Error: no tool is called {shown(action.tool)}{near}; call one of: {self._choice}.",
                is_error=True,
            )
        if action.args is None:
            return ToolResult(
                f"Error: the arguments of {action.tool} are not valid JSON: {shown(action.raw_args)}.", is_error=True
            )
        answer = self._connection.call(action.tool, action.args)
        if not answer.is_error:
            self._calls.append(Call(tool=action.tool, args=action.args))
        return answer

    def _submitted(self, action: Action, observations: list[Observation], following: int) -> TimeStep:
        assert action.args is not None
        rest = (refusal("the answer was handed in before"),) * following
        if "answer" not in action.args:
            refused = refusal(f"{action.tool} needs `answer`")
            return TimeStep(observations=(*observations, refused, *rest), info=self._notes())
        if not self._own_submit:
            return self._ended(observations, action.args["answer"], rest)
        answer = self._carry_out(action)
        if answer.is_error:
            return TimeStep(observations=(*observations, _observed(answer), *rest), info=self._notes())
        return self._ended((*observations, _observed(answer)), action.args["answer"], rest, announce=False)

    def _ended(
        self,
        observations: Sequence[Observation],
        answer: Any,
        rest: Sequence[Observation] = (),
        *,
        announce: bool = True,
    ) -> TimeStep:
        assert self._connection is not None
        connection = self._connection
        text = None if answer is None else as_text(answer)
        verdict = judge(self._checks, text, self._calls, lambda call: connection.call(call.tool, call.args))
        words = {1.0: "Right.", 0.0: "Wrong.", None: "Noted."}[verdict.value]
        verdict_text = (Observation(content=words),) if announce and self._submit else ()
        return TimeStep(
            observations=(*observations, *verdict_text, *rest),
            reward=verdict.value,
            terminated=True,
            info={**self._notes(), "checks": list(verdict.reasons)},
        )

    def _notes(self) -> dict[str, Any]:
        """Return counts of unexpected messages of the server."""
        assert self._connection is not None
        counts = {"tools_changed": self._connection.changes, "garbage_lines": self._connection.garbage}
        return {name: count for name, count in counts.items() if count}


def allowed_tools(profile: ServerProfile, tools: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Return the tools that an agent may call.

    Raises:
        InvalidInput: `tools` or `deny` names a tool that the server does not have, or no tool is left.
    """
    names = [tool["function"]["name"] for tool in tools]
    chosen = ("*",) if profile.tools == "all" else profile.tools
    for pattern in (*(() if profile.tools == "all" else profile.tools), *profile.deny):
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InvalidInput(
                f"expected a tool of {profile.id}, got {shown(pattern)}{nearest(pattern, names)}; the server has: "
                f"{clip(', '.join(names))}; correct `tools` or `deny` in environments.toml",
                code="bad_environments",
            )
    left = tuple(
        tool
        for tool, name in zip(tools, names, strict=True)
        if any(fnmatchcase(name, pattern) for pattern in chosen)
        and not any(fnmatchcase(name, pattern) for pattern in profile.deny)
    )
    if not left:
        raise InvalidInput(
            f"expected at least one tool of {profile.id}, got none; correct `tools` or `deny` in environments.toml",
            code="bad_environments",
        )
    return left


def as_text(answer: Any) -> str:
    """Return an answer as the text that checks compare."""
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def _submit_tool(name: str) -> dict[str, Any]:
    answer = {"type": ["string", "number"]}
    parameters = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    return tool_definition(name, "Give the final answer.", parameters)


def _observed(answer: ToolResult) -> Observation:
    text = answer.text.replace("\0", "\ufffd")
    if len(text) > OBSERVATION_CHARS:
        text = f"{text[:OBSERVATION_CHARS]}\n[{len(text) - OBSERVATION_CHARS:,} more characters were cut]"
    return Observation(content=text, is_error=answer.is_error)
