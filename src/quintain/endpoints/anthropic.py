"""The protocol of Anthropic's Messages API: POST `/v1/messages`."""

from __future__ import annotations

import json
from typing import Any

from quintain.endpoints.completion import Ask, AssistantMessage, BadAnswer, Completion, require_object, tokens
from quintain.records.protocols import Message, Stop
from quintain.records.trajectory import Action, Usage, text_of

PATH = "/v1/messages"
_VERSION = "2023-06-01"


def headers(key: str | None) -> dict[str, str]:
    """The headers that carry version and key."""
    return {"anthropic-version": _VERSION} | ({"x-api-key": key} if key else {})


def body(model: str, ask: Ask, max_tokens: int) -> dict[str, Any]:
    """The request's body; system messages stand apart, and neighbours of one role are one message, as the API wants it."""
    messages: list[dict[str, Any]] = []
    for message in ask.messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        elif blocks:
            messages.append({"role": role, "content": blocks})
    fields: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "temperature": ask.temperature,
        "max_tokens": max_tokens,
    }
    if ask.top_p < 1:
        fields["top_p"] = ask.top_p
    if ask.top_k:
        fields["top_k"] = ask.top_k
    if ask.stop:
        fields["stop_sequences"] = list(ask.stop)
    if system := "\n\n".join(text_of(m.content) for m in ask.messages if m.role == "system"):
        fields["system"] = system
    return fields | ({"tools": [_tool(tool) for tool in ask.tools]} if ask.tools else {})


def read(document: object) -> Completion:
    """Return the completion in the body of an answer.

    Raises:
        BadAnswer: it contains none.
    """
    whole = require_object(document, "the answer")
    content = whole.get("content")
    if not isinstance(content, list):
        raise BadAnswer("the answer has no content")
    blocks = [require_object(block, "a block of the content") for block in content]
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    thoughts = [block.get("thinking") for block in blocks if block.get("type") == "thinking"]
    stop, usage, model = whole.get("stop_reason"), whole.get("usage"), whole.get("model")
    return Completion(
        text="".join(text for text in texts if isinstance(text, str)),
        thought="\n".join(text for text in thoughts if isinstance(text, str)) or None,
        actions=tuple(_action(block) for block in blocks if block.get("type") == "tool_use"),
        stop=Stop.LENGTH if stop in ("max_tokens", "model_context_window_exceeded") else Stop.END,
        usage=Usage(input_tokens=_input(usage), output_tokens=tokens(usage, "output_tokens")),
        model=model if isinstance(model, str) else None,
        blocked=stop == "refusal",
        kept=tuple(dict(block) for block in blocks if block.get("type") in ("thinking", "redacted_thinking")),
    )


def _input(usage: object) -> int | None:
    """Tokens read, those that the API counts apart for its cache among them."""
    read = tokens(usage, "input_tokens")
    if read is None:
        return None
    return read + sum(tokens(usage, f"cache_{what}_input_tokens") or 0 for what in ("creation", "read"))


def _blocks(message: Message) -> list[dict[str, Any]]:
    text = text_of(message.content)
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.call_id or "", "content": text}]
    blocks: list[dict[str, Any]] = list(message.kept) if isinstance(message, AssistantMessage) else []
    if text.strip():
        blocks.append({"type": "text", "text": text})
    return blocks + [
        {"type": "tool_use", "id": call.call_id or f"call_{n}", "name": call.tool, "input": call.args or {}}
        for n, call in enumerate(message.actions)
    ]


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {"name": function.get("name"), "description": function.get("description") or "", "input_schema": schema}


def _action(block: Any) -> Action:
    name, args, call_id = block.get("name"), block.get("input"), block.get("id")
    if not isinstance(name, str) or not name:
        raise BadAnswer("a tool call has no name")
    return Action(
        tool=name,
        args=args if isinstance(args, dict) else None,
        raw_args=json.dumps(args, ensure_ascii=False),
        call_id=call_id if isinstance(call_id, str) else None,
    )
