"""Judging by an endpoint, whole: a real client, a real worker process, and a model server on this machine."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import anyio
import pytest
from mcp import Client

from fake_endpoint import Answer, Asked, fails, profile, says, serving, write_profiles
from jobs_in_process import in_process, jobs_in_process  # noqa: F401
from mcp_client import call, ended, until
from quintain.cli.commands.doctor import run_doctor
from quintain.jobs.directory import JobDirectory
from quintain.records.score import Score
from quintain.scoring.judges.rubrics import RUBRICS
from quintain.server.app import create_server
from quintain.settings import Settings
from quintain.tools.data.forgetting import forget
from quintain.tools.jobs.jobs import cancel_job
from quintain.tools.labels.score_jobs import start_judging
from quintain.tools.services import open_services
from scripted_judges import readable, scored
from trajectory_runs import answer, run, user
from trajectory_runs import call as act

KEY = "sk-verysecret-0123456789"
PROFILE: dict[str, Any] = {"api_key_env": "A_JUDGES_KEY", "input_usd_per_mtok": 1, "output_usd_per_mtok": 10}
NAMES = [criterion.name for criterion in RUBRICS["default"].criteria]
RUNS = [run("t1", user(), act("look", said), answer("Done.")) for said in ("a red box", "a blue box", "nothing")]


def judge(asked: Asked, before: int) -> Answer:
    """Busy at first; the red box is worth 0.9, the blue 0.4; of an empty room it talks."""
    if before == 0:
        return fails(429, Retry_After="0")
    text = readable(asked.user)
    if "| nothing" in text:
        return says("I cannot see a box, so about 0.2?")
    box = next((box for box in ("a red box", "a blue box") if f"| {box}" in text), "")
    value = {"a red box": 0.9, "a blue box": 0.4, "": 0.0}[box]
    return says(scored(NAMES, value, box, rationale="a box"))


@pytest.mark.usefixtures("jobs_in_process")
def test_an_endpoint_judges_runs_through_a_client(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("A_JUDGES_KEY", KEY)
    with serving(judge) as fake:
        write_profiles(settings, profile("judge", fake.url, **PROFILE))
        services = open_services(settings)
        ids = [str(services.store.trajectories.add_many([one], services.clock())[0].id) for one in RUNS]

        async def scenario() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
            async with Client(create_server(settings)) as client:
                arguments = {"scorer": "judge", "judge": "endpoint:judge", "rubric": "default", "trajectory_ids": ids}
                started = await call(client, "score_trajectories", **arguments)
                view = await until(client, started["job_id"], ended)
                read = await call(client, "score_trajectories", scorer="judge", trajectory_ids=ids, calibrate=False)
                return view, read, await call(client, "list_jobs", kind="judge")

        view, read, jobs = anyio.run(scenario)
        assert view["status"] == "succeeded", view
        report = view["result"]["report"]
        assert (view["result"]["n"], view["result"]["n_error"]) == (2, 1)
        assert (report["requests"], report["retries"], report["usd"]) == (6, 1, pytest.approx(0.001))
        assert [asked.headers["Authorization"] for asked in fake.asked] == [f"Bearer {KEY}"] * 6
    verdicts = {run_id: services.store.scores.by_scorers(["judge"], [run_id])[run_id][-1] for run_id in ids}
    assert [verdicts[run_id].value for run_id in ids] == [0.9, 0.4, None]
    assert "prose" in (verdicts[ids[2]].reason or "")
    assert {score.rater for score in verdicts.values()} == {"endpoint:judge"}
    assert (read["scored"], read["unscored_count"]) == (2, 1)
    assert [job["kind"] for job in jobs["items"]] == ["judge"]
    holding = [p for p in settings.home.rglob("*") if p.is_file() and KEY.encode() in p.read_bytes()]
    assert holding == []

    services_trusted = open_services(settings, trusted=True)
    report_of = forget(services_trusted, ids[0], dry_run=False)
    assert any("runs" in path for path in report_of.removed)
    left = [p for p in settings.cache_dir.rglob("*.json*") if ids[0].encode() in p.read_bytes()]
    assert left == []
    services_trusted.close()
    services.close()
    assert Score.model_validate(verdicts[ids[0]].model_dump()).feedback == "a box"

    run_doctor(settings.home)
    shown = capsys.readouterr().out
    assert "endpoints: judge (openai, judge-1, A_JUDGES_KEY is set)" in shown
    assert KEY not in shown


def test_a_judging_job_that_is_killed_and_cancelled_continues_and_pays_for_nothing_twice(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve runs, one request at a time after the two on their control.

    The sixth run's request hangs until the worker is killed, and the ninth run's until the job is cancelled.
    """
    monkeypatch.setenv("A_JUDGES_KEY", KEY)
    released = [threading.Event(), threading.Event()]

    def answers(asked: Asked, before: int) -> Answer:
        for hangs_at, event in zip((7, 11), released, strict=True):
            if before == hangs_at and not event.is_set():
                return Answer(hang=event)
        return says(scored(NAMES, 0.5, "Done.") if "Done." in readable(asked.user) else scored(NAMES, 0.0))

    with serving(answers) as fake:
        write_profiles(settings, profile("judge", fake.url, **PROFILE, concurrency=1, timeout_s=100))
        services = open_services(settings)
        runs = [run(f"t{n}", user(), act("look", f"box {n}"), answer("Done.")) for n in range(12)]
        ids = [str(services.store.trajectories.add_many([one], services.clock())[0].id) for one in runs]
        stored = services.store.trajectories.iterate(ids=ids)
        job_id = start_judging(services, stored, judge="endpoint:judge", rubric="default").job_id

        async def scenario() -> tuple[dict[str, Any], dict[str, Any]]:
            async with Client(create_server(settings)) as client:
                await until(client, job_id, lambda view: view["step"] >= 5)
                shim = JobDirectory(settings.jobs_dir / job_id).shim()
                os.kill(shim.worker, signal.SIGKILL)
                released[0].set()
                await until(client, job_id, lambda view: view["step"] >= 8)
                cancel_job(services, job_id)
                cancelled = await until(client, job_id, ended)
                released[1].set()
                with in_process():
                    resumed = await call(client, "resume_job", job_id=job_id)
                    return cancelled, await until(client, resumed["job_id"], ended)

        cancelled, view = anyio.run(scenario)
        assert (cancelled["status"], cancelled["attempt"]) == ("cancelled", 2), cancelled
        assert (view["status"], view["result"]["n"], view["result"]["n_error"]) == ("succeeded", 12, 0), view
        assert len(fake.asked) == 16, "only the two requests without an answer were repeated"
        assert {asked.headers["Authorization"] for asked in fake.asked} == {f"Bearer {KEY}"}, "its process has the key"
        assert all(services.store.scores.by_scorers(["judge"], [run_id])[run_id][0].value == 0.5 for run_id in ids)
        services.close()
