"""The worker's reporter, asked to stop at a point of the test's choice."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from quintain.jobs.directory import JobDirectory
from quintain.records.record import Record
from quintain.worker.reporter import FileReporter


class Stopping(FileReporter):
    """Asked to stop once so many records of a kind have been handed over; 0: never."""

    def __init__(self, folder: Path, kind: str = "", after: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(JobDirectory(folder), 1, lambda: datetime(2026, 1, 2, tzinfo=UTC))
        self.kind, self.left = kind, after

    def output(self, kind: str, record: Record) -> None:
        super().output(kind, record)
        self.left -= kind == self.kind
        if self.kind and self.left == 0:
            self.request_stop()
