"""Adapters, frozen blocks and quantised bases through the tools: refusals before a job, and agents that export and train on."""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

import pytest

from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.hyperparameters.methods import SFTConfig
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.jobs.curves import step_reports
from quintain.tools.jobs.jobs import get_job
from quintain.tools.services import Services
from quintain.tools.training.agents import resolve_agent
from quintain.tools.training.config_files import start_config
from quintain.tools.training.export_agent import export_agent
from quintain.tools.training.methods import read_hyperparameters
from quintain.tools.training.planning.model_files import adapter_settings
from quintain.tools.training.planning.plan import plan_training
from quintain.tools.training.start import start_training
from tiny_models import save_tiny_model
from tools.stored_records import ended, error_of, freeze_runs
from trajectory_runs import NOW, answer, run, user

SHORT: dict[str, Any] = {"max_steps": 1, "batch_size": 1}
PISSA: dict[str, Any] = {"lora": {"rank": 2, "alpha": 4.0, "init": "pissa"}, **SHORT}


@pytest.fixture
def dataset(services: Services) -> str:
    """A dataset of one run; its id."""
    return freeze_runs(services, run("t1", user(), answer("Done.")))


@pytest.fixture
def plain(services: Services) -> str:
    """An agent of two blocks; its name."""
    base = ModelRef(source="folder", path=str(save_tiny_model(services.settings.agents_dir / "base", hidden=16)))
    services.store.agents.add(Agent(name="plain", model=base, sampling=Sampling(max_new_tokens=4)), NOW)
    services.store.agents.add(Agent(name="nf4", model=base.model_copy(update={"quantization": "nf4"})), NOW)
    return "plain"


@pytest.mark.usefixtures("jobs_in_process")
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
def test_a_pissa_adapter_is_exported_and_trained_on_as_a_plain_one(
    services: Services, dataset: str, plain: str
) -> None:
    """Rank 2 is stored as 4 with alpha 8: the same scale. Export compares the files with the agent, and fails where they differ."""

    def trained(model: str, settings: dict[str, Any], name: str) -> Agent:
        job = start_training(services, "sft", model, dataset_id=dataset, name=name, hyperparameters=settings)
        assert ended(services, job).error is None
        return resolve_agent(services, name)

    first = trained(plain, PISSA, "first")
    merged = ended(services, export_agent(services, first.id or "", format="merged"))
    assert (merged.status, merged.error) == ("succeeded", None)
    again = trained("first", {"lora": {"b_rate_ratio": 4.0}, **SHORT}, "again")
    settings = adapter_settings(services.settings.agents_dir / str(again.model.adapter))
    assert (settings.rank, settings.alpha) == (4, 8.0)


@pytest.mark.usefixtures("jobs_in_process")
def test_a_training_on_a_dataset_measures_success_in_the_environment_that_is_named(
    services: Services, dataset: str, plain: str
) -> None:
    """A model without training solves none of 3 tasks: the upper bound of 0 of 3 is 1 - 0.025^(1/3)."""
    measured = {"evaluate_every_steps": 2, "evaluate_tasks": 3, "evaluate_environment": "quintain/math"}

    def trained(name: str, **settings: Any) -> list[dict[str, Any]]:
        asked = {"max_steps": 3, "batch_size": 1, "epochs": 3, "learning_rate": 1e-3} | settings
        job = start_training(services, "sft", plain, dataset_id=dataset, name=name, hyperparameters=asked)
        assert ended(services, job).error is None
        return [one.metrics for one in step_reports(services, job.job_id)]

    start, *steps = trained("measured", **measured)
    assert (start["held_out_success"], start["held_out_success_low"]) == (0.0, 0.0)
    assert start["held_out_success_high"] == pytest.approx(1 - 0.025 ** (1 / 3))
    assert ["held_out_success" in one for one in steps] == [False, True, True]
    assert [one["loss"] for one in steps] == [one["loss"] for one in trained("plainly")]


def test_success_is_measured_only_in_an_environment_that_is_named_and_exists(
    waiting: Services, dataset: str, plain: str
) -> None:
    for named, code in (({}, "no_environment"), ({"evaluate_environment": "quintain/maths"}, "environment_not_found")):
        asked = {"evaluate_every_steps": 2, **named}
        error = error_of(start_training, waiting, "sft", plain, dataset_id=dataset, hyperparameters=asked)
        assert error.code == code, error


def test_parts_that_a_model_does_not_have_are_refused_before_a_job_starts(
    waiting: Services, dataset: str, plain: str
) -> None:
    base = resolve_agent(waiting, plain).model
    waiting.store.agents.add(
        Agent(name="adapted", model=base.model_copy(update={"adapter": str(waiting.settings.agents_dir)})), NOW
    )
    unfit = [
        (plain, {"frozen_layers": 2}, "too_many_layers", "expected at most 1 for agent:plain@1"),
        ("nf4", PISSA, "quantized_base", "lora.init"),
        ("adapted", PISSA, "adapter_exists", "whose adapter is trained further"),
        (plain, PISSA | {"weight_decay": 0.1}, "invalid_input", "set weight_decay to 0"),
    ]
    for name, settings, code, words in unfit:
        error = error_of(start_training, waiting, "sft", name, dataset_id=dataset, hyperparameters=settings)
        assert (error.code, words in error.message) == (code, True), error
    assert waiting.store.jobs.page().items == ()


ADAPTERS: dict[str, Any] = {"lora": {"rank": 4}, "quantization": "nf4", "max_steps": 1, "batch_size": 1}


def base_of(services: Services) -> ModelRef:
    return ModelRef(source="folder", path=str(save_tiny_model(services.settings.agents_dir / "base", hidden=16)))


def test_what_cannot_be_trained_on_a_quantised_base_is_refused_before_a_job_starts(
    services: Services, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = base_of(services)
    stored = services.settings.agents_dir / "stored"
    shutil.copytree(model.path, stored)
    config = json.loads((stored / "config.json").read_bytes()) | {"quantization_config": {"quant_method": "gptq"}}
    (stored / "config.json").write_text(json.dumps(config), encoding="utf-8")
    add = services.store.agents.add
    add(Agent(name="plain", model=model), NOW)
    add(Agent(name="gptq", model=ModelRef(source="folder", path=str(stored))), NOW)
    add(Agent(name="nf4", model=model.model_copy(update={"quantization": "nf4"})), NOW)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)  # as where the extra is not installed
    unfit = [
        ("plain", {"quantization": "nf4"}, "invalid_input", "set lora to {}"),
        ("plain", {"load_in_4bit": True}, "invalid_input", "set lora to {}"),
        ("plain", ADAPTERS | {"sharding": "full", "processes": 2}, "invalid_input", "set sharding to 'none'"),
        ("gptq", {}, "quantized_base", "name the unquantised model"),
        ("nf4", {}, "quantized_base", "set lora to {}"),
        ("nf4", ADAPTERS | {"quantization": "int8"}, "quantized_base", "expected quantization 'nf4'"),
        ("nf4", {"lora": {}}, "missing_extra", "quintain[quantized]"),
        ("plain", ADAPTERS, "missing_extra", "bitsandbytes for quantization 'nf4'"),
        ("plain", {"optimizer": "adamw_8bit"}, "missing_extra", "optimizer 'adamw_8bit'"),
    ]
    for name, settings, code, words in unfit:
        error = error_of(start_training, services, "sft", name, dataset_id=dataset, hyperparameters=settings)
        assert (error.code, words in error.message) == (code, True), error
    acting: list[tuple[Any, dict[str, Any]]] = [
        (collect_rollouts, {"environment": "quintain/inventory"}),
        (evaluate_agent, {"environment": "quintain/inventory"}),
        (evaluate_agent, {"dataset_id": dataset}),
        (export_agent, {"format": "merged"}),
    ]
    for start, more in acting:
        assert error_of(start, services, "nf4", **more).code == "missing_extra"
    assert services.store.jobs.page().items == ()
    plan = plan_training(
        services, method="sft", model="plain", dataset_id=dataset, hyperparameters={"quantization": "nf4"}
    )
    assert plan.hyperparameters["lora"]["rank"] == 16
    assert "missing_extra" in {blocker.code for blocker in plan.blockers}


def test_the_names_of_other_trainers_for_quantised_bases_and_8_bit_moments_are_understood() -> None:
    asked = {"load_in_4bit": True, "load_in_8bit": False, "optim": "adamw_bnb_8bit", "lora_r": 4}
    config = read_hyperparameters("sft", asked)
    assert (config.quantization, config.optimizer) == ("nf4", "adamw_8bit")
    assert read_hyperparameters("sft", {"optim": "adamw_torch"}) == SFTConfig()
    both = error_of(read_hyperparameters, "sft", {"load_in_4bit": True, "load_in_8bit": True})
    assert "both set quantization" in both.message


@pytest.mark.usefixtures("jobs_in_process")
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
def test_a_trained_agent_records_its_quantised_base_and_is_trained_on_with_it(services: Services, dataset: str) -> None:
    pytest.importorskip("bitsandbytes")
    services.store.agents.add(Agent(name="plain", model=base_of(services)), NOW)
    stages = [{"method": "sft", "dataset": dataset, "hyperparameters": one} for one in (ADAPTERS, {})]
    recipe = error_of(start_config, services, {"model": "plain", "stages": stages})
    assert (recipe.code, "stages[1]: expected adapters" in recipe.message) == ("quantized_base", True), recipe
    first = start_training(services, "sft", "plain", dataset_id=dataset, name="first", hyperparameters=ADAPTERS)
    assert get_job(services, first.job_id).status == "succeeded"
    agent = resolve_agent(services, "first")
    assert (agent.model.quantization, agent.model.adapter is not None) == ("nf4", True)
    again = start_training(
        services, "sft", "first", dataset_id=dataset, name="second", hyperparameters={"lora": {}, "max_steps": 1}
    )
    assert get_job(services, again.job_id).status == "succeeded"
    spec = services.store.jobs.get(again.job_id).spec
    assert (spec.config.quantization, spec.config.lora.rank) == ("nf4", 4)
    assert resolve_agent(services, "second").model.quantization == "nf4"
