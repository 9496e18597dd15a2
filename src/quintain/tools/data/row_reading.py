"""Reading of rows: the files that a path names, and what their columns state: labels, rewards, splits, and names in `columns`."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quintain.datasets.row_files import HUB_NAME, is_rows, joined_columns, split_named, write_lines
from quintain.datasets.selection import ExportCounts
from quintain.errors import InvalidInput, NotFound, Refused
from quintain.importers.files.probing import probe
from quintain.importers.files.tables import as_cell_number
from quintain.importers.log_file import NumberedValue
from quintain.importers.outcome_fields import as_label
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.protocol import Report
from quintain.importers.run_sink import RunSink
from quintain.importers.transcripts.chat_messages import ROLES
from quintain.records.dataset import LEARNED, SplitName
from quintain.records.imports import IngestStatus
from quintain.records.text import printable
from quintain.records.trajectory import Trajectory
from quintain.records.wording import clip, counted, list_names, nearest, shown
from quintain.redaction.redact import redact_text
from quintain.tools.data.row_bounds import bound_of, fits, is_chosen, number_in
from quintain.tools.data.speaker_lines import chat_reader
from quintain.tools.roots import nothing_at, readable
from quintain.tools.services import Services

USUAL = (
    "prompt",
    "response",
    "messages",
    "role",
    "content",
    "session_id",
    "system",
    "tools",
    "chosen",
    "rejected",
    "label",
    "reward",
    "task_id",
    "text",
)
"""Names that an error proposes; the readers know more."""

SPLIT = "split"
"""Name in `columns` of the column by which rows name their split."""
_SAMPLE = 5
"""Rows with a value of the column that are read with it and without it."""


def has_fields(path: Path) -> bool:
    """Whether a file begins with rows that have named fields."""
    try:
        return bool(probe(path, path.parent).fields)
    except InvalidInput:
        return False


def require_read_columns(columns: Mapping[str, str], rows: Sequence[Any], folder: Path, *, text: bool) -> None:
    """Refuse a name that changes nothing in what the first rows say.

    Raises:
        InvalidInput: names the unread column, and the most similar name.
    """
    found = [row for row in rows if isinstance(row, Mapping)]
    for ours, theirs in columns.items():
        if ours == "label" and columns.keys() >= RIVALS:
            continue
        filled = [row for row in found if row.get(theirs) not in (None, "", [])][:_SAMPLE]
        is_read = ours == "text" if text else not filled or _changes_runs(ours, columns, filled, folder)
        if not is_read:
            known = ("text",) if text else USUAL
            near = "" if ours in known else nearest(ours, known)
            raise InvalidInput(
                f"columns: expected names that the readers of such rows know, such as {', '.join(known)}, got {shown(ours)}{near}, "
                f"which changes nothing; correct it, or leave it out{'' if text else '. Rows of one task_id are in one split'}"
            )


def _changes_runs(ours: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], folder: Path) -> bool:
    """Whether rows are read differently without a column. Rows that cannot be read at all are refused elsewhere."""
    others = {name: column for name, column in columns.items() if name != ours}
    absent = {ours, columns[ours]} - set(others.values())  # a column may be read under two names
    without = [{name: value for name, value in row.items() if name not in absent} for row in rows]
    read = _runs(rows, columns, folder)
    return not read or read != _runs(without, others, folder)


def _runs(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], folder: Path) -> list[dict[str, Any]]:
    """Return what rows say as runs, without the columns that are kept unread."""
    sink = _Collector()
    with tempfile.TemporaryDirectory(prefix="columns-", dir=folder) as aside:
        lines = Path(aside) / "rows.jsonl"
        write_lines((NumberedValue(number, row) for number, row in enumerate(rows, 1)), columns, lines)
        import_logs(lines, ImportOptions(), sink)
    found = [run.model_dump(mode="json", exclude={"id", "source"}) for run in sink.runs]
    for run in found:
        run["extra"].pop("row", None)
    return found


@dataclass
class _Collector(RunSink):
    """Keeps the runs of a few rows."""

    runs: list[Trajectory] = field(default_factory=list)

    def add(self, runs: Sequence[Trajectory]) -> list[IngestStatus]:
        self.runs += runs
        return ["new"] * len(runs)


def of_split(
    rows: Iterable[NumberedValue], column: str | None, split: SplitName | None, tally: ExportCounts
) -> Iterator[NumberedValue]:
    """Yield the rows of a split. Those of splits that nothing here learns from are counted with those of train."""
    for row in rows:
        named = split_named(row.value.get(column)) if column is not None and isinstance(row.value, Mapping) else "train"
        if split in (None, named):
            yield row
        elif split == "train" and named not in LEARNED:
            tally.leave_out("other_split")


def splits_beside_train(runs: Iterable[Trajectory]) -> Iterator[str]:
    """Yield the split that the column `split` of a run's row names, where it is another than train."""
    for run in runs:
        row = run.extra.get("row")
        if isinstance(row, Mapping) and (named := split_named(row.get(SPLIT))) != "train":
            yield named


def safe_name(text: str) -> str:
    """Return a name or reason for display: printable, without secrets."""
    return redact_text(printable(text))[0]


def place_of(services: Services, path: str) -> Path | None:
    """Return the file or folder of this path; None if it is the name of a Hub dataset."""
    place = readable(services, path, "rows")
    if place.exists():
        return place
    if HUB_NAME.fullmatch(path) is None or is_rows(place):
        raise nothing_at(services, path, "rows")
    if not services.settings.allow_hub:
        raise Refused(
            f"{clip(path)!r} is not a file or folder under {str(services.settings.inbox_dir)!r}, and Hub names are off; put the "
            "rows there, or let the operator set QUINTAIN_ALLOW_HUB=1",
            code="hub_not_allowed",
        )
    return None


def text_files(place: Path) -> list[Path]:
    """Return a file, or all visible files of a folder."""
    if place.is_file():
        return [place]
    inside = (file for file in sorted(place.rglob("*")) if file.is_file() and file.resolve().is_relative_to(place))
    files = [file for file in inside if not any(part.startswith(".") for part in file.relative_to(place).parts)]
    if not files:
        raise NotFound(f"{str(place)!r} has no file; name a text file or a folder of text files")
    return files


def note_left_out(files: Sequence[Path], folder: Path) -> str:
    """Return a note that lists files."""
    names = [safe_name(file.relative_to(folder).as_posix()) for file in files]
    return f"the folder has a training split, so these were left out: {list_names(names, 5)}; name a file as `path` to take it"


RIVALS = {"chosen", "rejected"}
"""Names in `columns` of two answers; a label beside them states whether chosen is the better one."""
MARKS = ("good", "bad")
"""Names in `columns` that state a value of the label, or a bound on it such as `>=4`, not a column."""
VALUES = {**dict.fromkeys(MARKS, ("label",)), "assistant": ("role", "messages"), "user": ("messages",)}
"""Name in `columns` that states a value -> names of the columns that may have it."""
NO_LABELS = "no_labels"

_COUNTED = 1_000
"""Most different values that are counted."""
_SHOWN = 8
"""Most values that an error lists."""


def require_marks(rows: Iterable[NumberedValue], columns: Mapping[str, str], marks: Mapping[str, str]) -> None:
    """Refuse rows whose label cannot be told apart into good and bad: a scale without bounds, or values without a meaning.

    Raises:
        InvalidInput: names the values that the column has.
    """
    column = columns.get("label")
    if column is None:
        return
    marks = {name: mark for name, mark in marks.items() if name in MARKS}
    values, known = Counter[str](), set[str]()
    with suppress(InvalidInput):  # a damaged file is reported where it is read
        for _, row in rows:
            if isinstance(row, Mapping) and len(values) < _COUNTED:
                known.update(map(str, row))
                values.update([] if row.get(column) is None else [str(row[column])])
    if known and column not in known:
        raise InvalidInput(
            f"columns: expected columns of the rows ({', '.join(map(repr, sorted(known)[:20]))}), got {column!r} for the label; "
            "correct it"
        )
    if not values:
        return
    numbers = [number for value in values if (number := as_cell_number(value)) is not None]
    is_scale = any(number not in (-1, 0, 1) for number in numbers)
    if marks and not any(fits(mark, value) for mark in marks.values() for value in values):
        raise InvalidInput(
            f"columns: expected values or bounds that {column!r}, the label, has, got {shown(dict(marks))}; it has {_listed(values)}",
            code=NO_LABELS,
        )
    if len(marks) == 1 and len(values) > len(MARKS) and columns.keys() >= RIVALS:
        raise InvalidInput(
            f"columns: expected `good` and `bad` beside two answers, got {shown(dict(marks))} and {_listed(values)} in {column!r}; "
            "state both, so that ties are left out"
        )
    if len(marks) == len(MARKS) and (
        both := [value for value in values if all(fits(m, value) for m in marks.values())]
    ):
        raise InvalidInput(f"columns: expected `good` and `bad` apart, got {shown(both[0])} in both; correct a bound")
    if not marks and (is_scale or not any(label_of(value, marks) is not None for value in values)):
        example = (
            f'"good": ">={max(numbers):g}", "bad": "<={min(numbers):g}"' if is_scale else '"good": ..., "bad": ...'
        )
        rated = f'; kinds dpo, grpo and reward compare numbers as they are: `columns={{"reward": "{column}"}}`'
        raise InvalidInput(
            f"columns: expected true, false, 1, 0 or -1 in {column!r}, the label, got {_listed(values)}; state in `columns` which "
            f'values are good and which bad, such as `columns={{"label": "{column}", {example}}}`'
            f"{rated if is_scale else ''}",
            code=NO_LABELS,
        )


def _listed(values: Counter[str]) -> str:
    return list_names([f"{shown(value)} ({n})" for value, n in values.most_common()], _SHOWN)


def chosen_rows(
    rows: Iterable[NumberedValue], where: Mapping[str, str], tally: ExportCounts
) -> Iterator[NumberedValue]:
    """Yield the rows whose columns have the requested values.

    A value may be a bound such as `>=4` or `>=2026-11-01`, and `!` before it excludes. The others are counted, those without
    a number or a time for a bound apart.

    Raises:
        InvalidInput: the first row lacks a column.
    """
    texts = dict[str, str]()
    bounded = {name: bound for name, mark in where.items() if (bound := bound_of(mark)) is not None}
    for place, (number, row) in enumerate(rows):
        if where and isinstance(row, Mapping):
            if not place and (absent := [name for name in where if name not in row]):
                raise InvalidInput(
                    f"curation.where: expected columns of the rows ({', '.join(map(repr, list(row)[:20]))}), got {absent[0]!r}; "
                    "correct it"
                )
            if not all(is_chosen(value, row.get(name)) for name, value in where.items()):
                words = {
                    name: cell
                    for name, bound in bounded.items()
                    if isinstance(cell := row.get(name), str) and cell.strip() and bound.measure(cell) is None
                }
                texts = words | texts
                tally.leave_out("not_a_number" if words else "not_where")
                continue
        yield NumberedValue(number, row)
    for name, cell in texts.items():
        what = "number" if bounded[name].measure is number_in else "date"
        note = f"curation.where: {name!r} has values without a {what}, such as {shown(cell)}: {where[name]} leaves them out"
        tally.notes += [note] if note not in tally.notes else []


def restated(
    rows: Iterable[NumberedValue],
    columns: Mapping[str, str],
    marks: Mapping[str, str],
    report: Report,
    tally: ExportCounts,
) -> Iterator[NumberedValue]:
    """Yield rows with labels and roles that the readers know, and of two answers the better one as chosen.

    `marks` maps `good` and `bad` to the value or bound that means it, and `assistant` to the agent's role, or with
    `user` to the speakers of a chat in one cell.
    """
    column, agent, chat = columns.get("role"), marks.get("assistant"), chat_reader(columns, marks)
    reward, unread = columns.get("reward"), list[str]()
    labels = {name: mark for name, mark in marks.items() if name in MARKS}
    for number, row in labelled(rows, columns, labels, report, tally):
        if isinstance(row, Mapping):
            row = joined_columns(row, columns)
            if chat is not None:
                try:
                    row = {**row, columns["messages"]: chat(row)}
                except InvalidInput as error:
                    report.reject(number, error.message)
                    continue
        if agent is not None and column is not None and isinstance(row, Mapping) and row.get(column) is not None:
            role = str(row[column])
            known = "assistant" if role == agent else role if ROLES.get(role) in ("system", "tool") else "user"
            row = {**row, column: known}
        if columns.keys() >= RIVALS and isinstance(row, Mapping) and row.get(columns.get("label", "")) is False:
            chosen, rejected = columns["chosen"], columns["rejected"]
            row = {**row, chosen: row.get(rejected), rejected: row.get(chosen)}
        cell = row.get(reward) if reward is not None and isinstance(row, Mapping) else None
        if isinstance(cell, str) and cell.strip() and as_cell_number(cell) is None:
            unread.append(cell)
        yield NumberedValue(number, row)
    if unread:
        without = f"{counted(len(unread), 'row')} without a number in {reward!r}, such as {shown(unread[0])}"
        tally.notes.append(f"columns: {without}, so that the reward is unknown")


def labelled(
    rows: Iterable[NumberedValue],
    columns: Mapping[str, str],
    marks: Mapping[str, str],
    report: Report,
    tally: ExportCounts,
) -> Iterator[NumberedValue]:
    """Yield rows with the column that is named as the label as true or false; the arguments are those of `restated`."""
    column = columns.get("label")
    bounds = [mark for mark in marks.values() if bound_of(mark)]
    for number, row in rows:
        if column is None or not isinstance(row, Mapping):
            yield NumberedValue(number, row)
        elif row.get(column) is None:
            tally.leave_out("no_label")
        elif (label := label_of(row[column], marks)) is not None:
            yield NumberedValue(number, {**row, column: label})
        elif bounds and as_cell_number(str(row[column])) is not None:
            tally.leave_out("between_marks")
        else:
            known = " or ".join(map(repr, marks.values())) or "true, false, 1, 0 or -1"
            report.reject(number, f"expected {known} in {column!r}, the label, got {shown(row[column])}")


def label_of(value: object, marks: Mapping[str, str]) -> bool | None:
    """Return whether a label means good: by its stated values, of which one alone decides, or as logs write it."""
    if not marks:
        known = as_label(value)
        return as_label(as_cell_number(value)) if known is None else known
    if (fitting := next((name for name, mark in marks.items() if fits(mark, value)), None)) is not None:
        return fitting == "good"
    alone = next(iter(marks.values()))
    if len(marks) == len(MARKS) or (bound_of(alone) and as_cell_number(str(value)) is None):
        return None
    return "bad" in marks
