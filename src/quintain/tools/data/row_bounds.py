"""Values and bounds that a caller states of the cells of a column: `de`, `>=4`, `>=2026-11-01`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from quintain.importers.files.tables import as_cell_number
from quintain.importers.values import as_number, parse_time

_BOUND = re.compile(r"(>=|<=|>|<)\s*(\S.*)")
_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


class Bound(NamedTuple):
    """A bound on numbers or on times."""

    compare: Callable[[Any, Any], bool]
    limit: float | datetime
    measure: Callable[[object], float | datetime | None]
    """Returns what of a cell is compared; None if it is nothing of the kind."""


def bound_of(mark: str) -> Bound | None:
    """Return the bound that a text states; None for a plain value."""
    if (match := _BOUND.fullmatch(mark.strip())) is None:
        return None
    for measure in (number_in, _time):
        if (limit := measure(match[2])) is not None:
            return Bound(_COMPARE[match[1]], limit, measure)
    return None


def fits(mark: str, value: object) -> bool:
    """Whether a value is the stated one or one of several (`a|b`), or within the stated bound."""
    if (bound := bound_of(mark)) is not None:
        cell = bound.measure(value)
        return cell is not None and bound.compare(cell, bound.limit)
    text, number = str(value).casefold(), number_in(value)
    if text == mark.casefold() or (number is not None and number == as_cell_number(mark)):
        return True
    return "|" in mark and any(fits(one.strip(), value) for one in mark.split("|"))


def is_chosen(mark: str, value: object) -> bool:
    """Whether a value fits; after `!`, whether it is none of those that follow (`!a|b`), which an empty cell is not either."""
    if not mark.startswith("!"):
        return fits(mark, value)
    return not any(fits(one.strip().removeprefix("!"), value) for one in mark[1:].split("|"))


def number_in(value: object) -> float | None:
    """Return the number that a cell states."""
    return as_cell_number(value) if isinstance(value, str) else as_number(value)


def _time(value: object) -> datetime | None:
    when = parse_time(value if isinstance(value, datetime) else str(value))
    return when if when is None or when.tzinfo else when.replace(tzinfo=UTC)
