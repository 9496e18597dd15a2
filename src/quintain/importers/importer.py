"""A reader of one format: its name, how it recognizes a file, and how it reads one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import ReadRow, read_rows


@dataclass(frozen=True)
class Importer:
    """A reader of one format. Each module of a format defines one as `IMPORTER`, and `registry` finds it there."""

    name: str
    """Name for `format=`, e.g. `claude_code`."""
    title: str
    """Name for people, e.g. `Claude Code session`."""
    detect: Callable[[Probe], float]
    """Returns the confidence that a file has this format, 0 to 1.

    From 0.9 on, no other format can be meant: the marks are this format's alone, and most of the rows have its shape.
    Must not raise, whatever the content.
    """
    runs: Callable[[LogFile, Report], Iterator[Run]]
    """Yields the runs of a file in file order, for a report that names this format.

    Tolerant: unreadable input is passed to the report, and the rest is imported. Nothing is invented: an outcome that
    the log does not state is unknown, and a time, model or reward that it does not state is None. Raises `InvalidInput`
    where the file as a whole cannot be read as this format.
    """

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """Yield the runs of a file in file order."""
        report.format = self.name
        return self.runs(log, report)


def row_importer(name: str, title: str, detect: Callable[[Probe], float], read: ReadRow) -> Importer:
    """Return the importer of a format whose rows are read one by one (`read_rows`)."""
    return Importer(name, title, detect, partial(read_rows, read=read))
