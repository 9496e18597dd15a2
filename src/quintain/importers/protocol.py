"""Input and output of a reader (`row_reader.Importer`): the probe, the runs and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from quintain.importers.transcripts.message_parts import count_invalid
from quintain.records.trajectory import Trajectory

MAX_KEPT = 1000
"""Rejections and notes that a report keeps as text; further ones are only counted."""


@dataclass(frozen=True)
class Probe:
    """The beginning of a file, for format detection."""

    path: tuple[str, ...]
    """Parts of the path below the imported folder; the last is the file name."""
    shape: Literal["object", "array", "lines", "zip", "sqlite", "other"]
    """A JSON object, a JSON array, JSON objects line by line, a zip archive, an SQLite database, or none of these."""
    document: dict[str, Any] | None = None
    """Shape `object`: the whole value."""
    rows: tuple[Any, ...] = ()
    """Shapes `array` and `lines`: the first valid elements or lines; shape `zip`: the names of the members;
    `sqlite`: those of the tables."""
    text: str = ""
    """Beginning of a text file that does not start like JSON."""

    @property
    def name(self) -> str:
        """File name."""
        return self.path[-1]

    @cached_property
    def fields(self) -> frozenset[str]:
        """Names of all fields of the document, or of the rows that are objects."""
        return frozenset().union(*(row for row in (*self.rows, self.document) if isinstance(row, dict)))

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The rows that are objects."""
        return [row for row in self.rows if isinstance(row, dict)]

    @property
    def first(self) -> dict[str, Any]:
        """The document, or the first row if it is an object; else {}."""
        if self.document is not None:
            return self.document
        return next((row for row in self.rows[:1] if isinstance(row, dict)), {})


class Run(NamedTuple):
    """A trajectory from a reader, with its links to other files of the import."""

    trajectory: Trajectory
    line: int | None = None
    """Line or element where it begins, as in `Rejected.line`."""
    key: str | None = None
    """Name of the run, unique within its logs, such as `claude_code:SESSION`; required if others refer to it."""
    parent: str | None = None
    """Key of the run that started this one as a subagent."""
    continues: str | None = None
    """Key of the run that this one continues."""
    rest: Iterable[Trajectory] = ()
    """Further steps of a run too long to hold: runs with the same fields, each with the steps that follow. Read once."""
    is_part: bool = False
    """Whether it was split off a run that is too long for one row."""


@dataclass
class Report:
    """Input that a reader did not turn into steps. Texts may quote the log and are redacted before display."""

    format: str = ""
    """Name of the reader."""
    rejected: list[tuple[int | None, str]] = field(default_factory=list)
    n_rejected: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    """Kind of record -> number of records skipped on purpose or because their meaning is unknown."""
    notes: dict[str, None] = field(default_factory=dict)
    consumed: set[Path] = field(default_factory=set)
    verdicts: dict[str, Counter[str]] = field(default_factory=dict)
    """Column that states how a run ended -> its values without a known meaning."""

    def consume(self, path: Path) -> None:
        """Mark a file as read together with this one, so that it is not imported on its own."""
        self.consumed.add(path.resolve())

    def reject(self, line: int | None, reason: str) -> None:
        """Reject a line, an element or, with line None, the file."""
        self.n_rejected += 1
        if len(self.rejected) < MAX_KEPT:
            self.rejected.append((line, reason))

    def skip(self, kind: str, n: int = 1) -> None:
        """Count records of a kind without a turn, so that the report accounts for them."""
        if n:
            self.unknown[kind[:80] if len(self.unknown) < MAX_KEPT or kind in self.unknown else "..."] += n

    def refuse(self, kind: str, sentence: str) -> None:
        """Handle an invalid message part tolerantly; an `OnInvalid` of `message_parts`."""
        count_invalid(self.skip, self.note)(kind, sentence)

    def unread(self, column: str, value: str) -> None:
        """Count a value without a known meaning in a column that states how a run ended."""
        values = self.verdicts.setdefault(column, Counter())
        values[value if len(values) < MAX_KEPT or value in values else "..."] += 1

    def note(self, text: str) -> None:
        """Add a note on the runs of this file; repeated notes are kept once."""
        if len(self.notes) < MAX_KEPT:
            self.notes[text] = None
