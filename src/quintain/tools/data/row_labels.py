"""The column of rows that is named as the label: what its values mean, by their words or as `columns` states."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from quintain.datasets.row_files import joined_columns
from quintain.datasets.selection import ExportCounts
from quintain.errors import InvalidInput
from quintain.importers.files.tables import as_cell_number
from quintain.importers.log_file import NumberedValue
from quintain.importers.outcome_fields import as_label
from quintain.importers.protocol import Report
from quintain.importers.transcripts.chat_messages import ROLES
from quintain.importers.values import as_number
from quintain.records.record import shown

MARKS = ("good", "bad")
"""Names in `columns` that state a value of the label, or a bound on it such as `>=4`, not a column."""
VALUES = {**dict.fromkeys(MARKS, "label"), "assistant": "role"}
"""Name in `columns` that states a value -> name of the column that has it."""
NO_LABELS = "no_labels"

_BOUND = re.compile(r"(>=|<=|>|<)\s*(-?[0-9]+(?:\.[0-9]+)?)")
_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_COUNTED = 1_000
"""Most different values that are counted."""
_SHOWN = 8
"""Most values that an error lists."""


def require_marks(rows: Iterable[NumberedValue], columns: Mapping[str, str], marks: Mapping[str, str]) -> None:
    """Refuse rows whose label cannot be told apart into good and bad: a scale without bounds, or values without a meaning.

    Args:
        rows: All rows of a file.
        columns: Name that the readers know -> name of the column.
        marks: `good` and `bad` -> the value or bound that means it.

    Raises:
        InvalidInput: names the values that the column has.
    """
    column = columns.get("label")
    if column is None:
        return
    marks = {name: mark for name, mark in marks.items() if name in MARKS}
    values: Counter[str] = Counter()
    with suppress(InvalidInput):  # a damaged file is reported where it is read
        for _, row in rows:
            if isinstance(row, Mapping) and row.get(column) is not None and len(values) < _COUNTED:
                values[str(row[column])] += 1
    if not values:
        return
    numbers = [number for value in values if (number := as_cell_number(value)) is not None]
    is_scale = any(number not in (-1, 0, 1) for number in numbers)
    if marks and not any(_fits(mark, value) for mark in marks.values() for value in values):
        raise InvalidInput(
            f"columns: expected values or bounds that {column!r}, the label, has, got {shown(dict(marks))}; it has {_listed(values)}",
            code=NO_LABELS,
        )
    if len(marks) == len(MARKS) and (
        both := [value for value in values if all(_fits(m, value) for m in marks.values())]
    ):
        raise InvalidInput(f"columns: expected `good` and `bad` apart, got {shown(both[0])} in both; correct a bound")
    if not marks and (is_scale or not any(_label(value, marks) is not None for value in values)):
        example = (
            f'"good": ">={max(numbers):g}", "bad": "<={min(numbers):g}"' if is_scale else '"good": VALUE, "bad": VALUE'
        )
        raise InvalidInput(
            f"columns: expected true, false, 1, 0 or -1 in {column!r}, the label, got {_listed(values)}; state in `columns` which "
            f'values are good and which bad, such as {{"label": "{column}", {example}}}',
            code=NO_LABELS,
        )


def _listed(values: Counter[str]) -> str:
    listed = ", ".join(f"{shown(value)} ({n})" for value, n in values.most_common(_SHOWN))
    return f"{listed}, ..." if len(values) > _SHOWN else listed


def chosen_rows(
    rows: Iterable[NumberedValue], where: Mapping[str, str], tally: ExportCounts
) -> Iterator[NumberedValue]:
    """Yield the rows whose columns have the requested values.

    Args:
        rows: In the order of the file.
        where: Column -> its value, or a bound such as `>=4`.
        tally: Counts the others as `not_where`.

    Raises:
        InvalidInput: the first row lacks a column.
    """
    for place, (number, row) in enumerate(rows):
        if where and isinstance(row, Mapping):
            if not place and (absent := [name for name in where if name not in row]):
                raise InvalidInput(
                    f"curation.where: expected columns of the rows ({', '.join(map(repr, list(row)[:20]))}), got {absent[0]!r}; "
                    "correct it"
                )
            if not all(_fits(value, row.get(name)) for name, value in where.items()):
                _leave_out(tally, "not_where")
                continue
        yield NumberedValue(number, row)


def restated(
    rows: Iterable[NumberedValue],
    columns: Mapping[str, str],
    marks: Mapping[str, str],
    report: Report,
    tally: ExportCounts,
) -> Iterator[NumberedValue]:
    """Yield rows with labels and roles that the readers know.

    Args:
        rows: In the order of the file.
        columns: Name that the readers know -> name of the column.
        marks: `good` and `bad` -> the value or bound that means it; `assistant` -> the agent's role.
        report: Lists the rejected rows, whose label has no known meaning.
        tally: Counts the rows without a label, and those between two bounds.
    """
    column, agent = columns.get("role"), marks.get("assistant")
    labels = {name: mark for name, mark in marks.items() if name in MARKS}
    for number, row in _labelled(rows, columns, labels, report, tally):
        if isinstance(row, Mapping):
            row = joined_columns(row, columns)
        if agent is not None and column is not None and isinstance(row, Mapping) and row.get(column) is not None:
            role = str(row[column])
            known = "assistant" if role == agent else role if ROLES.get(role) in ("system", "tool") else "user"
            row = {**row, column: known}
        yield NumberedValue(number, row)


def _labelled(
    rows: Iterable[NumberedValue],
    columns: Mapping[str, str],
    marks: Mapping[str, str],
    report: Report,
    tally: ExportCounts,
) -> Iterator[NumberedValue]:
    """Yield rows with the column that is named as the label as true or false; the arguments are those of `restated`."""
    column = columns.get("label")
    bounds = [mark for mark in marks.values() if _BOUND.fullmatch(mark.strip())]
    for number, row in rows:
        if column is None or not isinstance(row, Mapping):
            yield NumberedValue(number, row)
        elif row.get(column) is None:
            _leave_out(tally, "no_label")
        elif (label := _label(row[column], marks)) is not None:
            yield NumberedValue(number, {**row, column: label})
        elif bounds and as_cell_number(str(row[column])) is not None:
            _leave_out(tally, "between_marks")
        else:
            known = " or ".join(map(repr, marks.values())) or "true, false, 1, 0 or -1"
            report.reject(number, f"expected {known} in {column!r}, the label, got {shown(row[column])}")


def _leave_out(tally: ExportCounts, reason: str) -> None:
    tally.dropped[reason] += 1
    tally.seen += 1


def _label(value: object, marks: Mapping[str, str]) -> bool | None:
    """Return whether a label means good: by its stated values, of which one alone decides, or as logs write it."""
    if not marks:
        known = as_label(value)
        return as_label(as_cell_number(value)) if known is None else known
    if (fitting := next((name for name, mark in marks.items() if _fits(mark, value)), None)) is not None:
        return fitting == "good"
    alone = next(iter(marks.values()))
    if len(marks) == len(MARKS) or (_BOUND.fullmatch(alone.strip()) and as_cell_number(str(value)) is None):
        return None
    return "bad" in marks


def _fits(mark: str, value: object) -> bool:
    """Whether a value is the stated one, or within the stated bound."""
    number = as_cell_number(value) if isinstance(value, str) else as_number(value)
    if bound := _BOUND.fullmatch(mark.strip()):
        return number is not None and _COMPARE[bound[1]](number, float(bound[2]))
    return str(value).casefold() == mark.casefold() or (number is not None and number == as_cell_number(mark))
