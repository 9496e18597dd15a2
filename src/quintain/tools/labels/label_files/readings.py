"""What a label is worth: a verdict, a share, or a place on a scale whose ends the caller states, as 0 to 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from quintain.errors import InvalidInput
from quintain.records.trajectory import OutcomeStatus
from quintain.records.wording import list_names, number_text, shown
from quintain.tools.data.row_bounds import number_in
from quintain.tools.data.row_reading import label_of

Reading = Callable[[Any], float | None]
"""Returns the value of a cell in 0..1; None: it has none."""

_LISTED = 8


def reading_of(values: Counter[str], column: str, marks: Mapping[str, str]) -> Reading:
    """Return how the cells of a label are read.

    Raises:
        InvalidInput: the values are words or a scale without a stated meaning.
    """
    stated = {name: mark for name, mark in marks.items() if name in ("good", "bad")}
    if stated:
        reading: Reading = partial(_marked, marks=stated)
    elif ends := _ends(marks):
        reading = partial(_placed, worst=ends[0], best=ends[1])
    else:
        numbers = {number for value in values if (number := number_in(value)) is not None}
        if any(number not in (-1, 1) and not 0 <= number <= 1 for number in numbers) or numbers == {-1, 0, 1}:
            raise InvalidInput(
                f"columns: expected values in 0..1, or -1 and 1, in {column!r}, the label, got {_list(values)}; state the ends of the "
                f"scale, such as columns={{'label': {column!r}, 'worst': '{min(numbers):g}', 'best': '{max(numbers):g}'}}, or what is "
                "good and what bad: {'good': '>=4', 'bad': '<=2'}",
                code="no_scale",
            )
        reading = _plain
    if not any(reading(value) is not None for value in values):
        raise InvalidInput(
            f"columns: expected numbers, true or false in {column!r}, the label, got {_list(values)}; state which values are good and "
            f"which bad, several as a|b: columns={{'label': {column!r}, 'good': ..., 'bad': ...}}",
            code="no_labels",
        )
    return reading


def _plain(cell: Any) -> float | None:
    """Return the value of a verdict or a share; -1 is bad."""
    number = number_in(cell)
    return _marked(cell, {}) if number is None or not 0 <= number <= 1 else number


def _marked(cell: Any, marks: Mapping[str, str]) -> float | None:
    """Return 1 for good and 0 for bad; what fits neither has no value, unless only one of the two is stated."""
    label = label_of(cell, marks)
    return None if label is None else float(label)


def _placed(cell: Any, worst: float, best: float) -> float | None:
    """Return the place of a number between the ends of a scale; None outside."""
    number = number_in(cell)
    share = None if number is None else (number - worst) / (best - worst)
    return share if share is not None and 0 <= share <= 1 else None


def _ends(marks: Mapping[str, str]) -> tuple[float, float] | None:
    """Return the stated ends of a scale.

    Raises:
        InvalidInput: one end, no numbers, or twice the same.
    """
    stated = {name: mark for name, mark in marks.items() if name in ("worst", "best")}
    if not stated:
        return None
    worst, best = (number_in(stated.get(name, "")) for name in ("worst", "best"))
    if worst is None or best is None or worst == best:
        raise InvalidInput(
            f"columns: expected two different numbers as `worst` and `best`, got {shown(stated)}; correct them"
        )
    return worst, best


def outcome_status(cell: Any, marks: Mapping[str, str]) -> OutcomeStatus | None:
    """Return the outcome that a cell states: by its name, a verdict, or the stated values."""
    if isinstance(cell, str) and cell.strip().lower() in list(OutcomeStatus):
        return OutcomeStatus(cell.strip().lower())
    verdict = label_of(cell, {name: mark for name, mark in marks.items() if name in ("good", "bad")})
    return None if verdict is None else OutcomeStatus.SUCCESS if verdict else OutcomeStatus.FAILURE


def unread_label(column: str, cell: Any, marks: Mapping[str, str]) -> str:
    """Return why a cell has no value."""
    stated = {name: mark for name, mark in marks.items() if name in ("good", "bad", "worst", "best")}
    what = ", ".join(f"{name} {mark}" for name, mark in stated.items()) or "a number in 0..1, true or false"
    return f"expected {what} in {column!r}, the label, got {shown(cell)}"


def _list(values: Counter[str]) -> str:
    return list_names([f"{shown(_short(value))} ({n})" for value, n in values.most_common()], _LISTED)


def _short(value: str) -> str:
    number = number_in(value)
    return value if number is None else number_text(number)
