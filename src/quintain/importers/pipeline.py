"""The import loop: read a file or folder of logs into redacted runs, and report everything that was not imported.

The logs are only read. Their content is data: nothing in them is executed, fetched, or followed out of the folder.
"""

from __future__ import annotations

import hashlib
import traceback
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import quote

from quintain.errors import Conflict, InvalidInput
from quintain.importers.files.archives import is_zip, unpack
from quintain.importers.files.byte_streams import ReadState, open_regular
from quintain.importers.files.garbage_collection import gc_relaxed
from quintain.importers.files.log_folder import FoundFile, LogFolder, log_folder, printable_name
from quintain.importers.files.probing import WORKBOOK, probe_file
from quintain.importers.import_summary import FileSummary, ImportSummary, Links, PairDirections
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import unread_note, with_rewards_read
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.registry import FAULTS, Detection, confidence, detect, importer, installed_readers
from quintain.importers.row_reader import Importer
from quintain.importers.run_sink import RunSink
from quintain.importers.run_splitting import split_run
from quintain.records.imports import BOTH_LEVELS, FileStamp, ImportReport, IngestStatus, RedactionLevel, Rejected
from quintain.records.tags import usable_tags
from quintain.records.trajectory import AgentInfo, Source, Trajectory

BATCH_RUNS = 100
BATCH_BYTES = 4 * 2**20
"""Bytes of logs after which a batch of runs is handed over."""

UNPACKED = 8
"""Approximate compression ratio of packed JSON logs."""
_PACKED = frozenset({".gz", ".zst", ".zip", ".eval"})
_KEPT_REJECTIONS = 200
"""Rejections of one file that are reported with their reason."""


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import."""

    format: str = "auto"
    """Name of a reader, or `auto` to detect each file."""
    redact: tuple[RedactionLevel, ...] = BOTH_LEVELS
    """Kinds of data that are removed from the runs."""
    tags: tuple[str, ...] = ()
    """Tags added to every run."""
    agent: str | None = None
    """Who acted, where a log does not state it."""
    limit: int | None = None
    """Number of runs after which the import ends."""
    max_files: int = 500
    """Files that the report lists."""
    url: str | None = None
    """URL of the folder with the logs, if they are copies of files there: the runs name it as their source."""


class Size(NamedTuple):
    """Size of an import."""

    files: int
    bytes: int
    """Bytes on disk; a packed file counts `UNPACKED` times."""


def measure(path: Path) -> Size:
    """Count the files and bytes that an import would read."""
    files = log_folder(path).files
    packed = sum(file.size for file in files if file.path.suffix.lower() in _PACKED)
    return Size(len(files), sum(file.size for file in files) + (UNPACKED - 1) * packed)


def import_logs(path: Path, options: ImportOptions, sink: RunSink) -> ImportReport:
    """Import all logs of a file or folder, run by run. Memory contains one run and one batch.

    Args:
        path: A file, or a folder that is walked; hidden folders in it are left out.
        options: Format, redaction, tags, limit.
        sink: Where runs, links and stamps go. What it raises ends the import.

    Returns:
        What came in, and what did not, with line and reason; its texts are redacted.

    Raises:
        NotFound: there is nothing at the path, or no reader has that name.
        InvalidInput: the path is neither a file nor a folder.
    """
    forced = None if options.format == "auto" else importer(options.format)
    folder = log_folder(path)
    if len(folder.files) == 1 and _is_packed_folder(folder, folder.files[0].path):
        return _import_packed(folder, options, sink, forced)
    return _import_folder(folder, options, sink, forced)


def _import_packed(folder: LogFolder, options: ImportOptions, sink: RunSink, forced: Importer | None) -> ImportReport:
    """Import the only file of a folder, a zip archive, as the folder that it contains; its runs name the archive."""
    (packed,) = folder.files
    with TemporaryDirectory() as name:
        try:
            unpack(packed.path, folder.root, Path(name))
        except InvalidInput as error:
            refused = LogFolder(folder.root, refused=[(packed.path.name, error.message)])
            return _import_folder(refused, options, sink, forced)
        place = (options.url or folder.root.as_uri()).rstrip("/")
        inside = replace(options, url=f"{place}/{quote(packed.path.name)}#")
        return _import_folder(log_folder(Path(name)), inside, sink, forced, keeps_stamps=False)


def _is_packed_folder(folder: LogFolder, path: Path) -> bool:
    """Whether a file is a zip archive that is not itself a log, but may have logs in it."""
    try:
        if not is_zip(path, folder.root):
            return False
        found = probe_file(path, folder.root).probe
        return detect(found).importer is None and WORKBOOK not in found.rows
    except InvalidInput:
        return False


def _import_folder(
    folder: LogFolder, options: ImportOptions, sink: RunSink, forced: Importer | None, *, keeps_stamps: bool = True
) -> ImportReport:
    total = sum(file.size for file in folder.files)
    loop = _Loop(folder, options, sink, forced, total, keeps_stamps=keeps_stamps)
    loop.tally.files += [FileSummary(_safe(name), notes=(f"not read: {reason}",)) for name, reason in folder.refused]
    with gc_relaxed():
        for file in folder.files:
            if loop.is_over():
                break
            loop.take(file)
        loop.finish()
    return loop.tally.report(options.max_files)


@dataclass
class _Loop:
    folder: LogFolder
    options: ImportOptions
    sink: RunSink
    forced: Importer | None
    bytes_total: int
    keeps_stamps: bool = True
    """Whether the next import may leave out unchanged files: those of an archive are written anew for each."""
    tally: ImportSummary = field(default_factory=ImportSummary)
    links: Links = field(default_factory=Links)
    batch: list[tuple[Trajectory, int | None, FileSummary]] = field(default_factory=list)
    batch_bytes: int = 0
    through: list[FileStamp] = field(default_factory=list)
    """Files read to their end whose runs are still in the batch."""
    taken: int = 0
    bytes_done: int = 0
    undetected: Counter[str] = field(default_factory=Counter)
    """Readers whose detection raised an exception."""
    consumed: set[Path] = field(default_factory=set)
    """Files that were read as part of another file."""
    pairs: PairDirections = field(default_factory=PairDirections)

    def is_over(self) -> bool:
        """Return whether the limit is reached or the import was asked to stop."""
        if not self.tally.stopped and self.sink.should_stop():
            self.tally.stopped = True
        return self.tally.stopped or (self.options.limit is not None and self.taken >= self.options.limit)

    def take(self, file: FoundFile) -> None:
        """Read one file unless it is unchanged."""
        stamp = FileStamp(uri=printable_name(str(file.path)), size=file.size, mtime_ns=file.mtime_ns)
        if self.sink.is_unchanged(stamp):
            self.tally.unchanged += 1
        elif file.path not in self.consumed:
            tally = FileSummary(_safe(file.path.relative_to(self.folder.root).as_posix()), file.path)
            self.tally.files.append(tally)
            reader, parsed = self._reader(tally)
            if reader is not None and self._read(file, reader, parsed, tally) and self.keeps_stamps:
                self.through.append(stamp.model_copy(update={"format": reader.name}))
        self.bytes_done += file.size
        self._advance(0)

    def _reader(self, tally: FileSummary) -> tuple[Importer | None, Mapping[bytes, Any]]:
        """Return the reader of a file and the rows that detection parsed; if it is not a log, note the reason."""
        assert tally.path is not None
        report = Report()
        try:
            found = probe_file(tally.path, self.folder.root)
        except InvalidInput as error:
            report.reject(None, error.message)
            self._conclude(tally, report)
            return None, {}
        tally.has_rows = found.probe.shape in ("object", "array", "lines")
        detection = self._detect(found.probe)
        if detection.importer is None:
            if found.damage:
                report.reject(None, f"starts like JSON, but cannot be read: {found.damage}")
            else:
                report.note(f"no trajectory: {found.nothing}")
            self._conclude(tally, report)
            return None, {}
        tally.format, tally.confidence = detection.importer.name, detection.confidence
        tally.runner_up = detection.runner_up
        return detection.importer, found.parsed

    def _detect(self, probe: Probe) -> Detection:
        found = detect(probe)
        self.undetected.update(found.failed)
        if self.forced is None:
            return found
        sure = confidence(self.forced, probe)
        if probe.shape == "other" and not sure and len(self.folder.files) > 1:
            return Detection(None, 0.0, None)  # not every file of a folder has the forced format
        best = found.importer.name if found.importer else None
        runner_up = found.runner_up if best == self.forced.name else best
        return Detection(self.forced, sure, runner_up)

    def _read(self, file: FoundFile, reader: Importer, parsed: Mapping[bytes, Any], tally: FileSummary) -> bool:
        """Import the runs of one file; return False if the next import must read it again."""
        log, report = LogFile(file.path, self.folder.root, ReadState(parsed=dict(parsed))), Report()
        before, whole = self.taken, True
        try:
            source = Source(format=reader.name, uri=self._uri(file.path), sha256=_sha256(log))
        except InvalidInput as error:
            report.reject(None, error.message)
            self._conclude(tally, report)
            return False
        with closing(_runs(reader, log, report)) as runs:
            for run in runs:
                if self.is_over():
                    whole = False
                    break
                self._accept(run, source, tally, log, report)
        self.consumed |= report.consumed
        self.tally.companions |= log.reading.companions
        if whole and self.taken == before and not report.n_rejected:
            if tally.confidence:
                report.note("no agent turn found")
            else:
                report.reject(None, _not_of(reader, tally.runner_up))
        if changed := _changed(file):
            report.note("a file changed while it was read; import it again for its new content")
        for column, values in report.verdicts.items():
            report.note(unread_note(column, values))
        for repair, n in log.reading.repairs.items():
            report.note(f"{n:,} {repair}")
        self._conclude(tally, report)
        failed = any(line is None for line, _ in report.rejected)
        return whole and not changed and not failed and not log.reading.consulted

    def _uri(self, path: Path) -> str:
        """Return the address of a file, redacted as the runs are."""
        if self.options.url is None:
            return (Path(_safe(str(path))) if self.options.redact else path).as_uri()
        uri = f"{self.options.url}/{path.relative_to(self.folder.root).as_posix()}"
        return _safe(uri) if self.options.redact else uri

    def _accept(self, run: Run, source: Source, tally: FileSummary, log: LogFile, report: Report) -> None:
        """Redact a run, split it if it is long, and add its parts to the batch."""
        self.batch_bytes += log.reading.take()
        for part in split_run(run, report, partial(self._clean, source)):
            self.links.add(part, part.trajectory)
            self.batch.append((part.trajectory, part.line, tally))
            self.taken += 1
            if part.is_part:
                del part  # not in memory while the next one is built
                self._flush()
        if len(self.batch) >= BATCH_RUNS or self.batch_bytes >= BATCH_BYTES:
            self._flush()
            self._advance(log.reading.position)

    def _clean(self, source: Source, run: Trajectory) -> tuple[Trajectory, Sequence[Counter[str]]]:
        """Return a run redacted, with source and tags, without its id, which would name a run of this store."""
        from quintain.redaction.redact import redact_by_step

        clean = run if run.id is None else run.model_copy(update={"id": None})
        clean, counts = redact_by_step(clean, self.options.redact)
        if clean.redactions:
            self.tally.redactions += Counter(clean.redactions) - Counter(run.redactions)
        update = {
            "source": source if clean.source.uri is None else clean.source,
            "tags": usable_tags((*clean.tags, *self.options.tags)),
        }
        if self.options.agent is not None and clean.agent.name == AgentInfo().name:
            update["agent"] = clean.agent.model_copy(update={"name": self.options.agent})
        return clean.model_copy(update=update), counts

    def _flush(self) -> None:
        """Hand over the batch, then the files that it completes."""
        batch, self.batch, self.batch_bytes = self.batch, [], 0
        arrivals: Sequence[IngestStatus | None] = ()
        try:
            if batch:
                arrivals = self.sink.add([run for run, _, _ in batch])
        except (Conflict, InvalidInput):  # one of them; the others are good
            arrivals = [self._add_alone(*entry) for entry in batch]
        for (run, _, tally), arrival in zip(batch, arrivals, strict=True):
            if arrival is not None:
                tally.count(run)
                self.tally.arrivals[arrival] += 1
                self.pairs.add(run)
        if self.through:
            self.sink.finish_files(self.through)
            self.through = []

    def _add_alone(self, run: Trajectory, line: int | None, tally: FileSummary) -> IngestStatus | None:
        try:
            return self.sink.add([run])[0]
        except (Conflict, InvalidInput) as error:
            report = Report()
            report.reject(line, error.message)
            self._conclude(tally, report)
            return None

    def _conclude(self, tally: FileSummary, report: Report) -> None:
        """Record what a file did not yield. These texts may quote the log, so they are redacted."""
        room = _KEPT_REJECTIONS - len(tally.rejected)
        tally.rejected += tuple(
            Rejected(file=tally.name, line=line, reason=_safe(" ".join(reason.split())))
            for line, reason in report.rejected[:room]
        )
        tally.n_rejected += report.n_rejected
        tally.unknown = {_safe(kind): n for kind, n in report.unknown.items() if n}
        tally.notes += tuple(map(_safe, report.notes))

    def _advance(self, position: int) -> None:
        self.sink.report_progress(min(self.bytes_done + position, self.bytes_total), self.bytes_total)

    def finish(self) -> None:
        """Hand over the last batch and the links, and add notes on the whole import."""
        self._flush()
        links, loose = self.links.resolved()
        if links:
            self.sink.link(links)
        notes = self.tally.notes
        if loose:
            notes.append(f"{loose:,} links refer to runs outside this import.")
        if n := self.pairs.reversed:
            notes.append(
                f"{n:,} pairs contradict earlier rows, which count; export the file itself for a majority of them."
            )
        if self.folder.skipped:
            names = ", ".join(_safe(name) for name in sorted(self.folder.skipped)[:5])
            n = sum(self.folder.skipped.values())
            notes.append(f"{n:,} hidden or vendored folders were skipped ({names}); import one by its own path.")
        if self.options.limit is not None and self.taken >= self.options.limit:
            notes.append(f"Ended at the limit of {self.options.limit:,} runs.")
        for failure, n in self.undetected.most_common(5):
            notes.append(_safe(f"The reader {failure} failed to detect the format of {n:,} files; please report it."))
        notes += installed_readers().faults


def _safe(text: str) -> str:
    """Redact a text or file name from a log and make it printable."""
    from quintain.redaction.redact import redact_text

    return redact_text(printable_name(text))[0]


def _runs(reader: Importer, log: LogFile, report: Report) -> Generator[Run, None, None]:
    """Yield the runs of a file; an exception of the reader ends them and is reported."""
    try:
        yield from with_rewards_read(reader.read(log, report), log, report)
    except InvalidInput as error:
        report.reject(None, error.message)
    except (*FAULTS, OSError) as error:
        *_, place = traceback.extract_tb(error.__traceback__)
        where = f"{Path(place.filename).name}:{place.lineno}"
        report.reject(
            None,
            f"the reader {reader.name} failed on it{log.reading.where} ({type(error).__name__} at {where}); please report it",
        )


def _not_of(reader: Importer, other: str | None) -> str:
    """Return the reason why the requested reader found nothing in a file."""
    hint = f"it looks like {other}: set `format={other}`, or auto" if other else "omit `format` to detect it"
    return f"expected format {reader.name} ({reader.title}), got no run of it; {hint}"


def _sha256(log: LogFile) -> str:
    with open_regular(log.path, log.root) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InvalidInput(f"cannot be read ({error.strerror})") from None


def _changed(file: FoundFile) -> bool:
    try:
        now = file.path.stat()
    except OSError:
        return True
    return (now.st_size, now.st_mtime_ns) != (file.size, file.mtime_ns)
