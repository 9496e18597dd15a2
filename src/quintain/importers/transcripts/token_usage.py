"""Token counts of model turns, under the names of any vendor or harness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.importers.transcripts.field_values import as_count, as_dict

_WHOLE = ("prompt_tokens", "promptTokens", "promptTokenCount", "prompt_token_count", "inputUsage", "prompt")
"""Input tokens that include cached tokens."""
_FRESH = ("input_tokens", "inputTokens", "input")
"""Input tokens; records that count the cache separately exclude it here."""
_CACHED = (
    *("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens_cache_read", "input_tokens_cache_write"),
    *("cacheReadInputTokens", "cacheWriteInputTokens", "cacheCreationInputTokens", "cacheRead", "cacheWrite"),
)
_OUTPUT = (
    *("output_tokens", "completion_tokens", "outputTokens", "completionTokens", "candidatesTokenCount"),
    *("candidates_token_count", "outputUsage", "output", "completion"),
)
_THOUGHT = ("thoughts", "reasoning", "thoughtsTokenCount", "thoughts_token_count")
"""Output tokens of thoughts, where they are counted apart from the answer."""


def parse_usage(*counts: Any) -> dict[str, int | None] | None:
    """Return input (cached tokens included) and output tokens as in `Usage`, from the first object with counts."""
    for fields in filter(None, map(as_dict, counts)):
        input_tokens = _first(fields, _WHOLE)
        if input_tokens is None:
            cache = as_dict(fields.get("cache"))
            cached = [fields[key] for key in _CACHED if key in fields] + [cache.get("read"), cache.get("write")]
            input_tokens = _sum(_first(fields, _FRESH), *cached)
        output = _first(fields, _OUTPUT)
        output = _sum(output, *(fields[key] for key in _THOUGHT if key in fields)) if output is not None else None
        if input_tokens is not None or output is not None:
            return {"input_tokens": input_tokens, "output_tokens": output}
    return None


def total_usage(counts: list[Any]) -> dict[str, int | None] | None:
    """Return the sum of several turns."""
    known = [usage for fields in counts if (usage := parse_usage(fields))]
    return {key: _sum(*(usage[key] for usage in known)) for key in known[0]} if known else None


def _first(fields: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:  # a loop, for this is asked of every turn
        if key in fields and (n := as_count(fields[key])) is not None:
            return n
    return None


def _sum(*counts: Any) -> int | None:
    known = [n for value in counts if value is not None and (n := as_count(value)) is not None]
    return sum(known) if known else None
