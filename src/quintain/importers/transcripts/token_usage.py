"""Token counts of model turns, under the names of any vendor or harness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.importers.transcripts.field_values import as_count, as_dict

_WHOLE = ("prompt_tokens", "promptTokens", "promptTokenCount", "inputUsage", "prompt")
"""Input tokens that include cached tokens."""
_FRESH = ("input_tokens", "inputTokens", "input")
"""Input tokens; records that count the cache separately exclude it here."""
_CACHED = (
    *("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens_cache_read", "input_tokens_cache_write"),
    *("cacheReadInputTokens", "cacheWriteInputTokens", "cacheRead", "cacheWrite"),
)
_MADE = (
    *("output_tokens", "completion_tokens", "outputTokens", "completionTokens", "candidatesTokenCount"),
    *("outputUsage", "output", "completion"),
)
_THOUGHT = ("thoughts", "reasoning", "thoughtsTokenCount")
"""Output tokens of thoughts, where they are counted apart from the answer."""


def parse_usage(*counts: Any) -> dict[str, int | None] | None:
    """Return input (cached tokens included) and output tokens as in `Usage`, from the first object with counts."""
    for given in filter(None, map(as_dict, counts)):
        taken = _first(given, _WHOLE)
        if taken is None:
            cache = as_dict(given.get("cache"))
            cached = [given[key] for key in _CACHED if key in given] + [cache.get("read"), cache.get("write")]
            taken = _sum(_first(given, _FRESH), *cached)
        made = _first(given, _MADE)
        made = _sum(made, *(given[key] for key in _THOUGHT if key in given)) if made is not None else None
        if taken is not None or made is not None:
            return {"input_tokens": taken, "output_tokens": made}
    return None


def total_usage(counts: list[Any]) -> dict[str, int | None] | None:
    """Return the sum of several turns."""
    known = [usage for given in counts if (usage := parse_usage(given))]
    return {key: _sum(*(usage[key] for usage in known)) for key in known[0]} if known else None


def _first(given: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:  # a loop, for this is asked of every turn
        if key in given and (n := as_count(given[key])) is not None:
            return n
    return None


def _sum(*counts: Any) -> int | None:
    known = [n for value in counts if value is not None and (n := as_count(value)) is not None]
    return sum(known) if known else None
