"""A model behind HTTP that acts: the inventory's expert, which answers in OpenAI's and Anthropic's form.

It is as strict about a conversation as the real ones: every call is answered by one result right after it, names of tools
fit, and the conversation begins with a user. It keeps no state: each request is answered from what it holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from fake_endpoint import Answer, Asked, fails
from quintain.environments.inventory.scripted_policy import Expert
from quintain.records.protocols import Message, Turn

TOKENS = (100, 10)
"""That each answer costs, in and out."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Call(NamedTuple):
    """A tool call of the model."""

    tool: str
    args: dict[str, Any] | str
    """Text is sent as it is, and is no JSON."""
    id: str = "c"


def says(asked: Asked, text: str, *calls: Call, stop: str | None = None, model: str = "expert-1-0101") -> Answer:
    """An answer in the form of the protocol that was spoken."""
    if asked.path.endswith("/messages"):
        content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        content += [{"type": "tool_use", "id": call.id, "name": call.tool, "input": call.args} for call in calls]
        reason = stop or ("tool_use" if calls else "end_turn")
        usage = {"input_tokens": TOKENS[0], "output_tokens": TOKENS[1]}
        document = {"model": model, "content": content, "stop_reason": reason, "usage": usage}
    else:
        made = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": _arguments(call.args)}}
            for call in calls
        ]
        message = {"content": text or None} | ({"tool_calls": made} if made else {})
        usage = {"prompt_tokens": TOKENS[0], "completion_tokens": TOKENS[1]}
        choice = {"message": message, "finish_reason": stop or ("tool_calls" if calls else "stop")}
        document = {"model": model, "choices": [choice], "usage": usage}
    return Answer(body=json.dumps(document).encode())


def expert(asked: Asked, before: int = 0) -> Answer:
    """The expert's next move in the conversation that was sent, or 400 for one that the real servers would not take."""
    if (fault := fault_of(asked)) is not None:
        return fails(400, fault)
    messages = heard(asked)
    prompt = next(text for role, text in messages if role == "user")
    policy = Expert()
    news = [Message(role="user", content=prompt)]
    (reply,) = policy.act([Turn(episode_id="e", messages=tuple(news))])
    for text in (text for role, text in messages if role == "tool"):
        (reply,) = policy.act([Turn(episode_id="e", messages=(Message(role="tool", content=text),))])
    n = sum(role == "tool" for role, _ in messages)
    calls = [Call(action.tool, action.args or {}, f"c{n}") for action in reply.actions]
    return says(asked, reply.thought or reply.text, *calls)


def heard(asked: Asked) -> list[tuple[str, str]]:
    """Role and text of each message, and of each block of one, in the words of OpenAI."""
    found = []
    for message in asked.body["messages"]:
        if isinstance(message["content"], str):
            found.append((message["role"], message["content"]))
            continue
        for block in message["content"]:
            role = "tool" if block["type"] == "tool_result" else message["role"]
            found.append((role, str(block.get("text", block.get("content", "")))))
    return found


def fault_of(asked: Asked) -> str | None:
    """What the real servers would refuse about a conversation."""
    names = [tool.get("function", tool)["name"] for tool in asked.body.get("tools", ())]
    open_calls: list[str] = []
    for kind, id, name in _events(asked.body["messages"]):
        if name is not None and not _NAME.fullmatch(name):
            return f"the name {name!r} does not fit"
        if kind == "result":
            if id not in open_calls:
                return f"a result of no call: {id!r}"
            open_calls.remove(id)
        elif kind == "call":
            open_calls.append(id)
        elif open_calls:
            return f"calls without a result: {open_calls}"
    if bad := [name for name in names if not _NAME.fullmatch(name)]:
        return f"names that do not fit: {bad}"
    return f"calls without a result: {open_calls}" if open_calls else None


def _events(messages: Sequence[dict[str, Any]]) -> list[tuple[str, str, str | None]]:
    found: list[tuple[str, str, str | None]] = []
    for message in messages:
        if message["role"] == "tool":
            found.append(("result", message["tool_call_id"], None))
            continue
        blocks = message["content"] if isinstance(message["content"], list) else [{"type": "text"}]
        for block in blocks:
            if block["type"] == "tool_use":
                found.append(("call", block["id"], block["name"]))
            else:
                found.append(
                    ("result", block["tool_use_id"], None) if block["type"] == "tool_result" else ("said", "", None)
                )
        for call in message.get("tool_calls", ()):
            json.loads(call["function"]["arguments"])
            found.append(("call", call["id"], call["function"]["name"]))
    return found


def _arguments(args: dict[str, Any] | str) -> str:
    return args if isinstance(args, str) else json.dumps(args)
