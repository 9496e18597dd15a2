"""Receivers of imported runs, and the test whether a file has changed since its last import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from quintain.records.imports import FileStamp, IngestStatus, RunLink
from quintain.records.trajectory import Trajectory


class RunSink(Protocol):
    """Receiver of imported runs: the store, the outputs of a job, or a dry run. Subclasses need `add` alone."""

    def is_unchanged(self, stamp: FileStamp) -> bool:
        """Return whether the file is the same as at its last import."""
        return False

    def add(self, runs: Sequence[Trajectory]) -> list[IngestStatus]:
        """Take a batch of runs and return the status of each."""

    def link(self, links: Sequence[RunLink]) -> None:
        """Record which runs belong together; called once, after all files."""
        return None

    def finish_files(self, stamps: Sequence[FileStamp]) -> None:
        """Record files whose runs have all been added, several in one call."""
        return None

    def should_stop(self) -> bool:
        """Return whether the import should end early."""
        return False

    def report_progress(self, bytes_done: int, bytes_total: int) -> None:
        """Report the bytes read so far."""
        return None


def same_file(stamp: FileStamp, earlier: Mapping[str, FileStamp]) -> bool:
    """Return whether size and modification time equal those of an earlier import."""
    known = earlier.get(stamp.uri)
    return known is not None and (known.size, known.mtime_ns) == (stamp.size, stamp.mtime_ns)


@dataclass
class DryRun(RunSink):
    """Count runs without storing them; a repeated run is new once."""

    unchanged: Mapping[str, FileStamp]
    seen: set[str] = field(default_factory=set)

    def is_unchanged(self, stamp: FileStamp) -> bool:
        """Return whether the file is the same as at its last import."""
        return same_file(stamp, self.unchanged)

    def add(self, runs: Sequence[Trajectory]) -> list[IngestStatus]:
        """Return `new` for each run that was not added before."""
        arrivals: list[IngestStatus] = []
        for identity in (run.identity for run in runs):
            arrivals.append("known" if identity in self.seen else "new")
            self.seen.add(identity)
        return arrivals
