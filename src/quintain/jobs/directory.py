"""A job's directory: every path and file format in it.

spec.json       the job spec; written atomically and last, so that it marks a complete directory; never changed
lock            held by shim and worker while the job is alive
launch.json     parameters of the shim for this attempt, and the launcher that started it
shim.json       number and processes of the attempt that began last
heartbeat       a counter, rewritten by the shim every few seconds
events.jsonl    `JobEvent` lines appended by the worker
outputs/        `<kind>.jsonl` with `Envelope` lines for the store
resumed_from    id of the job that this one resumes, whose folder is beside this one
cancel          exists if cancellation was requested
exit.json       how the newest attempt ended
attempts.jsonl  ends of killed attempts (exits.py)
log, log.N      first and last bytes of the worker's output (LogRing in shim.py)
inputs/, checkpoints/   specific to the job kind
stages/         of a recipe or an evolution: `NN-LABEL/`, each with inputs/, checkpoints/, outputs/ and, when done, result.json
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from quintain.records.agent import Agent
from quintain.records.dataset import DatasetOutput
from quintain.records.evaluation import Comparison, Evaluation
from quintain.records.imports import FileStamp, RunLink, TakenOver
from quintain.records.jobs.job import Job, JobSpec
from quintain.records.labels.preference import Preference
from quintain.records.record import STORED, Instant, Record
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory

R = TypeVar("R", bound=Record)

SPEC: TypeAdapter[JobSpec] = TypeAdapter(JobSpec, config=ConfigDict(defer_build=True))

OUTPUTS: Mapping[str, type[Record]] = {
    "trajectory": Trajectory,
    "taken_over": TakenOver,
    "dataset": DatasetOutput,
    "agent": Agent,
    "evaluation": Evaluation,
    "comparison": Comparison,
    "link": RunLink,
    "stamp": FileStamp,
    "score": Score,
    "preference": Preference,
}
"""Files of `outputs/` in order of ingestion, because evaluations refer to earlier records -> their records."""

STAGES, STAGE_RESULT = "stages", "result.json"
"""Folder of a job's stages, and the file that marks a finished stage."""

CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes read from a file at once. A longer line is still read in full."""


class ShimRecord(Record):
    """`shim.json`."""

    attempt: int
    shim: int
    worker: int | None


class ExitRecord(Record):
    """`exit.json`: the end of an attempt, recorded by its shim."""

    attempt: int
    returncode: int | None
    signal: int | None
    cancelled: bool
    forced: bool
    peak_rss_mb: float
    memory_mb: float | None = Field(
        default=None, description="Memory that the worker could have: of its group or machine."
    )
    ended_at: Instant
    reason: str | None = Field(
        default=None,
        description="Limit that was exceeded, or out_of_memory where the kernel killed for lack of memory.",
    )
    detail: str = ""


class Lines(NamedTuple):
    """Complete lines of a file, and the offset after the last one."""

    lines: list[bytes]
    end: int


class OutputRecord(NamedTuple):
    """A record that a job has output."""

    offset: int
    """Of its line in the output file."""
    fields: dict[str, Any]


class JobDirectory:
    """Paths of one job."""

    def __init__(self, path: Path) -> None:
        """Name the paths; nothing is created yet."""
        self.path = path
        self.spec = path / "spec.json"
        self.lock = path / "lock"
        self.launch = path / "launch.json"
        self.events = path / "events.jsonl"
        self.outputs = path / "outputs"
        self.attempts = path / "attempts.jsonl"
        self.cancel = path / "cancel"
        self.checkpoints = path / "checkpoints"
        self.stages = path / STAGES
        self.resumed_from = path / "resumed_from"

    def prepare(self, job: Job) -> bool:
        """Create the directory unless it exists. A resumed job starts with copies of the earlier job's checkpoints.

        Return whether it was created.
        """
        if self.spec.exists():
            return False
        self.outputs.mkdir(mode=0o700, parents=True, exist_ok=True)
        if job.resumed_from:
            source = JobDirectory(self.path.parent / job.resumed_from)
            _copy_from(source.stages, self.stages)
            _copy_from(source.checkpoints, self.checkpoints)
            write_atomically(self.resumed_from, job.resumed_from.encode())
        self.checkpoints.mkdir(exist_ok=True)
        write_atomically(self.spec, SPEC.dump_json(job.spec))
        return True

    def read_spec(self) -> JobSpec:
        """Read the job spec."""
        return SPEC.validate_json(self.spec.read_bytes(), context=STORED)

    def sweep(self) -> None:
        """Remove temporary files of a killed writer in all folders. Requires the job's lock and dead processes."""
        for path in [*self.path.rglob(".*")]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def unlisted_s(self, token: str, *, is_unlisted: bool) -> float:
        """Return the seconds since which every look, of any process, has found a start unlisted, by the file system's clock."""
        seen = self.path / "unlisted"
        if not is_unlisted:
            seen.unlink(missing_ok=True)
            return 0.0
        if not seen.exists() or seen.read_text(encoding="ascii") != token:
            write_atomically(seen, token.encode())
        os.utime(self.lock)
        return self.lock.stat().st_mtime - seen.stat().st_mtime

    def request_cancel(self) -> None:
        """Request that the shim stops the worker. Repeated requests have no effect."""
        self.cancel.touch(mode=0o600)

    def shim(self) -> ShimRecord | None:
        """Return the attempt that began last, or None."""
        return _read(self.path / "shim.json", ShimRecord)

    def has_begun(self, attempt: int) -> bool:
        """Whether a shim began this attempt."""
        record = self.shim()
        return record is not None and record.attempt == attempt

    def exit(self, attempt: int) -> ExitRecord | None:
        """Return how this attempt ended, or None if its shim did not record it."""
        record = _read(self.path / "exit.json", ExitRecord)
        return record if record and record.attempt == attempt else None

    def heartbeat(self) -> bytes:
        """Return the newest heartbeat, which differs from all earlier ones; empty before the first."""
        try:
            return (self.path / "heartbeat").read_bytes()
        except FileNotFoundError:
            return b""

    def log_tail(self, lines: int, max_bytes: int = 262_144) -> str:
        """Return the last lines of the log, with a marker where bytes were dropped."""
        text, following = b"", None
        for start, path in sorted(self._log_segments(), reverse=True):
            content = _end_of(path, max_bytes)
            if following is not None and start + content.size < following:
                text = b"\n[... %d bytes of log dropped ...]\n" % (following - start - content.size) + text
            text, following = content.data + text, start
            if len(text) >= max_bytes:
                break
        return "\n".join(text.decode("utf-8", "replace").splitlines()[-lines:])

    def _log_segments(self) -> list[tuple[int, Path]]:
        segments = [(int(path.suffix[1:]), path) for path in self.path.glob("log.*") if path.suffix[1:].isdigit()]
        head = self.path / "log"
        return [(0, head), *segments] if head.exists() else segments


class _End(NamedTuple):
    data: bytes
    size: int


def _end_of(path: Path, max_bytes: int) -> _End:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            return _End(file.read(), size)
    except FileNotFoundError:  # removed by the ring in the meantime
        return _End(b"", 0)


def run_name(folder: Path) -> str:
    """Return the name of a run: the job id, followed by the stage within a recipe."""
    return f"{folder.parents[1].name}-{folder.name}" if folder.parent.name == STAGES else folder.name


def earlier_folders(folder: Path) -> Iterator[Path]:
    """Yield where the jobs that a job resumes have what this folder has, a job's or one of its stages', newest first."""
    job = _job_of(folder)
    place = folder.relative_to(job)
    earlier = _resumed_by(job)
    while earlier is not None:
        yield earlier / place
        earlier = _resumed_by(earlier)


def has_lost_job(folder: Path) -> bool:
    """Whether the job of this folder resumes one whose folder was deleted."""
    earlier = _resumed_by(_job_of(folder))
    return earlier is not None and not earlier.exists()


def _job_of(folder: Path) -> Path:
    return folder.parents[1] if folder.parent.name == STAGES else folder


def _resumed_by(job: Path) -> Path | None:
    record = JobDirectory(job).resumed_from
    return job.parent / record.read_text() if record.exists() else None


def _copy_from(source: Path, target: Path) -> None:
    """Start from the state of another job, without its growing files."""
    if target.exists() or not source.exists():
        return
    aside = target.with_name(f".{target.name}")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(source, aside, copy_function=link_file, ignore=_not_copied)
    aside.replace(target)


def _not_copied(folder: str, names: list[str]) -> set[str]:
    """Return the files that are not copied: half-written ones; of a stage outputs, re-created inputs and growing files."""
    half_written = {name for name in names if name.startswith(".")}
    if Path(folder).parent.name != STAGES:
        return half_written
    return half_written | {name for name in names if name in {"inputs", "outputs"} or name.endswith(".jsonl")}


def link_file(source: str, target: str) -> None:
    """Hard-link a file that never changes, such as of a checkpoint; copy it where links are not possible."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _read(path: Path, kind: type[R]) -> R | None:
    try:
        return kind.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically and durably: it appears complete or not at all, even after a power failure."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    _remove_abandoned(path)
    try:
        while True:
            with open(aside, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not os.fstat(file.fileno()).st_nlink:
                    continue  # another process took it for abandoned before it was locked
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                aside.replace(path)
                return
    except OSError:  # a partial file must not fill the disk
        aside.unlink(missing_ok=True)
        raise


def _remove_abandoned(path: Path) -> None:
    """Remove what killed writers of a file left half-written. Living ones hold a lock on theirs."""
    for other in path.parent.glob(f".{escape(path.name)}.*"):
        try:
            with other.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                other.unlink()
        except OSError:  # another writer is at work, or has just finished
            continue


def read_lines(path: Path, offset: int) -> Lines:
    """Read about `CHUNK_BYTES` of complete lines from `offset` on. An unterminated line is left for later."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(CHUNK_BYTES)
            while b"\n" not in data and (more := file.read(CHUNK_BYTES)):
                data += more
    except FileNotFoundError:
        return Lines([], offset)
    end = data.rfind(b"\n") + 1
    return Lines(data[:end].split(b"\n")[:-1], offset + end)


def iterate_lines(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file. A missing file is empty."""
    offset = 0
    while (read := read_lines(path, offset)).lines:
        yield from read.lines
        offset = read.end


def output_records(folder: Path, kind: str) -> Iterator[OutputRecord]:
    """Yield the records of a kind that a job or a stage has output so far, including earlier attempts."""
    offset = 0
    for line in iterate_lines(_output_file(folder, kind)):
        yield OutputRecord(offset, json.loads(line)["record"])
        offset += len(line) + 1


def output_records_at(folder: Path, kind: str, offsets: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Yield the records of a kind whose lines begin at these offsets, in this order."""
    with _output_file(folder, kind).open("rb") as lines:
        for offset in offsets:
            lines.seek(offset)
            yield json.loads(lines.readline())["record"]


def _output_file(folder: Path, kind: str) -> Path:
    return folder / "outputs" / f"{kind}.jsonl"


def open_appending(path: Path) -> int:
    """Open a line file for appending, after truncating an unterminated last line of a killed writer.

    The caller holds the job's lock, so there is no other writer.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    size = os.fstat(descriptor).st_size
    end = size
    while end > 0:
        start = max(0, end - CHUNK_BYTES)
        cut = os.pread(descriptor, end - start, start).rfind(b"\n")
        if cut >= 0:
            end = start + cut + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)
    return descriptor


def write_line(descriptor: int, line: str) -> None:
    """Write a whole line, in one write where the system takes it."""
    data = memoryview(line.encode() + b"\n")
    while data:
        data = data[os.write(descriptor, data) :]


def append_line(path: Path, line: str) -> None:
    """Append a line to a line file, as `open_appending`."""
    descriptor = open_appending(path)
    try:
        write_line(descriptor, line)
    finally:
        os.close(descriptor)
