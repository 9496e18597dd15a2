"""What a reader of one log format looks at, and what it hands over; what a reader is says `registry`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from quintain.importers.transcripts.message_parts import count_invalid
from quintain.records.trajectory import Trajectory

MAX_KEPT = 1000
"""Rejections and notes that a report keeps in words; more are only counted."""


@dataclass(frozen=True)
class Probe:
    """The beginning of a file, as far as detection may look."""

    path: tuple[str, ...]
    """Parts of the path below the folder that was asked for; the last is the file's name."""
    shape: Literal["object", "array", "lines", "zip", "other"]
    """A JSON object, a JSON array, JSON objects line by line, a zip archive, or none of them."""
    document: dict[str, Any] | None = None
    """Shape `object`: the whole value."""
    rows: tuple[Any, ...] = ()
    """Shapes `array` and `lines`: the first good elements or lines; of shape `zip` the names in it."""

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path[-1]

    @cached_property
    def fields(self) -> frozenset[str]:
        """The names of all fields of the document, or of the rows that are objects."""
        return frozenset().union(*(row for row in (*self.rows, self.document) if isinstance(row, dict)))

    @property
    def first(self) -> dict[str, Any]:
        """The document, or the first element or line where that is an object; else an empty object."""
        if self.document is not None:
            return self.document
        return next((row for row in self.rows[:1] if isinstance(row, dict)), {})


class Run(NamedTuple):
    """A trajectory that a reader made, and how other files of the same import call it."""

    trajectory: Trajectory
    line: int | None = None
    """Where it begins, as in `Rejected.line`."""
    key: str | None = None
    """A name of this run that is unique in its logs, such as `claude_code:SESSION`; needed where others point to it."""
    parent: str | None = None
    """Key of the run that started this one as its subagent."""
    continues: str | None = None
    """Key of the run that this one goes on from."""


@dataclass
class Report:
    """What a reader met that became no step. Texts may quote the log: they are redacted before anybody sees them."""

    rejected: list[tuple[int | None, str]] = field(default_factory=list)
    n_rejected: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    """Kind of record -> how many of them were skipped on purpose or for want of a meaning."""
    notes: dict[str, None] = field(default_factory=dict)
    consumed: set[Path] = field(default_factory=set)

    def consume(self, path: Path) -> None:
        """All that another file holds came in with this one: it is not to be read on its own later."""
        self.consumed.add(path.resolve())

    def reject(self, line: int | None, reason: str) -> None:
        """A line, element or file (line None) does not come in."""
        self.n_rejected += 1
        if len(self.rejected) < MAX_KEPT:
            self.rejected.append((line, reason))

    def skip(self, kind: str, n: int = 1) -> None:
        """Records of this kind hold no turn; counted, so that nobody wonders where they went."""
        if n:
            self.unknown[kind[:80] if len(self.unknown) < MAX_KEPT or kind in self.unknown else "..."] += n

    def refuse(self, kind: str, sentence: str) -> None:
        """The tolerant way to read messages (`formats.parts.Refuse`)."""
        count_invalid(self.skip, self.note)(kind, sentence)

    def note(self, text: str) -> None:
        """Something to know about the runs of this file, said once."""
        if len(self.notes) < MAX_KEPT:
            self.notes[text] = None
