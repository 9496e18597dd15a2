"""Counts of an import, file by file, and the report built from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quintain.importers.protocol import Run
from quintain.records.imports import ImportedFile, ImportReport, IngestStatus, Rejected, RunLink
from quintain.records.text import printable
from quintain.records.trajectory import PAIR_MARK, OutcomeStatus, Trajectory

MAX_REJECTED = 200
MAX_NOTES = 100
MAX_UNKNOWN = 1000
_FEW, _RUNS = 8, 20
"""Values, and runs with one, from which on a column has too many to be a label, or enough to be one."""


@dataclass
class FileSummary:
    """Counts and messages of one file."""

    name: str
    path: Path | None = None
    format: str | None = None
    confidence: float = 0.0
    runner_up: str | None = None
    counts: Counter[str] = field(default_factory=Counter)
    """`trajectories`, `steps`, `actions` and `observations`, as in `ImportedFile`."""
    marks: Counter[str] = field(default_factory=Counter)
    """Runs that are `paired` or `labelled` by the log, or neither (`plain`); of all, those of an `unknown` outcome."""
    columns: dict[str, Counter[str]] = field(default_factory=dict)
    """Column beside runs that state no outcome -> its values; none are counted from `_FEW` on."""
    has_rows: bool = False
    """Whether it is JSON or a table, of whatever format."""
    rejected: tuple[Rejected, ...] = ()
    n_rejected: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def count(self, run: Trajectory) -> None:
        """Count an imported run."""
        turns = run.agent_steps
        self.marks["paired" if PAIR_MARK in run.extra else "labelled" if run.logged_label is not None else "plain"] += 1
        self.marks["unknown"] += run.outcome.status is OutcomeStatus.UNKNOWN
        self.counts["trajectories"] += 1
        self.counts["steps"] += len(turns)
        self.counts["actions"] += sum(len(step.actions) for step in turns)
        self.counts["observations"] += sum(len(step.observations) for step in turns)
        row = run.extra.get("row")
        if run.outcome.status is OutcomeStatus.UNKNOWN and run.logged_label is None and isinstance(row, Mapping):
            for column, value in row.items():
                values = self.columns.setdefault(column, Counter())
                values.update([str(value)] if len(values) < _FEW else [])

    @property
    def sorting(self) -> list[str]:
        """Columns that sort the runs into a few kinds, as a label does."""
        return [name for name, values in self.columns.items() if 1 < len(values) < _FEW and values.total() >= _RUNS]

    @property
    def is_log(self) -> bool:
        """Whether a reader accepted the file or it is damaged; otherwise it is not a log."""
        return self.format is not None or self.n_rejected > 0

    def record(self) -> ImportedFile:
        """Return the entry of the report."""
        return ImportedFile(
            file=self.name,
            format=self.format,
            confidence=self.confidence,
            runner_up=self.runner_up,
            rejected=self.n_rejected,
            unknown=self.unknown,
            notes=self.notes,
            **self.counts,
        )


@dataclass
class PairDirections:
    """Finds pairs that an earlier row states the other way round, of runs in the order of their rows."""

    pairs: set[tuple[str, str]] = field(default_factory=set)
    """Better and worse answer of each pair, by identity."""
    better: str = ""
    """The answer whose worse one comes next."""
    reversed: int = 0

    def add(self, run: Trajectory) -> None:
        """Take the next run."""
        mark = run.extra.get(PAIR_MARK)
        side = mark.get("side") if isinstance(mark, Mapping) else None
        if side == "chosen":
            self.better = run.identity
        elif side == "rejected" and self.better != (worse := run.identity):
            self.reversed += (worse, self.better) in self.pairs
            self.pairs.add((self.better, worse))


@dataclass
class ImportSummary:
    """Counts and messages of all files."""

    files: list[FileSummary] = field(default_factory=list)
    companions: set[Path] = field(default_factory=set)
    """Files read together with others; without runs of their own they are left out of the report."""
    arrivals: Counter[IngestStatus] = field(default_factory=Counter)
    unchanged: int = 0
    redactions: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    stopped: bool = False

    def report(self, max_files: int) -> ImportReport:
        """Build the report with at most so many files; companions without runs of their own are left out."""
        files = [file for file in self.files if file.counts["trajectories"] or file.path not in self.companions]
        logs, others = [file for file in files if file.is_log], [file for file in files if not file.is_log]
        took = [file for file in logs if file.counts["trajectories"]]
        formats = {file.format for file in took}
        n_rejected = sum(file.n_rejected for file in logs)
        unknown: Counter[str] = Counter()
        for file in files:
            unknown.update(file.unknown)
        refused = [Rejected(file=file.name, reason=file.notes[0]) for file in others[:MAX_REJECTED]]
        return ImportReport(
            format=None if not formats else formats.pop() if len(formats) == 1 else "mixed",
            confidence=min((file.confidence for file in took), default=0.0),
            imported=self.arrivals["new"],
            updated=self.arrivals["grown"] + self.arrivals["completed"],
            duplicates=self.arrivals["known"],
            forgotten=self.arrivals["forgotten"],
            files=tuple(file.record() for file in (logs + others)[:max_files]),
            n_files=len(self.files) + self.unchanged,
            unchanged=self.unchanged,
            rejected=tuple([*(line for file in logs for line in file.rejected), *refused][:MAX_REJECTED]),
            n_rejected=n_rejected,
            n_refused=len(others),
            n_unknown_rows=sum(file.has_rows for file in others),
            redactions=dict(self.redactions),
            unknown=dict(unknown.most_common(MAX_UNKNOWN)),
            notes=self._notes(files, bool(took)),
            stopped=self.stopped,
            paired=sum(file.marks["paired"] for file in files),
            labelled=sum(file.marks["labelled"] for file in files),
            unknown_outcomes=sum(file.marks["unknown"] for file in files),
            columns=tuple(dict.fromkeys(printable(name) for file in files for name in file.sorting)),
        )

    def _notes(self, files: list[FileSummary], found: bool) -> tuple[str, ...]:
        notes = list(self.notes)
        if not files and not self.unchanged:
            notes.insert(0, "The folder has no file to read.")
        elif not found and not self.unchanged and not self.stopped:
            notes.insert(0, f"None of {len(files):,} files contains a trajectory.")
        places: dict[str, list[str]] = {}
        for file in files:
            for note in file.notes if file.is_log else ():
                places.setdefault(note, []).append(file.name)
        for note, names in places.items():
            one = note if len(files) == 1 else f"{printable(names[0])}: {note}"
            notes.append(one if len(names) == 1 else f"{note} ({len(names):,} files)")
        if len(notes) > MAX_NOTES:
            notes[MAX_NOTES - 1 :] = [f"and {len(notes) - MAX_NOTES + 1:,} more notes"]
        return tuple(notes)


@dataclass
class Links:
    """Links between the runs of an import."""

    known: dict[str, str] = field(default_factory=dict)
    """Key of a run -> identity."""
    started: list[tuple[str, str]] = field(default_factory=list)
    """Key of a run, identity of its subagent."""
    continued: list[tuple[str, str]] = field(default_factory=list)
    """Identity of a run, key of the run that it continues."""

    def add(self, run: Run, stored: Trajectory) -> None:
        """Add a run as it will be stored."""
        if not (run.key or run.parent or run.continues):
            return
        identity = stored.identity
        if run.key:
            self.known.setdefault(run.key, identity)
        if run.parent:
            self.started.append((run.parent, identity))
        if run.continues:
            self.continued.append((identity, run.continues))

    def resolved(self) -> tuple[list[RunLink], int]:
        """Return the links by identity, and the number of links to runs outside this import."""
        subagents: dict[str, dict[str, None]] = {}
        for key, child in self.started:
            if (parent := self.known.get(key)) and parent != child:
                subagents.setdefault(parent, {})[child] = None
        continues = {
            identity: self.known[key]
            for identity, key in self.continued
            if key in self.known and self.known[key] != identity
        }
        links = [
            RunLink(identity=identity, subagents=tuple(subagents.get(identity, ())), continues=continues.get(identity))
            for identity in dict.fromkeys([*subagents, *continues])
        ]
        keys = [key for key, _ in self.started] + [key for _, key in self.continued]
        return links, sum(key not in self.known for key in keys)
