"""Tool calls and results between tags in ShareGPT rows, as LLaMA-Factory and Hermes write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise
from typing import Any

from quintain.importers.values import as_text, parse_json_text, parse_python_text

RESULT_SEPARATOR = "\n</tool_response>\n<tool_response>\n"
"""Separator of LLaMA-Factory between the results of parallel calls."""

_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>\s*", re.DOTALL)
_RESULT = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)
_TOOLS = frozenset({"tool", "function", "observation", "tool_response"})


def parse_tagged_calls(messages: Iterable[Any]) -> Iterator[Any]:
    """Convert tagged calls, in JSON or as Python writes it, to tool calls where a tool turn answers them or the chat ends.

    Where results are turns of the user, text is the whole protocol, and it stays so.
    """
    asked, is_text = 0, False
    for message, after in pairwise(chain(messages, [None])):
        content = message.get("content") if isinstance(message, dict) else None
        calls: list[dict[str, Any]] = []
        if isinstance(content, str) and "<tool_call>" in content and not message.get("tool_calls"):
            calls = _calls(content) if _is_result(after) or (after is None and not is_text) else []
            is_text = not calls
        results = _RESULT.findall(content) if asked and isinstance(content, str) and _is_result(message) else []
        if calls:
            yield {**message, "content": _CALL.sub("", str(content)).strip(), "tool_calls": calls}
        elif len(results) == asked > 0:
            yield from ({**message, "content": result} for result in results)
        else:
            yield message
        asked = len(calls)


def _is_result(message: Any) -> bool:
    return isinstance(message, Mapping) and as_text(message.get("role")) in _TOOLS


def _calls(content: str) -> list[dict[str, Any]]:
    """Return the calls between the tags; if one is not a call, return none and keep the text."""
    calls = [
        parse_python_text(text) if parse_json_text(text) is text else parse_json_text(text)
        for text in _CALL.findall(content)
    ]
    named = [call for call in calls if isinstance(call, Mapping) and isinstance(call.get("name"), str)]
    return [{"function": call} for call in named] if len(named) == len(calls) == content.count("<tool_call>") else []
