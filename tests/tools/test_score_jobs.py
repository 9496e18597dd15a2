"""Starting jobs that judge or score: what is refused before one begins, and what is written down for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fake_endpoint import profile, write_profiles
from quintain.errors import InvalidInput, NotFound, Refused
from quintain.records.agent import Agent, ModelRef
from quintain.records.jobs.job import JobError, JobResult, JobStatus
from quintain.records.jobs.job_events import JobEvent
from quintain.records.trajectory import Trajectory
from quintain.settings import Settings
from quintain.store.job_spans import Span
from quintain.tools.data.forgetting import forget
from quintain.tools.data.lineage import get_lineage
from quintain.tools.data.run_files import write_runs
from quintain.tools.jobs.jobs import get_job, list_jobs
from quintain.tools.labels.score_jobs import start_judging, start_model_scoring
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import Services
from quintain.tools.training.agents import resolve_agent
from store_shelves import job
from tools.stored_records import add_runs, spec_of
from trajectory_runs import answer, call, run, user

TRUSTED = False


@pytest.fixture(autouse=True)
def _endpoint(settings: Settings) -> None:
    """One endpoint profile, behind which nothing listens."""
    write_profiles(settings, profile("judge"))


@pytest.fixture
def runs(services: Services) -> list[Trajectory]:
    made = (run(f"t{n}", user(), call("look", f"box {n}"), answer("Done.")) for n in range(3))
    return list(services.store.trajectories.iterate(ids=add_runs(services, *made)))


def test_a_judge_that_is_not_there_is_told_before_a_job_begins(services: Services, runs: list[Trajectory]) -> None:
    for judge, rubric, error, words in (
        ("endpoint:nobody", "default", NotFound, "no endpoint profile 'nobody'.*there are judge"),
        ("no-such-agent", "default", NotFound, "endpoint:NAME or an agent"),
        ("judge", "default", NotFound, "judge='endpoint:judge'"),
        ("assistant", "default", InvalidInput, "get_judging_batch"),
        ("endpoint:judge", "x", NotFound, "no rubric 'x'"),
    ):
        with pytest.raises(error, match=words):
            start_judging(services, runs, judge=judge, rubric=rubric)
    with pytest.raises(NotFound, match="no run was chosen"):
        start_judging(services, [], judge="endpoint:judge")
    with pytest.raises(NotFound, match="none"):
        score_trajectories(services, "agent:none", trajectory_ids=[str(runs[0].id)])
    assert list_jobs(services).items == ()
    assert not list((services.settings.cache_dir / "runs").glob("*"))


def test_a_key_that_is_not_set_is_told_before_a_job_begins(
    services: Services, runs: list[Trajectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_profiles(services.settings, profile("judge", api_key_env="A_JUDGES_KEY"))
    monkeypatch.delenv("A_JUDGES_KEY", raising=False)
    with pytest.raises(InvalidInput, match="A_JUDGES_KEY is not set"):
        start_judging(services, runs, judge="endpoint:judge")
    assert list_jobs(services).items == ()


def test_agents_that_act_and_agents_that_score_are_not_taken_for_each_other(
    services: Services, runs: list[Trajectory]
) -> None:
    folder = resolve_agent(services, "starter").model.path
    scorer = Agent(name="rm", model=ModelRef(source="folder", path=folder), role="reward_model")
    services.store.agents.add(scorer, services.clock())
    with pytest.raises(InvalidInput, match="scorer='agent:rm'"):
        start_judging(services, runs, judge="rm")
    with pytest.raises(InvalidInput, match="was not trained to score"):
        start_model_scoring(services, runs, "agent:starter")


def test_a_rubric_file_is_read_from_the_inbox_alone(services: Services, runs: list[Trajectory], tmp_path: Path) -> None:
    rubric = json.dumps({"name": "mine", "criteria": {"depth": "How deep?"}})
    (tmp_path / "mine.json").write_text(rubric, encoding="utf-8")
    with pytest.raises(Refused, match="outside the allowed roots"):
        start_judging(services, runs, judge="endpoint:judge", rubric=str(tmp_path / "mine.json"))
    (services.settings.inbox_dir / "mine.json").write_text(rubric, encoding="utf-8")
    started = start_judging(services, runs, judge="endpoint:judge", rubric="mine.json")
    assert spec_of(services, started).rubric.name == "mine"
    services.jobs.cancel(started.job_id)


def test_the_same_request_is_one_job_and_the_same_runs_one_file(services: Services, runs: list[Trajectory]) -> None:
    assert write_runs(services, runs) == write_runs(services, iter(runs))
    first = start_judging(services, runs, judge="starter", mode="steps")
    again = start_judging(services, runs, judge="agent:starter", mode="steps")
    assert (again.job_id, again.deduplicated) == (first.job_id, True)
    spec = spec_of(services, first)
    assert (spec.rubric.name, spec.runs.n, spec.agent.name) == ("steps", 3, "starter")
    services.jobs.cancel(first.job_id)
    lineage = get_lineage(services, first.job_id)
    assert "agent:starter@1" in {node.id for node in lineage.ancestors}


def test_forgetting_a_run_takes_away_the_files_that_hold_it_and_no_other(
    services: Services, runs: list[Trajectory]
) -> None:
    write_runs(services, runs[:2])
    kept = write_runs(services, runs[2:])
    forget(services, str(runs[0].id), dry_run=False)
    left = list((services.settings.cache_dir / "runs").iterdir())
    assert left == [Path(kept.path)]


def test_the_questions_of_a_judge_and_their_cost_are_told_when_it_is_asked(
    waiting: Services, runs: list[Trajectory]
) -> None:
    """Three runs, and a control of each of their tasks, which is asked twice."""
    started = start_judging(waiting, runs, judge="endpoint:judge")
    assert str(started.warnings[0]).startswith(
        "[cost] 9 questions to judge, fewer where it answered before; no job tells"
    )
    (waiting.settings.jobs_dir / "job-paid").mkdir()
    job(waiting.store, "job-paid", spec_of(waiting, started), JobStatus.RUNNING, now=waiting.clock())
    metrics = {"usd": 0.4, "requests": 10.0}
    reached = JobEvent(attempt=1, seq=0, time=waiting.clock(), type="progress", step=1, total_steps=3, metrics=metrics)
    waiting.store.jobs.ingest_spans([Span("job-paid", "events.jsonl", 0, 1, [reached])], waiting.clock())
    stopped = score_trajectories(waiting, "judge", trajectory_ids=[str(runs[1].id)], judge="endpoint:judge")
    assert "about 0.12 USD, at the mean of job-paid" in stopped.warnings[0]
    paid = JobResult(n=3, report={"usd": 0.2, "requests": 10})
    waiting.store.jobs.finish("job-paid", 1, JobStatus.SUCCEEDED, waiting.clock(), result=paid)
    again = score_trajectories(waiting, "judge", trajectory_ids=[str(runs[0].id)], judge="endpoint:judge")
    assert again.warnings == (
        "[cost] 3 questions to judge, fewer where it answered before: about 0.06 USD, at the mean of job-paid; "
        "cancel_job stops it",
    )
    waiting.store.jobs.begin_attempt(started.job_id, 0, 1, waiting.clock())
    waiting.store.jobs.finish(
        started.job_id, 1, JobStatus.FAILED, waiting.clock(), error=JobError(code="cost_limit", message="")
    )
    assert "asks the questions that are left with the same settings" in get_job(waiting, started.job_id).next_step
    with pytest.raises(InvalidInput, match="got 3 that are alone in theirs"):
        start_judging(waiting, runs, judge="endpoint:judge", mode="pairwise")
