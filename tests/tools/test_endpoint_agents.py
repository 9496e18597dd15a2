"""Agents that act through the operator's endpoints: how they are named, what they can do, and what is refused before a job is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp import Client

from acting_endpoint import expert
from evaluation.test_comparison import evaluated
from fake_endpoint import profile, serving, write_profiles
from mcp_client import call, finished
from quintain.errors import InvalidInput, NotFound
from quintain.records.agent import ModelRef, Sampling
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import UNFINISHED
from quintain.server.app import create_server
from quintain.settings import Settings
from quintain.tools.data.preview import watch_preview
from quintain.tools.evaluation.comparison import compare_agents
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.jobs.jobs import get_job
from quintain.tools.labels.score_jobs import start_judging, start_step_labels
from quintain.tools.results import JobStarted, JobView
from quintain.tools.services import Services, open_services
from quintain.tools.training.agents import register_agent, resolve_agent
from quintain.tools.training.config_files import start_recipe
from quintain.tools.training.start import start_training
from tools.stored_records import error_of, freeze_runs
from trajectory_runs import answer, run, user
from trajectory_runs import call as act

TRUSTED = False
KEY = "sk-verysecret-0123456789"
PROFILE: dict[str, Any] = {
    "model": "gpt-4o",
    "api_key_env": "A_FAR_KEY",
    "max_tokens": 900,
    "input_usd_per_mtok": 1,
    "output_usd_per_mtok": 10,
}


@pytest.fixture(autouse=True)
def _endpoint(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile and its key; nothing listens behind it."""
    monkeypatch.setenv("A_FAR_KEY", KEY)
    write_profiles(settings, profile("far", **PROFILE))


def test_an_endpoint_is_an_agent_by_its_profile_and_again_the_same_one(services: Services) -> None:
    agent = resolve_agent(services, "endpoint:far")
    assert (agent.id, agent.sampling) == ("agent:far@1", Sampling(max_new_tokens=900))
    assert agent.model == ModelRef(source="endpoint", path="far", revision="gpt-4o")
    named = register_agent(
        services, "far", "endpoint:far", system_prompt="Be brief.", sampling=Sampling(temperature=0.5)
    )
    assert (named.agent.id, named.agent.parent) == ("agent:far@2", None)
    assert named.agent.sampling == Sampling(temperature=0.5, max_new_tokens=900), "what is left out is the model's own"
    assert resolve_agent(services, "endpoint:far").id == "agent:far@1", "not a third version"
    assert resolve_agent(services, "far").id == "agent:far@2"


def test_min_p_is_refused_where_the_protocol_has_none(services: Services) -> None:
    limits = Sampling(top_k=40, min_p=0.05)
    assert register_agent(services, "open", "endpoint:far", sampling=limits).agent.sampling.min_p == 0.05
    write_profiles(services.settings, profile("far", **PROFILE, protocol="anthropic"))
    with pytest.raises(InvalidInput, match=r"sampling.min_p: expected 0 .*leave it out, or give top_p or top_k"):
        evaluate_agent(services, "endpoint:far", "quintain/inventory", sampling=limits)
    assert register_agent(services, "closed", "endpoint:far", sampling=Sampling(top_k=40)).agent.sampling.top_k == 40


def test_an_endpoint_is_compared_by_its_reference(services: Services) -> None:
    far, starter = resolve_agent(services, "endpoint:far"), resolve_agent(services, "starter")
    for agent, outcomes in ((far, "111111111111"), (starter, "000000000000")):
        made = evaluated(agent.name, outcomes, suite="one").model_copy(
            update={"id": f"eval-{agent.name}", "agent_id": agent.id}
        )
        services.store.evaluations.add(made, services.clock())
    (pair,) = compare_agents(services, ["starter", "endpoint:far"]).comparisons
    assert (pair.b, pair.difference, pair.significant) == ("endpoint:far", 1.0, True)


def test_an_endpoint_that_does_not_exist_is_told_with_those_that_do(services: Services) -> None:
    with pytest.raises(NotFound, match=r"no endpoint profile 'fare' \(did you mean 'far'\?\); there are far"):
        register_agent(services, "x", "endpoint:fare")


def test_an_agent_whose_profile_leads_to_another_model_by_now_is_refused(services: Services) -> None:
    register_agent(services, "mine", "endpoint:far")
    write_profiles(services.settings, profile("far", **(PROFILE | {"model": "gpt-5"})))
    with pytest.raises(
        InvalidInput, match=r"endpoint_changed.*whose profile names 'gpt-5' by now: register_agent\(name='mine'"
    ):
        evaluate_agent(services, "mine", "quintain/inventory")
    assert register_agent(services, "mine", "endpoint:far").agent.model.revision == "gpt-5"


def test_without_the_key_no_job_is_made(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A_FAR_KEY")
    with pytest.raises(InvalidInput, match=r"missing_key.*A_FAR_KEY is not set"):
        collect_rollouts(services, "endpoint:far", "quintain/inventory")
    assert services.store.jobs.page().items == ()


RUN = run("t1", user(), act("look", "a box"), answer("Done."))
NEEDS_WEIGHTS: dict[str, Callable[[Services], object]] = {
    "training": lambda s: start_training(s, "grpo", "endpoint:far", environment="quintain/inventory"),
    "a recipe": lambda s: start_recipe(
        s, {"model": "endpoint:far", "stages": [{"method": "grpo", "environment": "quintain/inventory"}]}
    ),
    "measuring on a dataset": lambda s: evaluate_agent(s, "endpoint:far", dataset_id="rows"),
    "a preview": lambda s: next(watch_preview(s, "rows", "endpoint:far")),
    "a local judge": lambda s: start_judging(s, [RUN], judge="agent:far"),
}


def test_what_needs_weights_is_refused_before_a_job_is_made(services: Services) -> None:
    freeze_runs(services, RUN, name="rows")
    resolve_agent(services, "endpoint:far")
    for what, start in NEEDS_WEIGHTS.items():
        error = error_of(start, services)
        assert (error.code, " endpoint" in error.message) == ("no_weights", True), (what, error)
    assert services.store.jobs.page().items == ()


@pytest.mark.soak
def test_a_recipe_of_measuring_alone_and_step_labels_play_on_by_the_endpoint(services: Services) -> None:
    with serving(expert) as fake:
        write_profiles(services.settings, profile("far", fake.url, **PROFILE))
        stage = {"method": "evaluate", "environment": "quintain/inventory", "n_tasks": 1}
        measured = finish(services, start_recipe(services, {"model": "endpoint:far", "stages": [stage]}))
        assert measured.result.success_rate == 1
        run_id = services.store.trajectories.search(TrajectoryFilter(job_id=measured.job_id)).items[0].id
        runs = services.store.trajectories.iterate(ids=[run_id])
        agent = resolve_agent(services, "far")
        labelled = finish(services, start_step_labels(services, runs, agent=agent, completions=1))
    assert (labelled.result.n, labelled.result.report["usd"] > 0) == (1, True)
    (score,) = services.store.scores.by_scorers(["montecarlo"], [run_id])[run_id]
    assert (score.rater, {step.value for step in score.steps}) == ("agent:far@1", {1.0})


def finish(services: Services, started: JobStarted) -> JobView:
    while (view := get_job(services, started.job_id, wait_s=20)).status in UNFINISHED:
        pass
    assert view.status == "succeeded", view.error
    return view


def test_through_a_client_and_a_worker_it_acts_is_measured_and_its_key_is_nowhere(settings: Settings) -> None:
    async def scenario() -> tuple[dict[str, Any], ...]:
        async with Client(create_server(settings)) as client:
            registered = await call(client, "register_agent", name="remote", model="endpoint:far", system_prompt="Act.")
            asked = {"agent": "remote", "environment": "quintain/inventory", "n_tasks": 2}
            view = await finished(client, "evaluate_agent", **asked)
            runs = await call(client, "search_trajectories", filter={"job_id": view["job_id"]})
            return registered, view, runs

    with serving(expert) as fake:
        write_profiles(settings, profile("far", fake.url, **PROFILE))
        registered, view, runs = anyio.run(scenario)
        assert [asked.headers["Authorization"] for asked in fake.asked] == [f"Bearer {KEY}"] * len(fake.asked)
        assert {asked.body["messages"][0]["content"] for asked in fake.asked} == {"Act."}
    assert registered["agent"]["model"]["source"] == "endpoint"
    assert (view["status"], view["result"]["success_rate"]) == ("succeeded", 1.0), view
    assert view["result"]["report"]["usd"] == pytest.approx(0.0002 * len(fake.asked))
    services = open_services(settings)
    evaluation = services.store.evaluations.get(view["result"]["evaluation_id"])
    assert (evaluation.agent_id, evaluation.cost_usd) == ("agent:remote@1", pytest.approx(0.0002 * len(fake.asked)))
    stored = services.store.trajectories.get(runs["items"][0]["id"])
    assert {step.model for step in stored.agent_steps} == {"expert-1-0101"}
    services.close()
    assert [p for p in settings.home.rglob("*") if p.is_file() and KEY.encode() in p.read_bytes()] == []
