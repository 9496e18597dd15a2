"""How an agent's turn is written and read: native tool calls (`tools`) or ReAct text (`react`).

Both are pairs of pure text functions: messages to the dicts that a chat template takes, and the agent's text back to
thought and actions. Reading never raises; text that cannot be read gives no actions and a sentence that says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from quintain.records.seams import Message
from quintain.records.text import require_clean
from quintain.records.trajectory import Action, text_of

StyleName = Literal["tools", "react"]
Chat = list[dict[str, Any]]

FALLBACK_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
"""The chat template `quintain-fallback` for tokenizers that have none; a turn ends with the tokenizer's eos token."""

_EMPTY_THINKING = re.compile(r"\A\s*<think>\s*</think>")
_OPEN = re.compile(r"\s*<tool_call>\s*")
_CLOSE = re.compile(r"\s*</tool_call>")
_ACTION = re.compile(r"^Action:[ \t]*(\S+)[ \t]*", re.MULTILINE)


class Parsed(NamedTuple):
    """What a turn's text says; `error` tells why it could not be read, and then there are no actions."""

    thought: str | None
    actions: tuple[Action, ...]
    error: str | None = None


def parse(text: str, style: StyleName) -> Parsed:
    """Read what an agent wrote, without its end token; the inverse of rendering it."""
    text = _EMPTY_THINKING.sub("", text).strip()
    try:
        return _parse_tools(text) if style == "tools" else _parse_react(text)
    except (ValueError, RecursionError) as error:
        return Parsed(text or None, (), f"the tool call could not be read: {error}")


def _parse_tools(text: str) -> Parsed:
    """Hermes and Qwen: thought, then `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` blocks."""
    thought, opened, _ = text.partition("<tool_call>")
    if not opened:
        return Parsed(text or None, ())
    actions, position = [], len(thought)
    while found := _OPEN.match(text, position):
        call, end = _decoder.raw_decode(text, found.end())
        if (closed := _CLOSE.match(text, end)) is None:
            raise ValueError("a <tool_call> block is not closed; end it with </tool_call>")
        actions.append(_read_call(call))
        position = closed.end()
    return Parsed(thought.strip() or None, tuple(actions))


def _read_call(call: Any) -> Action:
    if not isinstance(call, dict) or not isinstance(call.get("name"), str) or not call["name"]:
        raise ValueError('a call must be an object {"name": tool, "arguments": {...}}')
    arguments = call.get("arguments", {})
    return _action(call["name"], _decoder.decode(arguments) if isinstance(arguments, str) else arguments)


def _parse_react(text: str) -> Parsed:
    """`Thought: ...`, then lines `Action: tool {json}`; what follows the last action is not read."""
    found = _ACTION.search(text)
    if found is None:
        if re.search(r"^Action:", text, re.MULTILINE):
            raise ValueError('an action must be written as `Action: tool {"argument": value}`')
        return Parsed(text.removeprefix("Thought:").strip() or None, ())
    thought = text[: found.start()].strip().removeprefix("Thought:").strip()
    actions = []
    while found is not None:
        end = found.end()
        arguments: Any = {}
        if text[end : end + 1] not in {"", "\n"}:
            arguments, end = _decoder.raw_decode(text, end)
        actions.append(_action(found[1], arguments))
        found = _ACTION.match(text, end + len(text[end:]) - len(text[end:].lstrip()))
    return Parsed(thought or None, tuple(actions))


def _action(tool: str, arguments: Any) -> Action:
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments of {tool!r} must be a JSON object, not {type(arguments).__name__}")
    require_clean(arguments, "arguments")
    require_clean(tool, "tool")
    return Action(tool=tool, args=arguments)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON; write a finite number, a string or null")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def to_chat(
    messages: Iterable[Message], tools: Sequence[dict[str, Any]], *, style: StyleName, has_system_role: bool
) -> Chat:
    """Messages as the dicts that a chat template takes.

    Neighbouring user messages are joined, since many templates insist that user and assistant alternate; a template
    without a system role gets the system text at the head of the user's.
    """
    chat = _native_chat(messages) if style == "tools" else _react_chat(messages, tools)
    joined: Chat = []
    for entry in chat:
        if entry["role"] == "system" and not has_system_role:
            entry = {**entry, "role": "user"}
        if joined and entry["role"] == "user" == joined[-1]["role"]:
            joined[-1] = {**entry, "content": f"{joined[-1]['content']}\n\n{entry['content']}"}
        else:
            joined.append(entry)
    return joined


def _said(message: Message) -> str:
    """What an assistant message says besides its calls."""
    return "\n\n".join(part for part in (message.thought, text_of(message.content)) if part)


def _native_chat(messages: Iterable[Message]) -> Chat:
    chat: Chat = []
    open_calls: list[tuple[str, Action]] = []
    n_calls = 0
    for message in messages:
        entry: dict[str, Any] = {"role": message.role, "content": text_of(message.content)}
        if message.role == "assistant":
            # Calls are numbered anew: ids of other systems differ in form, and some templates want 9 characters.
            open_calls = [(f"call{n_calls + i:05d}", action) for i, action in enumerate(message.actions)]
            n_calls += len(open_calls)
            entry["content"] = _said(message)
            if open_calls:
                entry["tool_calls"] = [_native_call(call_id, action) for call_id, action in open_calls]
        elif message.role == "tool":
            found = next(
                (i for i, (_, a) in enumerate(open_calls) if message.call_id and a.call_id == message.call_id), 0
            )
            if open_calls:
                call_id, action = open_calls.pop(found)
                entry |= {"name": action.tool, "tool_call_id": call_id}
            else:
                entry["role"] = "user"  # an answer to no call: strict templates would refuse it
        chat.append(entry)
    return chat


def _native_call(call_id: str, action: Action) -> dict[str, Any]:
    arguments = action.args if action.args is not None else (action.raw_args or {})
    return {"id": call_id, "type": "function", "function": {"name": action.tool, "arguments": arguments}}


def _react_chat(messages: Iterable[Message], tools: Sequence[dict[str, Any]]) -> Chat:
    chat: Chat = []
    for message in messages:
        text = text_of(message.content)
        if message.role == "assistant":
            chat.append({"role": "assistant", "content": _react_turn(message)})
        elif message.role == "tool":
            chat.append({"role": "user", "content": f"Observation: {text}"})
        else:
            chat.append({"role": message.role, "content": text})
    if tools:
        guide = _describe(tools)
        if chat and chat[0]["role"] == "system":
            chat[0] = {"role": "system", "content": f"{chat[0]['content']}\n\n{guide}".strip()}
        else:
            chat.insert(0, {"role": "system", "content": guide})
    return chat


def _react_turn(message: Message) -> str:
    said = _said(message)
    if not message.actions:
        return f"Thought: {said}" if message.thought else said
    lines = [f"Thought: {said}"] if said else []
    for action in message.actions:
        written = json.dumps(action.args, ensure_ascii=False) if action.args is not None else (action.raw_args or "{}")
        lines.append(f"Action: {action.tool} {written}")
    return "\n".join(lines)


def _describe(tools: Sequence[dict[str, Any]]) -> str:
    """Tool schemas as the part of a ReAct system prompt that lists them."""
    lines = ["You can use these tools:"]
    for tool in tools:
        function = tool.get("function", tool)
        lines.append(f"- {function.get('name', '')}: {function.get('description', '')}".rstrip(": "))
        parameters = function.get("parameters") or {}
        if properties := parameters.get("properties"):
            lines.append(f"  arguments: {json.dumps(properties, ensure_ascii=False)}")
    lines += ["Write each turn as:", "Thought: what you think", 'Action: tool {"argument": "value"}']
    return "\n".join([*lines, "The tool answers with `Observation: ...`."])
