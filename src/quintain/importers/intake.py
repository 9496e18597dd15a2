"""Where an import leaves its runs when nothing is to be stored, and when a file needs no second reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from quintain.records.imports import FileStamp, IngestStatus, RunLink
from quintain.records.trajectory import Trajectory


def same_file(stamp: FileStamp, earlier: Mapping[str, FileStamp]) -> bool:
    """Does the file still look as an earlier import found it, by size and time of change?"""
    known = earlier.get(stamp.uri)
    return known is not None and (known.size, known.mtime_ns) == (stamp.size, stamp.mtime_ns)


@dataclass
class DryRun:
    """Counts runs and keeps none of them; a run that comes twice is new once."""

    unchanged: Mapping[str, FileStamp]
    seen: set[str] = field(default_factory=set)

    def known(self, stamp: FileStamp) -> bool:
        """Has the file not changed since its last import?"""
        return same_file(stamp, self.unchanged)

    def add(self, runs: Sequence[Trajectory]) -> list[IngestStatus]:
        """Which of the runs have not come before."""
        arrivals: list[IngestStatus] = []
        for identity in (run.identity for run in runs):
            arrivals.append("known" if identity in self.seen else "new")
            self.seen.add(identity)
        return arrivals

    def link(self, links: Sequence[RunLink]) -> None:
        """Nothing is kept."""

    def done(self, stamps: Sequence[FileStamp]) -> None:
        """Nothing is kept."""

    def should_stop(self) -> bool:
        """It runs to its end."""
        return False

    def progress(self, bytes_done: int, bytes_total: int) -> None:
        """Nobody watches."""
