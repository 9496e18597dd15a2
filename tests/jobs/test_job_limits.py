"""Limits of an attempt, deaths by the worker's own fault, and a store that cannot be written."""

from __future__ import annotations

import errno
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from full_disk import full_disk
from jobs.conftest import now
from quintain.jobs import processes
from quintain.jobs.directory import write_atomically
from quintain.jobs.exits import AttemptEnd, is_spared, pause_left_s
from quintain.jobs.launch import JobLimits
from quintain.jobs.shim import Limits
from quintain.records.jobs.job import JobStatus, SelftestSpec

if TYPE_CHECKING:
    from jobs.conftest import JobHome

SLOW = SelftestSpec(steps=3, step_s=60)


def test_a_suspended_worker_is_ended_after_the_silence_allowed_and_the_job_goes_on(jobs: JobHome) -> None:
    runner = jobs.runner_with(limits=JobLimits(stall_s=8), grace_s=0.5)
    job = runner.start(SelftestSpec(steps=20, step_s=0.05)).job
    os.kill(jobs.wait_for_step(job.id, 3, attempt=None), signal.SIGSTOP)  # the first may start too slowly beside others
    attempt = jobs.directory(job.id).shim().attempt
    done = jobs.wait(job.id, JobStatus.SUCCEEDED)
    assert (done.attempt, len(done.warnings)) == (attempt + 1, attempt)
    assert "no report for" in done.warnings[-1]
    assert "the limit is 8" in done.warnings[-1]
    steps = [event.step for event in jobs.store.jobs.events(job.id, type="progress")]
    assert steps == list(range(1, 21)), "one row a step, although the second attempt repeats what was not saved"


def test_a_job_over_its_time_memory_or_disk_ends_with_the_limit_and_the_remedy(jobs: JobHome) -> None:
    timed = jobs.runner_with(limits=JobLimits(max_s=0.2)).start(SLOW, request_key="time").job
    large = jobs.runner_with(limits=JobLimits(memory_mb=1)).start(SLOW, request_key="memory").job
    ended = jobs.wait(timed.id, JobStatus.INTERRUPTED)
    assert ended.error.code == "time_limit"
    assert "QUINTAIN_MAX_MINUTES" in ended.error.hint
    failed = jobs.wait(large.id, JobStatus.FAILED)
    assert failed.error.code == "memory_limit"
    assert "MiB of memory, the limit is 1" in failed.error.message
    full = jobs.runner_with(limits=JobLimits(disk_mb=1e-6)).start(SLOW, request_key="disk").job
    ended = jobs.wait(full.id, JobStatus.INTERRUPTED)
    assert ended.error.code == "disk_limit"
    assert "its folder has" in ended.error.message
    assert "QUINTAIN_JOB_DISK_MB" in ended.error.hint


def test_a_job_may_not_take_all_memory_of_its_machine_where_no_limit_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without memory hardly went on for half an hour, and its kernel killed nothing."""
    (tmp_path / "events.jsonl").touch()
    assert Limits(str(tmp_path), {"memory_mb": None}).exceeded(os.getpid()) is None
    monkeypatch.setattr("quintain.jobs.shim.MEMORY_SHARE", 1e-6)
    ended = Limits(str(tmp_path), {"memory_mb": None}).exceeded(os.getpid())
    assert ended is not None
    assert ended["reason"] == "memory_limit"
    assert Limits(str(tmp_path), {"memory_mb": 1e9}).exceeded(os.getpid()) is None, "a limit that is set holds"


def test_two_deaths_by_its_own_fault_at_one_step_fail_a_job_as_a_crash_loop(jobs: JobHome) -> None:
    job = jobs.runner.start(SLOW).job
    for attempt in (1, 2):

        def steps(number: int = attempt) -> bool:
            jobs.runner.reconcile()
            found = jobs.store.jobs.get(job.id)
            return found.attempt == number and found.phase == "stepping" and jobs.directory(job.id).has_begun(number)

        jobs.until(steps, f"attempt {attempt} steps")
        jobs.until(lambda: jobs.directory(job.id).shim().worker is not None, "the worker is known")
        os.kill(jobs.directory(job.id).shim().worker, signal.SIGSEGV)
    failed = jobs.wait(job.id, JobStatus.FAILED)
    assert failed.error.code == "crash_loop"
    assert "SIGSEGV" in failed.error.message


def test_what_a_full_disk_keeps_from_being_stored_is_reported_until_it_has_space(
    jobs: JobHome, caplog: pytest.LogCaptureFixture
) -> None:
    if jobs.store.engine.dialect.name != "sqlite":
        pytest.skip("the database's files are those of another process")
    job = jobs.runner.start(SLOW).job
    jobs.until(lambda: jobs.directory(job.id).shim() and jobs.directory(job.id).shim().worker, "the worker is known")
    with full_disk():
        os.kill(jobs.shim(job.id), signal.SIGKILL)
        for _ in range(5):
            jobs.until(lambda: (jobs.runner.reconcile(), jobs.runner.trouble(job.id))[1], "trouble is noted")
        assert "the database rejected a request" in jobs.runner.trouble(job.id)
        assert jobs.store.jobs.get(job.id).status is JobStatus.RUNNING
        assert len([entry for entry in caplog.records if job.id in entry.getMessage()]) == 1, "logged once"
    jobs.until(lambda: (jobs.runner.reconcile(), jobs.store.jobs.get(job.id).attempt == 2)[1], "it goes on")
    assert jobs.runner.trouble(job.id) is None
    jobs.runner.cancel(job.id)
    jobs.wait(job.id, JobStatus.CANCELLED)


def test_a_job_that_a_full_disk_keeps_from_starting_or_ending_waits_for_room(
    jobs: JobHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def trouble() -> str | None:
        jobs.runner.reconcile()
        return jobs.runner.trouble(job.id)

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", refuse)
        job = jobs.runner.start(SLOW).job
        assert (job.status, job.attempt) == (JobStatus.QUEUED, 0)
        assert "free disk space" in trouble()
    jobs.runner = jobs.runner_with()  # one that does not pause after a refusal
    jobs.until(lambda: (trouble(), jobs.directory(job.id).shim())[1], "it has begun")
    with monkeypatch.context() as full:
        full.setattr(os, "write", refuse)
        os.kill(jobs.shim(job.id), signal.SIGKILL)
        jobs.until(trouble, "its end cannot be recorded")
        assert "free disk space" in trouble()
        assert jobs.store.jobs.get(job.id).status is JobStatus.RUNNING
    jobs.until(lambda: trouble() is None and jobs.store.jobs.get(job.id).attempt == 2, "it goes on")
    jobs.runner.cancel(job.id)
    jobs.wait(job.id, JobStatus.CANCELLED)


def test_slots_hold_against_a_start_that_another_process_has_not_seen(jobs: JobHome) -> None:
    """The guard is in the transaction that starts a job, not only in the look before it."""
    waiting = jobs.runner_with(slots=0, light_kinds=frozenset())
    first, second = (waiting.start(SLOW, request_key=key).job for key in ("first", "second"))
    assert jobs.store.jobs.begin_attempt(first.id, 0, 1, now())
    starter = jobs.runner_with(light_kinds=frozenset())._reconciler._starter
    lock = processes.try_lock(jobs.directory(second.id).lock)
    assert not starter.start(second, lock, 1, ())
    assert jobs.store.jobs.get(second.id).status is JobStatus.QUEUED
    jobs.store.jobs.finish(first.id, 1, JobStatus.FAILED, now())
    jobs.runner.cancel(second.id)


def test_a_pause_doubles_with_attempts_in_vain_and_a_clock_that_jumps_never_lengthens_it() -> None:
    begin = datetime(2026, 1, 2, tzinfo=UTC)
    same, further = (
        AttemptEnd(attempt=1, step=step, reason="killed", message="", own_fault=False, at=begin) for step in (4, 5)
    )
    at = [begin + timedelta(seconds=offset) for offset in (0, 0.25, 5, -86400)]
    assert [pause_left_s([same], now) for now in at] == [0, 0, 0, 0]
    assert [pause_left_s([same, further], now) for now in at] == [0, 0, 0, 0]
    assert [pause_left_s([same, same], now) for now in at] == [1, 0.75, 0, 0]
    assert [pause_left_s([same, further, further, further, further], now) for now in at] == [4, 3.75, 0, 0]
    assert pause_left_s([same] * 40, begin) == 60


def test_only_an_attempt_that_was_asked_to_stop_after_a_new_step_is_spared() -> None:
    begin = datetime(2026, 1, 2, tzinfo=UTC)
    killed, stopped, further = (
        AttemptEnd(attempt=1, step=step, reason=reason, message="", own_fault=False, at=begin)
        for reason, step in (("killed", 4), ("stopped", 4), ("stopped", 5))
    )
    assert [is_spared(known) for known in ([stopped], [killed, further], [stopped, further])] == [True] * 3
    assert [is_spared(known) for known in ([], [killed], [killed, stopped], [stopped, stopped])] == [False] * 4
    assert not is_spared([stopped.model_copy(update={"step": 0})])


def test_the_next_writer_of_a_file_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    abandoned = tmp_path / ".machine.json.99999"
    abandoned.write_bytes(b'{"half')
    write_atomically(path, b"{}")
    assert [file.name for file in tmp_path.iterdir()] == ["machine.json"]
    assert path.read_bytes() == b"{}"
