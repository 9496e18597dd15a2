"""What an import of agent logs has found: one line a file, and the whole."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quintain.records.record import Instant, Record

IngestStatus = Literal["new", "known", "completed", "grown", "forgotten"]
"""What a run is to a store: new; there already; there, and given a missing outcome or more tags; put in the place of an
earlier state of its session; or forgotten, so that it stays away."""


class Rejected(Record):
    """A line, an element or a whole file that did not come in, and why."""

    file: str = Field(description="Path below the folder that was imported.")
    line: int | None = Field(
        default=None, description="Line of a line format, element (from 1) of an array; null: the whole file."
    )
    reason: str

    @property
    def place(self) -> str:
        """`FILE:LINE`, or the file alone."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


class ImportedFile(Record):
    """What one file held."""

    file: str
    format: str | None = Field(description="Null: no importer took it.")
    confidence: float = Field(ge=0, le=1)
    runner_up: str | None = None
    trajectories: int = 0
    steps: int = Field(default=0, description="Agent turns.")
    actions: int = 0
    observations: int = 0
    rejected: int = 0
    unknown: dict[str, int] = Field(
        default_factory=dict, description="Kind of record that no step was made of -> how many."
    )
    notes: tuple[str, ...] = Field(default=(), description="What a reader of these runs should know, once each.")


class FileStamp(Record):
    """Tells whether a file has changed since it was imported."""

    uri: str = Field(description="Absolute path.")
    size: int
    mtime_ns: int
    format: str | None = None
    imported_at: Instant | None = None


class RunLink(Record):
    """Runs of one import that belong together, by identity hash: subagents, and what a run continues."""

    identity: str
    subagents: tuple[str, ...] = ()
    continues: str | None = None


class ImportReport(Record):
    """What an import of a file or folder has found."""

    format: str | None = Field(description="The format of all files that gave runs, or `mixed`; null: none did.")
    confidence: float = Field(ge=0, le=1, description="That of the file that was detected least surely.")
    imported: int = Field(default=0, description="Runs that are new.")
    updated: int = Field(
        default=0,
        description="Stored runs that this import has changed: sessions that have grown, missing outcomes, tags.",
    )
    duplicates: int = Field(default=0, description="Runs that were known already.")
    forgotten: int = Field(default=0, description="Runs that were forgotten, and so stayed away.")
    files: tuple[ImportedFile, ...] = Field(
        default=(), description="The first ones that a reader took, then the others."
    )
    n_files: int = Field(default=0, description="All that were looked at.")
    unchanged: int = Field(default=0, description="Files that an earlier import has read, not read again.")
    rejected: tuple[Rejected, ...] = Field(
        default=(), description="The first records that did not come in, then the first files that hold no trajectory."
    )
    n_rejected: int = Field(default=0, description="Records, and logs as a whole, that did not come in.")
    n_refused: int = Field(default=0, description="Files that are no logs, such as a README; no failure.")
    redactions: dict[str, int] = Field(default_factory=dict)
    unknown: dict[str, int] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    stopped: bool = Field(default=False, description="Was it asked to stop before its end?")
