"""Options that several environments share: difficulty levels, and names from a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from quintain.errors import InvalidInput
from quintain.records.record import clip, nearest

Difficulty = Literal["easy", "medium", "hard", "all"]


def _split(value: Any) -> Any:
    return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
"""Names, separated by commas in a reference; `all` selects every known name."""


def chosen_levels(difficulty: Difficulty, known: Sequence[str]) -> tuple[str, ...]:
    """Return the levels that an option selects."""
    return tuple(known) if difficulty == "all" else (difficulty,)


def chosen_names(option: str, names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the names that an option selects, without duplicates and in the order of `known`.

    Raises:
        InvalidInput: an unknown name, or no name.
    """
    if "all" in names:
        return tuple(known)
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None or not names:
        raise InvalidInput(
            f"expected {option} to be all or names separated by commas, got {clip(unknown or '')!r}"
            f"{nearest(unknown or '', known)}; valid names: {', '.join(known)}",
            code="bad_option",
        )
    return tuple(name for name in known if name in names)
