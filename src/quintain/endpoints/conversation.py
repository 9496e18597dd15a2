"""Convert an episode to a conversation that both protocols accept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from quintain.records.protocols import Message, tool_function
from quintain.records.trajectory import Action, text_of

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64
_NO_RESULT = "The call was not carried out."


class ToolNames:
    """Names of tools as endpoints take them (letters, digits, `_` and `-`, at most 64), and back."""

    def __init__(self, tools: Iterable[dict[str, Any]]) -> None:
        """Find a unique name for each tool of an episode, the same every time."""
        self._sent: dict[str, str] = {}
        self._real: dict[str, str] = {}
        for tool in tools:
            name = str(tool_function(tool).get("name"))
            sent, n = _fit(name), 1
            while sent in self._real:
                n += 1
                sent = f"{_fit(name)[: _LONGEST - 4]}_{n}"
            self._sent[name], self._real[sent] = sent, name

    def sent(self, name: str) -> str:
        """Return the name for the endpoint, also of a tool that is not offered, as a model may have called it."""
        return self._sent.get(name) or _fit(name)

    def real(self, name: str) -> str:
        """Return the name in the environment."""
        return self._real.get(name, name)

    def schemas(self, tools: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        """The tools under the names that are sent, OpenAI function style."""
        functions = [tool_function(tool) for tool in tools]
        return tuple(
            {"type": "function", "function": {**function, "name": self.sent(str(function.get("name")))}}
            for function in functions
        )


def sendable(messages: Iterable[Message], names: ToolNames) -> list[Message]:
    """Return the messages of an episode as both protocols accept them.

    Every call gets an id and arguments that are an object, and is answered by one result in the message right after it; a
    result without a call becomes a user message. The agent's reasoning precedes its text.
    """
    chat: list[Message] = []
    open_calls: list[str] = []
    n_calls = 0
    for message in messages:
        if message.role == "tool" and open_calls:
            found = message.call_id if message.call_id in open_calls else open_calls[0]
            open_calls.remove(found)
            chat.append(message.model_copy(update={"call_id": found}))
            continue
        chat += [Message(role="tool", content=_NO_RESULT, call_id=call_id) for call_id in open_calls]
        open_calls = []
        if message.role == "tool":
            chat.append(Message(role="user", content=message.content))
            continue
        if message.role == "assistant":
            calls = tuple(_call(action, f"call_{n_calls + n}", names) for n, action in enumerate(message.actions))
            n_calls += len(calls)
            open_calls = [str(call.call_id) for call in calls]
            content = "\n\n".join(part for part in (message.thought, text_of(message.content)) if part)
            message = message.model_copy(update={"content": content, "thought": None, "actions": calls})
        chat.append(message)
    return chat


def _call(action: Action, call_id: str, names: ToolNames) -> Action:
    return Action(tool=names.sent(action.tool), args=action.args or {}, call_id=action.call_id or call_id)


def _fit(name: str) -> str:
    return _UNFIT.sub("_", name)[:_LONGEST] or "tool"
