"""What the job tools say of a job: label, what it waits for, silence, and the next step."""

from __future__ import annotations

from datetime import timedelta

import pytest

from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import TextRow
from quintain.records.hyperparameters.methods import CONFIGS
from quintain.records.jobs.job import EvaluateSpec, JobError, JobResult, JobSpec, JobStatus, TrainSpec
from quintain.records.jobs.job_events import Activity, JobEvent
from quintain.store.job_spans import Span
from quintain.tools.jobs.descriptions import label_of
from quintain.tools.jobs.jobs import cancel_job, get_job, list_jobs, watch_job
from quintain.tools.jobs.next_steps import next_step
from quintain.tools.services import Services
from store_shelves import job
from tools.stored_records import freeze_rows, freeze_runs
from trajectory_runs import run

STARTER = Agent(id="agent:starter@1", name="starter", model=ModelRef(source="starter", path="starter"))
GRPO = TrainSpec(
    method="grpo",
    agent=STARTER,
    environment="quintain/inventory",
    name="picker",
    output_dir="unused",
    config=CONFIGS["grpo"](),
)
EVALUATE = EvaluateSpec(agent=STARTER, environment="quintain/inventory", n_tasks=20, repeats=2)


def stored(services: Services, job_id: str, spec: JobSpec, *, running: bool = False) -> str:
    """Store a job; a running one without a process, while nobody may reconcile."""
    (services.settings.jobs_dir / job_id).mkdir()
    status = JobStatus.RUNNING if running else JobStatus.QUEUED
    return job(services.store, job_id, spec, status, now=services.clock())


def reported(services: Services, job_id: str, gap_s: float, n: int, quiet_s: float) -> None:
    """Store `n` steps, `gap_s` seconds apart, the last one `quiet_s` seconds ago."""
    now = services.clock()
    events = [
        JobEvent(
            attempt=1,
            seq=step,
            time=now - timedelta(seconds=quiet_s + gap_s * (n - step)),
            type="progress",
            step=step,
            total_steps=100,
            metrics={"loss": 1.0},
        )
        for step in range(1, n + 1)
    ]
    services.store.jobs.ingest_spans([Span(job_id, "events.jsonl", 0, 1, events)], now)


def test_jobs_have_labels_and_a_queued_one_names_what_holds_its_slot(waiting: Services) -> None:
    stored(waiting, "job-1", GRPO, running=True)
    stored(waiting, "job-2", EVALUATE)
    stored(waiting, "job-3", GRPO)
    newest, second, first = list_jobs(waiting).items
    assert first.label == "grpo starter -> picker on quintain/inventory"
    assert second.label == "evaluate starter on quintain/inventory: 20 tasks x 2 repeats, held_out"
    assert label_of(EVALUATE.model_copy(update={"dataset_id": "ds-1"})).startswith("evaluate starter on ds-1: 20 tasks")
    assert first.waiting_for is None
    assert second.waiting_for.held_by == {"job-1": first.label}
    assert second.waiting_for.slots == waiting.settings.slots
    assert (second.waiting_for.ahead, newest.waiting_for and newest.waiting_for.ahead) == (0, 1)
    view = get_job(waiting, "job-2")
    assert (view.label, view.waiting_for) == (second.label, second.waiting_for)


def test_a_silent_job_is_stalled_without_a_time_left_and_a_steady_one_is_not(waiting: Services) -> None:
    """Steps every 2 s: 75 s of silence are remarkable, 8 s are not; steps every 60 s make 75 s usual."""
    for job_id, gap_s, quiet_s in (("job-1", 2.0, 75.0), ("job-2", 2.0, 8.0), ("job-3", 60.0, 75.0)):
        reported(waiting, stored(waiting, job_id, GRPO, running=True), gap_s, 6, quiet_s)
    silent, steady, slow = (get_job(waiting, f"job-{n}") for n in (1, 2, 3))
    assert silent.quiet_for_s == pytest.approx(75, abs=2)
    silence = f"o step for {silent.quiet_for_s:.0f} s, usually 2 s"
    assert (silent.stalled or "").startswith(f"n{silence}; the machine has load ")
    assert silent.eta_s is None
    listed = list_jobs(waiting)
    assert [item.job_id for item in listed.items if item.stalled] == ["job-1"]
    assert "job-1 seems stalled; look at it with get_job(job_id='job-1')" in listed.next_step
    queued = get_job(waiting, stored(waiting, "job-0", GRPO))
    assert "which seems stalled (no step for" in queued.next_step
    assert "get_job(job_id='job-1')" in queued.next_step
    assert f"N{silence}" in silent.next_step
    assert "detail='log'" in silent.next_step
    assert (steady.stalled, slow.stalled) == (None, None)
    assert steady.eta_s == pytest.approx(94 * 2)
    assert steady.last_progress_at is not None
    unknown = get_job(waiting, stored(waiting, "job-4", GRPO, running=True))
    assert (unknown.stalled, unknown.quiet_for_s) == (None, pytest.approx(0, abs=2))


def test_an_evaluation_shows_its_turns_before_its_first_batch_ends(waiting: Services) -> None:
    job_id, now = stored(waiting, "job-1", EVALUATE, running=True), waiting.clock()
    turns = Activity(episodes=0, planned=40, turns=64, expected_turns=320, left_s=128.0)
    event = JobEvent(attempt=1, seq=0, time=now, type="activity", activity=turns)
    waiting.store.jobs.ingest_spans([Span(job_id, "events.jsonl", 0, 1, [event])], now)
    view = get_job(waiting, job_id)
    assert (view.activity, view.eta_s) == (turns, 128.0)


def test_the_wait_for_the_end_outlasts_a_change_of_phase_and_a_cancelled_job_is_not_to_be_cancelled(
    waiting: Services,
) -> None:
    job_id, now = stored(waiting, "job-1", GRPO, running=True), waiting.clock()
    assert "cancel_job" in get_job(waiting, job_id).next_step
    events = [JobEvent(attempt=1, seq=n, time=now, type="phase", name=name) for n, name in enumerate(("a", "b"))]
    looks: list[tuple[str | None, str]] = []
    for n, view in enumerate(watch_job(waiting, job_id, wait_s=30, until="done")):
        looks.append((view.phase, view.status))
        if n < 2:
            waiting.store.jobs.ingest_spans([Span(job_id, "events.jsonl", n, n + 1, events[n : n + 1])], now)
        elif n == 2:
            assert "asked to stop" in (said := cancel_job(waiting, job_id).next_step)
            assert "cancel_job" not in said
            waiting.store.jobs.finish(job_id, 1, JobStatus.CANCELLED, now)
    assert looks == [(None, "running"), ("a", "running"), ("b", "running"), ("b", "cancelled")]


def test_after_episodes_without_a_verdict_the_next_step_plays_one_in_the_environment(waiting: Services) -> None:
    job_id = stored(waiting, "job-1", GRPO, running=True)
    error = JobError(code="no_verdict", message="got none")
    waiting.store.jobs.finish(job_id, 1, JobStatus.FAILED, waiting.clock(), error=error)
    play, resume = get_job(waiting, job_id).next_step.calls
    assert (play.tool, play.arguments["environment"], play.arguments["agent"]) == (
        "collect_rollouts",
        "quintain/inventory",
        "agent:starter@1",
    )
    assert resume.tool == "resume_job"
    assert "begins again with the same settings" in get_job(waiting, job_id).next_step
    (waiting.settings.jobs_dir / job_id / "checkpoints" / "step-1").mkdir(parents=True)
    assert "continues from its newest checkpoint" in get_job(waiting, job_id).next_step


def test_the_settings_of_a_job_have_its_seed_and_each_value_and_a_list_its_times(waiting: Services) -> None:
    job_id = stored(waiting, "job-1", GRPO, running=True)
    assert get_job(waiting, job_id).settings is None
    settings = get_job(waiting, job_id, detail="settings").settings
    assert settings is not None
    assert TrainSpec.model_validate(settings) == waiting.store.jobs.get(job_id).spec
    assert (settings["seed"], settings["config"]["method"]) == (GRPO.seed, "grpo")
    waiting.store.jobs.finish(job_id, 1, JobStatus.FAILED, ended := waiting.clock())
    (listed,) = list_jobs(waiting).items
    assert (listed.started_at, listed.ended_at) == (waiting.store.jobs.get(job_id).started_at, ended)


def test_an_agent_is_measured_where_its_rows_were_played_or_on_its_dataset(waiting: Services) -> None:
    """By the id of the dataset: the name may be that of a newer one."""
    texts = freeze_rows(waiting, "text", [TextRow(text="a"), TextRow(text="b")], "notes")
    played = freeze_runs(waiting, run("t1"))
    for job_id, method, dataset_id, measured in (
        ("job-1", "pretrain", texts, {"dataset_id": texts, "split": "train"}),
        ("job-2", "sft", played, {"environment": "quintain/inventory"}),
    ):
        given = {"method": method, "dataset_id": dataset_id, "config": CONFIGS[method]()}
        stored(waiting, job_id, TrainSpec(agent=STARTER, name="n", output_dir="unused", **given), running=True)
        result = JobResult(agent="agent:n@1")
        waiting.store.jobs.finish(job_id, 1, JobStatus.SUCCEEDED, waiting.clock(), result=result)
        evaluate, _ = get_job(waiting, job_id).next_step.calls
        assert evaluate.arguments == {"agent": "agent:n@1", **measured}


def test_an_evaluation_without_verdicts_and_losses_is_not_to_be_compared(waiting: Services) -> None:
    job_id, result = stored(waiting, "job-1", EVALUATE, running=True), JobResult(evaluation_id="eval-1", n=0, n_error=2)
    waiting.store.jobs.finish(job_id, 1, JobStatus.SUCCEEDED, waiting.clock(), result=result)
    hint = next_step(waiting, waiting.store.jobs.get(job_id))
    assert hint == "No task has a verdict, so there is nothing to compare; 2 episodes ended with an error."
