"""The result of a check."""

from __future__ import annotations

from typing import NamedTuple


class CheckResult(NamedTuple):
    """A score in 0..1, or the reason why there is none."""

    value: float | None
    """None if the answer cannot be checked, which is not a failure."""
    reason: str
    """The finding, or why there is no score."""
