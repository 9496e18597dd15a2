"""Training: start a job that trains an agent's model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from quintain.datasets.manifest import FILE_NAME, sha256_of
from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.dataset import Dataset
from quintain.records.hyperparameters import DATASET_KINDS, ONLINE_METHODS, Method, TrainingConfig
from quintain.records.job import TrainSpec
from quintain.records.record import shown
from quintain.tools.data.dataset_folders import first_rows, text_dataset
from quintain.tools.data.lineage import require_remembered
from quintain.tools.evaluation.environment_references import Environments, usable_reference
from quintain.tools.jobs.jobs import start
from quintain.tools.results import JobStarted
from quintain.tools.services import Services
from quintain.tools.training.agents import agreement_note, require_free_name
from quintain.tools.training.evolve import start_evolution
from quintain.tools.training.methods import EVOLVE, canonical_settings, read_hyperparameters
from quintain.tools.training.requests import (
    AgentReference,
    NewName,
    Request,
    RequestKey,
    TrainingSeed,
    new_output_dir,
    require_effect,
    reward_agent,
    spec_key,
    start_agent,
)

_MAKING_IT = {
    "text": Hint(
        call("export_dataset", kind="text", name="texts", path=...),
        " makes one from files of text, or name them as `text` in a config file",
    ),
    **{
        kind: Hint(call("export_dataset", kind=kind, name=f"my-{kind}", filter=...), " makes one from recorded runs")
        for kind in ("sft", "dpo", "kto", "grpo", "reward", "prm")
    },
}
"""Kind of dataset -> how to make one."""


def start_training(
    services: Services,
    method: Annotated[
        Literal[Method, "evolve"],
        Field(description="How to learn; list_library(kind='methods') describes each."),
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
    """Start training as a background job; the result is a new agent.

    The job outlives conversation and server, and goes on from its newest checkpoint when its process dies. The same request
    while it is unfinished returns it (`deduplicated`).
    """
    request = Request(model=model, name=name, seed=seed, request_key=request_key)
    if method == EVOLVE:
        require_no_dataset(dataset_id)
        return start_evolution(services, request, environment, canonical_settings(method, hyperparameters))
    config = read_hyperparameters(method, hyperparameters)
    return train(services, method, config, request, Source(dataset=dataset_id, environment=environment))


class Source(NamedTuple):
    """What a training learns from: a dataset, files of plain text, or an environment."""

    dataset: str | None = None
    environment: str | Mapping[str, float] | None = None
    text: tuple[Path, ...] = ()
    max_samples: int | None = None
    """Rows of the dataset to train on, from the first; None: all."""

    def resolve(self, services: Services, method: str, *, make: bool) -> dict[str, Any]:
        """Return the fields of a spec that name the source.

        Args:
            services: Where datasets are found and frozen.
            method: How to learn.
            make: Freeze the dataset of texts or of the first rows; otherwise only check that it can be frozen.

        Raises:
            InvalidInput: as `training_source`.
            NotFound: as `training_source`.
            Conflict: as `training_source`.
        """
        dataset = self.dataset
        if self.text:
            dataset = text_dataset(services, self.text, make=make)
            if dataset is None:
                return {}
        source = training_source(services, method, dataset, self.environment)
        if self.max_samples is None:
            return source
        sample = first_rows(services, services.store.datasets.get(source["dataset_id"]), self.max_samples, make=make)
        return training_source(services, method, sample or dataset, None)


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

    Raises:
        InvalidInput: a reserved name, a setting without effect, a folder that cannot be created, or as `Source.resolve`.
        NotFound: the agent, the dataset or the environment does not exist.
        Conflict: the dataset contains forgotten runs.
        Refused: as `resolve_agent`.
    """
    require_free_name(request.name or "")
    judge = reward_agent(services, config)
    agent = start_agent(services, method, request.model)
    source.resolve(services, method, make=False)
    require_effect(config, source.environment is not None)
    create_folder(folder)
    name = request.name or f"{agent.name}-{method}"[:100]
    spec = TrainSpec(
        method=method,
        agent=agent,
        name=name,
        output_dir="",
        cache_dir=str(services.settings.cache_dir),
        config=config,
        reward_agent=judge,
        seed=request.seed,
        **source.resolve(services, method, make=True),
    )
    key = request.request_key or spec_key(spec)
    started = start(services, spec.model_copy(update={"output_dir": new_output_dir(services, name)}), key)
    if judge is None:
        return started
    return started.model_copy(update={"next_step": Hint(agreement_note(judge), " ", started.next_step)})


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


def training_source(
    services: Services, method: str, dataset_id: str | None, environment: str | Mapping[str, float] | None
) -> dict[str, Any]:
    """Return the fields of a spec that name the source of a training.

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
            Hint(
                f"{method} needs {'one of the two' if online else 'a dataset'}: `dataset_id`, a dataset of kind {kind!r}"
                f"{online}; ",
                _MAKING_IT[kind],
            )
        )
    if environment is not None:
        if method not in ONLINE_METHODS:
            raise InvalidInput(
                Hint(
                    f"{method} does not learn in an environment (these do: {', '.join(sorted(ONLINE_METHODS))}); collect runs "
                    "with ",
                    call("collect_rollouts", agent="starter", environment=environment),
                    f", then give a dataset of kind {kind!r}: ",
                    _MAKING_IT[kind],
                ),
                code="not_online",
            )
        return {"environment": usable_reference(services, environment)}
    dataset = services.store.datasets.get(dataset_id or "")
    if dataset.kind != kind:
        fitting = [name for name, needed in DATASET_KINDS.items() if needed == dataset.kind]
        raise InvalidInput(
            Hint(
                f"dataset {dataset.id} is of kind {dataset.kind!r} and {method} learns from kind {kind!r}: ",
                _MAKING_IT[kind],
                f"; methods for {dataset.kind!r}: {', '.join(fitting)}",
            ),
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
            f"dataset {dataset.id} has lost its file {Path(error.filename).name!r}; export it again",
            code="dataset_damaged",
        ) from None
    for name in newer:
        if sha256_of(folder / name) != dataset.files[name]:
            raise InvalidInput(
                f"dataset {dataset.id} was changed on disk: {name!r} does not have the SHA-256 of its manifest; datasets are "
                "immutable, export it again",
                code="dataset_damaged",
            )
