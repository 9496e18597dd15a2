"""Training: start a job that trains an agent's model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from quintain.datasets.rows import read_rows
from quintain.datasets.step_labels import require_labels
from quintain.environments.references import Reference, parse_reference, parts_of, reads_tasks, write_reference
from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.dataset import DatasetName
from quintain.records.hyperparameters.methods import (
    Method,
    PRMConfig,
    RewardConfig,
    SFTConfig,
    TrainingConfig,
)
from quintain.records.jobs.evolve import EvolveConfig
from quintain.records.jobs.job import EvolveSpec, TrainSpec
from quintain.records.wording import shown
from quintain.tools.evaluation.environment_references import Environments, tasks_there, usable_reference
from quintain.tools.labels.rewards import training_reward
from quintain.tools.results import JobStarted
from quintain.tools.services import Services
from quintain.tools.training.agents import agreement_note, require_free_name
from quintain.tools.training.earlier_skills import earlier_skill
from quintain.tools.training.methods import (
    EVOLVE,
    canonical_settings,
    check_evolution,
    read_hyperparameters,
    require_method,
)
from quintain.tools.training.planning.warnings import start_warnings
from quintain.tools.training.requests import (
    AgentReference,
    NewName,
    Request,
    RequestKey,
    RewardArgument,
    Source,
    TrainingSeed,
    acting_on_questions,
    start_agent,
    start_new_agent,
)
from quintain.tools.training.usable_settings import named_models, reward_agent, usable_settings, with_adapter_settings


def start_evolution(
    services: Services,
    request: Request,
    environment: str | Mapping[str, float] | None,
    settings: Mapping[str, Any],
) -> JobStarted:
    """Start an evolution; its result is the best agent of all rounds, compared with the start.

    The agent is measured in the environment, and explores there unless there is a curriculum.
    """
    return _started(services, request, evolution_spec(services, request, environment, settings))


def _started(
    services: Services, request: Request, spec: TrainSpec | EvolveSpec, notes: tuple[Hint, ...] = ()
) -> JobStarted:
    note, warnings = agreement_note(spec.reward_agent), (*start_warnings(services, spec), *notes)
    return start_new_agent(services, request, spec, note=note, warnings=warnings)


def evolution_spec(
    services: Services,
    request: Request,
    environment: str | Mapping[str, float] | None,
    settings: Mapping[str, Any],
) -> EvolveSpec:
    """Return the checked spec of an evolution, without a folder for its agent.

    Raises:
        InvalidInput: no environment, a setting without effect, or an agent that cannot act.
    """
    require_free_name(request.name or "")
    if environment is not None:
        settings = with_tasks_there(settings, usable_reference(services, environment))
    config, training = check_evolution(settings)
    if isinstance(training, SFTConfig) and training.replay is not None:
        raise InvalidInput(
            "in `training`: replay mixes in what other jobs were trained on; what earlier rounds selected comes back with "
            "accumulate: leave replay out"
        )
    if training.ewc is not None:
        raise InvalidInput(
            "in `training`: ewc keeps the skill of one earlier training, and an evolution has many rounds; leave ewc out, or train "
            "on the dataset of its last round with start_training",
            code="no_earlier_skill",
        )
    if environment is None:
        raise InvalidInput(
            Hint(
                f"{EVOLVE} needs `environment`, where the agent explores and is measured, and takes no dataset: it makes its "
                "own; ",
                call("list_library", kind="environments"),
                " shows where an agent can act",
            )
        )
    agent = start_agent(services, EVOLVE, request.model)
    where = usable_reference(services, environment)
    training = usable_settings(services, training, None if config.explores else where)
    return EvolveSpec(
        name=request.name or f"{agent.name}-{EVOLVE}"[:100],
        agent=agent,
        environment=where,
        config=_with_levels(services, config, where).model_copy(update={"training": {}}),
        training=with_adapter_settings(training, agent),
        reward_agent=reward_agent(services, training),
        reward=training_reward(services, EVOLVE, request.reward, acts=True),
        output_dir="",
        datasets_dir=str(services.settings.datasets_dir),
        cache_dir=str(services.settings.cache_dir),
        seed=request.seed,
    )


def with_tasks_there(settings: Mapping[str, Any], environment: str) -> dict[str, Any]:
    """Return settings of an evolution whose default numbers of tasks are no more than those of the file that it plays.

    A third of the held-out tasks selects rounds; the others are for the final comparison.
    """
    if parts_of(environment) is not None or not reads_tasks(environment):
        return dict(settings)
    usual = {name: EvolveConfig.model_fields[name].default for name in ("evaluation_tasks", "final_tasks")}
    given, there = {*settings}, dict[str, int]()
    if not given & {"tasks_per_iteration", "trajectories_per_iter"}:
        most = EvolveConfig.model_fields["tasks_per_iteration"].default
        there["tasks_per_iteration"] = tasks_there(environment, "train", most)
    if not given & usual.keys():
        held_out = tasks_there(environment, "held_out", sum(usual.values()))
        there |= {"evaluation_tasks": held_out // 3, "final_tasks": held_out - held_out // 3}
    return {**settings, **{name: n for name, n in there.items() if n}}


def _with_levels(services: Services, config: EvolveConfig, environment: str) -> EvolveConfig:
    """The settings with each level as a whole reference, checked; options alone are those of the environment."""
    if config.curriculum is None:
        return config
    levels = []
    for place, level in enumerate(config.curriculum.levels):
        try:
            levels.append(usable_reference(services, _whole(level, environment)))
        except InvalidInput as error:
            raise InvalidInput(f"curriculum.levels[{place}]: {error.message}", code=error.code) from None
    return config.model_copy(update={"curriculum": config.curriculum.model_copy(update={"levels": tuple(levels)})})


def _whole(level: str, environment: str) -> str:
    if not level.startswith("?"):
        return level
    if parts_of(environment) is not None:
        raise InvalidInput(
            f"{level!r} is an option alone, and {environment} names several environments; write ID{level}"
        )
    name, options = parse_reference(environment)
    return write_reference(Reference(name, {**options, **parse_reference(f"level{level}").options}))


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
    notes: tuple[Hint, ...] = (),
) -> JobStarted:
    """Start a training with checked settings; everything else is checked before anything is created for it.

    A dataset of texts or of the first rows is frozen here. `notes` are warnings of what was read to start it.
    """
    require_free_name(request.name or "")
    agent = start_agent(services, method, request.model)
    inputs = training_inputs(services, method, config, agent, source, request.reward, make=False)
    inputs["earlier"] = earlier_skill(services, inputs["config"], agent)
    if "environment" not in inputs and (
        source.max_samples is not None or "dataset_id" not in inputs
    ):  # it has to be made
        inputs |= source.resolve(services, method, make=True)
    name = request.name or f"{agent.name}-{method}"[:100]
    cache = str(services.settings.cache_dir)
    spec = TrainSpec(agent=agent, name=name, output_dir="", cache_dir=cache, seed=request.seed, **inputs)
    return _started(services, request, spec, notes)


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
    """Return the checked fields of `TrainingInputs`, less the skill that EWC keeps; plans and recipes ask the same."""
    config, source = acting_on_questions(services, method, config, source)
    acts = source.environment is not None
    config = with_adapter_settings(config, agent)
    models = named_models(services, config, agent, acts=acts)
    fields = source.resolve(services, method, make=make)
    config = usable_settings(services, config, fields.get("environment"))
    if isinstance(config, PRMConfig | RewardConfig) and config.heads and "dataset_path" in fields:
        require_labels(config.heads, read_rows(Path(fields["dataset_path"]), "train", kind=method))
    worth = training_reward(services, method, reward, acts=acts)
    return {"method": method, "config": config, "reward": worth, **models, **fields}


def copy_model(model: str, folder: Path | None) -> str:
    """Return where a model lies: in a copy in the folder that the caller named, else in its own."""
    if folder is None:
        return model
    before = _listed_files(folder)
    shutil.copytree(model, folder, dirs_exist_ok=True)
    for name in before - _listed_files(folder):  # of the model that the folder had before
        (folder / name).unlink(missing_ok=True)
    return str(folder)


def _listed_files(folder: Path) -> set[str]:
    """Return the names of a model's files by its SHA256SUMS; empty where it has none."""
    try:
        lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return set()
    names = {line.partition("  ")[2] for line in lines}
    return {name for name in names if name and name == Path(name).name}


@contextmanager
def output_folder(named: str | None) -> Iterator[Path | None]:
    """Create the folder for the model of a training; where its start is refused, remove again what was created.

    Raises:
        InvalidInput: it is no path, or cannot be created.
    """
    missing = list[Path]()
    try:
        folder = None if named is None else Path(named).expanduser()
        if folder is not None:
            missing += [path for path in (folder, *folder.parents) if not path.exists()]
            folder.mkdir(parents=True, exist_ok=True)
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        raise InvalidInput(
            f"output_dir: expected a folder that can be created, got {shown(named)} ({error}); name another folder"
        ) from None
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
