"""Distillation through the tools: teachers behind a real server and on this machine, and what is refused before a job starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fake_endpoint import FakeEndpoint, profile, serving, write_profiles
from jobs_in_process import in_process
from quintain.records.agent import Agent, ModelRef
from quintain.records.jobs.job import JobStatus
from quintain.settings import Settings
from quintain.tools.services import Services
from quintain.tools.training.agents import resolve_agent
from quintain.tools.training.config_files import start_config
from quintain.tools.training.model_folders import starter_folder
from quintain.tools.training.start import start_training
from quintain.trainers.models.loading import load_model, save_model
from scoring_endpoint import STARTER, scorer
from tiny_models import save_tiny_model
from tools.stored_records import ended, error_of, freeze_runs
from trajectory_runs import answer, run, user

ENVIRONMENT = "quintain/inventory"
TEACHER: dict[str, Any] = {"model": "starter", "tokenizer": str(starter_folder())}


@pytest.fixture
def dataset(services: Services) -> str:
    return freeze_runs(services, *(run(f"t{i}", user(), answer(f"There are {i} boxes.")) for i in range(2)))


def sharpened_starter(folder: Path) -> Path:
    """The embedded model with a larger last norm, so that its distributions are sharper."""
    loaded = load_model(STARTER)
    with torch.no_grad():
        loaded.model.model.norm.weight.mul_(1.5)
    save_model(loaded.model, loaded.tokenizer, folder)
    return folder


def losses(services: Services, dataset: str, **settings: Any) -> list[float]:
    """Train the starter for two steps in this process; the loss of each."""
    settings = {
        "max_steps": 2,
        "batch_size": 2,
        "learning_rate": 1e-4,
        "schedule": "constant",
        "warmup_ratio": 0,
        **settings,
    }
    with in_process():
        started = start_training(services, "distill", "starter", dataset_id=dataset, hyperparameters=settings, seed=1)
    job = ended(services, started)
    assert job.status is JobStatus.SUCCEEDED, job.error
    folder = services.settings.jobs_dir / started.job_id
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["metrics"]["loss"] for line in lines if line["type"] == "progress"]


def test_a_server_that_scores_tokens_teaches_like_its_model_on_this_machine(
    services: Services, settings: Settings, dataset: str
) -> None:
    """The divergence is 0 from the student itself, and from another model the same whichever way its log-probs come."""
    assert losses(services, dataset, teacher="starter", teacher_top_k=4)[0] == pytest.approx(0.0, abs=1e-5)
    sharp = ModelRef(source="folder", path=str(sharpened_starter(settings.agents_dir / "sharp")))
    services.store.agents.add(Agent(name="sharp", model=sharp), services.clock())
    servers = serving(scorer(sharp)), serving(scorer(sharp, echo=True)), serving(scorer(sharp, shift=1))
    with servers[0] as plain, servers[1] as echoing, servers[2] as shifted:
        served: dict[str, FakeEndpoint] = {"plain": plain, "echoing": echoing, "shifted": shifted}
        write_profiles(settings, *(profile(name, server.url, **TEACHER) for name, server in served.items()))
        local = losses(services, dataset, teacher="sharp", teacher_top_k=4)
        assert local[1] < local[0]
        for name in ("plain", "echoing"):
            assert losses(services, dataset, teacher=f"endpoint:{name}", teacher_top_k=4) == pytest.approx(
                local, rel=1e-4
            )
            assert {tuple(asked.body) for asked in served[name].asked} == {
                ("model", "prompt", "max_tokens", "temperature", "prompt_logprobs")
            }
            assert len(served[name].asked) == 2
        spec = services.store.jobs.page().items[0].spec
        links = services.store.lineage.ancestors(
            services.store.lineage.resolve(services.store.jobs.page().items[0].id), 1
        )
        assert spec.teacher_agent.id in {node.id for node in links.nodes}

        with in_process():
            wrong = {"teacher": "endpoint:shifted", "max_steps": 1}
            job = start_training(services, "distill", "starter", dataset_id=dataset, hyperparameters=wrong)
        assert ended(services, job).error.code == "tokenizer_mismatch"


def test_a_teacher_whose_tokens_are_not_the_students_is_refused_before_a_job_starts(
    waiting: Services, settings: Settings, dataset: str, tmp_path: Path
) -> None:
    claude = profile("claude", **TEACHER, protocol="anthropic")
    write_profiles(settings, profile("bare"), claude, profile("good", **TEACHER))
    other = save_tiny_model(settings.agents_dir / "other", hidden=16)
    bare = settings.agents_dir / "bare"
    bare.mkdir()
    for file in other.glob("*"):
        if file.name != "tokenizer.json":
            (bare / file.name).write_bytes(file.read_bytes())
    (bare / "tokenizer.model").touch()
    add = waiting.store.agents.add
    add(Agent(name="other", model=ModelRef(source="folder", path=str(other))), waiting.clock())
    add(Agent(name="untokenized", model=ModelRef(source="folder", path=str(bare))), waiting.clock())
    add(Agent(name="judge", model=resolve_agent(waiting, "starter").model, role="reward_model"), waiting.clock())
    unfit = [
        ("other", "tokenizer_mismatch", "same model family"),
        ("untokenized", "tokenizer_mismatch", "expected a tokenizer.json of agent:untokenized@1"),
        ("endpoint:bare", "tokenizer_mismatch", "let the operator set tokenizer"),
        ("endpoint:claude", "no_logprobs", "OpenAI-compatible server"),
        ("expert", "no_weights", "script"),
        ("judge", "not_a_policy", "reward model"),
        ("nobody", "not_found", "nobody"),
    ]
    for teacher, code, words in unfit:
        settings_of = {"teacher": teacher}
        error = error_of(start_training, waiting, "distill", "starter", dataset_id=dataset, hyperparameters=settings_of)
        assert (error.code, words in error.message) == (code, True), error
    alone = error_of(start_training, waiting, "distill", "starter", environment=ENVIRONMENT)
    assert alone.code == "no_teacher"
    unused = {"teacher": "starter", "rollouts": 3}
    error = error_of(start_training, waiting, "distill", "starter", dataset_id=dataset, hyperparameters=unused)
    assert "rollouts would have no effect" in error.message
    stopped = {"teacher": "starter", "kl_stop": 1.0}
    assert (
        "kl_stop"
        in error_of(
            start_training, waiting, "distill", dataset_id=dataset, model="starter", hyperparameters=stopped
        ).message
    )
    assert waiting.store.jobs.page().items == ()

    hinted = error_of(start_training, waiting, "gkd", "starter", dataset_id=dataset)
    assert "'distill'" in hinted.message
    stage = {"method": "distill", "environment": ENVIRONMENT, "hyperparameters": {"teacher": "endpoint:good"}}
    spec = waiting.store.jobs.get(start_config(waiting, {"stages": [stage]}).job_id).spec
    assert spec.stages[0].teacher_endpoint.name == "good"
