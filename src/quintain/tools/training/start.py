"""Training: start a job that trains an agent's model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from quintain.errors import InvalidInput
from quintain.records.agent import Agent
from quintain.records.dataset import DatasetName
from quintain.records.hyperparameters.methods import Method, TrainingConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.record import shown
from quintain.tools.evaluation.environment_references import Environments
from quintain.tools.jobs.jobs import start
from quintain.tools.labels.rewards import training_reward
from quintain.tools.results import JobStarted
from quintain.tools.services import Services
from quintain.tools.training.agents import agreement_note, require_free_name
from quintain.tools.training.earlier_skills import earlier_skill
from quintain.tools.training.evolve import start_evolution
from quintain.tools.training.methods import EVOLVE, canonical_settings, read_hyperparameters, require_method
from quintain.tools.training.named_models import named_models
from quintain.tools.training.planning.warnings import start_warnings
from quintain.tools.training.requests import (
    AgentReference,
    NewName,
    Request,
    RequestKey,
    RewardArgument,
    TrainingSeed,
    new_output,
    spec_key,
    start_agent,
)
from quintain.tools.training.sources import Source
from quintain.tools.training.usable_settings import usable_settings, with_adapter_settings


def start_training(
    services: Services,
    method: Annotated[
        Literal[Method, "evolve"],
        BeforeValidator(require_method),
        Field(description="How to learn; list_library(kind='methods') describes each."),
    ],
    model: AgentReference,
    dataset_id: Annotated[
        DatasetName | None, Field(description="Dataset id or name, of the kind that the method learns from.")
    ] = None,
    environment: Annotated[
        Environments | None,
        Field(description="Instead of a dataset: where the agent acts while it learns."),
    ] = None,
    reward: RewardArgument = None,
    name: NewName = None,
    hyperparameters: Annotated[
        dict[str, Any] | None,
        Field(description="Settings of the method; see guide://methods/METHOD. Null: defaults."),
    ] = None,
    seed: TrainingSeed = 0,
    request_key: RequestKey = None,
) -> JobStarted:
    """Start training as a background job; the result is a new agent.

    The job outlives the server, and goes on from its newest checkpoint. The same request while it is unfinished returns it
    (`deduplicated`).
    """
    request = Request(model=model, name=name, reward=reward, seed=seed, request_key=request_key)
    if method == EVOLVE:
        require_no_dataset(dataset_id)
        return start_evolution(services, request, environment, canonical_settings(method, hyperparameters))
    config = read_hyperparameters(method, hyperparameters)
    return train(services, method, config, request, Source(dataset=dataset_id, environment=environment))


def train(
    services: Services,
    method: str,
    config: TrainingConfig,
    request: Request,
    source: Source,
    *,
    folder: Path | None = None,
) -> JobStarted:
    """Start a training with checked settings; everything else is checked before anything is created for it.

    Args:
        services: Where the job is started.
        method: How to learn.
        config: Checked settings of the method.
        request: Start model, name, seed and key of the job.
        source: What to learn from; a dataset of texts or of the first rows is frozen here.
        folder: A folder of the caller's to create before the job starts; None: none.
    """
    require_free_name(request.name or "")
    agent = start_agent(services, method, request.model)
    inputs = training_inputs(services, method, config, agent, source, request.reward, make=False)
    inputs["earlier"] = earlier_skill(services, inputs["config"], agent)
    create_folder(folder)
    if source.max_samples is not None or not inputs.keys() & {"dataset_id", "environment"}:  # a dataset has to be made
        inputs |= source.resolve(services, method, make=True)
    name = request.name or f"{agent.name}-{method}"[:100]
    cache = str(services.settings.cache_dir)
    spec = TrainSpec(agent=agent, name=name, output_dir="", cache_dir=cache, seed=request.seed, **inputs)
    key = request.request_key or spec_key(spec)
    stored = spec.model_copy(update=new_output(services, name))
    return start(services, stored, key, note=agreement_note(spec.reward_agent), warnings=start_warnings(services, spec))


def training_inputs(
    services: Services,
    method: str,
    config: TrainingConfig,
    agent: Agent,
    source: Source,
    reward: object = None,
    *,
    make: bool,
) -> dict[str, Any]:
    """Return the checked fields of `TrainingInputs`, less the skill that EWC keeps; plans and recipes ask the same.

    Args:
        services: Where names are looked up.
        method: How to learn.
        config: Checked settings of the method.
        agent: What the training starts from.
        source: What to learn from.
        reward: What runs are worth, as the caller wrote it.
        make: As of `Source.resolve`.
    """
    acts = source.environment is not None
    config = with_adapter_settings(config, agent)
    models = named_models(services, config, agent, acts=acts)
    fields = source.resolve(services, method, make=make)
    config = usable_settings(services, config, fields.get("environment"))
    worth = training_reward(services, method, reward, acts=acts)
    return {"method": method, "config": config, "reward": worth, **models, **fields}


def copy_model(model: str, folder: Path | None) -> str:
    """Return where a model lies: in a copy in the folder that the caller named, else in its own."""
    if folder is None:
        return model
    shutil.copytree(model, folder, dirs_exist_ok=True)
    return str(folder)


def create_folder(folder: Path | None) -> Path | None:
    """Create a folder that the caller named, with its parents; None where none is named.

    Raises:
        InvalidInput: it cannot be created.
    """
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"output_dir: expected a folder that can be created, got {shown(str(folder))} ({error}); name another folder"
        ) from None
    return folder


@contextmanager
def output_folder(folder: Path | None) -> Iterator[Path | None]:
    """Create the folder for the model of a training; where its start is refused, remove again what was created."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()] if folder is not None else []
    create_folder(folder)
    try:
        yield folder
    except BaseException:
        for path in missing:
            with suppress(OSError):
                path.rmdir()
        raise


def require_no_dataset(dataset: object) -> None:
    """Refuse a dataset for `evolve`.

    Raises:
        InvalidInput: there is one.
    """
    if dataset is not None:
        raise InvalidInput(
            f"dataset {shown(dataset)} cannot be taken: evolve makes its datasets of what the agent explores; give `environment` "
            "alone, or train with another method on the dataset first",
            code="no_dataset",
        )
