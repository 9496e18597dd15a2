"""Tables of one message a row: a label, or a value of `curation.where`, of one message applies to its conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from quintain.datasets.selection import ExportCounts
from quintain.errors import InvalidInput
from quintain.importers.log_file import NumberedValue
from quintain.importers.protocol import Report
from quintain.importers.row_reader import SESSIONS
from quintain.importers.values import as_name
from quintain.tools.data.row_reading import MARKS, chosen_rows, label_of, labelled, restated

Read = Callable[[Report], Iterable[NumberedValue]]


def requested_rows(
    read: Read,
    columns: Mapping[str, str],
    marks: Mapping[str, str],
    where: Mapping[str, str],
    report: Report,
    tally: ExportCounts,
) -> Iterator[NumberedValue]:
    """Yield the rows that `where` and the label choose, with labels and roles that the readers know.

    Whole conversations are chosen and counted where a row is one message.

    Args:
        read: Streams the rows; called again for a table of messages.
        columns: As of `export_dataset`, without those that state values.
        marks: `good` and `bad` -> the value of the label that means it; `assistant` -> that of the role.
        where: Column -> value or bound of the rows to read.
        report: Takes what cannot be read.
        tally: Counts what is left out.
    """
    asked = [*where, *([columns["label"]] if "label" in columns else [])]
    session = _conversation_column(read, columns) if asked else None
    if session is None:
        yield from restated(chosen_rows(read(report), where, tally), columns, marks, report, tally)
        return
    label = columns.get("label")
    kept = {
        name: None if label is None else row[label]
        for name, row in _chosen(_conversations(read, session, asked), columns, marks, where, report, tally)
    }
    roles = {name: value for name, value in marks.items() if name not in MARKS}
    yield from restated(_messages(read(report), session, label, kept), columns, roles, report, tally)


def _conversation_column(read: Read, columns: Mapping[str, str]) -> str | None:
    """Return the column that names the conversation of a message; None if a row is not a single message of one."""
    with suppress(InvalidInput):  # a damaged file is reported where it is read
        row = next((row for _, row in read(Report()) if isinstance(row, Mapping)), {})
        if all(columns.get(name, name) in row for name in ("role", "content")):
            return next((named for name in SESSIONS if (named := columns.get(name, name)) in row), None)
    return None


@dataclass
class _Conversation:
    """Labels and values that the messages of a conversation state."""

    line: int
    stated: dict[str, list[Any]] = field(default_factory=dict)
    """Column -> its values, in the order of the messages, without gaps and repetitions."""


def _conversations(read: Read, session: str, asked: Iterable[str]) -> dict[str | None, _Conversation]:
    found: dict[str | None, _Conversation] = {}
    with suppress(InvalidInput):
        for line, row in read(Report()):
            if isinstance(row, Mapping):
                held = found.setdefault(as_name(row.get(session)), _Conversation(line))
                for column in (column for column in asked if column in row):
                    values = held.stated.setdefault(column, [])
                    if row[column] not in (None, "", *values):
                        values.append(row[column])
    return found


def _chosen(
    conversations: Mapping[str | None, _Conversation],
    columns: Mapping[str, str],
    marks: Mapping[str, str],
    where: Mapping[str, str],
    report: Report,
    tally: ExportCounts,
) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
    """Yield the conversations to read, each with its label. Of several values of a column the first one counts."""
    names = {one.line: name for name, one in conversations.items()}
    rows = (
        NumberedValue(one.line, {column: next(iter(values), None) for column, values in one.stated.items()})
        for one in conversations.values()
    )
    labels = {name: mark for name, mark in marks.items() if name in MARKS}
    for line, row in labelled(chosen_rows(rows, where, tally), columns, labels, report, tally):
        stated = conversations[names[line]].stated.get(columns.get("label", ""), ())
        if len({label_of(value, labels) for value in stated}) > 1:
            tally.leave_out("labels_disagree")
        else:
            yield names[line], row


def _messages(
    rows: Iterable[NumberedValue], session: str, label: str | None, kept: Mapping[str | None, Any]
) -> Iterator[NumberedValue]:
    for line, row in rows:
        if not isinstance(row, Mapping):
            yield NumberedValue(line, row)
        elif (name := as_name(row.get(session))) in kept:
            yield NumberedValue(line, row if label is None else {**row, label: kept[name]})
