"""The tags around calls and results in rows of the ShareGPT kind: as LLaMA-Factory has them, and as Hermes writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from quintain.importers.transcripts.field_values import as_text, parse_json_text

RESULT_SEPARATOR = "\n</tool_response>\n<tool_response>\n"
"""What LLaMA-Factory puts between the results of parallel calls."""

_CALL = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>\s*", re.DOTALL)
_RESULT = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)
_TOOLS = frozenset({"tool", "function", "observation", "tool_response"})


def parse_tagged_calls(messages: Sequence[Any]) -> Iterator[Any]:
    """Chat messages whose calls stand as JSON between tags, and whose results are turns of a tool: calls as calls.

    Where results are turns of the user, text is the whole protocol, and it stays so.
    """
    asked = 0
    for message, after in zip_longest(messages, messages[1:]):
        said = message.get("content") if isinstance(message, dict) else None
        calls: list[dict[str, Any]] = []
        if isinstance(said, str) and "<tool_call>" in said and not message.get("tool_calls"):
            calls = _calls(said) if _is_result(after) else []
        results = _RESULT.findall(said) if asked and isinstance(said, str) and _is_result(message) else []
        if calls:
            yield {**message, "content": _CALL.sub("", str(said)).strip(), "tool_calls": calls}
        elif len(results) == asked > 0:
            yield from ({**message, "content": result} for result in results)
        else:
            yield message
        asked = len(calls)


def _is_result(message: Any) -> bool:
    return isinstance(message, Mapping) and as_text(message.get("role")) in _TOOLS


def _calls(said: str) -> list[dict[str, Any]]:
    """The calls between the tags; none where one is no JSON of a call, and then all of it stays text."""
    calls = [parse_json_text(found[1]) for found in _CALL.finditer(said)]
    named = [call for call in calls if isinstance(call, Mapping) and isinstance(call.get("name"), str)]
    return [{"function": call} for call in named] if len(named) == len(calls) == said.count("<tool_call>") else []
