"""Jobs through Slurm (commands that run the scripts on this machine) and a real Ray cluster: life, faults, environment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from benchmarks.ray_cluster import RayHead, ray_head

import fake_slurm
from quintain.jobs.launchers.contract import Attempt, ClusterOptions
from quintain.jobs.launchers.ray_jobs import RayLauncher
from quintain.jobs.launchers.slurm import SlurmLauncher, _write_scripts
from quintain.jobs.runner import JobRunner
from quintain.records.jobs.job import JobStatus, SelftestSpec

if TYPE_CHECKING:
    from jobs.conftest import JobHome

STEPS = SelftestSpec(steps=8, step_s=0.1)
SLOW = STEPS.model_copy(update={"step_s": 0.5})
"""With time to kill a process between two steps."""
LONG = SelftestSpec(steps=100_000, step_s=0.2)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the commands and their state; the launcher asks often, so that tests are short.

    Each question starts a process, so it does not ask continuously.
    """
    folder = tmp_path / "slurm"
    monkeypatch.setenv("PATH", fake_slurm.install(folder))
    monkeypatch.setattr(SlurmLauncher, "poll_s", 0.3)
    monkeypatch.setattr(SlurmLauncher, "settle_s", 0.2)
    for module in ("reconciler", "liveness"):
        monkeypatch.setattr(f"quintain.jobs.{module}.RETRY_S", 0.2)
    return folder


def slurm_runner(jobs: JobHome, options: str = "", **changes: object) -> JobRunner:
    cluster = ClusterOptions(slurm_options=options, gpus=2, environment=("PASSED", "QUINTAIN_DATABASE_URL"))
    return jobs.runner_with(
        **{"launcher": "slurm", "cluster": cluster, "lease_s": 4.0, "light_kinds": frozenset()} | changes
    )


def test_a_batch_job_gets_an_explicit_environment_survives_kills_and_ends_as_a_local_one(
    jobs: JobHome, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First its worker is killed, which its shim records; then its shim, which only Slurm sees."""
    for name in ("PASSED", "NOT_PASSED", "QUINTAIN_DATABASE_URL"):
        monkeypatch.setenv(name, "secret")
    runner = slurm_runner(jobs, "--job-name=train --export=ALL --signal=B:TERM@90")
    job = runner.start(SLOW).job
    worker = jobs.wait_for_step(job.id, 2)
    names = {pair.partition(b"=")[0].decode() for pair in Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")}
    assert {"PASSED", "SLURM_JOB_ID", "QUINTAIN_JOB"} <= names
    assert names.isdisjoint({"NOT_PASSED", "QUINTAIN_DATABASE_URL"})
    assert b"secret" not in b"".join(path.read_bytes() for path in runner.directory(job.id).glob("*.*"))
    assert runner.launcher_queue(jobs.store.jobs.get(job.id)) is None
    (first,) = slurm.glob("*.json")
    options = fake_slurm.read(first)["options"]
    assert (options["gpus-per-node"], options["signal"]) == ("2", "B:TERM@90")
    assert options["job-name"] != "train", "it is found by its name"

    os.kill(worker, signal.SIGKILL)
    jobs.until(lambda: (runner.reconcile(), jobs.store.jobs.get(job.id).attempt == 2)[1], "the second attempt")
    jobs.wait_for_step(job.id, 4, attempt=2)
    os.kill(jobs.shim(job.id), signal.SIGKILL)
    done = jobs.wait(job.id, JobStatus.SUCCEEDED, reconcile=runner)
    assert (done.attempt, len(done.warnings)) == (3, 2)
    assert all(f"attempt {number} of 5" in note for number, note in enumerate(done.warnings, 1))
    assert [event.step for event in jobs.store.jobs.progress(job.id)] == list(range(1, 9))
    assert "step 8 of 8" in runner.log_tail(job.id)


def test_a_notice_before_the_time_limit_stops_the_worker_at_a_step_and_the_next_attempt_goes_on(
    jobs: JobHome, slurm: Path, tmp_path: Path
) -> None:
    """Slurm signals the batch script alone. That of several machines passes the signal on, and waits.

    An attempt that got on does not use up the single one that the job may have.
    """
    runner = slurm_runner(jobs, max_attempts=1)
    job = runner.start(SLOW).job
    jobs.wait_for_step(job.id, 2)
    (first,) = slurm.glob("*.json")
    assert fake_slurm.read(first)["options"]["signal"] == "B:TERM@60"
    os.kill(int(str(fake_slurm.read(first)["pid"])), signal.SIGTERM)
    done = jobs.wait(job.id, JobStatus.SUCCEEDED, reconcile=runner)
    assert (done.attempt, done.max_attempts, "was stopped from outside" in done.warnings[0]) == (2, 2, True)
    assert [event.step for event in jobs.store.jobs.progress(job.id)] == list(range(1, 9))

    stops = "trap 'echo stops; exit 3' TERM; echo ready; while :; do sleep 0.02; done"
    two = Attempt(
        job.id, 1, "token", tmp_path, command=("sh", "-c", stops), machines=2, port=1, rank_launcher=("true",)
    )
    script = subprocess.Popen(["sh", _write_scripts(two)], stdout=subprocess.PIPE, text=True)
    assert script.stdout is not None
    assert script.stdout.readline() == "ready\n"
    script.terminate()
    assert (script.communicate(timeout=20)[0], script.returncode) == ("stops\n", 3)


def test_a_controller_that_is_down_delays_jobs_and_a_refusal_or_an_early_end_is_reported(
    jobs: JobHome, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = slurm_runner(jobs)
    (slurm / "down").touch()
    job = runner.start(STEPS).job
    assert job.status is JobStatus.QUEUED
    assert "launcher_unavailable: " in job.warnings[0]
    assert "Unable to contact slurm controller" in job.warnings[0]
    (slurm / "down").unlink()
    (slurm / "hold").touch()
    jobs.wait(job.id, JobStatus.RUNNING, reconcile=runner)
    (slurm / "down").touch()
    runner.reconcile()
    assert (runner.launcher_queue(jobs.store.jobs.get(job.id)), runner.log_tail(job.id)) == ("slurm", "")
    (slurm / "down").unlink()
    assert runner.log_tail(job.id) == "squeue: PENDING: Resources"
    assert jobs.store.jobs.get(job.id).attempt == 1, "a job in the queue of a silent controller is not dead"
    runner.cancel(job.id)

    def is_seen_to_be_over() -> bool:
        slurm_runner(jobs).reconcile()
        return jobs.store.jobs.get(job.id).status is JobStatus.CANCELLED

    jobs.until(is_seen_to_be_over, "commands that look once each end it together")
    (slurm / "hold").unlink()

    light = slurm_runner(jobs, light_kinds=frozenset({"selftest"})).start(STEPS, request_key="light").job
    assert jobs.wait(light.id, JobStatus.SUCCEEDED).attempt == 1, "on this machine, without Slurm"
    refused = slurm_runner(jobs, "--partition=missing").start(STEPS).job
    assert (refused.status, refused.error.code) == (JobStatus.INTERRUPTED, "launch_failed")
    assert "invalid partition specified" in refused.error.message

    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    runner = slurm_runner(jobs, max_attempts=2)
    early = runner.start(STEPS, request_key="early").job
    ended = jobs.wait(early.id, JobStatus.INTERRUPTED, reconcile=runner)
    assert (ended.attempt, ended.error.code) == (2, "launch_failed")
    assert "FAILED" in ended.error.message
    assert "/nowhere/python" in ended.error.hint
    assert "/nowhere/python" in runner.log_tail(early.id)


def test_a_job_that_sbatch_refuses_or_whose_node_fails_later_on_is_tried_again(
    jobs: JobHome, slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quintain.jobs.exits.LONGEST_PAUSE_S", 0.1)
    runner = slurm_runner(jobs, max_attempts=20)
    job = runner.start(SLOW.model_copy(update={"steps": 4})).job
    worker = jobs.wait_for_step(job.id, 2)
    (slurm / "full").touch()
    (slurm / "broken").touch()
    os.kill(worker, signal.SIGKILL)
    for trouble, reason in (("full", "sbatch refused the job: "), ("broken", "ended before it began: NODE_FAIL")):

        def told(reason: str = reason) -> bool:
            runner.reconcile()
            return reason in str(jobs.store.jobs.get(job.id).warnings)

        jobs.until(told, reason)
        (slurm / trouble).unlink()
    done = jobs.wait(job.id, JobStatus.SUCCEEDED, reconcile=runner)
    assert "attempt_ended: cannot start attempt 2: sbatch refused the job: " in done.warnings[1]
    assert done.warnings[1].endswith(f", after step {done.warnings[0][-1]}")
    assert [event.step for event in jobs.store.jobs.progress(job.id)] == [1, 2, 3, 4]


def test_a_replaced_start_ends_without_a_trace_and_one_without_its_folder_or_heartbeat_after_a_lease(
    jobs: JobHome, slurm: Path
) -> None:
    """Slurm forgets a job in the queue, which starts after its replacement, and a running one, which is suspended later."""
    runner = slurm_runner(jobs)
    (slurm / "hold").touch()
    job = runner.start(LONG).job
    script = (runner.directory(job.id) / "launch.sh").read_text()
    stale = shutil.copy(runner.directory(job.id) / "launch.sh", slurm / "stale.sh")
    forget(slurm)
    (slurm / "hold").unlink()
    jobs.until(lambda: (runner.reconcile(), jobs.directory(job.id).has_begun(1))[1], "it was submitted again")
    assert (runner.directory(job.id) / "launch.sh").read_text() != script
    late = subprocess.run(["sh", stale], capture_output=True, text=True, check=False)
    assert (late.returncode, "another start" in late.stderr) == (1, True)

    worker = jobs.wait_for_step(job.id, 2)
    forget(slurm)
    for _ in range(5):
        runner.reconcile()
    assert jobs.store.jobs.get(job.id).attempt == 1, "its heartbeats are enough"
    shim = jobs.shim(job.id)
    os.kill(shim, signal.SIGSTOP)
    os.kill(worker, signal.SIGSTOP)
    jobs.until(lambda: (runner.reconcile(), jobs.directory(job.id).has_begun(2))[1], "dead after a lease")
    os.kill(shim, signal.SIGCONT)
    jobs.until(lambda: not psutil.pid_exists(worker), "the silent shim has ended its worker on its return")
    assert "another start has replaced this one" in jobs.directory(job.id).log_tail(1000)

    worker = jobs.wait_for_step(job.id, 3, attempt=2)
    heartbeat = runner.directory(job.id) / "heartbeat"
    heartbeat.unlink()
    heartbeat.mkdir()  # like a file system that fails on both sides
    jobs.until(lambda: (runner.reconcile(), not psutil.pid_exists(worker))[1], "the shim ends its worker after a lease")
    assert jobs.store.jobs.get(job.id).attempt == 2, "what cannot be read is unknown and not dead"
    heartbeat.rmdir()
    jobs.until(lambda: (runner.reconcile(), jobs.directory(job.id).has_begun(3))[1], "the third attempt")
    runner.cancel(job.id)
    assert jobs.wait(job.id, JobStatus.CANCELLED, reconcile=runner).attempt == 3


def forget(slurm: Path) -> None:
    for path in slurm.glob("*.json"):
        path.unlink()


def ray_runner(jobs: JobHome, head: RayHead, **changes: object) -> JobRunner:
    cluster = ClusterOptions(ray_address=head.address)
    return jobs.runner_with(launcher="ray", cluster=cluster, light_kinds=frozenset(), **changes)


def test_the_life_of_a_job_on_a_real_ray_cluster(jobs: JobHome) -> None:
    """Start, progress, log, kill -9 of the worker, a second attempt from the checkpoint, cancel."""
    pytest.importorskip("ray", reason="the extra cluster is not installed")
    with ray_head() as head:
        runner = ray_runner(jobs, head)
        job = runner.start(LONG).job
        jobs.until(lambda: (runner.reconcile(), jobs.store.jobs.get(job.id).step >= 2)[1], "step 2")
        assert "step 2 of 100000" in runner.log_tail(job.id)
        os.kill(jobs.wait_for_step(job.id, 2), signal.SIGKILL)
        again = "the second attempt goes on"
        jobs.until(lambda: (runner.reconcile(), jobs.store.jobs.get(job.id).attempt == 2)[1], again)
        jobs.until(lambda: jobs.directory(job.id).has_begun(2), again)
        jobs.wait_for_step(job.id, 4, attempt=2)
        runner.cancel(job.id)
        stopped = jobs.wait(job.id, JobStatus.CANCELLED, reconcile=runner)
    assert stopped.error is None
    assert [event.step for event in jobs.store.jobs.progress(job.id)] == list(range(1, stopped.step + 1))


@pytest.mark.soak
def test_a_job_ends_right_without_the_head_and_later_jobs_wait_for_a_new_one(
    jobs: JobHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RayLauncher, "settle_s", 1.0)
    with ray_head() as head:
        runner = ray_runner(jobs, head, lease_s=20.0, slots=4)
        job = runner.start(STEPS.model_copy(update={"steps": 60})).job
        jobs.until(lambda: (runner.reconcile(), jobs.store.jobs.get(job.id).step >= 2)[1], "step 2")
        head.send(signal.SIGKILL, "gcs_server", "dashboard/dashboard.py")
        waiting = runner.start(STEPS).job
        assert waiting.status is JobStatus.QUEUED
        assert "expected an answer of Ray" in waiting.warnings[0]
        done = jobs.wait(job.id, JobStatus.SUCCEEDED, reconcile=runner)
        assert done.attempt == 1
        assert [event.step for event in jobs.store.jobs.progress(job.id)] == list(range(1, 61))
    with ray_head() as head:
        done = jobs.wait(waiting.id, JobStatus.SUCCEEDED, reconcile=ray_runner(jobs, head, slots=4))
        assert done.attempt == 1


@pytest.mark.soak
def test_a_job_whose_whole_node_dies_is_retried_on_another_cluster(jobs: JobHome) -> None:
    """Its shim, its worker and every part of Ray die at once: no back end knows the job, and its heartbeats stop."""
    with ray_head() as head:
        first = ray_runner(jobs, head, lease_s=4.0)
        job = first.start(STEPS.model_copy(update={"steps": 40})).job
        jobs.until(lambda: (first.reconcile(), jobs.store.jobs.get(job.id).step >= 5)[1], "step 5")
    with ray_head() as head:
        done = jobs.wait(job.id, JobStatus.SUCCEEDED, reconcile=ray_runner(jobs, head, lease_s=4.0))
        assert done.attempt == 2
        assert [event.step for event in jobs.store.jobs.progress(job.id)] == list(range(1, 41))
