"""PiSSA, LoRA+ and frozen blocks through the tools: refusals before a job, and an adapter that exports and trains on as any."""

from __future__ import annotations

from typing import Any

import pytest

from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.tools.jobs.curves import step_reports
from quintain.tools.services import Services
from quintain.tools.training.agents import resolve_agent
from quintain.tools.training.export_agent import export_agent
from quintain.tools.training.planning.model_files import adapter_settings
from quintain.tools.training.start import start_training
from tiny_models import save_tiny_model
from tools.stored_records import ended, error_of, freeze_runs
from trajectory_runs import NOW, answer, run, user

SHORT: dict[str, Any] = {"max_steps": 1, "batch_size": 1}
PISSA: dict[str, Any] = {"lora": {"rank": 2, "alpha": 4.0, "init": "pissa"}, **SHORT}


@pytest.fixture
def dataset(services: Services) -> str:
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
