"""A job's directory, the mailbox between the store's side and the worker: every path and every file format of it.

spec.json       what to do; written whole, never changed; stands last, so that it marks a complete directory
lock            held by shim and worker: while it is, the job lives
launch.json     what the shim needs for this attempt
shim.json       which attempt began, and its processes
events.jsonl    `JobEvent` lines that the worker appends
outputs/        `<kind>.jsonl` with `Envelope` lines for the store
cancel          exists when someone asked the job to stop
exit.json       how the newest attempt ended
log, log.N      the first and the last bytes of what the worker wrote (LogRing in shim.py)
inputs/, checkpoints/   of the job kind
stages/         of a recipe or an evolution: `NN-LABEL/`, each with inputs/, checkpoints/ and outputs/ of its own, and result.json when done
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from quintain.records.job import Job, JobSpec
from quintain.records.record import Instant, Record

R = TypeVar("R", bound=Record)

SPEC: TypeAdapter[JobSpec] = TypeAdapter(JobSpec)

OUTPUT_KINDS = ("trajectory", "dataset", "agent", "evaluation", "link", "stamp", "score", "preference")
"""Files of `outputs/`, in the order in which they are stored: an evaluation names what stands before it."""

STAGES, STAGE_RESULT = "stages", "result.json"
"""Folder of a job's stages, and the file that stands in a stage's folder when it is done."""

CHUNK_BYTES = 4 * 1024 * 1024
"""How much of a file is read at once; a longer line is still read whole."""


class ShimRecord(Record):
    """`shim.json`."""

    attempt: int
    shim: int
    worker: int | None


class ExitRecord(Record):
    """`exit.json`: how an attempt ended, as its shim saw it."""

    attempt: int
    returncode: int | None
    signal: int | None
    cancelled: bool
    forced: bool
    peak_rss_mb: float
    ended_at: Instant


class Lines(NamedTuple):
    """Whole lines of a file, and the offset behind the last of them."""

    lines: list[bytes]
    end: int


@dataclass(frozen=True)
class JobDirectory:
    """The paths of one job."""

    path: Path

    @property
    def spec(self) -> Path:
        """`spec.json`."""
        return self.path / "spec.json"

    @property
    def lock(self) -> Path:
        """`lock`."""
        return self.path / "lock"

    @property
    def launch(self) -> Path:
        """`launch.json`."""
        return self.path / "launch.json"

    @property
    def events(self) -> Path:
        """`events.jsonl`."""
        return self.path / "events.jsonl"

    @property
    def outputs(self) -> Path:
        """`outputs/`."""
        return self.path / "outputs"

    @property
    def cancel(self) -> Path:
        """`cancel`."""
        return self.path / "cancel"

    @property
    def checkpoints(self) -> Path:
        """`checkpoints/`."""
        return self.path / "checkpoints"

    @property
    def stages(self) -> Path:
        """`stages/`."""
        return self.path / STAGES

    def prepare(self, job: Job) -> None:
        """Make the directory from the job's row, unless it stands; a resumed job begins with the old one's checkpoints."""
        if self.spec.exists():
            return
        self.outputs.mkdir(mode=0o700, parents=True, exist_ok=True)
        if job.resumed_from:
            source = JobDirectory(self.path.parent / job.resumed_from)
            _take_over(source.stages, self.stages)
            _take_over(source.checkpoints, self.checkpoints)
        self.checkpoints.mkdir(exist_ok=True)
        write_whole(self.spec, SPEC.dump_json(job.spec))

    def read_spec(self) -> JobSpec:
        """What to do."""
        return SPEC.validate_json(self.spec.read_bytes())

    def sweep(self) -> None:
        """Remove what a killed writer left half written; the caller holds the job's lock and its processes are dead."""
        for path in self.path.glob(".*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def request_cancel(self) -> None:
        """Ask the shim to stop the worker; asking twice changes nothing."""
        self.cancel.touch(mode=0o600)

    def shim(self) -> ShimRecord | None:
        """The attempt that began last and its processes; None where none did."""
        return _read(self.path / "shim.json", ShimRecord)

    def has_begun(self, attempt: int) -> bool:
        """Did a shim come to work on this attempt?"""
        record = self.shim()
        return record is not None and record.attempt == attempt

    def exit(self, attempt: int) -> ExitRecord | None:
        """How this attempt ended; None where its shim could not say."""
        record = _read(self.path / "exit.json", ExitRecord)
        return record if record and record.attempt == attempt else None

    def log_tail(self, lines: int, max_bytes: int = 262_144) -> str:
        """The last lines of the log, with a line of ours where bytes were dropped."""
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
    except FileNotFoundError:  # the ring moved on
        return _End(b"", 0)


def run_name(folder: Path) -> str:
    """What a run calls itself: the id of its job, in a recipe followed by the stage."""
    return f"{folder.parents[1].name}-{folder.name}" if folder.parent.name == STAGES else folder.name


def _take_over(source: Path, target: Path) -> None:
    """Begin with what another job has done; what files of it are appended to stay its own."""
    if target.exists() or not source.exists():
        return
    aside = target.with_name(f".{target.name}")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(source, aside, copy_function=_link, ignore=_not_taken_over)
    aside.replace(target)


def _not_taken_over(folder: str, names: list[str]) -> set[str]:
    """Of a stage: what is handed over to the store, what is linked in anew, and files that grow."""
    if Path(folder).parent.name != STAGES:
        return set()
    return {name for name in names if name in {"inputs", "outputs"} or name.endswith(".jsonl")}


def _link(source: str, target: str) -> None:
    """Checkpoints are written whole and never changed, so two jobs can share one file."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _read(path: Path, kind: type[R]) -> R | None:
    try:
        return kind.model_validate_json(path.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it appears whole or not at all, also after a power cut."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(aside, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def read_lines(path: Path, offset: int) -> Lines:
    """The whole lines from `offset` on, about `CHUNK_BYTES` of them; a line without its end is not there yet."""
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


def open_appending(path: Path) -> int:
    """Open a line file to append, first cutting off a last line that a killed writer left torn.

    The caller holds the job's lock: no other writer exists.
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
