"""Pages of lists that a client's context can take: a page ends where its answer would become too long."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic_core import to_jsonable_python

Item = TypeVar("Item")

MAX_PAGE_BYTES = 24_000
"""Bytes of JSON on a page, about 8,000 tokens at three bytes each. A single longer entry is still returned."""


def count_fitting(items: Sequence[object]) -> int:
    """Return how many of the first items fit on a page, at least one if there are any."""
    size = 0
    for place, item in enumerate(items):
        size += len(json.dumps(to_jsonable_python(item), ensure_ascii=False, separators=(",", ":")).encode()) + 1
        if size > MAX_PAGE_BYTES and place:
            return place
    return len(items)


def fitting_page(
    fetch: Callable[[int], tuple[Sequence[Item], str | None]], limit: int
) -> tuple[tuple[Item, ...], str | None]:
    """Return the entries that fit on a page, and the cursor of the next page.

    Args:
        fetch: Returns at most so many entries as the client will see them, and the cursor behind the last one.
        limit: Entries at most.
    """
    while True:
        items, following = fetch(limit)
        fit = count_fitting(items)
        if fit == len(items):
            return tuple(items), following
        limit = fit
