"""Tokens that a turn of the model took, by whatever names its vendor or harness counts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.importers.transcripts.field_values import as_count, as_dict

_WHOLE = ("prompt_tokens", "promptTokens", "promptTokenCount", "inputUsage", "prompt")
"""Of the input, with what came from a cache."""
_FRESH = ("input_tokens", "inputTokens", "input")
"""Of the input; those that name the cache beside it leave it out here."""
_CACHED = (
    *("cache_read_input_tokens", "cache_creation_input_tokens", "input_tokens_cache_read", "input_tokens_cache_write"),
    *("cacheReadInputTokens", "cacheWriteInputTokens", "cacheRead", "cacheWrite"),
)
_MADE = (
    *("output_tokens", "completion_tokens", "outputTokens", "completionTokens", "candidatesTokenCount"),
    *("outputUsage", "output", "completion"),
)
_THOUGHT = ("thoughts", "reasoning", "thoughtsTokenCount")
"""Of the output, where it is counted beside what was said."""


def parse_usage(*counts: Any) -> dict[str, int | None] | None:
    """Tokens in and out, as `Usage` has them, of the first object that counts any; input includes what was cached."""
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
    """Tokens of several turns together."""
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
