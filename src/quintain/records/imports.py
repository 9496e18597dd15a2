"""Reports of log imports, per file and in total."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from quintain.records.record import Instant, Record

IngestStatus = Literal["new", "known", "completed", "grown", "forgotten"]
"""Result of storing a run: new; known; known and completed by an outcome or tags; replacing an earlier state of its
session; or forgotten and therefore not stored."""


RedactionLevel = Literal["secrets", "personal"]
BOTH_LEVELS: tuple[RedactionLevel, ...] = ("secrets", "personal")
PERSONAL_KINDS = frozenset({"email", "phone", "national_id", "card", "iban", "private_ip"})
"""Kinds of markers of the level `personal`; all other kinds are of the level `secrets`."""


def _levels(value: Any) -> Any:
    """Return the levels of a stored flag: before there were levels, true meant both."""
    if isinstance(value, bool):
        return BOTH_LEVELS if value else ()
    return value


RedactionLevels = Annotated[tuple[RedactionLevel, ...], BeforeValidator(_levels)]


class Rejected(Record):
    """A rejected line, array element or file, with the reason."""

    file: str = Field(description="Path relative to the imported folder.")
    line: int | None = Field(default=None, description="Line number, or array element from 1. Null: the whole file.")
    reason: str

    @property
    def place(self) -> str:
        """Return `FILE:LINE`, or `FILE`."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


class ImportedFile(Record):
    """Content of one file."""

    file: str
    format: str | None = Field(description="Null: not recognized.")
    confidence: float = Field(ge=0, le=1)
    runner_up: str | None = None
    trajectories: int = 0
    steps: int = Field(default=0, description="Agent turns.")
    actions: int = 0
    observations: int = 0
    rejected: int = 0
    unknown: dict[str, int] = Field(default_factory=dict, description="Kind of record without a step -> count.")
    notes: tuple[str, ...] = Field(default=(), description="Notes on these runs, without duplicates.")


class FileStamp(Record):
    """Size and time of an imported file, to detect changes."""

    uri: str = Field(description="Absolute path.")
    size: int
    mtime_ns: int
    format: str | None = None
    imported_at: Instant | None = None


class RunLink(Record):
    """Relations between runs of one import, by identity hash: subagents, and the continued run."""

    identity: str
    subagents: tuple[str, ...] = ()
    continues: str | None = None


class TakenOver(Record):
    """A run of a job that another one resumes, which counts as a run of that one, too."""

    trajectory_id: str


class ImportReport(Record):
    """Result of importing a file or folder."""

    format: str | None = Field(description="Format of all files with runs, or `mixed`. Null: there are none.")
    confidence: float = Field(ge=0, le=1, description="Lowest confidence of format detection over the files.")
    imported: int = Field(default=0, description="Number of new runs.")
    updated: int = Field(
        default=0,
        description="Number of changed stored runs: longer sessions, added outcomes, labels and tags.",
    )
    duplicates: int = Field(default=0, description="Number of known runs.")
    forgotten: int = Field(default=0, description="Number of forgotten runs, which were not stored.")
    files: tuple[ImportedFile, ...] = Field(default=(), description="First recognized files, then the others.")
    n_files: int = Field(default=0, description="Number of examined files.")
    unchanged: int = Field(default=0, description="Number of files skipped as unchanged since an earlier import.")
    rejected: tuple[Rejected, ...] = Field(
        default=(), description="First rejected records, then first files without a trajectory."
    )
    n_rejected: int = Field(default=0, description="Number of rejected records and logs.")
    n_refused: int = Field(default=0, description="Number of files that are not logs, such as a README. Not a failure.")
    n_unknown_rows: int = Field(default=0, description="Number of these that are tables or JSON of no known format.")
    redactions: dict[str, int] = Field(default_factory=dict)
    unknown: dict[str, int] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    stopped: bool = Field(default=False, description="Whether it was stopped early.")
    paired: int = Field(default=0, description="Number of runs that their log compares with another one.")
    labelled: int = Field(default=0, description="Number of runs that their log labels good or bad.")
    unknown_outcomes: int = Field(default=0, description="Number of runs whose log does not state how they ended.")
    columns: tuple[str, ...] = Field(
        default=(), description="Columns of few values beside runs of unknown outcome: one of them may state it."
    )
