"""Random faults for a long time against one server: what it gains in memory, files and processes."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress

import psutil

from benchmarks.faults.home import FaultHome, call, fault_home, record_by
from benchmarks.figures import report
from benchmarks.server import OURS, Client
from quintain.records.jobs.job import JobStatus, SelftestSpec

WARM_UP = 0.2
"""Share of the time after which the growth of the server is counted."""


def soak(seconds: int) -> None:
    """Start jobs, record runs and inject random faults for so long; then audit."""
    dice, faults, rows = random.Random(12), Counter[str](), []
    with fault_home() as home:
        server = home.server()
        process = psutil.Process(server.process.pid)
        begin, first = time.monotonic(), None
        number = 0
        while (passed := time.monotonic() - begin) < seconds:
            if first is None and passed > WARM_UP * seconds:
                first = process.memory_info().rss, process.num_fds()
            number += 1
            rows.append(_use(server, number))
            if len(home.store.jobs.unfinished()) < 4:
                spec = SelftestSpec(
                    steps=20, step_s=0.05, checkpoint_every_steps=3, log_bytes=dice.choice((0, 100_000))
                )
                home.runner.start(spec, request_key=f"soak {number}")
            fault = dice.choice(FAULTS)
            faults[fault.__name__.strip("_")] += fault(home, dice)
            home.look()
            time.sleep(dice.uniform(0, 0.3))
        home.finished()
        assert first is not None
        rss, files = process.memory_info().rss, process.num_fds()
        zombies = sum(child.status() == psutil.STATUS_ZOMBIE for child in process.children(recursive=True))
        stored = {run.id for run in home.store.trajectories.iterate()}
        lost, jobs = [row for row in rows if row not in stored], home.jobs()
        server.close()
        wrong = home.audit(None)
        wrong += [f"{job.id} ended as {job.status}: {job.error}" for job in jobs if job.status not in _RIGHT]
    report("soak", [seconds], "s", None, faults=dict(faults), jobs=len(jobs), rows=len(rows))
    report("soak_faults", [len(wrong)], "faults", 0, "lower", found=wrong[:5])
    report("soak_acknowledged_lost", [len(lost)], "rows", 0, "lower")
    report(
        "soak_memory_growth",
        [100 * (rss / first[0] - 1)],
        "%",
        5 if seconds >= 600 else None,
        "lower",
        mb=round(rss / 1e6),
    )
    report("soak_open_files_growth", [files - first[1]], "files", 2, "lower", open=files)
    report("soak_zombies", [zombies], "processes", 0, "lower")


_RIGHT = {JobStatus.SUCCEEDED, JobStatus.CANCELLED}


def _use(server: Client, number: int) -> str:
    """Record a run and read lists, as an assistant does."""
    run = record_by(server, f"soak-{number}")
    call(server, "list_jobs")
    return run


def _kill_worker(home: FaultHome, dice: random.Random) -> int:
    return _signal(home, dice, signal.SIGKILL, "worker")


def _kill_supervisor(home: FaultHome, dice: random.Random) -> int:
    return _signal(home, dice, signal.SIGKILL, "shim")


def _suspend_worker(home: FaultHome, dice: random.Random) -> int:
    return _signal(home, dice, signal.SIGSTOP, "worker", signal.SIGCONT)


def _signal(
    home: FaultHome, dice: random.Random, first: signal.Signals, which: str, then: signal.Signals | None = None
) -> int:
    running = home.store.jobs.running()
    job = dice.choice(running) if running else None
    record = home.directory(job.id).shim() if job else None
    victim = getattr(record, which) if record else None
    if job is None or record is None or victim is None or record.attempt != job.attempt:
        return 0
    with suppress(ProcessLookupError):
        os.kill(victim, first)
        if then is not None:
            time.sleep(0.3)
            os.kill(victim, then)
        return 1
    return 0


def _lock_database(home: FaultHome, dice: random.Random) -> int:
    with closing(sqlite3.connect(home.folder / "quintain.db", isolation_level=None, timeout=10)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(dice.uniform(0, 0.5))
    return 1


def _damage_checkpoint(home: FaultHome, dice: random.Random) -> int:
    saves = sorted(home.options.jobs_dir.glob("*/checkpoints/step-*.json"))
    with suppress(FileNotFoundError, IndexError):
        os.truncate(dice.choice(saves), 3)
        return 1
    return 0


def _cancel(home: FaultHome, dice: random.Random) -> int:
    unfinished = home.store.jobs.unfinished()
    if not unfinished or dice.random() < 0.7:
        return 0
    home.runner.cancel(dice.choice(unfinished).id)
    return 1


def _kill_other_server(home: FaultHome, dice: random.Random) -> int:
    if dice.random() < 0.7:
        return 0
    client = Client(OURS, home.folder)
    time.sleep(dice.uniform(0, 1.0))
    client.process.kill()
    client.process.communicate()
    return 1


FAULTS: tuple[Callable[[FaultHome, random.Random], int], ...] = (
    _kill_worker,
    _kill_supervisor,
    _suspend_worker,
    _lock_database,
    _damage_checkpoint,
    _cancel,
    _kill_other_server,
)
