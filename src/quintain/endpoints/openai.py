"""The protocol of OpenAI-compatible servers: POST `/chat/completions` (OpenAI, vLLM, SGLang, Ollama, llama.cpp, ...)."""

from __future__ import annotations

import json
from typing import Any

from quintain.endpoints.completion import Ask, BadAnswer, Completion, first_choice, openai_usage, require_object
from quintain.records.protocols import Message, Stop
from quintain.records.trajectory import Action, text_of

PATH = "/chat/completions"


def headers(key: str | None) -> dict[str, str]:
    """The headers that carry the key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def body(model: str, ask: Ask, max_tokens: int) -> dict[str, Any]:
    """The request's body."""
    fields: dict[str, Any] = {
        "model": model,
        "messages": [_message(message) for message in ask.messages],
        "temperature": ask.temperature,
        "max_tokens": max_tokens,
    }
    if ask.top_p < 1:
        fields["top_p"] = ask.top_p
    if ask.top_k:
        fields["top_k"] = ask.top_k  # servers of open models take these two
    if ask.min_p:
        fields["min_p"] = ask.min_p
    if ask.stop:
        fields["stop"] = list(ask.stop)
    return fields | ({"tools": list(ask.tools)} if ask.tools else {})


def read(document: object) -> Completion:
    """Return the completion in the body of an answer.

    Raises:
        BadAnswer: it contains none.
    """
    whole = require_object(document, "the answer")
    choice = first_choice(whole)
    message = require_object(choice.get("message"), "choices[0].message")
    content, refusal = message.get("content"), message.get("refusal")
    if isinstance(content, list):
        content = "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    if content is not None and not isinstance(content, str):
        raise BadAnswer("choices[0].message.content is not text")
    thought = message.get("reasoning_content") or message.get("reasoning")
    finish, model = choice.get("finish_reason"), whole.get("model")
    return Completion(
        text=content or "",
        thought=thought if isinstance(thought, str) else None,
        actions=tuple(_action(call) for call in message.get("tool_calls") or ()),
        stop=Stop.LENGTH if finish == "length" else Stop.END,
        usage=openai_usage(whole),
        model=model if isinstance(model, str) else None,
        blocked=finish == "content_filter" or bool(refusal and not content),
    )


def _message(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": text_of(message.content)}
    if message.role == "tool":
        fields["tool_call_id"] = message.call_id or ""
    if message.actions:
        fields["tool_calls"] = [
            {
                "id": call.call_id or f"call_{n}",
                "type": "function",
                "function": {"name": call.tool, "arguments": _args(call)},
            }
            for n, call in enumerate(message.actions)
        ]
    return fields


def _args(call: Action) -> str:
    return call.raw_args if call.raw_args is not None else json.dumps(call.args or {}, ensure_ascii=False)


def _action(call: object) -> Action:
    fields = require_object(call, "a tool call")
    function = require_object(fields.get("function"), "a tool call's function")
    name, raw, call_id = function.get("name"), function.get("arguments"), fields.get("id")
    if not isinstance(name, str) or not name:
        raise BadAnswer("a tool call has no name")
    raw = raw if isinstance(raw, str) else json.dumps(raw if raw is not None else {})
    try:
        args = json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError):
        args = None
    return Action(
        tool=name,
        args=args if isinstance(args, dict) else None,
        raw_args=raw,
        call_id=call_id if isinstance(call_id, str) else None,
    )
