"""Convert items of OpenAI's Responses API to chat messages: consecutive output items form one agent turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from quintain.importers.values import as_text, nonblank

_OUTPUTS = frozenset(
    {"function_call_output", "custom_tool_call_output", "computer_call_output", "local_shell_call_output"}
)
KINDS = frozenset({"function_call", "custom_tool_call", "mcp_call", *_OUTPUTS, "message", "reasoning"})
_NO_MESSAGES = KINDS - {"message"}


def is_items(value: Any) -> bool:
    """Whether a value is a list of items rather than chat messages."""
    held = [item for item in value if isinstance(item, Mapping)] if isinstance(value, Sequence) else []
    return any(as_text(item.get("type")) in KINDS and not {"tool_calls", "stop_reason"} & item.keys() for item in held)


def is_item(value: Any) -> bool:
    """Whether a value is an item other than a message: a call, a result or a thought."""
    return isinstance(value, (dict, Mapping)) and as_text(value.get("type")) in _NO_MESSAGES and "role" not in value


def items_to_messages(items: Iterable[Any]) -> Iterator[Any]:
    """Yield chat messages; items without a chat equivalent pass through and are counted later."""
    turn: dict[str, Any] | None = None
    for item in items:
        kind = item.get("type", "message") if isinstance(item, Mapping) else None
        kind = kind if isinstance(kind, str) else "item"
        from_agent = (
            kind == "reasoning"
            or kind.endswith("_call")
            or (kind == "message" and item.get("role") in ("assistant", None))
        )
        if not from_agent:
            if turn is not None:
                yield turn
                turn = None
            yield from _input_message(item, kind)
            continue
        turn = turn or {"role": "assistant", "content": [], "tool_calls": [], "reasoning": None}
        _add(turn, item, kind)
        if kind == "mcp_call" and item.get("output", item.get("error")) is not None:  # a tool that ran at the vendor
            yield turn
            turn = None
            yield {
                "role": "tool",
                "tool_call_id": item_call(item)["id"],
                "content": item.get("output"),
                "error": item.get("error"),
            }
    if turn is not None:
        yield turn


def item_call(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item's call as a chat tool call: arguments, free text, or a built-in tool's action."""
    kind = as_text(item.get("type")).removesuffix("_call")
    name = ".".join(filter(None, [as_text(item.get("namespace")), nonblank(item.get("name"), kind)]))
    keys = ("arguments", "input", "action", "queries", "code", "query")
    arguments = next((item[key] for key in keys if item.get(key) is not None), None)
    return {"id": nonblank(item.get("call_id"), item.get("id")), "function": {"name": name, "arguments": arguments}}


def _add(turn: dict[str, Any], item: Mapping[str, Any], kind: str) -> None:
    if kind == "reasoning":
        parts = [part for key in ("summary", "content") if isinstance(item.get(key), list) for part in item[key]]
        texts = [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
        turn["reasoning"] = "\n\n".join(filter(None, [turn["reasoning"], *texts])) or None
    elif kind == "message":
        content = item.get("content")
        turn["content"] += content if isinstance(content, list) else [content] if isinstance(content, str) else []
    else:
        turn["tool_calls"].append(item_call(item))


def _input_message(item: Any, kind: str) -> Iterator[Any]:
    if kind in _OUTPUTS:
        yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
    elif kind == "message":
        yield {"role": item.get("role"), "content": item.get("content")}
    else:
        yield {"role": kind}
