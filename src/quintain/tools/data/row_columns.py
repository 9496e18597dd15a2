"""Columns of rows: those that name the reward and the split, and the check that the readers know every name in `columns`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quintain.datasets.row_files import split_named, write_lines
from quintain.datasets.selection import ExportCounts
from quintain.errors import InvalidInput
from quintain.importers.files.tables import as_cell_number
from quintain.importers.log_file import NumberedValue
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.run_sink import RunSink
from quintain.importers.values import as_number
from quintain.records.dataset import LEARNED, SplitName
from quintain.records.imports import IngestStatus
from quintain.records.record import nearest, shown
from quintain.records.trajectory import Trajectory

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


def require_read_columns(columns: Mapping[str, str], rows: Sequence[Any], folder: Path, *, text: bool) -> None:
    """Refuse a name that changes nothing in what the first rows say.

    Args:
        columns: Name that the readers know -> name of the column.
        rows: The first rows of a file.
        folder: Where files are put aside.
        text: Whether the rows are texts.

    Raises:
        InvalidInput: names the unread column, and the most similar name.
    """
    found = [row for row in rows if isinstance(row, Mapping)]
    for ours, theirs in columns.items():
        filled = [row for row in found if row.get(theirs) not in (None, "", [])][:_SAMPLE]
        is_read = ours == "text" if text else not filled or _changes_runs(ours, columns, filled, folder)
        if not is_read:
            known = ("text",) if text else USUAL
            near = "" if ours in known else nearest(ours, known)
            raise InvalidInput(
                f"columns: expected names that the readers of such rows know, such as {', '.join(known)}, got {shown(ours)}{near}, "
                "which changes nothing; correct it, or leave it out"
            )


def _changes_runs(ours: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]], folder: Path) -> bool:
    """Whether rows are read differently without a column. Rows that cannot be read at all are refused elsewhere."""
    others = {name: column for name, column in columns.items() if name != ours}
    without = [{name: value for name, value in row.items() if name not in (ours, columns[ours])} for row in rows]
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
        """Keep runs."""
        self.runs += runs
        return ["new"] * len(runs)


def is_rated(rows: Iterable[NumberedValue], columns: Mapping[str, str]) -> bool:
    """Whether the column that is named as the reward has a number beyond 0..1."""
    column = columns.get("reward")
    if column is None:
        return False
    cells = (row.get(column) for _, row in rows if isinstance(row, Mapping))
    numbers = (as_cell_number(cell) if isinstance(cell, str) else as_number(cell) for cell in cells)
    with suppress(InvalidInput):  # a damaged file is reported where it is read
        return any(number is not None and not 0 <= number <= 1 for number in numbers)
    return False


def of_split(
    rows: Iterable[NumberedValue], column: str | None, split: SplitName | None, tally: ExportCounts
) -> Iterator[NumberedValue]:
    """Yield the rows of a split. Those of splits that nothing here learns from are counted with those of train."""
    for row in rows:
        named = split_named(row.value.get(column)) if column is not None and isinstance(row.value, Mapping) else "train"
        if split in (None, named):
            yield row
        elif split == "train" and named not in LEARNED:
            tally.dropped["other_split"] += 1
            tally.seen += 1
