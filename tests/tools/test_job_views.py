"""What the tools say and show of jobs, evaluations and comparisons: labels, next steps, conversations, figures and reports."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from evaluation.test_comparison import evaluated
from jobs_in_process import _run_in_main_thread
from quintain.cli.command_lines import render_for_terminal
from quintain.errors import Conflict, InvalidInput, NotFound, Unavailable
from quintain.evaluation.reports.figures import line
from quintain.jobs import processes
from quintain.jobs.directory import JobDirectory
from quintain.records.agent import Agent, Agreement, ModelRef, Sampling
from quintain.records.dataset import Dataset, TextRow
from quintain.records.filters import TrajectoryFilter
from quintain.records.hyperparameters.methods import CONFIGS, DPOConfig, SFTConfig
from quintain.records.jobs.evolve import EvolveConfig
from quintain.records.jobs.job import (
    CompareSpec,
    EvaluateSpec,
    EvolveSpec,
    ImportSpec,
    JobError,
    JobResult,
    JobSpec,
    JobStatus,
    RecipeSpec,
    RolloutSpec,
    SelftestSpec,
    TrainSpec,
)
from quintain.records.jobs.job_events import Activity, JobEvent
from quintain.records.jobs.talk import MESSAGES, TalkMessage, TalkSpec
from quintain.records.trajectory import OutcomeStatus
from quintain.store.database.engine import write_transaction
from quintain.store.database.tables import jobs as table
from quintain.store.job_spans import Span
from quintain.tools.evaluation.comparison import compare_agents, comparison_picture
from quintain.tools.evaluation.conversations import talk_to_agent, watch_talk
from quintain.tools.jobs import plots, search
from quintain.tools.jobs.dashboard import show_training_dashboard
from quintain.tools.jobs.descriptions import metric_curves, thin_curves
from quintain.tools.jobs.figures import figure_of, figure_text, shown_by
from quintain.tools.jobs.jobs import annotate_job, cancel_job, get_job, list_jobs, resume_job, start, watch_job
from quintain.tools.jobs.next_steps import next_step
from quintain.tools.jobs.plots import plot_job, save_report
from quintain.tools.jobs.record_reports import job_report
from quintain.tools.results import Curve
from quintain.tools.services import Services
from quintain.tools.training.agents import resolve_agent
from quintain.tools.training.start import start_training
from quintain.tools.web_address import page_announced
from quintain.worker.pictures.draw import draw
from quintain.worker.pictures.panels import draw_panels
from store_shelves import job
from tools.stored_records import error_of, freeze_rows, freeze_runs
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
EVOLVE = EvolveSpec(
    name="pupil",
    agent=STARTER,
    environment="quintain/inventory",
    config=EvolveConfig(iterations=2),
    training=SFTConfig(),
    output_dir="/o",
    datasets_dir="/d",
)


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
    stored(waiting, "job-3", GRPO.model_copy(update={"seed": 3}))
    newest, second, first = list_jobs(waiting).items
    assert first.label == "grpo starter -> picker on quintain/inventory"
    assert newest.label == f"{first.label}, seed 3"
    assert second.label == "evaluate starter on quintain/inventory: 20 tasks x 2 repeats, held_out"
    stored(waiting, "job-4", EVALUATE.model_copy(update={"agent": STARTER.model_copy(update={"version": 2})}))
    assert list_jobs(waiting).items[0].label.startswith("evaluate starter@2 on "), "two versions are told apart"
    assert first.waiting_for is None
    assert second.waiting_for.held_by == {"job-1": first.label}
    assert second.waiting_for.slots == waiting.settings.slots
    assert (second.waiting_for.ahead, newest.waiting_for and newest.waiting_for.ahead) == (0, 1)
    view = get_job(waiting, "job-2")
    assert (view.label, view.waiting_for) == (second.label, second.waiting_for)


def test_a_list_names_the_jobs_that_this_version_cannot_read_and_shows_the_others(waiting: Services) -> None:
    for job_id in ("job-1", "job-2"):
        stored(waiting, job_id, EVALUATE)
    with write_transaction(waiting.store.engine) as connection:
        connection.execute(update(table).where(table.c.id == "job-2").values(spec='{"kind": "newer"}'))
    listed = list_jobs(waiting)
    assert [item.job_id for item in listed.items] == ["job-1"]
    assert "Left out job-2, which this version cannot read; upgrade" in listed.next_step
    assert listed.unreadable == ("job-2",)


def test_labels_name_datasets_as_people_do_and_files_without_their_folders(
    waiting: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = Dataset(id="ds-1", name="good-runs", kind="sft", path="unused", rows=1, splits={"train": 1})
    waiting.store.datasets.add(dataset, {}, waiting.clock())
    on_rows = GRPO.model_copy(update={"environment": None, "dataset_id": "ds-1"})
    of_file = EVALUATE.model_copy(update={"environment": "quintain/tasks?file=/home/ann/quiz.csv&plain=true"})
    benchmark = EVALUATE.model_copy(update={"dataset_id": "ds-unknown"})
    for n, spec in enumerate((on_rows, of_file, benchmark)):
        stored(waiting, f"job-{n}", spec)
    assert [item.label.partition(":")[0] for item in list_jobs(waiting).items] == [
        "evaluate starter on ds-unknown",
        "evaluate starter on quintain/tasks?file=quiz.csv&plain=true",
        "grpo starter -> picker on good-runs",
    ]
    annotate_job(waiting, "job-2", note="Trial of the quiz bench")
    assert [item.job_id for item in list_jobs(waiting, text="STARTER quiz", limit=1).items] == ["job-2"]
    newest = list_jobs(waiting, text="starter quiz", limit=1)
    assert [item.job_id for item in list_jobs(waiting, text="starter quiz", cursor=newest.next_cursor).items] == [
        "job-1"
    ]
    assert "lists all" in str(list_jobs(waiting, text="nothing-is-called-so").next_step)
    monkeypatch.setattr(search, "READ", 2)
    none_yet = list_jobs(waiting, text="picker good-runs", limit=1)
    assert (none_yet.items, "go on with `cursor`" in str(none_yet.next_step)) == ((), True)
    assert [item.job_id for item in list_jobs(waiting, text="picker", cursor=none_yet.next_cursor).items] == ["job-0"]


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
    talk = TalkSpec(agent=BASE, message="Hello?")
    reported(waiting, stored(waiting, "job-talk", talk, running=True), 2.0, 6, 75.0)
    assert get_job(waiting, "job-talk").stalled is None, "a conversation waits for the person"


def test_a_job_that_waits_in_the_queue_of_a_cluster_says_so_and_is_not_stalled(
    waiting: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported(waiting, stored(waiting, "job-1", GRPO, running=True), 2.0, 6, 75.0)
    monkeypatch.setattr(waiting.jobs, "launcher_queue", lambda job: "slurm" if job.id == "job-1" else None)
    view = get_job(waiting, "job-1")
    assert (view.phase, view.stalled, view.quiet_for_s) == ("in the queue of slurm", None, None)
    assert view.next_step.startswith("Wait for its end")


def test_what_keeps_a_job_from_being_looked_after_is_in_its_view_and_in_the_list(services: Services) -> None:
    stored(services, "job-1", GRPO, running=True)
    directory = JobDirectory(services.settings.jobs_dir / "job-1")
    lock = processes.try_lock(directory.lock)
    assert lock is not None, "the job looks alive"
    directory.events.mkdir()
    services.jobs.reconcile()
    view, listed = get_job(services, "job-1"), list_jobs(services)
    processes.unlock(lock)
    assert view.status == "running"
    assert "it cannot be looked after now: [Errno 21]" in (view.trouble or "")
    assert (listed.items[0].trouble, view.eta_s) == (view.trouble, None)
    assert listed.next_step.startswith("job-1 is in trouble; look at it with ")


def test_an_evaluation_shows_its_turns_before_its_first_batch_ends_and_after_a_cancel_what_is_left(
    waiting: Services,
) -> None:
    job_id, now = stored(waiting, "job-1", EVALUATE, running=True), waiting.clock()
    turns = Activity(episodes=0, planned=40, turns=64, expected_turns=320, left_s=128.0)
    event = JobEvent(attempt=1, seq=0, time=now, type="activity", activity=turns)
    waiting.store.jobs.ingest_spans([Span(job_id, "events.jsonl", 0, 1, [event])], now)
    view = get_job(waiting, job_id)
    assert (view.activity, view.eta_s) == (turns, 128.0)
    waiting.store.jobs.finish(job_id, 1, JobStatus.CANCELLED, now)
    assert "plays the episodes that are left" in get_job(waiting, job_id).next_step


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
    assert cancel_job(waiting, job_id).next_step.startswith("It had ended before. ")


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
    spec = GRPO.model_copy(update={"agent": resolve_agent(waiting, "starter")})
    job_id = stored(waiting, "job-1", spec, running=True)
    assert get_job(waiting, job_id).settings is None
    settings = get_job(waiting, job_id, detail="settings").settings
    assert settings is not None
    assert TrainSpec.model_validate(settings) == spec.model_copy(update={"agent": spec.agent.without_install_path()})
    assert spec.agent.model.path not in str(settings), "the folder of this installation"
    assert (settings["seed"], settings["config"]["method"]) == (GRPO.seed, "grpo")
    waiting.store.jobs.finish(job_id, 1, JobStatus.FAILED, ended := waiting.clock())
    (listed,) = list_jobs(waiting).items
    assert (listed.started_at, listed.ended_at) == (waiting.store.jobs.get(job_id).started_at, ended)


def test_the_settings_of_a_training_come_with_the_call_that_repeats_it_with_another_seed(waiting: Services) -> None:
    reward = {"outcome": 0.5, "calls": {"full_at": 1, "zero_at": 8}, "short": {"type": "length", "zero_at": 9}}
    given = {"method": "grpo", "model": "starter", "environment": "quintain/inventory", "name": "lean"}
    first = start_training(waiting, **given, reward=reward, hyperparameters={"rollouts": 2, "loss": "grpo"}, seed=4)
    repeat, *_ = get_job(waiting, first.job_id, detail="settings").next_step.calls
    second = start_training(waiting, **repeat.arguments)
    one, other = (waiting.store.jobs.get(started.job_id).spec for started in (first, second))
    assert isinstance(other, TrainSpec)
    changed = {"seed": 5, "name": "lean-5", "output_dir": other.output_dir}
    assert other == one.model_copy(update=changed)


def test_an_agent_is_measured_where_its_training_or_its_rows_were_played_or_on_its_dataset(waiting: Services) -> None:
    """By the id of the dataset: the name may be that of a newer one."""
    texts = freeze_rows(waiting, "text", [TextRow(text="a"), TextRow(text="b")], "notes")
    played = freeze_runs(waiting, run("t1"))
    quiz = EVALUATE.model_copy(update={"environment": "quintain/tasks?file=/quiz.jsonl"})
    answered = freeze_runs(waiting, run("t2", job_id=stored(waiting, "job-0", quiz)))
    own = EVALUATE.model_copy(
        update={"environment": "quintain/inventory?tasks=/own.jsonl"}
    )  # all of them were learned from
    written = freeze_runs(waiting, run("t3", job_id=stored(waiting, "job-own", own)))
    easy = EVALUATE.model_copy(update={"environment": "quintain/inventory?difficulty=easy"})
    simple = freeze_runs(waiting, run("t4", job_id=stored(waiting, "job-easy", easy)))
    by_itself = {"evaluate_environment": easy.environment, "evaluate_every_steps": 5}
    for job_id, method, dataset_id, settings, measured in (
        ("job-1", "pretrain", texts, {}, {"dataset_id": texts, "split": "train"}),
        ("job-2", "sft", played, {}, {"environment": "quintain/inventory"}),
        ("job-3", "sft", answered, {}, {"environment": quiz.environment}),
        ("job-4", "sft", written, {}, {"environment": "quintain/inventory"}),
        ("job-5", "sft", simple, {}, {"environment": easy.environment}),
        ("job-6", "pretrain", texts, by_itself, {"environment": easy.environment}),
    ):
        given = {"method": method, "dataset_id": dataset_id, "config": CONFIGS[method](**settings)}
        stored(waiting, job_id, TrainSpec(agent=STARTER, name="n", output_dir="unused", **given), running=True)
        result = JobResult(agent="agent:n@1")
        waiting.store.jobs.finish(job_id, 1, JobStatus.SUCCEEDED, waiting.clock(), result=result)
        hint = get_job(waiting, job_id).next_step
        assert ("on rows that it learned from" in hint) == ("split" in measured)
        evaluate, start, compare = hint.calls
        assert evaluate.arguments == {"agent": "agent:n@1", **measured}
        assert start.arguments == {"agent": STARTER.id or STARTER.name, **measured}
        assert compare.arguments == {"agents": [start.arguments["agent"], "agent:n@1"]}


def test_an_agent_is_measured_on_the_tasks_of_its_start_where_nothing_else_is_known_or_it_learned_there(
    waiting: Services,
) -> None:
    """Rows of logs were played nowhere known: success on tasks is better evidence than the loss of rows that were learned from."""
    base = BASE.model_copy(update={"id": "agent:base@1"})
    warm = {"environment": "quintain/inventory", "sampling": Sampling(temperature=0.7)}
    measured = evaluated("base", "0111", "0110").model_copy(update=warm)
    of_rows = evaluated("base", "01", suite="rows").model_copy(update={"id": "eval-rows", "dataset_id": "ds-1"})
    final = measured.model_copy(update={"id": "eval-final", "job_id": stored(waiting, "job-0", EVOLVE), "seed": 9})
    for evaluation in (measured, of_rows, final):
        waiting.store.evaluations.add(evaluation, waiting.clock())
    texts = freeze_rows(waiting, "text", [TextRow(text="a")], "notes")
    spec = TrainSpec(
        agent=base, name="n", method="pretrain", dataset_id=texts, config=CONFIGS["pretrain"](), output_dir="unused"
    )
    stored(waiting, "job-1", spec, running=True)
    result = JobResult(agent="agent:n@1")
    waiting.store.jobs.finish("job-1", 1, JobStatus.SUCCEEDED, waiting.clock(), result=result)
    evaluate, compare = get_job(waiting, "job-1").next_step.calls
    same = {"environment": "quintain/inventory", "n_tasks": 4, "repeats": 2, "sampling": {"temperature": 0.7}}
    assert evaluate.arguments == {"agent": "agent:n@1", **same}
    assert compare.arguments == {"agents": ["agent:base@1", "agent:n@1"]}
    acting = {"environment": "quintain/inventory", "method": "grpo", "config": CONFIGS["grpo"]()}
    stored(waiting, "job-2", TrainSpec(agent=base, name="m", output_dir="unused", **acting), running=True)
    waiting.store.jobs.finish("job-2", 1, JobStatus.SUCCEEDED, waiting.clock(), result=JobResult(agent="agent:m@1"))
    assert [one.arguments for one in get_job(waiting, "job-2").next_step.calls] == [
        {"agent": "agent:m@1", **same}, {"agents": ["agent:base@1", "agent:m@1"]},
    ]  # fmt: skip


def test_agents_that_did_the_same_tasks_are_compared_and_not_measured_again(services: Services) -> None:
    """The agent of a recipe with the one that it began with, not with the parent of that one."""
    base = BASE.model_copy(update={"id": "agent:base@1", "parent": "agent:older@1"})
    for name in ("base", "pupil"):
        services.store.evaluations.add(evaluated(name, "0111"), services.clock())
    job_id = finished_with(services, trained(agent=base), step(1, loss=1.0))
    hint = next_step(services, services.store.jobs.get(job_id))
    assert [one.arguments for one in hint.calls] == [{"agents": ["agent:base@1", "agent:pupil@1"]}]
    stages = [{"kind": "evaluate", "label": "after", "environment": "quintain/inventory"}]
    recipe = {"name": "pupil", "agent": base, "stages": stages, "output_dir": "/o"}
    stored(services, "job-2", RecipeSpec.model_validate(recipe), running=True)
    result = JobResult(agent="agent:pupil@1", evaluation_id="eval-1", n=4)
    services.store.jobs.finish("job-2", 1, JobStatus.SUCCEEDED, services.clock(), result=result)
    hint = next_step(services, services.store.jobs.get("job-2"))
    assert [one.arguments for one in hint.calls] == [{"agents": ["agent:base@1", "eval-1"]}]


def test_a_sequential_comparison_says_which_agent_is_better(waiting: Services) -> None:
    """The difference is that of b to a."""
    sides = {name: EVALUATE.model_copy(update={"agent": STARTER.model_copy(update={"name": name})}) for name in "ab"}
    for job_id, test, said in (
        ("job-1", {"decision": "difference", "difference": -0.3}, "difference, a is better. "),
        ("job-2", {"decision": "difference", "difference": 0.3}, "difference, b is better. "),
        ("job-3", {"decision": "undecided", "difference": 0.1}, "undecided. "),
    ):
        stored(waiting, job_id, CompareSpec(comparison_id="cmp-1", **sides), running=True)
        result = JobResult(comparison_id="cmp-1", report={"sequential": {"n_tasks": 32, **test}})
        waiting.store.jobs.finish(job_id, 1, JobStatus.SUCCEEDED, waiting.clock(), result=result)
        assert f"Decision after 32 tasks: {said}" in next_step(waiting, waiting.store.jobs.get(job_id))


def test_a_name_and_a_note_stay_until_they_are_taken_back_without_their_secrets(waiting: Services) -> None:
    job_id = stored(waiting, "job-1", GRPO)
    annotate_job(waiting, job_id, name=" Before the fix ", note=f"Key sk-proj-{'a1B2' * 12} was in the rows.")
    view, (listed,) = get_job(waiting, job_id), list_jobs(waiting).items
    assert (view.label, view.name, listed.label, listed.note) == (*["Before the fix"] * 3, view.note)
    assert (view.note or "").startswith("Key ")
    assert "a1B2" not in (view.note or "")
    view = annotate_job(waiting, job_id, name="")
    assert (view.label, view.name) == ("grpo starter -> picker on quintain/inventory", None)
    assert annotate_job(waiting, job_id, note="a\0b\ud800\n\u202ec").note == "a\ufffdb\ufffd\n\ufffdc"
    assert annotate_job(waiting, job_id, note=" ").note is None
    for code, message, arguments in (
        ("invalid_input", "expected `name` or `note`, got none", {}),
        ("not_found", "job-9", {"job_id": "job-9", "name": "x"}),
    ):
        error = error_of(annotate_job, waiting, **{"job_id": job_id, **arguments})
        assert (error.code, message in error.message) == (code, True), error.message


def test_an_evaluation_without_verdicts_and_losses_is_not_to_be_compared(waiting: Services) -> None:
    """Runs that nothing judged, as of prompts without an answer, can be scored."""
    for name, counts, said in (
        ("job-1", {"n_error": 2}, "; 2 episodes ended with an error."),
        ("job-2", {"n_unknown": 4}, ". score_trajectories(scorer=..., filter={'job_id': 'job-2'}) values its runs."),
    ):
        job_id = stored(waiting, name, EVALUATE, running=True)
        result = JobResult.model_validate({"evaluation_id": f"eval-{name}", "n": 0, **counts})
        waiting.store.jobs.finish(job_id, 1, JobStatus.SUCCEEDED, waiting.clock(), result=result)
        hint = next_step(waiting, waiting.store.jobs.get(job_id))
        assert hint == f"No task has a verdict, so there is nothing to compare{said}"


KEY = "ghp_" + "x7Q2aB" * 6
"""Of the form of a key."""


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> list[TalkMessage]:
    """What the person has sent when a job begins; jobs run in this process."""
    messages: list[TalkMessage] = []

    def run(argv: Sequence[str], *rest: Any) -> None:
        path = Path(argv[-1]) / MESSAGES
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(one.model_dump_json() + "\n" for one in messages), encoding="utf-8")
        _run_in_main_thread(argv, *rest)

    monkeypatch.setattr(processes, "start_detached", run)
    return messages


def test_a_conversation_goes_on_with_tools_until_the_person_keeps_it_as_a_run(
    services: Services, says: list[TalkMessage]
) -> None:
    says += [TalkMessage(text="And which is cheaper?"), TalkMessage(end="keep")]
    begun = talk_to_agent(
        services, "starter", f"My key is {KEY}. What is the price of the red lamp?", environment="quintain/inventory"
    )
    *_, talk = watch_talk(services, job_id=begun.job_id)
    assert (talk.turn, talk.status, talk.ended, talk.kept) == ("over", "succeeded", "by the person", True)
    asked = [step["message"] for step in talk.steps if step["actor"] == "user"]
    assert asked[1:] == ["And which is cheaper?"]
    assert "red lamp" in asked[0]
    assert KEY not in asked[0]
    assert talk.steps[1]["actor"] == "agent"
    assert talk.example, "a task of the environment shows what can be asked"

    (found,) = services.store.trajectories.search(TrajectoryFilter(job_id=talk.job_id)).items
    run = services.store.trajectories.get(found.id)
    assert (run.tags, run.outcome.status, run.agent.name) == (("conversation",), OutcomeStatus.UNKNOWN, "starter")
    assert run.tools, "the environment's tools were offered"
    assert all(step.sampled for step in run.agent_steps), "the sampled ids are kept for training"
    assert [step.message for step in run.steps if step.actor == "user"] == asked
    with pytest.raises(Conflict, match="this conversation has ended; begin another"):
        talk_to_agent(services, job_id=talk.job_id, message="Hello?")


def test_a_conversation_without_messages_ends_by_itself_and_leaves_no_run(
    services: Services, says: list[TalkMessage]
) -> None:
    assert not says
    spec = TalkSpec(agent=resolve_agent(services, "starter"), message="Hello", idle_s=0.05)
    job_id = start(services, spec, "talk-1").job_id
    services.jobs.reconcile()
    talk = talk_to_agent(services, job_id=job_id)
    assert (talk.turn, talk.kept, talk.ended) == ("over", False, "after 0.05 s without a message")
    assert [step["actor"] for step in talk.steps] == ["user", "agent"]
    assert services.store.trajectories.search(TrajectoryFilter(job_id=job_id)).items == ()
    assert get_job(services, job_id).label == "talk to starter"


def test_a_conversation_that_cannot_begin_is_refused(services: Services) -> None:
    for arguments, message in (
        ({}, "expected either `agent` to begin with or `job_id` to go on with, got both or none"),
        ({"agent": "starter"}, "expected `message` at the beginning of a conversation, got none"),
        ({"agent": "starter", "message": "a", "end": "keep"}, "expected `message` or `end`, got both"),
        ({"agent": "expert", "message": "a"}, "expected a model, got the scripted expert"),
    ):
        with pytest.raises(InvalidInput, match=message):
            talk_to_agent(services, **arguments)
    assert services.store.jobs.unfinished() == []


BASE = Agent(name="base", model=ModelRef(source="folder", path="/m"))


def finished_with(
    services: Services, spec: JobSpec, *events: dict[str, Any], report: dict[str, Any] | None = None
) -> str:
    """A finished job with these events; `attempt` 1 where an event has none."""
    now = services.clock()
    job(services.store, "job-1", spec, JobStatus.QUEUED, now=now)
    attempts = sorted({event.get("attempt", 1) for event in events})
    for number in attempts:
        services.store.jobs.begin_attempt("job-1", number - 1, number, now)
    rows = [JobEvent(**{"attempt": 1, "seq": n, "time": now, **event}) for n, event in enumerate(events)]
    services.store.jobs.ingest_spans([Span("job-1", "events.jsonl", 0, 1, rows)], now)
    result = JobResult(agent="agent:pupil@1", report=report or {})
    services.store.jobs.finish("job-1", attempts[-1], JobStatus.SUCCEEDED, now, result=result)
    return "job-1"


def step(n: int, attempt: int = 1, **metrics: float) -> dict[str, Any]:
    return {"type": "progress", "step": n, "total_steps": 9, "metrics": metrics, "attempt": attempt}


def phase(stage: str) -> dict[str, Any]:
    return {"type": "phase", "name": f"{stage} working"}


def trained(**more: Any) -> TrainSpec:
    given = {"agent": BASE, "name": "pupil", "output_dir": "/o", "dataset_id": "ds-1", **more}
    return TrainSpec.model_validate(given)


def test_a_line_is_broken_where_steps_have_no_value_and_smooth_where_it_has_enough_points() -> None:
    """Steps 1 to 10, none from 11 to 19, then 20 to 29."""
    steps = [*range(1, 11), *range(20, 30)]
    found = line({n: float(n % 2) for n in steps}, "loss")
    assert found["x"][9:12] == [10, 15, 20]
    assert found["y"][9:12] == [0.0, None, 0.0]
    smooth = [value for value in found["smooth"] if value is not None]
    assert max(smooth[8:]) - min(smooth[8:]) < 0.7, "the raw values swing by 1"
    assert "smooth" not in line({1: 0.5, 2: 0.4}, "loss")


def test_a_training_shows_held_out_success_before_and_after_first_and_marks_its_resumption(services: Services) -> None:
    services.store.agents.add(BASE, services.clock())
    for name, outcomes in (("base", "0001"), ("pupil", "0111")):
        services.store.evaluations.add(evaluated(name, outcomes), services.clock())
    spec = trained(agent=BASE.model_copy(update={"id": "agent:base@1"}), method="dpo", config=DPOConfig())
    events = (step(1, reward_margin=0.0, loss=0.7), step(2, reward_margin=0.3, loss=0.5), step(3, 2, reward_margin=0.6))
    figure = figure_of(services, finished_with(services, spec, *events))
    assert [panel["title"] for panel in figure["panels"]] == ["Success on held-out tasks", "Preference margin", "Loss"]
    (success,) = figure["panels"][0]["lines"]
    assert (success["x"], success["y"], success["style"]) == ([0, 3], [0.25, 0.75], "measured")
    assert success["low"][1] == pytest.approx(0.194, abs=0.001), "Clopper and Pearson for 3 of 4"
    assert [panel["marks"] for panel in figure["panels"]] == [[{"x": 3, "label": "resumed"}]] * 3
    assert figure["title"] == "Direct preference optimisation: base → pupil, on ds-1"


def test_a_training_without_an_evaluation_says_so_and_a_policy_gradient_shows_no_loss(services: Services) -> None:
    rows = [step(n, loss=0.1 * n, success_rate=0.2 * n, mean_reward=0.3 * n, kl=0.01 * n) for n in (1, 2, 3)]
    spec = trained(dataset_id=None, environment="quintain/inventory", method="grpo", config={"method": "grpo"})
    job_id = finished_with(services, spec, *rows)
    figure = figure_of(services, job_id)
    titles = [panel["title"] for panel in figure["panels"]]
    assert titles == ["Success on training tasks", "Reward while acting", "Distance from the start model"]
    assert "not evaluated on held-out tasks yet" in figure["subtitle"]
    services.store.evaluations.add(evaluated("pupil", "0111"), services.clock())
    assert "75.0% of 4 held-out tasks, where its start was not evaluated" in figure_of(services, job_id)["subtitle"]


def test_a_training_under_a_constraint_shows_its_costs_beside_the_limit(services: Services) -> None:
    costs = {1: (0.9, 0.5), 2: (0.4, 0.8), 3: (0.2, 0.9)}
    rows = [step(n, success_rate=0.2 * n, mean_cost=cost, cost_multiplier=by) for n, (cost, by) in costs.items()]
    config = {"method": "ppo", "constraint": {"limit": 0.25}}
    spec = trained(dataset_id=None, environment="quintain/inventory", method="ppo", config=config)
    _, panel = figure_of(services, finished_with(services, spec, *rows))["panels"]
    assert panel["title"] == "Cost of a run"
    assert {one["label"]: one["y"] for one in panel["lines"]} == {
        "mean cost": [0.9, 0.4, 0.2],
        "multiplier": [0.5, 0.8, 0.9],
        "limit": [0.25] * 3,
    }


def test_a_job_without_metrics_is_waited_for_only_while_it_goes_on(services: Services) -> None:
    ended = finished_with(services, ImportSpec(path="/logs"), phase("reading"))
    waits = f"get_job(job_id='{ended}', until='done'"
    with pytest.raises(InvalidInput, match="read its result with") as refused:
        figure_of(services, ended)
    assert waits not in refused.value.message
    job(services.store, "job-2", ImportSpec(path="/logs"), JobStatus.QUEUED, now=services.clock())
    with pytest.raises(InvalidInput, match="none yet; wait with"):
        figure_of(services, "job-2")


def test_a_training_that_measures_itself_shows_its_curve_with_the_interval_first(services: Services) -> None:
    bounds = {"held_out_success_low": 0.1, "held_out_success_high": 0.9}
    rows = [step(n, loss=0.1 * n, success_rate=0.2 * n) for n in (1, 2, 3)]
    rows += [step(n, held_out_success=0.2 * n, **bounds) for n in (0, 2, 3)]
    spec = trained(dataset_id=None, environment="quintain/inventory", method="grpo", config={"method": "grpo"})
    figure = figure_of(services, finished_with(services, spec, *rows))
    assert figure["panels"][0]["title"] == "Success on held-out tasks"
    measured, acting = figure["panels"][0]["lines"]
    assert [measured[name][0] for name in ("x", "y", "low", "high")] == [0, 0.0, 0.1, 0.9]
    assert [measured[name][-1] for name in ("x", "y", "low", "high")] == [3, pytest.approx(0.6), 0.1, 0.9]
    assert acting["label"] == "training tasks, as it acts"
    assert "not evaluated" not in figure["subtitle"]


def test_the_step_whose_weights_were_kept_is_marked_beside_the_measured_success_too(services: Services) -> None:
    rows = [step(n, validation_loss=loss, held_out_success=0.2 * n) for n, loss in ((1, 0.5), (2, 0.4), (3, 0.6))]
    figure = figure_of(services, finished_with(services, trained(), *rows, report={"best_step": 2}))
    assert [panel["title"] for panel in figure["panels"]] == ["Success on held-out tasks", "Loss"]
    assert [panel["marks"] for panel in figure["panels"]] == [[{"x": 2, "label": "weights kept"}]] * 2
    assert figure["panels"][1]["lines"][0]["best"]["label"] == "lowest loss: step 2"


def test_marks_without_pairs_show_good_and_bad_runs_as_unbroken_lines_and_no_kl_on_rows(services: Services) -> None:
    """Steps of good runs alone or of bad ones, and a hole of the whole run from 5 to 20."""
    steps = [*range(1, 6), *range(20, 25)]
    rows = [step(n, **{"rejected_reward" if n % 3 else "chosen_reward": 0.1 * n}, loss=1.0 / n, kl=n) for n in steps]
    figure = figure_of(services, finished_with(services, trained(method="kto", config={"method": "kto"}), *rows))
    assert [panel["title"] for panel in figure["panels"]] == ["Implicit reward of good and bad runs", "Loss"]
    good, bad = figure["panels"][0]["lines"]
    assert (good["label"], good["x"]) == ("good runs", [3, 21, 24])
    assert [x for x, y in zip(bad["x"], bad["y"], strict=True) if y is None] == [12.5]


def test_a_reward_model_shows_the_order_of_pairs_with_its_held_out_accuracy(services: Services) -> None:
    found = Agreement(of="pairs", right=9, n=10, rate=0.9, ci_low=0.555, ci_high=0.997)
    services.store.agents.add(BASE.model_copy(update={"name": "pupil", "held_out": found}), services.clock())
    rows = [step(n, reward_accuracy=0.3 * n, validation_reward_accuracy=0.2 * n, loss=1.0 / n) for n in (1, 2, 3)]
    figure = figure_of(services, finished_with(services, trained(method="reward", config={"method": "reward"}), *rows))
    assert [panel["title"] for panel in figure["panels"]] == ["Pairs in the right order", "Loss"]
    assert [one["label"] for one in figure["panels"][0]["lines"]] == ["held-out pairs", "training pairs"]
    assert figure["subtitle"].endswith("9 of 10 held-out pairs (90.0%, 95 % 55.5% to 99.7%)")
    assert "not evaluated" not in figure["subtitle"]


def test_an_evolution_is_drawn_by_round_and_its_loss_over_the_steps_that_trained(services: Services) -> None:
    """Steps 1 to 3 and 6 to 9 play episodes; steps 4, 5 and 10 train."""
    rate = {"success_rate": 0.3, "success_rate_low": 0.2, "success_rate_high": 0.4}
    better = {"success_rate": 0.8, "success_rate_low": 0.7, "success_rate_high": 0.9}
    events = [
        *(phase("00-start"), step(1), step(2, **rate)),
        *(phase("01-explore"), step(3), phase("01-train"), step(4, loss=2.0), step(5, loss=1.0)),
        *(phase("01-evaluate"), step(7, **better)),
        *(phase("02-explore"), step(9), phase("02-train"), step(10, loss=1.5), phase("02-evaluate"), step(12, **rate)),
    ]
    report = {"result_round": 1, "rounds": [{"round": 1, "explored_success": 0.0}, {"round": 2}]}
    figure = figure_of(services, finished_with(services, EVOLVE, *events, report=report))
    success, loss = figure["panels"]
    chosen, explored = success["lines"]
    assert (explored["x"], explored["y"]) == ([0], [0.0]), "none solved is a point, unknown is none"
    assert (chosen["x"], chosen["y"], chosen["high"]) == ([0, 1, 2], [0.3, 0.8, 0.3], [0.4, 0.9, 0.4])
    assert chosen["best"] == {"x": 1, "y": 0.8, "label": "best round: 1"}
    assert [tick["label"] for tick in success["ticks"]] == ["start", "round 1", "round 2"]
    assert (loss["lines"][0]["x"], loss["lines"][0]["y"]) == ([1, 2, 2.5, 3], [2.0, 1.0, None, 1.5])
    assert loss["marks"] == [{"x": 1, "label": "round 1"}, {"x": 3, "label": "round 2"}]
    assert "round 2 at step 3" in figure_text(figure)
    first = {"round": 1, "explored": 160, "explored_success": 0.481, "selected": 21, "left_out": {"duplicate": 90}}
    first |= {"success": 0.933, "gain": 0.567, "ci_low": 0.291, "ci_high": 0.745, "decision": "better"}
    rounds = [first, {"round": 2, "explored": 8, "selected": 0, "decision": "nothing_selected"}]
    report = {"rounds": rounds, "stopped": "patience", "final": {"before": 0.35, "after": 0.9}}
    view = job_report(
        services, services.store.jobs.get("job-1").model_copy(update={"result": JobResult(n_error=0, report=report)})
    )
    result, table, outcome = (
        next(section for section in view.sections if section.heading == heading)
        for heading in ("Result", "Rounds", "Outcome")
    )
    assert result.table is not None
    assert table.table is not None
    assert result.table.rows == (("errors", "0"),)
    assert table.table.rows == (
        ("1", "160", "48.1%", "21", "93.3%", "+56.7% [+29.1%, +74.5%]", "better"),
        ("2", "8", "unknown", "0", "unknown", "", "nothing selected"),
    )
    assert outcome.lines[1] == "Tasks that no round was selected by: 35.0% before, 90.0% after."


def test_the_last_step_of_a_stage_is_not_the_first_of_the_next_one(services: Services) -> None:
    """Step 2 ends the first stage; the second one validates its start there, before its own step 3."""
    given = {"kind": "train", "dataset_id": "ds-1"}
    stages = [{**given, "label": name, "method": name, "config": {"method": name}} for name in ("sft", "dpo")]
    spec = RecipeSpec.model_validate({"name": "pupil", "agent": BASE, "stages": stages, "output_dir": "/o"})
    events = [phase("00-sft"), step(1, loss=0.2), step(2, loss=0.1), phase("01-dpo"), step(2, validation_loss=0.7)]
    first, second = figure_of(services, finished_with(services, spec, *events, step(3, loss=0.6)))["panels"]
    assert (first["title"], first["lines"][0]["y"]) == ("Loss of sft", [0.2, 0.1])
    assert (second["title"], second["lines"][0]["y"]) == ("Loss of dpo", [0.6])


def test_an_evaluation_shows_the_agents_on_the_same_tasks_and_no_others(services: Services) -> None:
    for name, outcomes, suite in (("a", "0111", "one"), ("b", "0001", "one"), ("c", "1111", "two")):
        services.store.evaluations.add(evaluated(name, outcomes, suite=suite), services.clock())
    shown = evaluated("a", "0111", suite="one")
    figure = figure_of(services, shown.id)
    bars = figure["panels"][0]["bars"]
    assert [(bar["label"], bar["value"], bar["strong"]) for bar in bars] == [
        ("b@1 (n = 4)", 0.25, False),
        ("a@1 (n = 4)", 0.75, True),
    ]
    one = services.store.agents.add(BASE.model_copy(update={"name": "a"}), services.clock())
    assert (one.id, shown_by(services, "a")) == (shown.agent_id, shown.id), (
        "an untrained agent shows how it was measured"
    )
    services.store.agents.add(BASE.model_copy(update={"name": "new"}), services.clock())
    with pytest.raises(InvalidInput, match=r"got agent:new@1; measure it: evaluate_agent\(agent='agent:new@1'"):
        shown_by(services, "new")
    with pytest.raises(NotFound, match="job, comparison or evaluation, or an agent, got 'nobody'"):
        shown_by(services, "nobody")
    trained = BASE.model_copy(update={"name": "taught", "job_id": measured(services, "job-1", {"loss": 1.0})})
    services.store.agents.add(trained, services.clock())
    assert "job-1" in plot_job(services, "taught").text


def measured(
    services: Services,
    job_id: str,
    *rows: dict[str, float],
    first: int = 1,
    resumed_from: str | None = None,
    spec: JobSpec | None = None,
) -> str:
    """A job that finished_with these metrics, one step each."""
    now = services.clock()
    job(services.store, job_id, spec or SelftestSpec(), JobStatus.RUNNING, now=now, resumed_from=resumed_from)
    events = [
        JobEvent(attempt=1, seq=n, time=now, type="progress", step=n, total_steps=len(rows), metrics=row)
        for n, row in enumerate(rows, first)
    ]
    services.store.jobs.ingest_spans([Span(job_id, "events.jsonl", 0, 1, events)], now)
    return job_id


def test_a_rate_is_drawn_with_its_interval_where_the_job_tells_both_bounds(services: Services) -> None:
    rows = [
        {"success_rate": rate, "success_rate_low": rate - 0.1, "success_rate_high": rate + 0.1} for rate in (0.2, 0.6)
    ]
    whole = plot_job(services, measured(services, "job-1", *rows))
    plain = plot_job(services, measured(services, "job-2", *({"success_rate": row["success_rate"]} for row in rows)))
    assert whole.png.startswith(b"\x89PNG")
    assert len(whole.png) > len(plain.png), "the band is more to compress"
    assert "success_rate: 0.2 -> 0.6  ▁█" in whole.text
    assert "success_rate_low" not in whole.text, "bounds are no curves of their own"
    with pytest.raises(InvalidInput, match="job-2 has no metric loss; it has: success_rate"):
        plot_job(services, "job-2", ["loss"])


def test_the_lowest_validation_loss_is_marked_from_the_start_on(services: Services) -> None:
    losses = ({"validation_loss": 2.0}, {"validation_loss": 0.5, "loss": 1.0}, {"validation_loss": 0.75, "loss": 0.5})
    job_id = measured(services, "job-1", *losses)
    curves = metric_curves(services, job_id)
    assert curves["validation_loss"].best_step == 2
    assert curves["loss"].best_step is None
    assert plot_job(services, job_id, ["loss", "validation_loss"]).text.splitlines()[-2].endswith("best 0.5 at 2")


def test_a_resumed_job_has_the_steps_of_the_one_before_up_to_its_checkpoint(services: Services) -> None:
    """Steps 1 to 4, then from the checkpoint of step 2 on steps 3 and 4 again."""
    measured(services, "job-1", *({"loss": float(n)} for n in range(1, 5)))
    measured(services, "job-2", {"loss": 30.0}, {"loss": 40.0}, first=3, resumed_from="job-1")
    assert metric_curves(services, "job-2")["loss"] == Curve(steps=(1, 2, 3, 4), values=(1.0, 2.0, 30.0, 40.0))
    assert metric_curves(services, "job-1")["loss"].values == (1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize("status", [JobStatus.CANCELLED, JobStatus.INTERRUPTED])
def test_a_training_goes_on_elsewhere_and_with_no_other_result(waiting: Services, status: JobStatus) -> None:
    agent = Agent(name="a", model=ModelRef(source="starter", path="starter"))
    config = SFTConfig(processes=2, sharding="full", learning_rate=1e-3)
    spec = TrainSpec(name="b", agent=agent, output_dir="b", dataset_id="d", config=config)
    job(waiting.store, "job-1", spec, status, now=waiting.clock())
    with pytest.raises(InvalidInput, match=r"expected actors, machines, processes, .* alone.* got learning_rate") as no:
        resume_job(waiting, "job-1", {"processes": 1, "learning_rate": 0.1})
    further = "start_training(method='sft', model='job-1', dataset_id='d', hyperparameters={'learning_rate': 0.1, "
    assert f"start another training from its newest checkpoint: {further}" in str(no.value)
    with pytest.raises(InvalidInput, match="sharding is 'full' and processes is 1"):
        resume_job(waiting, "job-1", {"processes": 1})
    resumed = resume_job(waiting, "job-1", {"processes": 1, "sharding": "none"})
    assert (resumed.status, resumed.resumed_from) == (JobStatus.QUEUED, "job-1")
    stored = waiting.store.jobs.get(resumed.job_id).spec
    assert stored == spec.model_copy(update={"config": SFTConfig(learning_rate=1e-3)})
    job(waiting.store, "job-3", spec.model_copy(update={"actor_backend": "ray"}), status, now=waiting.clock())
    again = resume_job(waiting, "job-3").job_id
    assert waiting.store.jobs.get(again).spec == spec, "the operator lets actors run on this machine by now"
    job(waiting.store, "job-2", SelftestSpec(), status, now=waiting.clock())
    with pytest.raises(InvalidInput, match="expected a training to change them, got a job of kind selftest"):
        resume_job(waiting, "job-2", {"processes": 1})


def test_a_training_that_succeeded_is_not_resumed_but_its_agent_trained_further(services: Services) -> None:
    agent = Agent(name="a", model=ModelRef(source="starter", path="starter"))
    spec = TrainSpec(name="b", agent=agent, output_dir="b", dataset_id="d", config=SFTConfig())
    job(services.store, "job-1", spec, now=services.clock())
    with pytest.raises(Conflict, match=r"start_training\(method='sft', model='job-1', dataset_id='d'\)"):
        resume_job(services, "job-1")


def test_a_rollout_job_is_drawn_as_its_success_rate_and_has_no_running_mean(services: Services) -> None:
    """3 of 4 by Clopper and Pearson: 19.4 % to 99.4 %."""
    agent = Agent(id="agent:a@1", name="a", model=ModelRef(source="starter", path="starter"))
    spec = RolloutSpec(agent=agent, environment="quintain/inventory", n_tasks=4)
    job_id = measured(services, "job-1", {}, spec=spec)
    with pytest.raises(InvalidInput, match="none yet"):
        plot_job(services, job_id)
    result = JobResult(n=4, success_rate=0.75)
    services.store.jobs.finish(job_id, 1, JobStatus.SUCCEEDED, services.clock(), result=result)
    picture = plot_job(services, job_id)
    assert picture.text.splitlines()[-2] == "  all (n = 4): 75.0% [19.4%, 99.4%]"
    assert picture.text.endswith("Saved in the home folder: reports/job-1.html, reports/job-1.png")
    assert (services.settings.reports_dir / "job-1.png").read_bytes() == picture.png
    assert picture.text.startswith("rollouts of a in quintain/inventory: 4 tasks, train\njob-1, succeeded")


def test_ticks_of_steps_are_whole_and_markup_in_names_is_plain() -> None:
    panels = [
        {
            "title": "Loss",
            "lines": [{"x": [0, 1, 2], "y": [3.0, 1.0, 2.0], "best": {"x": 1, "y": 1.0, "label": "best step 1"}}],
        }
    ]
    canvas = draw_panels(panels, "sft a -> $x on b$")
    assert [tick for tick in canvas.axes[0].get_xticks() if tick != int(tick)] == []
    assert [text.get_text() for text in canvas.axes[0].get_legend().get_texts()] == ["best step 1"]
    canvas.canvas.draw()


def test_names_of_bars_do_not_cover_each_other_and_a_title_ends_in_the_picture() -> None:
    names = ["quintain/inventory", "quintain/math?difficulty=easy", "quintain/tools-1k?mode=direct"]
    bars = [{"label": f"{name} (n = 3)", "value": 1.0, "low": 0.3, "high": 1.0} for name in names]
    canvas = draw_panels([{"title": "By environment", "bars": bars}], f"expert@1 on mix({','.join(names)}), held-out")
    canvas.canvas.draw()
    places = [label.get_window_extent() for label in canvas.axes[0].get_xticklabels()]
    assert all(a.x1 < b.x0 for a, b in pairwise(places)), places
    assert "".join(line.get_text() for line in canvas.texts) == f"expert@1 on mix({','.join(names)}), held-out"
    assert all(line.get_window_extent().x1 < canvas.bbox.x1 for line in canvas.texts)
    assert draw_panels([{"bars": bars}], "x" * 999).texts[1].get_text().endswith("…"), "the second line is the last"


@pytest.mark.parametrize(("first", "second"), [(0.6, 0.9), (0.9, 0.6)])
def test_of_two_measured_lines_the_higher_has_its_values_above_and_the_lower_below(first: float, second: float) -> None:
    ends = {"style": "measured", "x": [0, 1]}
    lines = [
        ends | {"y": [0.3, y], "low": [0.2, y - 0.2], "high": [0.5, y + 0.1], "label": str(y)} for y in (first, second)
    ]
    (axis,) = draw_panels([{"format": "percent", "lines": lines}], "two").axes
    places = {text.get_text(): text.xy[1] for text in axis.texts if text.xy[0] == 1}
    assert places["60 %"] < 0.6 < 0.9 < places["90 %"]


def test_a_fall_below_the_floor_of_a_panel_does_not_flatten_its_other_values() -> None:
    (axis,) = draw_panels([{"floor": -1, "lines": [{"x": [1, 2, 3], "y": [0.0, 0.5, -134.0]}]}], "ppo").axes
    low, high = axis.get_ylim()
    assert (low, 0.5 < high < 1) == (-1, True)


def test_a_figure_in_which_nothing_was_measured_is_still_a_picture() -> None:
    assert draw({"title": "a_b^2 of $x", "panels": []}).startswith(b"\x89PNG")


@pytest.fixture
def two_agents(services: Services) -> Services:
    """Agents `a` and `b`, which solved 1 and 3 of 4 tasks."""
    for name, outcomes in (("a", "0001"), ("b", "0111")):
        services.store.agents.add(Agent(name=name, model=ModelRef(source="folder", path="/m")), services.clock())
        services.store.evaluations.add(evaluated(name, outcomes), services.clock())
    return services


@pytest.mark.usefixtures("two_agents")
def test_a_comparison_saves_its_picture_and_page_once_and_names_them(services: Services) -> None:
    found = compare_agents(services, ["a", "b"])
    page, picture = (f"reports/{found.comparison_id}.{ending}" for ending in ("html", "png"))
    assert f"Saved in the home folder: {page}, {picture}." in found.next_step
    png = (services.settings.home / picture).read_bytes()
    assert png.startswith(b"\x89PNG")
    assert "b - a" in (services.settings.home / page).read_text(encoding="utf-8")
    (services.settings.home / picture).write_bytes(b"kept")
    again = compare_agents(services, [found.comparison_id], show=True)
    assert again.png == b"kept", "a stored comparison never changes, so it is drawn once"


@pytest.mark.usefixtures("two_agents")
def test_a_picture_that_cannot_be_drawn_costs_the_picture_and_not_the_verdict(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(command: list[str], **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, 60)

    with monkeypatch.context() as patch:
        patch.setattr(plots, "subprocess", SimpleNamespace(**{**vars(subprocess), "run": late}))
        found = compare_agents(services, ["a", "b"])
        assert (
            "No picture is saved: expected a picture, got none: the process that draws it took longer"
            in found.next_step
        )
        with pytest.raises(Unavailable, match="call again later"):
            comparison_picture(services, found.comparison_id)
    assert len(found.comparisons) == 1
    assert comparison_picture(services, found.comparison_id).startswith(b"\x89PNG"), "the next call draws it"


def test_a_dashboard_shows_the_newest_training_and_where_it_is_live(services: Services) -> None:
    with pytest.raises(NotFound, match=r"expected a training, got none; begin one with start_training\("):
        show_training_dashboard(services)
    finished_with(services, trained(), step(1, loss=1.0), step(2, loss=0.5))
    with page_announced(services.settings.home, "http://127.0.0.1:8000"):
        shown = show_training_dashboard(services)
    assert shown.text.startswith("sft base -> pupil on ds-1: succeeded, step 2 of 9")
    assert "Live: http://127.0.0.1:8000/jobs/job-1" in shown.text
    assert shown.figure is not None
    again = show_training_dashboard(services, "job-1").text
    assert "Live:" not in again
    assert "evaluate_agent(" not in render_for_terminal(again), "the terminal names commands"


def test_a_folder_that_cannot_be_written_costs_the_files_and_not_the_answer(services: Services) -> None:
    services.settings.reports_dir.write_text("a file in the way", encoding="utf-8")
    picture = plot_job(services, finished_with(services, trained(), step(1, loss=1.0), step(2, loss=0.5)))
    assert picture.png.startswith(b"\x89PNG")
    assert picture.text.endswith("Not saved in the home folder's reports/: File exists")


def test_a_report_to_send_has_the_settings_and_no_folder_of_this_machine(services: Services) -> None:
    model = ModelRef(source="folder", path="/secret/place/critic")
    critic = Agent(id="agent:critic@1", name="critic", model=model)
    spec = trained(
        dataset_id=None,
        environment="quintain/inventory",
        method="grpo",
        config={"method": "grpo", "reward_model": "critic", "rollouts": 7},
        reward_agent=critic,
    )
    (page, _) = save_report(
        services, finished_with(services, spec, step(1, loss=1.0), report={"path": "/secret/place/x.gguf"})
    )
    text = (services.settings.home / page).read_text(encoding="utf-8")
    assert "/secret" not in text
    assert "agent:critic@1" in text
    assert "…/x.gguf" in text
    assert "<td>rollouts</td><td>7</td>" in text


@pytest.mark.usefixtures("two_agents")
def test_an_agent_has_a_page_too(services: Services) -> None:
    assert save_report(services, "agent:a@1") == ("reports/agent-a@1.html",)
    assert "25.0% [0.6%, 80.6%]" in (services.settings.reports_dir / "agent-a@1.html").read_text(encoding="utf-8")


def test_curves_of_an_answer_are_thinned_together_and_keep_their_ends_and_the_best_step() -> None:
    steps = tuple(range(1000))
    curve = Curve(steps=steps, values=tuple(1 / 3 + step for step in steps), best_step=501)
    (alone,) = thin_curves({"validation_loss": curve}).values()
    assert (alone.steps[0], alone.steps[-1], len(alone.steps)) == (0, 999, 201)
    assert alone.values[alone.steps.index(501)] == 501.333
    many = thin_curves({f"m{n}": curve.model_copy(update={"best_step": None}) for n in range(20)})
    assert {len(one.steps) for one in many.values()} == {100}
