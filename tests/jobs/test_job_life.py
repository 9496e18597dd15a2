"""The life of a job: start, run, queue, cancel, resume; every process is real."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from sqlalchemy import update

from jobs.conftest import now
from quintain.errors import Conflict, NotFound
from quintain.jobs import processes
from quintain.jobs.launch import RAY_VARIABLE, URL_VARIABLE
from quintain.jobs.launchers.contract import ClusterOptions
from quintain.records.agent import Agent, ModelRef
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import EvaluateSpec, JobStatus, SelftestSpec
from quintain.store.database.engine import write_transaction
from quintain.store.database.tables import jobs as table

if TYPE_CHECKING:
    from jobs.conftest import JobHome

LONG = SelftestSpec(steps=1000, step_s=0.1)


def test_a_job_starts_at_once_and_its_own_shim_ingests_it(jobs: JobHome) -> None:
    spec = SelftestSpec(steps=5, step_s=0.1)
    first = jobs.runner_with(slots=0).start(spec)
    job = first.job
    assert job.status is JobStatus.RUNNING, "a light job needs no slot"
    again = jobs.runner.start(spec)
    assert (first.deduplicated, again.deduplicated, again.job.id) == (False, True, job.id)
    with pytest.raises(Conflict, match="which is running"):
        jobs.runner.resume(job.id)

    done = jobs.wait(job.id, JobStatus.SUCCEEDED)
    assert (done.attempt, done.step, done.total_steps, done.phase) == (1, 5, 5, "stepping")
    assert done.metrics == {"loss": 1 / 5}
    assert done.result.n == 5
    assert done.created_at <= done.started_at <= done.ended_at
    assert [event.step for event in jobs.store.jobs.progress(job.id)] == [1, 2, 3, 4, 5]
    log = jobs.runner.log_tail(job.id)
    assert "phase: stepping" in log
    assert "step 5 of 5: loss 0.2" in log
    with pytest.raises(Conflict, match=r"which succeeded; see get_job"):
        jobs.runner.resume(job.id)
    with pytest.raises(NotFound, match="job-0000000000"):
        jobs.runner.resume("job-0000000000")
    other = jobs.runner_with(slots=0, light_kinds=frozenset()).start(spec)
    assert (other.deduplicated, other.job.id == job.id) == (False, False), "the same request is new after its job ended"
    assert other.job.status is JobStatus.QUEUED, "a heavy job waits for a slot"
    assert jobs.runner.cancel(other.job.id).status is JobStatus.CANCELLED, "which ends a queued one at once"
    assert jobs.runner.reconcile() == set()


def test_the_next_job_starts_when_the_first_ends_with_no_server_up(jobs: JobHome) -> None:
    alone = jobs.runner_with(light_kinds=frozenset())
    first = alone.start(LONG, request_key="first").job
    low = alone.start(SelftestSpec(steps=1), request_key="low").job
    high = alone.start(SelftestSpec(steps=1), request_key="high").job
    assert (first.status, low.status, high.status) == (JobStatus.RUNNING, JobStatus.QUEUED, JobStatus.QUEUED)
    assert alone.put_first(high.id).status is JobStatus.QUEUED
    with pytest.raises(Conflict, match="which is running; name a job that waits"):
        alone.put_first(first.id)
    alone.cancel(first.id)
    ended = [jobs.wait(first.id, JobStatus.CANCELLED)]
    ended += [jobs.wait(job.id, JobStatus.SUCCEEDED) for job in (high, low)]
    for before, after in itertools.pairwise(ended):
        assert before.ended_at <= after.started_at


def test_processes_that_start_the_same_job_at_one_moment_start_it_once(jobs: JobHome) -> None:
    """Both reconcile continuously: a job that ever looked dead would get a second attempt."""
    gate = jobs.home / "gate"
    starters = [jobs.starter(SelftestSpec(steps=8), "same", gate) for _ in range(2)]
    for starter in starters:
        assert starter.stdout.readline() == "ready\n"
    gate.touch()
    answers = [starter.communicate(timeout=60)[0].split() for starter in starters]
    assert len({job_id for job_id, _ in answers}) == 1
    assert sorted(deduplicated for _, deduplicated in answers) == ["False", "True"]
    (job,) = jobs.store.jobs.page().items
    assert (job.status, job.attempt) == (JobStatus.SUCCEEDED, 1)
    assert [event.step for event in jobs.store.jobs.events(job.id, type="progress")] == list(range(1, 9))


def test_a_suspended_process_below_a_worker_is_seen_though_it_has_its_own_session() -> None:
    wait = "import subprocess, sys; print(subprocess.Popen(['cat'], start_new_session=True).pid, flush=True); input()"
    argv = [sys.executable, "-IS", "-c", wait]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        child = psutil.Process(int(worker.stdout.readline()))
        assert not processes.is_suspended(worker.pid)
        child.suspend()
        while child.status() != psutil.STATUS_STOPPED:
            pass
        assert processes.is_suspended(worker.pid)
        child.kill()
        worker.kill()


def test_a_suspended_job_is_not_dead_a_cancelled_one_stops_at_a_step_and_resume_continues_it(jobs: JobHome) -> None:
    job = jobs.runner.start(LONG).job
    worker = jobs.wait_for_step(job.id, 3)
    pids = (jobs.shim(job.id), worker)
    assert os.getpgid(0) not in map(os.getpgid, pids), "Ctrl-C at the terminal of the starter does not reach the job"
    assert URL_VARIABLE in psutil.Process(jobs.shim(job.id)).environ()
    assert URL_VARIABLE not in psutil.Process(worker).environ()
    files = [path for path in jobs.directory(job.id).path.rglob("*") if path.is_file()]
    assert not [path.name for path in files if jobs.store.url.encode() in path.read_bytes()]

    assert not jobs.runner.is_suspended(job.id)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        jobs.until(lambda: jobs.runner.is_suspended(job.id), "it is suspended, its supervisor first")
    for _ in range(20):
        jobs.runner.reconcile()
    suspended = jobs.store.jobs.get(job.id)
    assert (suspended.status, suspended.attempt) == (JobStatus.RUNNING, 1)
    assert suspended.last_progress_at is not None
    assert 0 < (suspended.usual_gap_s or 0) < 2
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)

    assert jobs.runner.cancel(job.id).cancel_requested
    stopped = jobs.wait(job.id, JobStatus.CANCELLED)
    assert (stopped.error, stopped.attempt) == (None, 1)
    assert [event.type for event in jobs.store.jobs.events(job.id)][-1] == "cancelled"
    assert 3 <= stopped.step < 1000
    assert jobs.runner.cancel(job.id).status is JobStatus.CANCELLED

    resumed = jobs.runner.resume(job.id)
    assert resumed.id != job.id
    assert resumed.resumed_from == job.id
    assert jobs.runner.resume(job.id).id == resumed.id
    jobs.wait_for_step(resumed.id, stopped.step + 1)
    jobs.runner.cancel(resumed.id)
    jobs.wait(resumed.id, JobStatus.CANCELLED)
    assert jobs.store.jobs.progress(resumed.id)[0].step == stopped.step + 1


def test_a_resumed_evaluation_plays_what_the_cancelled_one_left_and_every_episode_is_stored_once(jobs: JobHome) -> None:
    expert = Agent(id="expert", name="expert", model=ModelRef(source="expert", path="expert"))
    spec = EvaluateSpec(agent=expert, environment="quintain/inventory", n_tasks=400, concurrency=1)
    cancelled = jobs.runner.start(spec).job
    jobs.wait_for_step(cancelled.id, 3)
    jobs.runner.cancel(cancelled.id)
    played = jobs.wait(cancelled.id, JobStatus.CANCELLED).step or 0
    assert 3 <= played < 400
    resumed = jobs.wait(jobs.runner.resume(cancelled.id).id, JobStatus.SUCCEEDED)
    assert resumed.result is not None
    assert resumed.result.report["taken_over"]["episodes"] == played

    def runs_of(job_id: str | None) -> set[str]:
        return {run.id or "" for run in jobs.store.trajectories.iterate(TrajectoryFilter(job_id=job_id))}

    everything, before, after = (runs_of(job_id) for job_id in (None, cancelled.id, resumed.id))
    assert (len(before), after, len(after)) == (played, everything, 400)
    found = jobs.store.evaluations.get(resumed.result.evaluation_id or "")
    assert {result.trajectory_id for result in found.results} == everything
    taken, own = min(before), min(after - before)
    done = [jobs.store.lineage.forget([run], now(), dry_run=True) for run in (taken, own)]
    assert [one.made_by for one in done] == [(cancelled.id, resumed.id), (resumed.id,)]
    assert [one.touched.evaluations for one in done] == [(found.id,)] * 2


def test_a_worker_that_ignores_sigterm_is_killed_after_the_grace_with_its_children(jobs: JobHome) -> None:
    runner = jobs.runner_with(grace_s=0.3)
    job = runner.start(LONG.model_copy(update={"ignore_sigterm": True, "children": 2})).job
    worker = jobs.wait_for_step(job.id, 1)
    family = {worker, *(child.pid for child in psutil.Process(worker).children())}
    assert len(family) == 3
    runner.cancel(job.id)
    stopped = jobs.wait(job.id, JobStatus.CANCELLED)
    assert stopped.error.code == "forced"
    record = jobs.directory(job.id).exit(1)
    assert (record.signal, record.forced, record.cancelled) == (9, True, True)
    assert not family & {process.pid for process in jobs.processes()}


def test_a_failing_job_reports_the_reason_and_its_log_stays_bounded(jobs: JobHome) -> None:
    """30 MB in, then a traceback; kept are the first 4 MiB and between 2 and 4 MiB of the end."""
    job = jobs.runner.start(SelftestSpec(steps=5, fail_at=3, log_bytes=30_000_000)).job
    failed = jobs.wait(job.id, JobStatus.FAILED)
    assert failed.error.code == "crashed"
    assert failed.error.message == "RuntimeError: step 3 fails as requested (fail_at=3)"
    assert failed.step == 2
    assert "Traceback" in jobs.runner.log_tail(job.id)
    assert "Traceback" not in failed.error.model_dump_json()
    kept = sum(path.stat().st_size for path in jobs.runner.directory(job.id).glob("log*"))
    assert 6 * 1024**2 <= kept <= 8 * 1024**2
    (dropped,) = re.findall(r"(\d+) bytes of log dropped", jobs.directory(job.id).log_tail(10**6, max_bytes=10**8))
    assert 30_000_000 <= int(dropped) + kept < 30_002_000, "the flood, and the lines of phases and steps"
    assert len(jobs.runner.log_tail(job.id, 7).splitlines()) == 7


def test_a_queued_job_that_this_version_cannot_read_holds_up_no_other_and_is_named(jobs: JobHome) -> None:
    """A newer version on the same home queues kinds and settings that an older server does not know."""
    server = jobs.runner_with(light_kinds=frozenset())
    before, foreign, after = (server.start(SelftestSpec(steps=steps)).job for steps in (30, 2, 3))

    def rewrite(spec: str) -> None:
        with write_transaction(jobs.store.engine) as connection:
            connection.execute(update(table).where(table.c.id == foreign.id).values(spec=spec))

    rewrite('{"kind": "newer"}')
    for job in (before, after):
        jobs.wait(job.id, JobStatus.SUCCEEDED, reconcile=server)
    with pytest.raises(Conflict, match=rf"record_unreadable.*stored {foreign.id} .*upgrade"):
        jobs.store.jobs.get(foreign.id)
    page = jobs.store.jobs.page()
    assert (page.unreadable, [job.id for job in page.items]) == ((foreign.id,), [after.id, before.id])
    assert jobs.store.jobs.get_many([before.id, foreign.id]) == [jobs.store.jobs.get(before.id)]
    rewrite(foreign.spec.model_dump_json())
    jobs.wait(foreign.id, JobStatus.SUCCEEDED, reconcile=server)


def test_the_address_of_a_cluster_is_in_no_file_of_a_job_and_reaches_the_reconciler_after_it(jobs: JobHome) -> None:
    """Its password too. Nobody else reconciles, and without the address no runner opens."""
    cluster = ClusterOptions(ray_address="http://me:s3cret@127.0.0.1:9")
    runner = jobs.runner_with(launcher="ray", cluster=cluster)
    job = runner.start(SelftestSpec(steps=8, step_s=0.5)).job
    assert RAY_VARIABLE not in psutil.Process(jobs.wait_for_step(job.id, 1)).environ()
    jobs.wait(job.id, JobStatus.SUCCEEDED)
    assert b"s3cret" not in b"".join(
        path.read_bytes() for path in jobs.directory(job.id).path.rglob("*") if path.is_file()
    )
