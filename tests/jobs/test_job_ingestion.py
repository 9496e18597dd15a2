"""What a worker leaves behind reaches the store once, whole, and bad lines stop nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import event, update

from jobs.conftest import now
from jobs_in_process import jobs_in_process  # noqa: F401
from quintain.jobs import processes
from quintain.jobs.directory import write_atomically
from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import Dataset, DatasetOutput
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import JobError, JobResult, JobStatus, SelftestSpec
from quintain.records.score import Score
from quintain.records.trajectory import Actor, Step, Task, Trajectory
from quintain.store.database.engine import read_transaction, write_transaction
from quintain.store.database.tables import jobs as table
from quintain.worker.processes.reporter import FileReporter
from store_shelves import evaluation

if TYPE_CHECKING:
    from jobs.conftest import JobHome


def dead_job(jobs: JobHome, key: str | None = None) -> tuple[str, FileReporter]:
    """A job in its first attempt whose processes are gone, and the reporter that its worker had."""
    jobs.until(lambda: not jobs.processes(), "shims of earlier jobs, which reconcile when they end, are gone")
    job = jobs.runner_with(slots=0, light_kinds=frozenset()).start(SelftestSpec(), request_key=key).job
    directory = jobs.directory(job.id)
    directory.prepare(job)
    write_atomically(directory.path / "shim.json", b'{"attempt": 1, "shim": 1, "worker": null}')
    assert jobs.store.jobs.begin_attempt(job.id, 0, 1, now())
    return job.id, FileReporter(directory, 1, now)


def trajectory(number: int) -> Trajectory:
    return Trajectory(
        task=Task(prompt="Count."), episode_key=str(number), steps=(Step(actor=Actor.AGENT, message="one"),)
    )


def agent(name: str) -> Agent:
    return Agent(name=name, model=ModelRef(source="folder", path="/models/x"))


def test_outputs_become_records_of_the_store_and_the_result_names_the_agent(jobs: JobHome) -> None:
    base = jobs.store.agents.add(agent("base"), now())
    job_id, reporter = dead_job(jobs)
    for number in (1, 2, 1):
        reporter.output("trajectory", trajectory(number))
    reporter.output("agent", agent("learner"))
    reporter.output("evaluation", evaluation("eval-1", base.id))
    reporter.result(JobResult(final_loss=0.5))
    assert jobs.runner.reconcile() == {job_id}
    job = jobs.store.jobs.get(job_id)
    assert job.status is JobStatus.SUCCEEDED
    assert job.result == JobResult(agent="agent:learner@1", final_loss=0.5)
    assert job.warnings == ()
    assert jobs.store.trajectories.count(TrajectoryFilter(job_id=job_id)) == 2
    assert jobs.store.agents.get("learner").job_id == job_id
    assert [found.job_id for found in jobs.store.evaluations.of_agent(base.id)] == [job_id]


def test_a_dataset_that_a_job_made_is_stored_once_with_its_runs_and_agents_find_their_parents_by_name(
    jobs: JobHome,
) -> None:
    """The dataset is written after its runs and read before them; the second agent was trained from the first."""
    job_id, reporter = dead_job(jobs)
    runs = [trajectory(number).identified() for number in (1, 2)]
    dataset = Dataset(id="ds-1", name="round", kind="sft", path="/d", rows=2, splits={"train": 2})
    for run in runs:
        reporter.output("trajectory", run)
    for _ in range(2):  # as an attempt does that goes on after its predecessor died
        reporter.output("dataset", DatasetOutput(dataset=dataset, trajectory_ids=tuple(run.id or "" for run in runs)))
    reporter.output("agent", agent("first").model_copy(update={"job_id": f"{job_id}/01-train"}))
    reporter.output("agent", agent("second").model_copy(update={"parent": "first"}))
    reporter.result(JobResult())
    jobs.runner.reconcile()
    job = jobs.store.jobs.get(job_id)
    assert (job.status, job.warnings) == (JobStatus.SUCCEEDED, ())
    assert jobs.store.datasets.member_ids("ds-1") == [run.id for run in runs]
    assert jobs.store.datasets.get("ds-1").created_at is not None
    assert jobs.store.agents.get("second").parent == "agent:first@1"


def test_a_dataset_of_a_job_keeps_a_run_that_was_forgotten_meanwhile_and_is_marked(jobs: JobHome) -> None:
    _, reporter = dead_job(jobs)
    run = trajectory(1).identified()
    reporter.output("trajectory", run)
    jobs.runner.reconcile()
    jobs.store.lineage.forget([run.id or ""], now())
    dataset = Dataset(id="ds-1", name="round", kind="sft", path="/d", rows=1, splits={"train": 1})
    jobs.store.datasets.add_from_job(dataset, [run.id or ""], now())
    assert jobs.store.lineage.datasets_with_forgotten(["ds-1"]) == {"ds-1": 1}


def test_ingesting_again_from_the_start_changes_nothing(jobs: JobHome) -> None:
    """The offsets are set back, as if the process had died after storing and before noting it."""
    job_id, reporter = dead_job(jobs)
    reporter.phase("acting")
    reporter.output("trajectory", trajectory(1))
    reporter.output("agent", agent("learner"))
    reporter.failed(JobError(code="training_failed", message="diverged"))
    jobs.runner.reconcile()
    before = jobs.store.jobs.events(job_id)
    with jobs.store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE jobs SET offsets = '{}', status = 'running'")
    jobs.runner.reconcile()
    assert jobs.store.jobs.events(job_id) == before
    assert jobs.store.trajectories.count(TrajectoryFilter()) == 1
    assert [found.id for found in jobs.store.agents.page().items] == ["agent:learner@1"]
    job = jobs.store.jobs.get(job_id)
    assert (job.status, job.error) == (JobStatus.FAILED, JobError(code="training_failed", message="diverged"))


def test_bad_lines_are_counted_and_the_good_ones_around_them_stay(jobs: JobHome) -> None:
    job_id, reporter = dead_job(jobs)
    reporter.output("trajectory", trajectory(1))
    outputs = jobs.directory(job_id).outputs
    with (outputs / "trajectory.jsonl").open("ab") as file:
        file.write(
            b'not json\n{"kind": "trajectory", "record": {"steps": []}}\n{"kind": "agent", "record": {}}\n\xff\n'
        )
    reporter.output("trajectory", trajectory(2))
    reporter.result(JobResult(n=2))
    jobs.runner.reconcile()
    job = jobs.store.jobs.get(job_id)
    assert job.status is JobStatus.SUCCEEDED
    assert jobs.store.trajectories.count(TrajectoryFilter(job_id=job_id)) == 2
    (warning,) = job.warnings
    assert warning.startswith("bad_output: 4 trajectory line(s) could not be stored; first error: ")


@pytest.mark.parametrize("file", ["outputs/agent.jsonl", "events.jsonl"])
def test_a_line_of_a_newer_worker_waits_for_a_server_of_its_version(jobs: JobHome, file: str) -> None:
    """An installation is upgraded under a running server, whose next worker is a new one: nothing that it writes is left out."""
    job_id, reporter = dead_job(jobs)
    reporter.output("agent", agent("learner"))
    reporter.result(JobResult(agent="agent:learner@1"))
    path = jobs.directory(job_id).path / file
    known = path.read_text(encoding="utf-8")
    path.write_text(known.replace('{"', '{"added_later":1,"'), encoding="utf-8")
    jobs.runner.reconcile()
    assert jobs.store.jobs.get(job_id).status is JobStatus.RUNNING
    assert ".added_later of a newer version" in (jobs.runner.trouble(job_id) or "")
    path.write_text(known, encoding="utf-8")  # what a newer server reads in it
    jobs.runner.reconcile()
    ended = jobs.store.jobs.get(job_id)
    assert (ended.status, ended.warnings) == (JobStatus.SUCCEEDED, ())
    assert [found.id for found in jobs.store.agents.page().items] == ["agent:learner@1"]


def test_a_result_written_before_a_late_cancel_counts(jobs: JobHome) -> None:
    job_id, reporter = dead_job(jobs)
    reporter.result(JobResult(n=1))
    jobs.runner.cancel(job_id)
    jobs.runner.reconcile()
    assert jobs.store.jobs.get(job_id).status is JobStatus.SUCCEEDED


def test_a_killed_job_gets_no_other_attempt_if_it_was_cancelled_or_its_user_resumes_jobs(jobs: JobHome) -> None:
    cancelled, _ = dead_job(jobs)
    jobs.runner.cancel(cancelled)
    jobs.runner.reconcile()
    assert jobs.store.jobs.get(cancelled).status is JobStatus.CANCELLED
    killed, _ = dead_job(jobs)
    without_auto_resume = jobs.runner_with(auto_resume=False)
    without_auto_resume.reconcile()
    assert jobs.store.jobs.get(killed).status is JobStatus.INTERRUPTED
    assert without_auto_resume.cancel(killed).status is JobStatus.CANCELLED


@pytest.mark.usefixtures("jobs_in_process")
def test_a_row_without_a_directory_is_enough_and_an_attempt_that_never_began_costs_nothing(jobs: JobHome) -> None:
    """Its starter died right after the insert, or between moving the row and starting the shim: attempt 1 is still to come."""
    inserted = jobs.runner_with(slots=0, light_kinds=frozenset()).start(SelftestSpec(steps=2)).job
    assert not jobs.directory(inserted.id).path.exists()
    jobs.runner.reconcile()
    assert jobs.wait(inserted.id, JobStatus.SUCCEEDED, reconcile=jobs.runner).step == 2
    job_id, _ = dead_job(jobs)
    (jobs.directory(job_id).path / "shim.json").unlink()
    jobs.runner.reconcile()
    assert jobs.wait(job_id, JobStatus.SUCCEEDED, reconcile=jobs.runner).attempt == 1


def test_a_pass_of_the_reconciler_indexes_the_texts_of_new_runs(jobs: JobHome) -> None:
    if jobs.store.engine.dialect.name != "sqlite":
        pytest.skip("PostgreSQL indexes every run at once")
    jobs.store.trajectories.add_many([trajectory(n) for n in range(3)], now())
    query = "SELECT rowid FROM trajectories_text WHERE trajectories_text MATCH 'cou'"
    with read_transaction(jobs.store.engine) as connection:
        assert connection.exec_driver_sql(query).all() == []
    jobs.runner.reconcile()
    with read_transaction(jobs.store.engine) as connection:
        assert connection.exec_driver_sql(query).all() == [(1,), (2,), (3,)]


def test_a_pass_stores_all_live_jobs_in_one_transaction_and_leaves_out_only_the_one_that_cannot_be_stored(
    jobs: JobHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held locks stand for living workers. One job has events with numbers that no database stores, then a row that is broken."""
    live, locks, try_lock = [], [], processes.try_lock
    for key in "abc":
        live.append(dead_job(jobs, key))
        locks.append(processes.try_lock(jobs.directory(live[-1][0]).lock))
    assert None not in locks
    updates: list[str] = []

    @event.listens_for(jobs.store.engine, "before_cursor_execute")
    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        updates.extend([statement] if statement.startswith("UPDATE jobs") and "offsets" in statement else [])

    for _, reporter in live:
        reporter.progress(1, 2, {"loss": 1.0})
    assert jobs.runner.reconcile() == {job_id for job_id, _ in live}
    assert len(updates) == 1
    assert jobs.runner.reconcile() == set()
    assert len(updates) == 1

    for _, reporter in live:
        reporter.progress(2, 2, {"loss": 0.5})
    bad, *good = (job_id for job_id, _ in live)
    with jobs.directory(bad).events.open("ab") as file:
        newest = jobs.directory(bad).events.read_bytes().splitlines()[-1]
        for name, value in ((b"seq", 1), (b"step", 2)):
            file.write(newest.replace(b'"%b":%d' % (name, value), b'"%b":%d' % (name, 2**63)) + b"\n")
    assert jobs.runner.reconcile() == {bad, *good}
    assert [jobs.store.jobs.get(job_id).step for job_id in (bad, *good)] == [2, 2, 2]
    (warning,) = jobs.store.jobs.get(bad).warnings
    assert warning.startswith("bad_output: 2 event line(s)")

    for _, reporter in live:
        reporter.progress(3, 3, {"loss": 0.4})
    run = trajectory(1).identified()
    live[0][1].output("trajectory", run)
    live[0][1].output("score", Score(trajectory_id=run.id or "", scorer="length", status="scored", value=1.0))
    with write_transaction(jobs.store.engine) as connection:
        connection.execute(update(table).where(table.c.id == bad).values(metrics="["))
    assert jobs.runner.reconcile() == set(good)
    assert jobs.store.trajectories.count(TrajectoryFilter()) == 0, (
        "its run and its events are stored together or not at all"
    )
    assert "cannot be looked after" in (jobs.runner.trouble(bad) or "")
    assert [jobs.runner.trouble(job_id) for job_id in good] == [None, None]
    during: list[str | None] = []

    def observed(path: Path) -> int | None:
        during.append(jobs.runner.trouble(bad))
        return None

    monkeypatch.setattr(processes, "try_lock", lambda path: observed(path) if path.name == "lock" else try_lock(path))
    jobs.runner.reconcile()
    assert len(during) == 3
    assert None not in during, "a trouble that lasts is there for readers while a pass runs"
    with write_transaction(jobs.store.engine) as connection:
        connection.execute(update(table).where(table.c.id == bad).values(metrics="{}"))
    assert jobs.runner.reconcile() == {bad}
    assert jobs.store.jobs.get(bad).step == 3
    assert [score.value for score in jobs.store.scores.of_trajectory(run.id or "")] == [1.0]
    for job_id, lock in zip((bad, *good), locks, strict=True):
        jobs.store.jobs.finish(job_id, 1, JobStatus.FAILED, now())
        processes.unlock(lock)


def test_a_reader_relies_on_a_fresh_pass_but_not_past_a_change_by_its_own_process(jobs: JobHome) -> None:
    job_id, reporter = dead_job(jobs)
    lock = processes.try_lock(jobs.directory(job_id).lock)
    jobs.runner.reconcile()
    reporter.progress(1, 2, {"loss": 1.0})
    jobs.runner.refresh(within_s=60)
    assert jobs.store.jobs.get(job_id).step == 0
    jobs.runner.refresh(within_s=0)
    assert jobs.store.jobs.get(job_id).step == 1
    reporter.progress(2, 2, {"loss": 1.0})
    jobs.runner.cancel(job_id)
    jobs.runner.refresh(within_s=60)
    assert jobs.store.jobs.get(job_id).step == 2
    assert not jobs.runner.is_idle
    processes.unlock(lock)
    jobs.runner.reconcile()
    jobs.runner.reconcile()
    assert jobs.runner.is_idle
