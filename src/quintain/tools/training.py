"""Training: start a job that trains an agent's model."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from quintain.errors import InvalidInput
from quintain.formats.datasets.manifest import FILE_NAME, sha256_of
from quintain.records.agent import Agent
from quintain.records.dataset import Dataset
from quintain.records.job import EvolveSpec, RecipeSpec, TrainSpec
from quintain.records.record import Record, Seed, explain, shown
from quintain.records.training import (
    ACTING_ONLY,
    DATASET_KINDS,
    ONLINE_METHODS,
    ROLES,
    DPOConfig,
    GRPOConfig,
    Method,
    TrainingConfig,
)
from quintain.tools.agents import (
    agreement_note,
    require_free_name,
    require_policy,
    require_reward_model,
    require_weights,
    resolve_agent,
)
from quintain.tools.environment_references import Environments, usable_reference
from quintain.tools.jobs import start
from quintain.tools.lineage import require_remembered
from quintain.tools.methods import describe_settings, read_hyperparameters
from quintain.tools.results import JobStarted
from quintain.tools.services import Services

_MAKING_IT = {
    "text": "the `text` of a config file names files of it (quintain train --config)",
    **{
        kind: f"export_dataset(kind={kind!r}, name=...) makes one from recorded runs"
        for kind in ("sft", "dpo", "kto", "grpo", "reward", "prm")
    },
}
"""Kind of dataset -> where one comes from."""


AgentReference = Annotated[
    str, Field(description="Agent to start from: agent id or name, `starter`, or a model folder.")
]
NewName = Annotated[
    str | None,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="Name of the resulting agent; default: NAME-METHOD.",
    ),
]
TrainingSeed = Annotated[Seed, Field(description="Seed of data order and initialisation.")]
RequestKey = Annotated[
    str | None,
    Field(max_length=200, description="Repeat-safe key: an unfinished job with the same key is returned instead."),
]


class Request(Record):
    """What is asked for beside source and settings, within the bounds of `start_training`."""

    model: AgentReference = "starter"
    name: NewName = None
    seed: TrainingSeed = 0
    request_key: RequestKey = None


def start_training(
    services: Services,
    method: Annotated[
        Literal[Method, "evolve"],
        Field(description="How to learn; list_library(kind='methods') says what each does and needs."),
    ],
    model: AgentReference,
    dataset_id: Annotated[
        str | None, Field(description="Dataset id or name, of the kind that the method learns from.")
    ] = None,
    environment: Annotated[
        Environments | None,
        Field(description="Instead of a dataset (grpo, dpo, evolve): where the agent acts while it learns."),
    ] = None,
    name: NewName = None,
    hyperparameters: Annotated[
        dict[str, Any] | None,
        Field(description="Settings of the method, checked strictly; see guide://methods/METHOD. Null: defaults."),
    ] = None,
    seed: TrainingSeed = 0,
    request_key: RequestKey = None,
) -> JobStarted:
    """Start training as a background job and answer at once with its id; the result is a new agent.

    The job survives the end of this conversation and of the server, and continues from its newest checkpoint when its
    process dies. The same request while one is unfinished returns that job (`deduplicated`).
    """
    if method == "evolve":
        from quintain.tools.evolve import start_evolution

        require_no_dataset(dataset_id)
        request = Request(model=model, name=name, seed=seed, request_key=request_key)
        return start_evolution(services, request, environment, hyperparameters)
    require_free_name(name or "")
    config = read_hyperparameters(method, hyperparameters)
    agent = start_agent(services, method, model)
    source = training_source(services, method, dataset_id, environment)
    require_effect(config, environment is not None)
    spec = TrainSpec(
        method=method,
        agent=agent,
        name=name or f"{agent.name}-{method}"[:100],
        output_dir="",
        cache_dir=str(services.settings.cache_dir),
        config=config,
        reward_agent=reward_agent(services, config),
        seed=seed,
        **source,
    )
    key = request_key or spec_key(spec)
    started = start(services, spec.model_copy(update={"output_dir": new_output_dir(services, spec.name)}), key)
    if spec.reward_agent is None:
        return started
    return started.model_copy(update={"next_step": f"{agreement_note(spec.reward_agent)} {started.next_step}"})


def read_request(document: Mapping[str, Any], where: str) -> Request:
    """The part of a config file that is a `Request`, checked.

    Raises:
        InvalidInput: a value is of the wrong type or out of bounds; says what it may be.
    """
    try:
        return Request.model_validate({name: document[name] for name in Request.model_fields if name in document})
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise InvalidInput(f"{explain(error, where)}; {name}: {describe_settings(Request)[name]}") from None


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


def require_startable(
    services: Services, method: str, model: str, name: str | None, hyperparameters: Mapping[str, Any]
) -> None:
    """Check a request but for what it learns from, so that no dataset is made for one that will be refused.

    Raises:
        InvalidInput: an unknown method, a wrong setting or a name that is kept.
        NotFound: there is no such agent.
        Refused: as `resolve_agent`.
    """
    require_free_name(name or "")
    reward_agent(services, read_hyperparameters(method, hyperparameters))
    start_agent(services, method, model)


def start_agent(services: Services, method: str, model: str) -> Agent:
    """The agent that a training starts from: one that acts, or for a method whose result values runs one that does that.

    Raises:
        InvalidInput: it is of another role, or acts through an endpoint.
        NotFound: there is no such agent.
        Refused: as `resolve_agent`.
    """
    agent = require_weights(resolve_agent(services, model), f"be trained by {method}")
    return agent if agent.role == ROLES.get(method) else require_policy(agent, f"be trained by {method}")


def reward_agent(services: Services, config: TrainingConfig) -> Agent | None:
    """The agent that GRPO's `reward_model` names; None where it names none.

    Raises:
        InvalidInput: it does not value runs.
        NotFound: there is no such agent.
        Refused: as `resolve_agent`.
    """
    if not isinstance(config, GRPOConfig) or config.reward_model is None:
        return None
    agent = require_reward_model(resolve_agent(services, config.reward_model), "be the reward_model of grpo")
    if config.step_level and agent.role == "reward_model":
        raise InvalidInput(
            f"step_level is true, but {agent.id} values whole runs and says nothing of steps: set step_level to false, or name "
            "an agent of start_training(method='prm') as reward_model"
        )
    return agent


def training_source(
    services: Services, method: str, dataset_id: str | None, environment: str | Mapping[str, float] | None
) -> dict[str, Any]:
    """What a method learns from, as the fields of a spec that name it.

    Raises:
        InvalidInput: neither or both are given, the method does not learn online, or the dataset is of another kind or was
            changed on disk.
        NotFound: there is no such dataset or environment.
        Conflict: the dataset holds forgotten runs.
    """
    kind = DATASET_KINDS[method]
    if (dataset_id is None) == (environment is None):
        online = ", or `environment`, where the agent acts" if method in ONLINE_METHODS else ""
        raise InvalidInput(
            f"{method} needs {'one of the two' if online else 'a dataset'}: `dataset_id`, a dataset of kind {kind!r}{online}; "
            f"{_MAKING_IT[kind]}"
        )
    if environment is not None:
        if method not in ONLINE_METHODS:
            raise InvalidInput(
                f"{method} does not learn in an environment (that can: {', '.join(sorted(ONLINE_METHODS))}); collect runs in "
                f"{environment!r} with collect_rollouts, then give a dataset of kind {kind!r}: {_MAKING_IT[kind]}",
                code="not_online",
            )
        return {"environment": usable_reference(services, environment)}
    dataset = services.store.datasets.get(dataset_id or "")
    if dataset.kind != kind:
        fitting = [name for name, needed in DATASET_KINDS.items() if needed == dataset.kind]
        raise InvalidInput(
            f"dataset {dataset.id} is of kind {dataset.kind!r} and {method} learns from kind {kind!r}: {_MAKING_IT[kind]}; "
            f"methods for {dataset.kind!r}: {', '.join(fitting)}",
            code="wrong_dataset_kind",
        )
    require_remembered(services, dataset.id)
    if not dataset.splits.get("train"):
        raise InvalidInput(
            f"dataset {dataset.id} has no training rows; export it with a smaller validation_share",
            code="empty_dataset",
        )
    require_intact(dataset)
    return {"dataset_id": dataset.id, "dataset_path": dataset.path, "dataset_files": dataset.files}


def require_effect(config: TrainingConfig, acts: bool) -> None:
    """Refuse settings of acting for a dpo on stored pairs: they would change nothing.

    Those of grpo are let through, as the size of its groups stands in everyone's files. `epochs` and `batch_size` stand
    there too, and do not count online.

    Args:
        config: Checked settings.
        acts: Does the method learn in an environment?

    Raises:
        InvalidInput: names the settings.
    """
    if acts or not isinstance(config, DPOConfig):
        return
    defaults = type(config).model_fields
    given = [name for name in defaults if name in ACTING_ONLY and getattr(config, name) != defaults[name].default]
    if given:
        raise InvalidInput(
            f"{', '.join(given)} would have no effect: dpo on a dataset learns from its pairs and does not act; leave "
            "this out, or give `environment` instead of the dataset",
            code="not_online",
        )


def require_intact(dataset: Dataset) -> None:
    """Refuse a dataset whose files are gone or were changed, before a job is paid for that would refuse it too.

    Only files that are newer than the manifest, which is written last, are read: large datasets take seconds to hash.

    Raises:
        InvalidInput: names the file and the way out.
    """
    folder = Path(dataset.path)
    try:
        made = (folder / FILE_NAME).stat().st_mtime_ns
        newer = [name for name in sorted(dataset.files) if (folder / name).stat().st_mtime_ns > made]
    except OSError as error:
        raise InvalidInput(
            f"dataset {dataset.id} has lost its file {Path(error.filename).name!r}; export it again with export_dataset",
            code="dataset_damaged",
        ) from None
    for name in newer:
        if sha256_of(folder / name) != dataset.files[name]:
            raise InvalidInput(
                f"dataset {dataset.id} was changed on disk: {name!r} does not have the SHA-256 of its manifest; datasets are "
                "immutable, export it again with export_dataset",
                code="dataset_damaged",
            )


def new_output_dir(services: Services, name: str) -> str:
    """A folder of its own for what a job makes."""
    return str(services.settings.agents_dir / f"{name}-{uuid.uuid4().hex[:10]}")


def spec_key(spec: TrainSpec | RecipeSpec | EvolveSpec) -> str:
    """The default request key: what was asked, without where the result will lie."""
    return hashlib.sha256(spec.model_dump_json(exclude={"output_dir"}).encode()).hexdigest()
