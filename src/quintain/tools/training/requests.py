"""Requests for a training: fields beside the source, the agents that they name, the key of the job, and the source."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, ValidationError

from quintain.artifacts.locations import is_url
from quintain.datasets.manifest import FILE_NAME
from quintain.datasets.recorded_calls import require_calls
from quintain.datasets.row_files import rows_of
from quintain.datasets.rows import read_rows
from quintain.errors import InvalidInput
from quintain.files import sha256_of
from quintain.importers.protocol import Report
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.dataset import Dataset
from quintain.records.hyperparameters.methods import DATASET_KINDS, ONLINE_METHODS, ROLES, ActingConfig, TrainingConfig
from quintain.records.jobs.job import EvolveSpec, RecipeSpec, TrainSpec
from quintain.records.record import Record, Seed
from quintain.records.wording import explain, shown
from quintain.tools.data.dataset_folders import first_rows, text_dataset
from quintain.tools.data.lineage import require_remembered
from quintain.tools.data.row_references import find_rows, has_questions, named_dataset
from quintain.tools.evaluation.environment_references import usable_reference
from quintain.tools.jobs.jobs import spec_key, start
from quintain.tools.labels.reward_parsing import RewardInput
from quintain.tools.results import JobStarted
from quintain.tools.roots import mirror_of
from quintain.tools.services import Services, find
from quintain.tools.training.agents import require_policy, require_weights, resolve_agent
from quintain.tools.training.methods import describe_settings, learning_from

AgentReference = Annotated[
    str,
    Field(description="Agent id or name, `starter`, a folder of a model or adapter, a GGUF file, a job."),
]
NewName = Annotated[
    str | None,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="Name of the new agent; default: MODEL-METHOD.",
    ),
]
RewardArgument = Annotated[
    RewardInput | None,
    Field(
        description="Scorers by weight, in place of the reward of the environment or the data: "
        '{"outcome": 0.8, "length": 0.2}; multiplied: {"parts": {"outcome": 1, "length": 1}, "combine": "product"}.'
    ),
]
TrainingSeed = Annotated[Seed, Field(description="Seed of the order of data, and of new weights.")]
RequestKey = Annotated[
    str | None,
    Field(max_length=200, description="Repeats with this key return its unfinished job."),
]


class Request(Record):
    """Fields of a training beside source and settings, within the bounds of `start_training`."""

    model: AgentReference = "starter"
    name: NewName = None
    reward: RewardArgument = None
    seed: TrainingSeed = 0
    request_key: RequestKey = None


def read_request(document: Mapping[str, Any], where: str) -> Request:
    """Read and check the part of a config file that is a `Request`.

    Raises:
        InvalidInput: a value of the wrong type or out of bounds; the message states the bounds.
    """
    try:
        return Request.model_validate({name: document[name] for name in Request.model_fields if name in document})
    except ValidationError as error:
        fault = error.errors()[0]
        name = str(fault["loc"][0])
        valid = "" if fault["type"] == "string_pattern_mismatch" else f"; {name}: {describe_settings(Request)[name]}"
        raise InvalidInput(f"{explain(error, where)}{valid}") from None


def start_agent(services: Services, method: str, model: str) -> Agent:
    """Return the agent that a training starts from: a policy, or for reward models a policy or a reward model."""
    agent = require_weights(resolve_agent(services, model), f"be trained by {method}")
    return agent if agent.role == ROLES.get(method) else require_policy(agent, f"be trained by {method}")


def start_new_agent(
    services: Services,
    request: Request,
    spec: TrainSpec | EvolveSpec | RecipeSpec,
    *,
    note: str = "",
    warnings: tuple[Hint, ...] = (),
) -> JobStarted:
    """Start a job that makes an agent, in a new folder, with copies of its checkpoints where the operator wants them."""
    folder = str(services.settings.agents_dir / f"{spec.name}-{uuid.uuid4().hex[:10]}")
    stored = spec.model_copy(update={"output_dir": folder, "mirror": mirror_of(services, folder)})
    return start(services, stored, request.request_key or spec_key(spec), note=note, warnings=warnings)


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


class Source(NamedTuple):
    """Source of the data of a training: a dataset, files of plain text, or an environment."""

    dataset: str | None = None
    environment: str | Mapping[str, float] | None = None
    text: tuple[Path, ...] = ()
    max_samples: int | None = None
    """Rows of the dataset to train on, from the first; None: all."""
    validation_share: float = 0.0
    """Share of the tasks of a file of rows that is held out from training to validate on."""

    def resolve(self, services: Services, method: str, *, make: bool) -> dict[str, Any]:
        """Return the fields of a spec that name the source.

        With `make` a dataset of texts or of the first rows is frozen; otherwise only whether it can be.
        """
        dataset = self.dataset
        kind = DATASET_KINDS[method]
        if kind is None:
            return training_source(services, method, dataset or next(map(str, self.text), None), self.environment)
        if self.text:
            dataset = text_dataset(services, self.text, make=make)
        elif dataset is not None and self.environment is None:
            dataset = named_dataset(services, dataset, kind, validation_share=self.validation_share, make=make)
        if dataset is None and self.environment is None and (self.text or self.dataset):
            return {}
        source = training_source(services, method, dataset, self.environment)
        if self.max_samples is None or "dataset_id" not in source:
            return source
        sample = first_rows(services, services.store.datasets.get(source["dataset_id"]), self.max_samples, make=make)
        return training_source(services, method, sample or dataset, None)


def acting_on_questions(
    services: Services, method: str, config: TrainingConfig, source: Source
) -> tuple[TrainingConfig, Source]:
    """Return settings and source with an environment in place of a file of questions, for methods that learn online.

    Questions with answers are tasks: the agent answers them, and the answer is checked. `max_samples` is how many it answers for
    each epoch, where the settings do not state `rollouts`.
    """
    name, most = source.dataset, source.max_samples
    if method not in ONLINE_METHODS or name is None or source.environment is not None:
        return config, source
    path = find_rows(services, name) if find(services.store.datasets.get, name) is None else None
    if path is None or not has_questions(path):
        return config, source
    if most is not None and isinstance(config, ActingConfig) and "rollouts" not in config.model_fields_set:
        n = sum(1 for _ in islice(rows_of(path, Report()), most))
        rollouts = max(1, math.ceil(n * config.epochs / config.tasks_per_step))
        config = config.model_copy(update={"rollouts": rollouts})
    return config, Source(environment=f"quintain/math?file={name if is_url(name) else path}")


def training_source(
    services: Services, method: str, dataset_id: str | None, environment: str | Mapping[str, float] | None
) -> dict[str, Any]:
    """Return the fields of a spec that name the source of a training.

    Raises:
        InvalidInput: neither or both are given, the method does not learn online, or the dataset is of another kind, was
            changed on disk, or as `require_calls`.
        NotFound: there is no such dataset or environment.
        Conflict: the dataset contains forgotten runs.
    """
    kind = DATASET_KINDS[method]
    if kind is None:
        return {"environment": usable_reference(services, _require_acting(method, dataset_id, environment), games=True)}
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
        return {"environment": usable_reference(services, environment, games=True)}
    dataset = services.store.datasets.get(dataset_id or "")
    if dataset.kind != kind:
        raise InvalidInput(
            Hint(
                f"dataset {dataset.id} is of kind {dataset.kind!r} and {method} learns from kind {kind!r}: ",
                _MAKING_IT[kind],
                f"; methods for {dataset.kind!r}: {', '.join(learning_from(dataset.kind))}",
            ),
            code="wrong_dataset_kind",
        )
    require_remembered(services, dataset.id)
    if not dataset.splits.get("train"):
        raise InvalidInput(
            f"dataset {dataset.id} has no training rows; export it with a smaller `validation_share`",
            code="empty_dataset",
        )
    require_intact(dataset)
    if method == "retriever":
        require_calls(row.trajectory for row in read_rows(Path(dataset.path), "train"))
    return {"dataset_id": dataset.id, "dataset_path": dataset.path, "dataset_files": dataset.files}


def _require_acting(
    method: str, dataset: str | None, environment: str | Mapping[str, float] | None
) -> str | Mapping[str, float]:
    """Return the environment of a method that learns from nothing else."""
    if environment is not None and dataset is None:
        return environment
    got = f"the dataset {shown(dataset)}" if dataset is not None else "no environment"
    raise InvalidInput(
        Hint(
            f"expected an `environment` and nothing else for {method}, which learns only by acting, got {got}; ",
            call("list_library", kind="environments"),
            " lists them; grpo learns from stored runs too",
        ),
        code="no_environment",
    )


def require_intact(dataset: Dataset, *, all_files: bool = False) -> None:
    """Refuse a dataset whose files are gone or were changed, before a job is paid for that would refuse it too.

    Without `all_files`, only files that are newer than the manifest, which is written last, are read: large datasets take
    seconds to hash.

    Raises:
        InvalidInput: names the file and the way out.
    """
    folder = Path(dataset.path)
    try:
        written = (folder / FILE_NAME).stat().st_mtime_ns
        newer = [name for name in sorted(dataset.files) if (folder / name).stat().st_mtime_ns > written or all_files]
    except OSError as error:
        lost = f"has lost its file {Path(error.filename).name!r}"
        if not folder.is_dir():
            lost = f"has no folder at {folder}, which belongs to another home on this database, or was moved: a moved home is "
            lost += "mended by `quintain doctor`"
        raise InvalidInput(f"dataset {dataset.id} {lost}; export it again", code="dataset_damaged") from None
    for name in newer:
        if sha256_of(folder / name) != dataset.files[name]:
            raise InvalidInput(
                f"dataset {dataset.id} was changed on disk: {name!r} does not have the SHA-256 of its manifest; datasets are "
                "immutable, export it again",
                code="dataset_damaged",
            )
