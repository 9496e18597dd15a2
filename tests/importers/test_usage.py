"""Tokens are counted once, whatever a vendor calls them, and input includes what came from a cache."""

from __future__ import annotations

from typing import Any

import pytest

from quintain.importers.transcripts.token_usage import parse_usage, total_usage


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # Anthropic and inspect count fresh input only: 10 + 200 + 30 = 240.
        ({"input_tokens": 10, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 30, "output_tokens": 5}, (240, 5)),
        ({"input_tokens": 10, "input_tokens_cache_read": 200, "input_tokens_cache_write": 30, "output_tokens": 5}, (240, 5)),
        # LiteLLM's prompt holds the cache already, and repeats Anthropic's counts beside it.
        ({"prompt_tokens": 240, "cache_read_input_tokens": 200, "completion_tokens": 5}, (240, 5)),
        # OpenAI's and Codex's input holds it too.
        ({"input_tokens": 240, "cached_input_tokens": 200, "output_tokens": 5}, (240, 5)),
        ({"promptTokenCount": 7, "candidatesTokenCount": 2, "thoughtsTokenCount": 3}, (7, 5)),
        ({"input": 7, "cached": 6, "output": 2, "thoughts": 3}, (7, 5)),
        ({"input": 7, "cache": {"read": 3, "write": 2}, "output": 2, "reasoning": 3}, (12, 5)),
        ({"input": 7, "cacheRead": 3, "cacheWrite": 2, "output": 5}, (12, 5)),
        ({"completion_tokens": 5}, (None, 5)),
    ],
)  # fmt: skip
def test_tokens_by_the_names_of_every_vendor(given: dict[str, Any], expected: tuple[int | None, int]) -> None:
    assert parse_usage({}, None, given) == {"input_tokens": expected[0], "output_tokens": expected[1]}


@pytest.mark.parametrize(
    "given", [None, [], "x", {}, {"input_tokens": -1}, {"input_tokens": True}, {"input_tokens": 0.5}]
)
def test_what_is_no_count_is_unknown_and_not_zero(given: Any) -> None:
    assert parse_usage(given) is None


def test_tokens_of_several_turns_are_added() -> None:
    """3 + 4 in; only one of them says what came out."""
    spent = [{"input_tokens": 3}, {"nothing": 1}, {"input_tokens": 4, "output_tokens": 2}]
    assert total_usage(spent) == {"input_tokens": 7, "output_tokens": 2}
