"""Faults of the machine: memory that runs out, clocks that jump, and sleep, after which every clock has moved on."""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import psutil

from benchmarks.faults.home import FaultHome, call, environment, fault_home
from benchmarks.figures import not_run, report, say
from quintain.jobs.runner import JobRunner
from quintain.records.jobs.job import Job, JobStatus, SelftestSpec

MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
"""Control groups of memory (version 1)."""

LIMIT_MB = 60
"""Memory that a worker may use beyond what it has when the trial begins."""

FAKETIME = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1")
SLEEP_S = 8 * 3600

ABSENT = {
    "faults_after_power_loss": "needs a machine whose power can be cut while it writes",
    "faults_after_loss_of_a_slurm_node": "needs a Slurm cluster; its launcher is tested with commands that stand in for it",
    "faults_after_loss_of_a_machine": "needs several machines; network namespaces of one stand in for them",
    "faults_after_gpu_memory_was_used_up": "needs a GPU",
    "faults_on_macos": "needs a machine with macOS",
    "faults_on_windows": "needs a machine with Windows",
}
"""Goal that has no trial here -> what it needs."""


def out_of_memory(count: int) -> None:
    """Let workers use more memory than they get: the kernel kills some, the others get an error; each job then ends right."""
    wrong, killed = [], 0
    with fault_home() as home:
        for trial in range(count):
            spec = SelftestSpec(steps=20, step_s=0.3, checkpoint_every_steps=1, memory_mb=6 * LIMIT_MB)
            job = home.runner.start(spec, request_key=f"m{trial}").job
            home.until_step(2, job.id)
            record = home.directory(job.id).shim()
            assert record is not None
            worker = record.worker
            assert worker is not None
            with _memory_group(f"quintain-{os.getpid()}-{trial}") as group:
                if group is not None and trial % 2 == 0:
                    if _kill_by_kernel(group, (worker, record.shim)):
                        killed += 1
                        wrong += _after_a_kill(home, job.id)
                else:
                    most = psutil.Process(worker).memory_info().vms + LIMIT_MB * 2**20
                    resource.prlimit(worker, resource.RLIMIT_AS, (most, most))
                    wrong += _after_an_error(home, job.id)
        wrong += home.audit(None)
    report("memory_used_up", [count], "workers", None, killed_by_the_kernel=killed)
    report("faults_after_memory_was_used_up", [len(wrong)], "faults", 0, "lower", found=wrong[:5])


@contextmanager
def _memory_group(name: str) -> Iterator[Path | None]:
    """Yield a control group with little memory; None where this user may not make one."""
    group = MEMORY_GROUPS / name
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT_MB * 2**20))
    except OSError as error:
        say(f"  no control group ({error.strerror}): a limit of the address space instead")
        yield None
        return
    try:
        yield group
    finally:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.05)


def _kill_by_kernel(group: Path, processes: Sequence[int]) -> bool:
    """Move processes into a group, and lift its limit when the kernel has killed one. Return False if the first ended by itself."""
    for process in processes:
        (group / "cgroup.procs").write_text(str(process))
    while not (is_killed := "oom_kill 0" not in (group / "memory.oom_control").read_text()):
        if not psutil.pid_exists(processes[0]):
            break
        time.sleep(0.005)
    (group / "memory.limit_in_bytes").write_text("-1")
    return is_killed


def _after_a_kill(home: FaultHome, job_id: str) -> list[str]:
    """The next attempt goes on from the checkpoint, and a warning names the cause, which the kernel has counted."""
    home.finished()
    job = home.store.jobs.get(job_id)
    right = (
        job.status is JobStatus.SUCCEEDED and job.attempt >= 2 and any("out of memory" in text for text in job.warnings)
    )
    return [] if right else [f"after a kill: {_described(job)}, {job.warnings}"]


def _after_an_error(home: FaultHome, job_id: str) -> list[str]:
    """The job fails with the code of memory, and goes on with enough of it."""
    home.finished()
    failed = home.store.jobs.get(job_id)
    right = failed.status is JobStatus.FAILED and failed.error is not None and failed.error.code == "out_of_memory"
    resumed = home.runner.resume(job_id)
    home.finished()
    resumed = home.store.jobs.get(resumed.id)
    wrong = [] if right else [f"after an error: {_described(failed)}"]
    return wrong + ([] if resumed.status is JobStatus.SUCCEEDED else [f"resumed: {_described(resumed)}"])


def _described(job: Job) -> str:
    return f"{job.id} is {job.status} in attempt {job.attempt}: {job.error}"


def machine_sleep(count: int) -> None:
    """Stop every process of a home at once, move the clock on by hours, and let all go on: no attempt may be lost."""
    dice, wrong, library = random.Random(7), [], _faketime()
    with fault_home() as home, _fake_clock(home.folder.parent / "clock", library) as move_clock:
        server = home.server()
        for trial in range(count):
            spec = SelftestSpec(steps=30, step_s=0.1, checkpoint_every_steps=3)
            ids = [home.runner.start(spec, request_key=f"z{trial}-{number}").job.id for number in range(2)]
            home.until_step(2, *ids)
            asleep = [*home.processes(), psutil.Process(server.process.pid)]
            for process in dice.sample(asleep, len(asleep)):
                process.suspend()
            time.sleep(dice.uniform(0.2, 2.0))
            move_clock((trial + 1) * SLEEP_S)
            for process in dice.sample(asleep, len(asleep)):
                process.resume()
            call(server, "list_jobs")
            home.finished()
            jobs = home.store.jobs.get_many(ids)
            wrong += [_described(job) for job in jobs if (job.status, job.attempt) != (JobStatus.SUCCEEDED, 1)]
        server.close()
        wrong += home.audit()
    report("sleeps_of_the_machine", [count], "sleeps", None, clock=_word(library))
    report("faults_after_sleep", [len(wrong)], "faults", 0, "lower", found=wrong[:5])


def clock_jumps(count: int) -> None:
    """Let the clock of a job be a year behind from its start, or jump ahead by one, and that of another server the other way."""
    wrong, library = [], _faketime()
    with fault_home() as home:
        for trial in range(count):
            shift = timedelta(days=365 if trial % 2 else -365)
            with _fake_clock(home.folder.parent / f"clock-{trial}", library) as move_clock:
                if (
                    shift < timedelta()
                ):  # not back while it runs: libfaketime moves the monotonic clock too, which never goes back
                    move_clock(round(shift.total_seconds()))
                job = home.runner.start(SelftestSpec(steps=30, step_s=0.1), request_key=f"j{trial}").job
                home.until_step(2, job.id)
                move_clock(round(shift.total_seconds()))
                other = JobRunner(home.store, home.options, partial(_shifted, -shift))
                end = time.monotonic() + 1.5
                while time.monotonic() < end:
                    other.reconcile()
                    home.look()
                    time.sleep(0.02)
                home.finished()
            if home.store.jobs.get(job.id).attempt != 1:
                wrong.append(f"{job.id} was taken for dead")
        wrong += home.audit()
    report("clock_jumps_of_a_year", [count], "jumps", None, clock=_word(library))
    report("faults_after_clock_jumps", [len(wrong)], "faults", 0, "lower", found=wrong[:5])


def _shifted(by: timedelta) -> datetime:
    return datetime.now(UTC) + by


def _faketime() -> Path | None:
    """Return the library that moves clocks of processes, or None where it is not installed."""
    return next((path for pattern in FAKETIME for path in Path("/").glob(pattern.lstrip("/"))), None)


def _word(library: Path | None) -> str:
    return "moved" if library else "not moved: no libfaketime"


@contextmanager
def _fake_clock(file: Path, library: Path | None) -> Iterator[Callable[[int], None]]:
    """Give processes that start meanwhile clocks that can be moved, the monotonic one too; this process keeps the real ones."""

    def move(seconds: int) -> None:
        aside = file.with_suffix(".new")
        aside.write_text(f"{seconds:+d}s\n", encoding="ascii")
        aside.replace(file)

    move(0)
    own = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
    }
    with environment(**own if library else {}):
        yield move


def absent_machines(count: int) -> None:
    """List the goals that need machines which the suite does not have."""
    for name, reason in list(ABSENT.items())[:count]:
        not_run(name, "faults", 0, "lower", reason)
