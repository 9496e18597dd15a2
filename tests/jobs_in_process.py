"""Jobs without a process of their own, in that of the test: by the real start, directory, worker and ingestion, or never begun."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio.from_thread
import pytest

from quintain.jobs import processes, runner
from quintain.jobs.directory import ExitRecord, JobDirectory, ShimRecord
from quintain.jobs.launch import Launch
from quintain.trainers.models.gguf_copies import keep_copies
from quintain.worker import __main__ as worker


@contextmanager
def in_process() -> Iterator[None]:
    """Run each job to its end where it starts, for tests of what a job brings and not of its process.

    It runs in the main thread, because the worker handles signals: a tool call that a server in this process runs in
    another thread hands it to the event loop, which must be in the main thread.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "start_detached", _run_in_main_thread)
        yield


@pytest.fixture
def jobs_in_process() -> Iterator[None]:
    """`in_process`, for one test."""
    with in_process():
        yield


@contextmanager
def starts_held(jobs_dir: Path) -> Iterator[None]:
    """Let jobs be stored and none begin: the lock of those who start jobs is held, and no start of this process waits for it."""
    lock = processes.try_lock(jobs_dir / "reconcile.lock")
    assert lock is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "START_WAIT_S", 0.0)
        try:
            yield
        finally:
            processes.unlock(lock)


def _run_in_main_thread(argv: Sequence[str], lock: int, env: Mapping[str, str]) -> None:
    if threading.current_thread() is threading.main_thread():
        _run_attempt(argv)
    else:
        anyio.from_thread.run_sync(_run_attempt, argv)


def _run_attempt(argv: Sequence[str]) -> None:
    """Run one attempt as the shim does: its record, the worker, the record of the exit."""
    directory = JobDirectory(Path(argv[-1]))
    attempt = Launch.model_validate_json(directory.launch.read_bytes()).attempt
    record = ShimRecord(attempt=attempt, shim=os.getpid(), worker=os.getpid())
    (directory.path / "shim.json").write_text(record.model_dump_json(), encoding="utf-8")
    before = signal.getsignal(signal.SIGTERM)
    try:
        code = worker.main([str(directory.path), str(attempt)])
    finally:
        signal.signal(signal.SIGTERM, before)
        keep_copies(None)
    ended = ExitRecord(
        attempt=attempt,
        returncode=code,
        signal=None,
        cancelled=False,
        forced=False,
        peak_rss_mb=0,
        ended_at=datetime.now(UTC),
    )
    (directory.path / "exit.json").write_text(ended.model_dump_json(), encoding="utf-8")
