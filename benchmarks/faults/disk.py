"""A full disk, and a home that becomes read-only, on a new tmpfs: `python -m benchmarks.faults.disk MOUNT COUNT` fills it.

The trial runs in a namespace with `unshare -rm`; where that is refused, it reports so.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.faults.home import FaultHome, call, fault_home, record_by
from benchmarks.figures import not_run, report, reported, say
from benchmarks.server import Client
from quintain.errors import QuintainError
from quintain.records.jobs.job import UNFINISHED, JobStatus, SelftestSpec
from quintain.store.database.backup import back_up

SIZE_MB = 64
NAMESPACE = ["unshare", "-rm"]


class Disk:
    """A small disk with a home, and what was acknowledged on it."""

    def __init__(self, home: FaultHome, mount: Path, client: Client) -> None:
        self.home, self.mount, self.client = home, mount, client
        self.rows: list[str] = []
        self.wrong: list[str] = []
        self.dice = random.Random(11)
        self._ballast = mount / "ballast"

    def fill(self, left: int | None = None) -> None:
        """Fill the disk up to some bytes; None: a random amount below 100 kB."""
        left = self.dice.randrange(100_000) if left is None else left
        with self._ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
        with self._ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        os.truncate(self._ballast, max(0, self._ballast.stat().st_size - left))

    def free(self) -> None:
        """Delete the ballast."""
        self._ballast.unlink(missing_ok=True)

    def record(self, name: str, size: int = 20_000) -> None:
        """Record a run of some bytes through the server."""
        self.rows.append(record_by(self.client, name + "x" * size, name))

    def require_reads(self, when: str) -> None:
        """Note a fault if the server does not answer reads."""
        for tool in ("search_trajectories", "list_jobs"):
            try:
                call(self.client, tool)
            except (RuntimeError, OSError, ValueError) as error:
                self.wrong.append(f"{when}: {tool} failed: {error}")

    def refused(self, what: str, write: Callable[[], object], attempts: int = 200) -> None:
        """Write until the full disk refuses it, and note an answer without a code and remedy; then free the disk and write."""
        for _ in range(attempts):
            try:
                write()
            except (RuntimeError, QuintainError) as error:
                text = str(error)
                if not text.startswith("[") or "disk" not in text.lower():
                    self.wrong.append(f"{what}: {text[:200]}")
                break
            except Exception as error:
                self.wrong.append(f"{what}: {type(error).__name__}: {error}")
                break
        else:
            self.wrong.append(f"{what}: {attempts} writes on a full disk were not refused")
        self.require_reads(what)
        self.free()
        try:
            write()
        except (RuntimeError, QuintainError) as error:
            self.wrong.append(f"{what} with space again: {error}")


def disk_full(count: int) -> None:
    """Fill the disk at each kind of write, so many times each: plain refusals, reads, nothing lost, and all goes on with space."""
    _in_namespace("full", count)


def disk_full_at_checkpoint(count: int) -> None:
    """Fill the disk while the shipped worker trains a model, so many times."""
    _in_namespace("checkpoint", count)


def read_only(count: int) -> None:
    """Make the disk of a home read-only under its server, and writable again."""
    _in_namespace("read_only", count)


def _in_namespace(trial: str, count: int) -> None:
    probe = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True)
    if probe.returncode:
        not_run(f"faults_on_disks_{trial}", "faults", 0, "lower", probe.stderr.strip()[:200])
        return
    with TemporaryDirectory() as mount:
        script = (
            f'mount -t tmpfs -o size={SIZE_MB}m tmpfs "$1" && exec "$2" -m benchmarks.faults.disk "$1" {trial} {count}'
        )
        argv = [*NAMESPACE, "sh", "-c", script, "sh", mount, sys.executable]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                print(line, end="", flush=True)
                reported.append(json.loads(line))
        if child.returncode:
            raise RuntimeError(f"the trial on a small disk ended with exit code {child.returncode}")


def _full(mount: Path, count: int, trial: str) -> None:
    kinds, name = ([_checkpoint], "disks_full_at_a_checkpoint") if trial == "checkpoint" else (KINDS, "full_disks")
    rows, lost, wrong = 0, 0, list[str]()
    for number in range(count):
        with fault_home(mount) as home:  # the disk is too small for the homes of two rounds
            disk = Disk(home, mount, home.server())
            for kind in kinds:
                begin = time.monotonic()
                kind(disk, number)
                say(f"  {kind.__name__} {number}: {time.monotonic() - begin:.1f} s, faults {disk.wrong}")
                disk.free()
            stored = {run.id for run in home.store.trajectories.iterate()}
            rows, lost = rows + len(disk.rows), lost + sum(row not in stored for row in disk.rows)
            home.finished()
            disk.require_reads("at the end")
            disk.client.close()
            wrong += disk.wrong + home.audit(None)
    report(name, [count * len(kinds)], "trials", None)
    report(f"acknowledged_lost_on_{name}", [lost], "rows", 0, "lower", acknowledged=rows)
    report(f"faults_on_{name}", [len(wrong)], "faults", 0, "lower", found=wrong[:5])


def _records(disk: Disk, number: int) -> None:
    disk.fill()
    names = iter(range(10_000))
    disk.refused("record", lambda: disk.record(f"run {number} {next(names)}"))


def _import(disk: Disk, number: int) -> None:
    inbox = disk.home.folder / "inbox"
    inbox.mkdir(exist_ok=True)
    messages = [{"role": "user", "content": "y" * 100_000}, {"role": "assistant", "content": "yes"}]
    lines = [
        json.dumps({"messages": [{**messages[0], "content": f"{number} {n}" + "y" * 100_000}, messages[1]]})
        for n in range(30)
    ]
    (inbox / f"log-{number}.jsonl").write_text("\n".join(lines))
    disk.fill()
    disk.refused("import", lambda: call(disk.client, "import_trajectories", path=f"log-{number}.jsonl"), 1)


def _export(disk: Disk, number: int) -> None:
    for n in range(4):
        disk.record(f"exported {number} {n}", 100_000)
    disk.fill()
    names = iter(range(10_000))

    def export() -> None:
        _export_rows(disk, f"d{number}-{next(names)}", disk.rows[-4:])

    disk.refused("export", export)


def _export_rows(disk: Disk, name: str, ids: list[str]) -> dict[str, Any]:
    outcomes = ["success", "failure", "truncated", "unknown"]
    return call(disk.client, "export_dataset", kind="sft", name=name, trajectory_ids=ids, outcomes=outcomes)


def _backup(disk: Disk, number: int) -> None:
    names = iter(range(10_000))
    disk.fill()
    disk.refused(
        "backup",
        lambda: back_up(
            disk.home.folder, disk.mount / f"backup-{number}-{next(names)}.tar", version="0", now=datetime.now(UTC)
        ),
    )
    for left in disk.mount.glob("backup-*"):
        left.unlink()
    disk.wrong += [f"backup left {left.name}" for left in disk.mount.glob(".*")]


def _job_start(disk: Disk, number: int) -> None:
    disk.fill(0)
    key, spec = f"started {number}", SelftestSpec(steps=3)
    with suppress(QuintainError):
        disk.home.runner.start(spec, request_key=key)
    disk.require_reads("job start")
    disk.free()
    started = disk.home.runner.start(spec, request_key=key).job
    _require_success(disk, started.id, "job start")


def _job_events(disk: Disk, number: int) -> None:
    """Fill the disk while a job steps: its trouble is reported, or its error, until there is space again."""
    job = disk.home.runner.start(
        SelftestSpec(steps=60, step_s=0.05, checkpoint_every_steps=5), request_key=f"e{number}"
    ).job
    disk.home.until_step(2, job.id)
    disk.fill(0)

    def explained() -> object:
        now = disk.home.store.jobs.get(job.id)
        return disk.home.runner.trouble(job.id) or now.error or now.status not in UNFINISHED

    if not disk.home.until(explained, 30):
        disk.wrong.append("events: a full disk was not reported")
    disk.require_reads("events")
    disk.free()
    _require_success(disk, job.id, "events")


def _require_success(disk: Disk, job_id: str, what: str) -> None:
    """Resume a job as its error asks for, and wait for its success."""
    disk.home.until(lambda: disk.home.store.jobs.get(job_id).status not in UNFINISHED - {JobStatus.INTERRUPTED})
    job = disk.home.store.jobs.get(job_id)
    if job.status in {JobStatus.INTERRUPTED, JobStatus.FAILED}:
        if job.error is None or "disk" not in f"{job.error.message} {job.error.hint}":
            disk.wrong.append(f"{what}: the error does not name the disk: {job.error}")
        job = disk.home.runner.resume(job_id)
    disk.home.until(lambda: disk.home.store.jobs.get(job.id).status not in UNFINISHED - {JobStatus.INTERRUPTED})
    job = disk.home.store.jobs.get(job.id)
    if job.status is not JobStatus.SUCCEEDED:
        disk.wrong.append(f"{what}: resumed with space, it ended as {job.status}: {job.error}")


def _checkpoint(disk: Disk, number: int) -> None:
    """Fill the disk while a model is trained by the shipped worker: the checkpoint is refused, and the job goes on from the last."""
    disk.record(f"trained {number}", 10)
    data = _export_rows(disk, f"t{number}", disk.rows[-1:])
    settings = {"max_steps": 12, "checkpoint_every_steps": 1, "keep_checkpoints": 1, "epochs": 100}
    started = call(
        disk.client,
        "start_training",
        method="sft",
        model="starter",
        dataset_id=data["dataset_id"],
        name=f"pupil{number}",
        hyperparameters=settings,
    )
    job_id, saves = started["job_id"], disk.home.directory(started["job_id"]).checkpoints
    disk.home.until(lambda: any(saves.glob("step-*")) or disk.home.store.jobs.get(job_id).status not in UNFINISHED)
    disk.fill(0)
    disk.home.until(
        lambda: disk.home.store.jobs.get(job_id).status not in UNFINISHED or disk.home.runner.trouble(job_id)
    )
    disk.require_reads("checkpoint")
    disk.free()
    _require_success(disk, job_id, "checkpoint")


KINDS = (_records, _import, _export, _backup, _job_start, _job_events)


def _read_only(mount: Path, count: int) -> None:
    """A disk that files are written on cannot become read-only, so the server starts on one that is."""
    with fault_home(mount) as home:
        disk = Disk(home, mount, home.server())
        for number in range(count):
            disk.record(f"before {number}", 10)
            disk.client.close()
            home.store.close()
            subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
            disk.client = home.server()
            try:
                disk.record(f"refused {number}", 10)
                disk.wrong.append("a write was acknowledged on a read-only disk")
            except RuntimeError as error:
                disk.wrong += [] if str(error).startswith("[database_") else [str(error)]
            disk.require_reads("read-only")
            subprocess.run(["mount", "-o", "remount,rw", str(mount)], check=True)
            disk.record(f"after {number}", 10)
        stored = {run.id for run in home.store.trajectories.iterate()}
        lost = [row for row in disk.rows if row not in stored]
        disk.client.close()
        wrong = disk.wrong + home.audit()
    report("read_only_disks", [count], "trials", None)
    report("faults_on_read_only_disks", [len(wrong) + len(lost)], "faults", 0, "lower", found=wrong[:5])


if __name__ == "__main__":
    folder, trial, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if trial == "read_only":
        _read_only(folder, times)
    else:
        _full(folder, times, trial)
