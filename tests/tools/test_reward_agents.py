"""Agents that value runs, and those that act: each is refused where the other is needed, before a job is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quintain.errors import InvalidInput
from quintain.records.agent import Agent, Agreement
from quintain.records.dataset import GroupRow, PairRow, StepLabelRow
from quintain.records.jobs.job import JobResult, JobStatus
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.jobs.jobs import get_job
from quintain.tools.labels.rewards import reward_spec
from quintain.tools.labels.score_jobs import start_model_scoring, start_step_labels
from quintain.tools.labels.scorer_resolution import full_scorer_name
from quintain.tools.services import Services
from quintain.tools.training.agents import register_agent, resolve_agent
from quintain.tools.training.config_files import start_config
from quintain.tools.training.start import start_training
from tools.stored_records import add_runs, error_of, freeze_rows, spec_of
from trajectory_runs import answer, run, user

ENVIRONMENT = "quintain/inventory"


@pytest.fixture(autouse=True)
def _library(waiting: Services) -> None:
    """A reward model, a step model and a dataset of each kind; jobs are stored and never begin."""
    starter = resolve_agent(waiting, "starter")
    for name, role in (("judge", "reward_model"), ("steps", "step_model")):
        waiting.store.agents.add(Agent(name=name, model=starter.model, role=role), waiting.clock())
    good, bad = run("t1", user(), answer("Done.")), run("t1", user(), answer("No idea."))
    add_runs(waiting, good, bad)
    rows = {
        "reward": PairRow(chosen=good, rejected=bad),
        "prm": StepLabelRow(trajectory=good, labels=(1.0,)),
        "grpo": GroupRow(key="t1", trajectories=(good, bad), rewards=(1.0, 0.0)),
    }
    for kind, row in rows.items():
        freeze_rows(waiting, kind, [row])


def test_an_agent_that_values_runs_is_refused_where_one_must_act(services: Services) -> None:
    refused = [
        error_of(collect_rollouts, services, "judge", ENVIRONMENT),
        error_of(evaluate_agent, services, "steps", ENVIRONMENT),
        error_of(start_training, services, "grpo", "judge", environment=ENVIRONMENT),
        error_of(start_training, services, "evolve", "judge", environment=ENVIRONMENT),
        error_of(start_training, services, "prm", "judge", dataset_id="some-prm"),
        error_of(start_training, services, "reward", "steps", dataset_id="some-reward"),
        error_of(
            start_config, services, {"model": "judge", "stages": [{"method": "reward", "dataset": "some-reward"}]}
        ),
    ]
    assert {error.code for error in refused} == {"not_a_policy"}
    assert "agent:judge@1 is a reward model: it scores whole runs and cannot act" in refused[0].message
    assert "agent:steps@1 is a step model: it scores steps" in refused[1].message
    assert all("name a policy" in error.message for error in refused)
    assert services.store.jobs.page().items == ()


def test_a_policy_is_refused_where_runs_are_to_be_valued(services: Services) -> None:
    for name, code, words in (
        ("starter", "not_a_reward_model", "method 'reward' or 'prm'"),
        ("nobody", "not_found", "nobody"),
    ):
        named = {"environment": ENVIRONMENT, "hyperparameters": {"reward_model": name}}
        error = error_of(start_training, services, "grpo", "starter", **named)
        assert (error.code, words in error.message) == (code, True), error


def test_a_reward_model_is_named_in_the_settings_and_resolved_into_the_job(services: Services) -> None:
    settings = {"reward_model": "steps", "step_level": True, "refresh_every_steps": 4, "beta": 0.2}
    started = start_training(services, "grpo", "starter", environment=ENVIRONMENT, hyperparameters=settings)
    assert spec_of(services, started).reward_agent.id == "agent:steps@1"
    assert "The accuracy of agent:steps@1 is unknown" in started.next_step
    trained_on = start_training(services, "reward", "judge", dataset_id="some-reward", name="judge")
    assert spec_of(services, trained_on).agent.role == "reward_model"


def test_settings_that_contradict_each_other_are_told(services: Services) -> None:
    acting, on_rows, on_steps = {"environment": ENVIRONMENT}, {"dataset_id": "some-reward"}, {"dataset_id": "some-prm"}
    for method, source, settings, words in (
        ("grpo", acting, {"refresh_every_steps": 2}, "reward_model is null"),
        ("grpo", acting, {"reward_model": "judge", "alpha": 0, "beta": 0}, "no run would earn"),
        (
            "grpo",
            {"dataset_id": "some-grpo"},
            {"reward_model": "judge", "refresh_every_steps": 2},
            "refresh_every_steps would have no effect on a dataset",
        ),
        ("reward", on_rows, {"kl_stop": 1}, "writes nothing"),
        ("reward", on_rows, {"sample_every_steps": 1}, "writes nothing"),
        ("reward", on_rows, {"heads": ["kind"]}, "values of kind, as heads asks, got none; name others"),
        ("prm", on_steps, {"heads": ["value", "kind"]}, "values of kind, as heads asks, got value; name others"),
    ):
        error = error_of(start_training, services, method, "starter", hyperparameters=settings, **source)
        assert words in error.message


def test_a_recipe_ends_where_it_makes_a_reward_model(services: Services) -> None:
    stages: list[dict[str, Any]] = [{"method": "reward", "dataset": "some-reward"}]
    job_id = start_config(services, {"stages": stages}).job_id
    assert services.store.jobs.begin_attempt(job_id, 0, 1, services.clock())
    result = JobResult(agent="agent:judge@2")
    assert services.store.jobs.finish(job_id, 1, JobStatus.SUCCEEDED, services.clock(), result=result)
    assert "score_trajectories(scorer='agent:judge@2'" in get_job(services, job_id).next_step
    measured = [*stages, {"method": "evaluate", "environment": ENVIRONMENT}]
    error = error_of(start_config, services, {"stages": measured})
    assert error.code == "not_a_policy"
    assert "stages[1]" in error.message
    mixed = [{"method": "grpo", "dataset": "some-grpo", "hyperparameters": {"reward_model": "judge"}}]
    (stage,) = spec_of(services, start_config(services, {"stages": mixed})).stages
    assert stage.reward_agent.name == "judge"


def test_a_later_stage_of_a_recipe_names_the_agent_that_an_earlier_one_keeps(services: Services) -> None:
    """Its own name goes before that of a stored agent; settings and roles are checked as those of any agent."""
    judging = {"method": "reward", "dataset": "some-reward", "agent": "judge", "hyperparameters": {"lora": {}}}
    on_groups = {"method": "grpo", "dataset": "some-grpo", "hyperparameters": {"reward_model": "agent:judge"}}
    acting = {"method": "ppo", "environment": ENVIRONMENT, "reward": {"agent:judge": 0.5, "outcome": 0.5}}
    *_, groups, live = spec_of(services, start_config(services, {"stages": [judging, on_groups, acting]})).stages
    assert (groups.reward_agent.id, groups.reward_agent.name, groups.config.lora) == (None, "judge", None)
    assert [(part.scorer, part.agent and part.agent.id) for part in live.reward.parts] == [
        ("agent:judge", None),
        ("outcome", None),
    ]
    kept = {"method": "grpo", "environment": ENVIRONMENT, "agent": "clerk"}
    taught = {"method": "distill", "environment": ENVIRONMENT, "hyperparameters": {"teacher": "clerk"}}
    assert spec_of(services, start_config(services, {"stages": [kept, taught]})).stages[1].teacher_agent.name == "clerk"
    game = {"environment": "quintain/nim"}
    playing = [{"method": "grpo", **game, "agent": "first", "hyperparameters": {"self_play": {}}}]
    measured = [*playing, {"method": "evaluate", **game, "opponent": "first"}]
    assert spec_of(services, start_config(services, {"stages": measured})).stages[1].opponent.name == "first"
    for refused, words in (
        ([{**judging, "agent": None}, on_groups], "give that stage agent: NAME"),
        ([kept, {**on_groups, "hyperparameters": {"reward_model": "clerk"}}], "clerk is a policy"),
        ([judging, {**taught, "hyperparameters": {"teacher": "judge"}}], "judge is a reward model"),
        ([on_groups, {**judging, "agent": "critic"}, acting | {"reward": "agent:criticus"}], "criticus"),
    ):
        assert words in error_of(start_config, services, {"stages": refused}).message


def test_who_uses_a_reward_model_is_told_how_often_it_was_right(services: Services) -> None:
    known = Agreement(of="pairs ordered as labelled", right=9, n=10, rate=0.9, ci_low=0.596, ci_high=0.982)
    judge = resolve_agent(services, "judge").model_copy(update={"name": "sure", "held_out": known})
    services.store.agents.add(judge, services.clock())
    for name in ("sure", register_agent(services, "copy", "sure").agent.name):
        started = start_model_scoring(services, [run("t1", user(), answer("Done.")).identified()], name)
        result = f"agent:{name}@1 met 9 of 10 held-out pairs ordered as labelled (90.0%, 95 % 59.6% to 98.2%)."
        assert result in started.next_step


def test_a_folder_with_a_value_head_is_an_agent_of_its_role(services: Services, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    (tmp_path / "config.json").write_text("{}")
    head = tmp_path / "value_head.safetensors"
    save_file({"weight": torch.zeros(1, 2), "bias": torch.zeros(1)}, head, {"heads": '["value"]', "role": "step_model"})
    agent = resolve_agent(services, str(tmp_path))
    assert agent.role == "step_model"
    (part,) = reward_spec(services, f"agent:{tmp_path}").parts
    assert (part.scorer, part.agent) == (agent.id, agent), "a folder is a reward, too"
    assert full_scorer_name(services, f"agent:{tmp_path}").name == agent.id
    other = tmp_path / "damaged"
    other.mkdir()
    (other / "config.json").write_text("{}")
    (other / "value_head.safetensors").write_bytes(head.read_bytes()[:20])
    with pytest.raises(InvalidInput, match=r"value_head\.safetensors is damaged"):
        resolve_agent(services, str(other))


def test_step_labels_need_runs_of_one_environment_and_an_agent_that_acts(services: Services) -> None:
    starter, judge = resolve_agent(services, "starter"), resolve_agent(services, "judge")
    here = run("t1", user(), answer("Done.")).model_copy(update={"id": "traj-1"})
    here = here.model_copy(update={"task": here.task.model_copy(update={"environment": ENVIRONMENT})})
    there = here.model_copy(update={"task": here.task.model_copy(update={"environment": None})})
    started = start_step_labels(services, [here], agent=starter, completions=2)
    spec = spec_of(services, started)
    assert (spec.environment, spec.runs.n, spec.sampling.temperature) == (ENVIRONMENT, 1, 1.0)
    assert start_step_labels(services, [here], agent=starter, completions=2).deduplicated
    assert error_of(start_step_labels, services, [here], agent=judge).code == "not_a_policy"
    for runs in ([there], [here, there]):
        assert error_of(start_step_labels, services, runs, agent=starter).code == "no_single_environment"
