"""Jobs whose processes are killed at any moment: nothing acknowledged is lost, nothing runs twice."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from quintain.jobs import exits, processes
from quintain.jobs.directory import append_line
from quintain.records.jobs.job import JobStatus, SelftestSpec
from quintain.records.jobs.job_events import JobEvent

if TYPE_CHECKING:
    from pathlib import Path

    from jobs.conftest import JobHome

SPEC = SelftestSpec(steps=40, step_s=0.1, checkpoint_every_steps=3)


def test_a_job_continues_whichever_of_its_processes_is_stopped_or_killed_until_its_attempts_are_used_up(
    jobs: JobHome,
) -> None:
    """Five attempts end early. The fourth is killed after step 12 at the earliest: step 12 has a checkpoint.

    A SIGTERM from outside is not a cancel: a machine that shuts down sends it to every process. The two attempts that stop
    at one count for none of the three that the job may have.
    """
    runner = jobs.runner_with(max_attempts=3)
    job = runner.start(SPEC).job
    os.kill(jobs.wait_for_step(job.id, 2), signal.SIGTERM)
    jobs.until(lambda: jobs.store.jobs.get(job.id).attempt == 2, "restarted with no server up")
    os.kill(jobs.wait_for_step(job.id, 5, attempt=2), signal.SIGKILL)
    jobs.until(lambda: jobs.store.jobs.get(job.id).attempt == 3, "restarted with no server up")

    jobs.wait_for_step(job.id, 8, attempt=3)
    os.kill(jobs.shim(job.id), signal.SIGTERM)
    jobs.until(lambda: not jobs.processes(), "the shim stopped its worker and started nothing")
    assert jobs.store.jobs.get(job.id).status is JobStatus.RUNNING
    runner.reconcile()

    jobs.wait_for_step(job.id, 13, attempt=4)
    half_written = jobs.directory(job.id).path / ".shim.json.123"
    half_written.write_text("{")
    os.kill(jobs.shim(job.id), signal.SIGKILL)
    jobs.until(lambda: (runner.reconcile(), jobs.directory(job.id).has_begun(5))[1], "the last attempt")
    os.kill(jobs.wait_for_step(job.id, 16, attempt=5), signal.SIGKILL)
    stopped = jobs.wait(job.id, JobStatus.INTERRUPTED, reconcile=runner)
    assert stopped.error.code == "killed"
    assert re.fullmatch(
        r"attempt 5 of 5 was killed by SIGKILL; its peak memory was [1-9][\d.]* MiB of [1-9][\d.]* [MG]iB",
        stopped.error.message,
    )
    assert runner.resume(job.id).id == job.id
    done = jobs.wait(job.id, JobStatus.SUCCEEDED, reconcile=runner)
    assert (done.attempt, done.max_attempts, done.error) == (6, 6, None)
    assert not half_written.exists()
    events = jobs.store.jobs.events(job.id, type="progress")
    assert min(event.step for event in events if event.attempt == 5 and event.step) >= 13
    assert [event.step for event in jobs.store.jobs.progress(job.id)] == list(range(1, 41))


def test_a_training_that_lost_a_process_goes_on_unless_the_operator_started_others(jobs: JobHome) -> None:
    job = jobs.runner.start(SPEC.model_copy(update={"steps": 8})).job
    worker, directory = jobs.wait_for_step(job.id, 2), jobs.directory(job.id)
    cause = "process 2 of 2 was killed by SIGKILL"
    lost = JobEvent(attempt=1, seq=1000, time=job.created_at, type="failed", code="process_lost", message=cause)
    append_line(directory.events, lost.model_dump_json())
    os.kill(worker, signal.SIGKILL)
    done = jobs.wait(job.id, JobStatus.SUCCEEDED, reconcile=jobs.runner)
    assert (done.attempt, done.warnings[0].partition(", ")[0]) == (2, f"attempt_ended: {cause}")
    first = done.model_copy(update={"attempt": 1})
    ended = exits.exit_status(jobs.store, first, directory, done.updated_at, "", begins_whole=False)
    assert (ended.status, ended.error and ended.error.code) == (JobStatus.FAILED, "process_lost")


def test_a_starter_killed_at_any_moment_leaves_one_job_for_the_same_call(jobs: JobHome) -> None:
    """Killed while it starts its job, and after: this one ends with no server up."""
    spec = SelftestSpec(steps=10, step_s=0.1)
    for has_started in (False, True):
        gate = jobs.home / f"gate {has_started}"
        starter = jobs.starter(spec, str(has_started), gate)
        assert starter.stdout.readline() == "ready\n"
        gate.touch()
        if has_started:
            assert starter.stdout.readline().startswith("job-")
        starter.kill()
        starter.communicate()
        retried = jobs.runner.start(spec, request_key=str(has_started)).job
        ended = jobs.wait(retried.id, JobStatus.SUCCEEDED, reconcile=None if has_started else jobs.runner)
        assert ended.attempt == 1
    assert len(jobs.store.jobs.page().items) == 2


def test_a_worker_that_ends_without_a_result_has_crashed_and_its_log_is_quoted(
    jobs: JobHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With this variable Python cannot start; the shim runs isolated and does not mind, its reconcile does."""
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONHOME", "/nowhere")
        job = jobs.runner.start(SelftestSpec()).job
    failed = jobs.wait(job.id, JobStatus.FAILED, reconcile=jobs.runner)
    assert failed.error.code == "crashed"
    assert "exit code 1" in failed.error.message
    assert "/nowhere" in failed.error.hint
    reconcile_log = jobs.directory(job.id).path / "reconcile.log"
    jobs.until(lambda: reconcile_log.exists() and not jobs.processes(), "the shim's reconcile has ended")
    assert "/nowhere" in reconcile_log.read_text()
    reconcile_log.unlink()


def test_a_job_whose_directory_cannot_be_read_is_still_shown(jobs: JobHome) -> None:
    job = jobs.runner_with(slots=0, light_kinds=frozenset()).start(SelftestSpec()).job
    unreadable = jobs.directory(job.id).path / "shim.json"
    unreadable.mkdir(parents=True)
    running = job.model_copy(update={"status": JobStatus.RUNNING})
    assert (jobs.runner.is_suspended(job.id), jobs.runner.launcher_queue(running)) == (False, None)
    unreadable.rmdir()
    jobs.wait(job.id, JobStatus.SUCCEEDED, reconcile=jobs.runner)


def test_a_job_whose_directory_cannot_be_read_or_made_is_interrupted(jobs: JobHome) -> None:
    without_slots = jobs.runner_with(slots=0, light_kinds=frozenset())
    job = without_slots.start(SelftestSpec()).job
    jobs.directory(job.id).events.mkdir(parents=True)
    stopped = jobs.wait(job.id, JobStatus.INTERRUPTED, reconcile=jobs.runner)
    assert stopped.error.code == "directory_unreadable"
    assert "events.jsonl" in stopped.error.message

    job = without_slots.start(SelftestSpec(), request_key="another").job
    folder = jobs.directory(job.id)
    folder.path.mkdir()
    folder.outputs.touch()  # a file where a folder should be
    stopped = jobs.wait(job.id, JobStatus.INTERRUPTED, reconcile=jobs.runner)
    assert stopped.error.code == "launch_failed"
    folder.outputs.unlink()
    jobs.runner.resume(job.id)
    jobs.wait(job.id, JobStatus.SUCCEEDED)


def test_a_job_whose_folder_is_deleted_is_ended_and_begins_again_when_it_is_resumed(jobs: JobHome) -> None:
    job = jobs.runner.start(SelftestSpec(steps=3, step_s=0.4)).job
    jobs.until(lambda: jobs.runner.reconcile() and jobs.store.jobs.get(job.id).step, "a step is stored")
    shutil.rmtree(jobs.directory(job.id).path)
    stopped = jobs.wait(job.id, JobStatus.INTERRUPTED, reconcile=jobs.runner)
    assert (stopped.error.code, "it was deleted" in stopped.error.message) == ("directory_unreadable", True)
    jobs.until(lambda: not jobs.processes(), "its worker has ended")
    jobs.runner.resume(job.id)
    assert jobs.wait(job.id, JobStatus.SUCCEEDED, reconcile=jobs.runner).warnings == ()
    steps = [event.step for event in jobs.store.jobs.events(job.id) if event.type == "progress"]
    assert steps == [1, 2, 3]


def test_a_home_that_becomes_read_only_is_named_as_the_trouble_of_its_jobs(
    jobs: JobHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobs.runner.start(SelftestSpec(steps=3, step_s=60)).job
    jobs.runner.reconcile()
    real = os.open

    def refuse(path: str | Path, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY) and os.fspath(path).startswith(str(jobs.options.jobs_dir)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return real(path, flags, *rest, **named)

    with monkeypatch.context() as disk:
        disk.setattr(os, "open", refuse)
        jobs.runner.reconcile()
        assert "(Read-only file system); repair its disk" in jobs.runner.trouble(job.id)
    jobs.runner.reconcile()
    assert jobs.runner.trouble(job.id) is None
    jobs.runner.cancel(job.id)
    jobs.wait(job.id, JobStatus.CANCELLED)


def test_what_a_worker_left_behind_is_killed_at_its_end_by_its_mark_and_the_work_of_a_copied_home_goes_on(
    jobs: JobHome, tmp_path: Path
) -> None:
    job = jobs.runner.start(SelftestSpec(steps=100_000)).job
    folder = jobs.directory(job.id).path
    copy = tmp_path / "copy" / folder.name
    copy.mkdir(parents=True)
    argv = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    mine, other = (
        subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            env={**os.environ, processes.JOB_VARIABLE: processes.mark(path)},
            start_new_session=True,
        )
        for path in (folder, copy)
    )
    try:
        for process in (mine, other):
            process.stdout.readline()
        jobs.runner.cancel(job.id)
        jobs.wait(job.id, JobStatus.CANCELLED, reconcile=jobs.runner)
        assert mine.wait(60) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.communicate()
