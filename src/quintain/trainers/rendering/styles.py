"""Messages as entries of a chat template: with native tool calls (`tools`), or as ReAct text (`react`).

`calls` parses the agent's text back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from quintain.records.protocols import Message
from quintain.records.trajectory import Action, text_of

StyleName = Literal["tools", "react"]
Chat = list[dict[str, Any]]

FALLBACK_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
"""The chat template `quintain-fallback` for tokenizers that have none; a turn ends with the tokenizer's eos token."""


def begins_with_bos(tokenizer: Any) -> bool:
    """Whether a tokenizer begins a text with its bos token, without which models such as Gemma and Llama predict badly."""
    return bool(tokenizer.encode("a")[:1] == [tokenizer.bos_token_id])


def with_bos(template: str, tokenizer: Any) -> str:
    """Return a template of ours that begins a text as the tokenizer does."""
    return f"{{{{ bos_token }}}}{template}" if begins_with_bos(tokenizer) else template


def fallback_template(tokenizer: Any) -> str:
    """Return the template by which turns are written for a tokenizer without one."""
    return with_bos(FALLBACK_TEMPLATE, tokenizer)


def to_chat(
    messages: Iterable[Message],
    tools: Sequence[dict[str, Any]],
    *,
    style: StyleName,
    has_system_role: bool,
    one_system: bool = False,
    result_before_agent: bool = False,
    ids_name_tools: bool = False,
    guide: Sequence[str] | None = None,
) -> Chat:
    """Return messages as the entries that a chat template takes.

    Adjacent user messages are joined, because many templates require user and assistant to alternate. Without a system role,
    the system text precedes the user's. With `one_system`, the opening system messages are one, and later ones are the user's.
    With `result_before_agent`, a user's message behind a tool's result is a part of it. With `ids_name_tools`, the id of a call
    contains the tool's name. With a `guide`, the system text lists the tools and then the guide; ReAct has its own.
    """
    chat = _native_chat(messages, ids_name_tools) if style == "tools" else _react_chat(messages)
    if style == "react":
        guide = _REACT_GUIDE
    if tools and guide is not None:
        chat = _with_system_text(chat, "\n".join([*_list(tools), *guide]))
    joined: Chat = []
    for entry in chat:
        before = joined[-1]["role"] if joined else "system"
        if entry["role"] == "system" and (not has_system_role or (one_system and before != "system")):
            entry = {**entry, "role": "user"}
        same = entry["role"] == before and (before == "user" or (before == "system" and one_system))
        if joined and (same or (result_before_agent and (before, entry["role"]) == ("tool", "user"))):
            joined[-1] = {**joined[-1], "content": f"{joined[-1]['content']}\n\n{entry['content']}"}
        else:
            joined.append(entry)
    return joined


def as_thinking(message: Message) -> Message:
    """Return an agent's message with its thought between thinking tags, if there are none and more follows the thought."""
    thought = message.thought or ""
    if not thought.strip() or "</think>" in thought or not (message.actions or text_of(message.content).strip()):
        return message
    return message.model_copy(update={"thought": f"<think>\n{thought}\n</think>"})


def split_parallel_calls(messages: Iterable[tuple[Message, int]]) -> list[tuple[Message, int]]:
    """Split messages with several calls into messages with one call each, followed by its result.

    For templates that support one tool call per turn. The thought stays with the first call. A result without a call id belongs
    to the first call without a result.
    """
    split: list[tuple[Message, int]] = []
    waiting: list[tuple[Message, int]] = []
    for message, index in messages:
        if message.role == "tool" and waiting:
            found = (i for i, (asked, _) in enumerate(waiting) if message.call_id == asked.actions[0].call_id)
            place = next(found, 0) if message.call_id else 0
            split += [waiting.pop(place), (message, index)]
            continue
        split += waiting
        waiting = []
        if len(message.actions) < 2:
            split.append((message, index))
            continue
        bare = message.model_copy(update={"thought": None, "content": ""})
        waiting = [
            ((bare if i else message).model_copy(update={"actions": (action,)}), index)
            for i, action in enumerate(message.actions)
        ]
    return split + waiting


def _prose(message: Message) -> str:
    """Return the text of an assistant message without its calls."""
    return "\n\n".join(part for part in (message.thought, text_of(message.content)) if part)


def _native_chat(messages: Iterable[Message], ids_name_tools: bool) -> Chat:
    chat: Chat = []
    open_calls: list[tuple[str, Action]] = []
    n_calls = 0
    for message in messages:
        entry: dict[str, Any] = {"role": message.role, "content": text_of(message.content)}
        if message.role == "assistant":
            # Calls are numbered anew: ids of other systems differ in form, and some templates want 9 characters.
            open_calls = [
                (f"functions.{action.tool}:{place}" if ids_name_tools else f"call{place:05d}", action)
                for place, action in enumerate(message.actions, n_calls)
            ]
            n_calls += len(open_calls)
            entry["content"] = _prose(message)
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
                entry["role"] = "user"  # a result without a call, which strict templates refuse
        chat.append(entry)
    return chat


def _native_call(call_id: str, action: Action) -> dict[str, Any]:
    arguments = action.args if action.args is not None else (action.raw_args or {})
    return {"id": call_id, "type": "function", "function": {"name": action.tool, "arguments": arguments}}


def _react_chat(messages: Iterable[Message]) -> Chat:
    chat: Chat = []
    for message in messages:
        text = text_of(message.content)
        if message.role == "assistant":
            chat.append({"role": "assistant", "content": _react_turn(message)})
        elif message.role == "tool":
            chat.append({"role": "user", "content": f"Observation: {text}"})
        else:
            chat.append({"role": message.role, "content": text})
    return chat


def _with_system_text(chat: Chat, text: str) -> Chat:
    """Append a text to the first system message."""
    if chat and chat[0]["role"] == "system":
        return [{**chat[0], "content": f"{chat[0]['content']}\n\n{text}".strip()}, *chat[1:]]
    return [{"role": "system", "content": text}, *chat]


def _react_turn(message: Message) -> str:
    prose = _prose(message)
    label = "" if prose.startswith("<think>") else "Thought: "
    if not message.actions:
        return f"{label}{prose}" if message.thought else prose
    lines = [f"{label}{prose}"] if prose else []
    for action in message.actions:
        written = json.dumps(action.args, ensure_ascii=False) if action.args is not None else (action.raw_args or "{}")
        lines.append(f"Action: {action.tool} {written}")
    return "\n".join(lines)


_REACT_GUIDE = (
    "Write each turn as:",
    "Thought: what you think",
    'Action: tool {"argument": "value"}',
    "The tool answers with `Observation: ...`.",
)


def _list(tools: Sequence[dict[str, Any]]) -> list[str]:
    """Return tool schemas as lines of a system prompt."""
    lines = ["You can use these tools:"]
    for tool in tools:
        function = tool.get("function", tool)
        lines.append(f"- {function.get('name', '')}: {function.get('description', '')}".rstrip(": "))
        parameters = function.get("parameters") or {}
        if properties := parameters.get("properties"):
            lines.append(f"  arguments: {json.dumps(properties, ensure_ascii=False)}")
    return lines
