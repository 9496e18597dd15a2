"""Chat messages, OpenAI or Anthropic style, to a trajectory. Nothing is invented: what the messages do not say stays unknown.

Both styles may stand in one list. A tool's result goes into the agent step that called it. Fields of a message that no
record holds are kept in the step's `extra`. Not read: the legacy `function_call`, and signatures of thinking blocks.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.records.text import require_clean
from quintain.records.trajectory import AgentInfo, Outcome, Task, Trajectory, read_trajectory

_ACTORS = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}

_NOT_YET: dict[str, Any] = {"actor": "agent", "train": False, "extra": {"acted": False}}
"""Stands for the agent's turn in a recording that was opened before it acted, as in an episode that ended before."""


def from_messages(
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    task: Task | None = None,
    agent: AgentInfo | None = None,
    outcome: Outcome | None = None,
    session_id: str | None = None,
    unfinished: bool = False,
) -> Trajectory:
    """One run from the messages of a chat.

    Args:
        messages: OpenAI chat messages or Anthropic messages, in order.
        tools: Tool schemas of either style; stored OpenAI style.
        task: What was asked; its prompt defaults to the text of the first user message.
        agent: Who acted.
        outcome: How it ended; unknown unless given.
        session_id: Of the log that the messages come from.
        unfinished: The run goes on (see `extended`): the agent need not have acted yet.

    Raises:
        InvalidInput: names the message by its index, what is wrong with it and what is valid.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidInput(f"messages must be a list of chat messages, not {type(messages).__name__}")
    # Before the walk, so that the depth and the text of every part are known to be sound.
    messages = list(messages)
    require_clean(messages, "messages")
    if not messages:
        raise InvalidInput("messages is empty; give the messages of the chat in their order")
    chat = _Chat()
    for index, message in enumerate(messages):
        chat.read(index, message)
    if not any(step["actor"] == "agent" for step in chat.steps):
        if not unfinished:
            raise InvalidInput(f"the {len(messages)} messages hold no assistant message; a run needs at least one")
        chat.steps.append(_NOT_YET)
    task = task or Task()
    if not task.prompt:
        asked = next((step["message"] for step in chat.steps if step["actor"] == "user"), "")
        task = task.model_copy(update={"prompt": _plain(asked)})
    run = {
        "session_id": session_id,
        "source": {"format": "chat"},
        "agent": (agent or AgentInfo()).model_dump(),
        "task": task.model_dump(),
        "tools": [_tool(index, tool) for index, tool in enumerate(tools)],
        "steps": chat.steps,
        "outcome": (outcome or Outcome()).model_dump(),
    }
    return read_trajectory(run)


def extended(run: Trajectory, messages: Sequence[Mapping[str, Any]]) -> Trajectory:
    """A run that goes on: the new messages become steps, and results go to the calls that still wait for theirs.

    Raises:
        InvalidInput: names the message by its index, what is wrong with it and what is valid.
    """
    messages = list(messages)
    require_clean(messages, "messages")
    steps = [step for step in run.steps if step.extra.get("acted") is not False]
    chat = _Chat([step.model_dump(mode="json") for step in steps])
    for i, step in enumerate(steps):
        answered = [observation.call_id for observation in step.observations]
        nameless = [n for n, action in enumerate(step.actions) if action.call_id is None]
        chat.open_calls |= {f"#{i}.{n}": i for n in nameless[answered.count(None) :]}
        chat.open_calls |= {call.call_id: i for call in step.actions if call.call_id and call.call_id not in answered}
    for index, message in enumerate(messages):
        chat.read(index, message)
    if not any(step["actor"] == "agent" for step in chat.steps):
        chat.steps.append(_NOT_YET)
    return read_trajectory(run.model_dump(mode="json") | {"steps": chat.steps})


class _Parts(NamedTuple):
    """A message's content, sorted: what is shown, thought, called and answered."""

    content: list[dict[str, Any]]
    thoughts: list[str]
    calls: list[dict[str, Any]]
    results: list[dict[str, Any]]


@dataclass
class _Chat:
    """The steps so far, and which calls still wait for their result."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    open_calls: dict[str, int] = field(default_factory=dict)
    """Call id -> index of the step that called; calls without an id wait under `#n`."""

    def read(self, index: int, message: Any) -> None:
        where = f"messages[{index}]"
        if not isinstance(message, Mapping):
            raise InvalidInput(f"{where} is {type(message).__name__}; each message must be an object with `role`")
        rest = dict(message)
        role = rest.pop("role", None)
        if role == "tool":
            call_id = rest.get("tool_call_id")
            content = _sorted(rest.get("content"), where).content
            self._answer(where, call_id, content, bool(rest.get("is_error", False)))
        elif role == "assistant":
            self._agent(where, rest)
        elif isinstance(role, str) and role in _ACTORS:
            self._other(where, role, rest)
        else:
            raise InvalidInput(f"{where}.role is {role!r}; valid: {', '.join([*_ACTORS, 'tool'])}")

    def _agent(self, where: str, rest: dict[str, Any]) -> None:
        parts = _sorted(rest.pop("content", None), where)
        if parts.results:
            raise InvalidInput(f"{where} is an assistant message with a tool_result; results belong in a user message")
        said = [rest.pop(key) for key in _THOUGHTS if isinstance(rest.get(key), str)]
        thoughts = [*dict.fromkeys(thought for thought in said if thought), *parts.thoughts]
        calls = rest.pop("tool_calls", None) or []
        if not isinstance(calls, list):
            raise InvalidInput(f"{where}.tool_calls is {type(calls).__name__}; it must be a list")
        if rest.get("function_call"):
            raise InvalidInput(f"{where}.function_call is the legacy form; write it as one entry of `tool_calls`")
        actions = [_action(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)] + parts.calls
        model = rest.pop("model", None)
        step = {
            "actor": "agent",
            "message": _content(parts.content),
            "thought": "\n\n".join(thoughts) or None,
            "actions": actions,
            "observations": [],
            "model": model if isinstance(model, str) else None,
            "extra": _left_over(rest),
        }
        for n, action in enumerate(actions):
            self.open_calls[action["call_id"] or f"#{len(self.steps)}.{n}"] = len(self.steps)
        self.steps.append(step)

    def _other(self, where: str, role: str, rest: dict[str, Any]) -> None:
        parts = _sorted(rest.pop("content", None), where)
        if parts.calls or parts.thoughts:
            raise InvalidInput(f"{where} is a {role} message with tool_use or thinking; only an assistant writes those")
        for result in parts.results:
            self._answer(where, result["call_id"], result["content"], result["is_error"])
        if parts.content or not parts.results:
            extra = _left_over(rest) | ({"role": role} if role == "developer" else {})
            self.steps.append({"actor": _ACTORS[role], "message": _content(parts.content), "extra": extra})

    def _answer(self, where: str, call_id: Any, content: list[dict[str, Any]], is_error: bool) -> None:
        if call_id is None:
            # Some recorders leave ids out; then results come in the order of the calls.
            key = next((key for key in self.open_calls if key.startswith("#")), None)
        else:
            key = call_id if isinstance(call_id, str) and call_id in self.open_calls else None
        if key is None:
            waiting = ", ".join(repr(key) for key in self.open_calls) or "none"
            raise InvalidInput(
                f"{where} answers the call {call_id!r}, which no earlier message made or which is answered already; calls "
                f"that wait for a result: {waiting}"
            )
        step = self.steps[self.open_calls.pop(key)]
        step["observations"].append({"call_id": call_id, "content": _content(content), "is_error": is_error})


def _sorted(content: Any, where: str) -> _Parts:
    """A message's content in its four kinds of parts."""
    parts = _Parts([], [], [], [])
    if content is None or content == "":
        return parts
    if isinstance(content, str):
        parts.content.append({"type": "text", "text": content})
        return parts
    if not isinstance(content, list | tuple):
        raise InvalidInput(f"{where}.content is {type(content).__name__}; it must be text, null or a list of parts")
    for i, part in enumerate(content):
        _sort(part, f"{where}.content[{i}]", parts)
    return parts


def _sort(part: Any, where: str, parts: _Parts) -> None:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(part, str):
        parts.content.append({"type": "text", "text": part})
    elif not isinstance(kind, str):
        raise InvalidInput(f"{where} is {part!r:.80}; a part must be text or an object with a textual `type`")
    elif kind in _TEXTS:
        parts.content.append({"type": "text", "text": _text(part, _TEXTS[kind], where)})
    elif kind in {"image_url", "input_image", "image"}:
        parts.content.append(_image(part, where))
    elif kind == "thinking":
        parts.thoughts.append(_text(part, "thinking", where))
    elif kind == "redacted_thinking":
        pass  # encrypted by the provider: there is nothing to read
    elif kind == "tool_use":
        call = {"id": part.get("id"), "function": {"name": part.get("name"), "arguments": part.get("input")}}
        parts.calls.append(_action(call, where))
    elif kind == "tool_result":
        inner = _sorted(part.get("content"), where)
        if inner.thoughts or inner.calls or inner.results:
            raise InvalidInput(f"{where} is a tool_result that holds other blocks than text and images")
        is_error = bool(part.get("is_error", False))
        parts.results.append({"call_id": part.get("tool_use_id"), "content": inner.content, "is_error": is_error})
    else:
        raise InvalidInput(
            f"{where}.type is {kind!r}; valid: {', '.join(_TEXTS)}, image_url, image, thinking, tool_use, tool_result"
        )


def _text(part: Mapping[str, Any], key: str, where: str) -> str:
    value = part.get(key)
    if not isinstance(value, str):
        raise InvalidInput(f"{where}.{key} is {value!r:.60}; it must be text")
    return value


def _image(part: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A picture by reference; pixels in the message become the hash of their bytes."""
    value = part.get("image_url", part.get("source"))
    source: Mapping[str, Any] = value if isinstance(value, Mapping) else {"url": value}
    uri, media_type = source.get("url"), source.get("media_type")
    data = source.get("data")
    if isinstance(uri, str) and uri.startswith("data:"):
        header, _, data = uri.removeprefix("data:").partition(",")
        media_type = header.partition(";")[0] or None
    if isinstance(data, str):
        try:
            uri = f"urn:sha256:{hashlib.sha256(base64.b64decode(data)).hexdigest()}"
        except (binascii.Error, ValueError):
            raise InvalidInput(f"{where} holds a picture that is not base64; pass a URL or base64 data") from None
    if not isinstance(uri, str) or not uri:
        raise InvalidInput(f"{where} is a picture without a URL or base64 data")
    return {"type": "image", "uri": uri, "media_type": media_type}


def _action(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise InvalidInput(f"{where} must be an object with `function` holding `name` and `arguments`")
    name, given, call_id = function.get("name"), function.get("arguments"), call.get("id")
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"{where}: the tool's name is {name!r}; it must be text that is not empty")
    if call_id is not None and not isinstance(call_id, str):
        raise InvalidInput(f"{where}: the call's id is {call_id!r}; it must be text or left out")
    if isinstance(given, str):
        args = _parsed(given)
        require_clean(args, f"{where}: arguments")
        return {"tool": name, "args": args, "raw_args": given, "call_id": call_id}
    if given is not None and not isinstance(given, Mapping):
        raise InvalidInput(f"{where}: arguments are {type(given).__name__}; they must be a JSON text or an object")
    return {"tool": name, "args": dict(given or {}), "raw_args": None, "call_id": call_id}


def _parsed(raw: str) -> dict[str, Any] | None:
    """The arguments that a model wrote, or None where they are no JSON object; no arguments at all are none."""
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _content(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Parts as a record holds them: a single text, or none, as plain text."""
    if not parts:
        return ""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _plain(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(p["text"] for p in content if p["type"] == "text")


def _left_over(rest: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in rest.items() if value is not None}


def _tool(index: int, tool: Any) -> dict[str, Any]:
    """A tool schema in OpenAI's function style."""
    if isinstance(tool, Mapping):
        if isinstance(tool.get("function"), Mapping) and tool["function"].get("name"):
            return {"type": "function", **tool}
        if isinstance(tool.get("name"), str):
            schema = tool.get("input_schema", tool.get("parameters", {"type": "object", "properties": {}}))
            described = {"description": tool["description"]} if tool.get("description") else {}
            return {"type": "function", "function": {"name": tool["name"], **described, "parameters": schema}}
    raise InvalidInput(
        f"tools[{index}] is {tool!r:.80}; it must be an OpenAI function ({{'type': 'function', 'function': {{...}}}}) or an "
        "Anthropic tool with `name` and `input_schema`"
    )
