"""Config files: one training, or a recipe that chains several, read from YAML or JSON and started as one job.

Only the command line and the facade take them: their caller is the user, so they may name files of texts freely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from quintain.errors import InvalidInput, NotFound
from quintain.records.agent import Agent
from quintain.records.hyperparameters.foreign_settings import DATASETS
from quintain.records.hyperparameters.methods import DATASET_KINDS, ROLES, TrainingConfig
from quintain.records.jobs.job import RecipeSpec
from quintain.records.jobs.recipe import EvaluateStage, Stage, TrainStage, ancestry
from quintain.records.text import require_clean
from quintain.records.wording import explain, shown
from quintain.tools.evaluation.environment_references import require_opponent, task_count, usable_reference
from quintain.tools.evaluation.rollouts import acting_fields
from quintain.tools.invocation import refuse_unknown
from quintain.tools.results import JobStarted
from quintain.tools.services import Services
from quintain.tools.training.agents import (
    endpoint_of,
    require_free_name,
    require_policy,
    require_weights,
    resolve_agent,
    sampling_of,
)
from quintain.tools.training.earlier_skills import with_earlier_skills
from quintain.tools.training.foreign_files import (
    TEMPLATES,
    canonical_document,
    is_of_another_trainer,
    left_open,
    with_listed_dataset,
)
from quintain.tools.training.methods import (
    EVOLVE,
    canonical_settings,
    check_settings,
    merge_settings,
    read_hyperparameters,
)
from quintain.tools.training.planning.warnings import recipe_warnings
from quintain.tools.training.requests import (
    Request,
    Source,
    read_request,
    start_new_agent,
)
from quintain.tools.training.start import require_no_dataset, start_evolution, train, training_inputs
from quintain.tools.training.usable_settings import with_same_adapter

_SOURCES = ("dataset", "text", "environment")
_REQUEST = (
    *("method", "model", *_SOURCES, "max_samples", "validation_share", "reward", "name", "seed", "request_key"),
    "hyperparameters",
)
_RECIPE = ("name", "model", "seed", "request_key", "stages")
_TRAIN_STAGE = ("method", "label", *_SOURCES, "max_samples", "reward", "agent", "hyperparameters")
_EVALUATE_STAGE = (
    "method",
    "label",
    *(name for name in EvaluateStage.model_fields if name not in {"kind", "label", "opponent_endpoint"}),
)


def settings_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters of a config file: under `hyperparameters`, or without that key all that is not part of the request.

    A block `model`, as torchtune has it, is refused with them, because it has settings of adapters.
    """
    blocks = {name: value for name, value in document.items() if name == "model" and isinstance(value, Mapping)}
    beside = {name: value for name, value in document.items() if name not in _REQUEST} | blocks
    if "hyperparameters" not in document:
        return beside
    refuse_unknown("config", document, dict.fromkeys(_REQUEST))
    return _hyperparameters(document)


def stated_folder(document: Mapping[str, Any]) -> str | None:
    """Return the folder that a config file names for a copy of the trained model.

    Raises:
        InvalidInput: it is no text, or two names of one key disagree.
    """
    named = canonical_document(document).get("output_dir")
    if not isinstance(named, str | None):
        raise InvalidInput(f"output_dir: expected a path, got {shown(named)}; name a folder, or leave it out")
    return named


def _hyperparameters(document: Mapping[str, Any]) -> dict[str, Any]:
    settings = document.get("hyperparameters")
    if not isinstance(settings, Mapping | None):
        raise InvalidInput(f"expected hyperparameters to be a mapping from settings to values, got {shown(settings)}")
    return dict(settings or {})


def start_config(
    services: Services,
    document: Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    folder: Path = Path(),
    *,
    where: str = "config",
    options: Mapping[str, Any] | None = None,
) -> JobStarted:
    """Start what a config file asks for: a recipe where it has `stages`, else one training.

    `changes` are hyperparameters that take the place of the file's, and `options` its other keys; paths of texts begin at
    `folder`; `where` names the document in errors. The caller copies the model to `stated_folder`.

    Raises:
        InvalidInput: a key is unknown, a value is wrong, or a recipe comes with changes.
        NotFound: a dataset, an environment, an agent or a file of texts does not exist.
    """
    options = options or {}
    require_clean({**document, **options}, "config")
    is_foreign = is_of_another_trainer(document)
    document = canonical_document(document)
    replaced = {"output_dir", *((*_SOURCES, *DATASETS) if any(source in options for source in _SOURCES) else ())}
    left = {key: value for key, value in document.items() if key not in replaced}
    document = {**with_listed_dataset(left, folder), **options}
    require_clean(dict(changes or {}), "settings")
    if "stages" in document:
        if changes:
            raise InvalidInput("a recipe has settings for each of its stages; change them in its file")
        return start_recipe(services, document, folder)
    named = [name for name in TEMPLATES if is_foreign and isinstance(document.get(name), str)]
    templates = [document.pop(name) for name in named]
    method = _method_of(document)
    settings = canonical_settings(method, settings_of(document))
    request = read_request(document, where)
    settings = merge_settings(settings, canonical_settings(method, changes))
    if method == EVOLVE:
        for key in ("dataset", "text", "max_samples"):
            require_no_dataset(document.get(key))
        return start_evolution(services, request, document.get("environment"), settings)
    config = check_settings(method, settings)
    notes = left_open(config, next(iter(templates), None)) if is_foreign else ()
    return train(services, method, config, request, _source(method, document, folder), tuple(notes))


def start_recipe(services: Services, document: Mapping[str, Any], folder: Path = Path()) -> JobStarted:
    """Start a recipe: its stages one after the other in one job, each from the agent of the stage before.

    Raises:
        InvalidInput: a stage is malformed; nothing is started.
        NotFound: a dataset, an environment, an agent or a file of texts does not exist.
    """
    refuse_unknown("recipe", document, dict.fromkeys(_RECIPE))
    stages = document["stages"]
    if not isinstance(stages, list) or not all(isinstance(stage, Mapping) for stage in stages):
        raise InvalidInput(f"expected stages to be a list of mappings, each with a `method`, got {shown(stages)}")
    request = read_request(document, "recipe")
    require_free_name(request.name or "")
    _recipe(services, request, stages, folder, make=False)  # all stages are checked before a dataset is created for any
    spec = _recipe(services, request, stages, folder, make=True)
    return start_new_agent(services, request, spec, warnings=recipe_warnings(services, spec))


def _recipe(
    services: Services, request: Request, stages: Sequence[Mapping[str, Any]], folder: Path, *, make: bool
) -> RecipeSpec:
    agent = require_policy(resolve_agent(services, request.model), "begin a recipe")
    name = request.name or f"{agent.name}-recipe"[:100]
    try:
        read = list[Stage]()
        for document in stages:
            read.append(_stage(services, document, read, folder, agent, make=make))
        _require_actors(read)
        if any(isinstance(stage, TrainStage) for stage in read):
            require_weights(agent, "be trained by a recipe")
        kept = with_earlier_skills(services, _kept(read, name), agent, make=make)
        return RecipeSpec(
            name=name,
            agent=agent,
            endpoint=endpoint_of(services, agent),
            stages=kept,
            output_dir="",
            cache_dir=str(services.settings.cache_dir),
            seed=request.seed,
        )
    except ValidationError as error:
        raise InvalidInput(explain(error, "recipe")) from None


def _stage(
    services: Services, document: Mapping[str, Any], before: Sequence[Stage], folder: Path, agent: Agent, *, make: bool
) -> Stage:
    """Return a stage of a recipe that begins with an agent, whose adapter and tokens decide settings and teachers."""
    where = f"stages[{len(before)}]"
    services = replace(services, planned=_planned(before, agent))
    try:
        method = _method_of(document)
        if method == "evaluate":
            refuse_unknown("the stage", document, dict.fromkeys(_EVALUATE_STAGE))
            wanted = {name: value for name, value in document.items() if name != "method"}
            stage = EvaluateStage.model_validate({"label": method, **wanted, **_played(services, document)})
            n_tasks = task_count(stage.environment, stage.split, wanted.get("n_tasks"), stage.seed)
            sampling = stage.sampling and sampling_of(services, agent, stage.sampling)
            return stage.model_copy(update={"n_tasks": n_tasks, "sampling": sampling})
        refuse_unknown("the stage", document, dict.fromkeys(_TRAIN_STAGE))
        config = read_hyperparameters(method, _hyperparameters(document))
        if earlier := [before[place] for place in ancestry(before, method)]:
            config = _going_on(config, [stage.config for stage in earlier if isinstance(stage, TrainStage)])
            agent = agent.model_copy(update={"model": agent.model.model_copy(update={"adapter": None})})
        source, reward = _source(method, document, folder), document.get("reward")
        inputs = training_inputs(services, method, config, agent, source, reward, make=make)
        rows = services.store.datasets.get(inputs["dataset_id"]).splits["train"] if "dataset_id" in inputs else 0
        name = document.get("agent")
        require_free_name(name or "")
        return TrainStage(label=document.get("label", method), rows=rows, agent=name, **inputs)
    except ValidationError as error:
        raise InvalidInput(explain(error, where)) from None
    except (InvalidInput, NotFound) as error:
        raise type(error)(f"{where}: {error.message}", code=error.code) from None


def _planned(stages: Sequence[Stage], start: Agent) -> dict[str, Agent]:
    """Return the agents that stages keep under a name and later ones may name, each with the tokens and the base of the start.

    A retriever is none of them: the environment that it is named in needs its files.
    """
    kept = [stage for stage in stages if isinstance(stage, TrainStage) and stage.agent is not None]
    named = {stage.agent or "": ROLES.get(stage.method, "policy") for stage in kept}
    return {name: Agent(name=name, model=start.model, role=role) for name, role in named.items() if role != "retriever"}


def _played(services: Services, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return where a stage evaluates, and in a game against whom."""
    environment = usable_reference(services, document.get("environment", ""), games=True)
    opponent = document.get("opponent")
    if not isinstance(opponent, str | None):
        raise InvalidInput(f"opponent: expected text, got {shown(opponent)}; give expert or another agent")
    require_opponent(environment, opponent, "give `opponent`: expert or another agent")
    if opponent is None:
        return {"environment": environment}
    other = acting_fields(services, opponent, environment, games=True)
    return {"environment": environment, "opponent": other["agent"], "opponent_endpoint": other["endpoint"]}


def _going_on(config: TrainingConfig, earlier: Sequence[TrainingConfig]) -> TrainingConfig:
    """Return the settings of a stage that goes on with what earlier ones trained: their adapter, on their base.

    Raises:
        InvalidInput: It would train all weights of a quantised base, or other adapters.
    """
    kind = next((before.quantization for before in earlier if before.quantization), None)
    if kind is not None and config.lora is None:
        raise InvalidInput(
            f"expected adapters on the base in {kind} of a stage before, got lora null; set lora to {{}}",
            code="quantized_base",
        )
    return config if earlier[-1].lora is None else with_same_adapter(config, earlier[-1].lora.stored)


def _require_actors(stages: Sequence[Stage]) -> None:
    """Refuse a stage behind one whose agent cannot act, where it would measure that agent, or leave it unused."""
    before, role = None, None
    for index, stage in enumerate(stages):
        wanted = ROLES.get(stage.method) if isinstance(stage, TrainStage) else None
        if role is not None and before is not None and wanted != role:
            made = f"stages[{index}]: the stage before makes a {role.replace('_', ' ')}, which cannot act"
            if isinstance(stage, EvaluateStage):
                raise InvalidInput(f"{made}; put the evaluation before that stage", code="not_a_policy")
            if before.agent is None:
                raise InvalidInput(
                    f"{made}, and this one begins with the agent before it; give that stage agent: NAME, and name it here, as "
                    "reward_model or as agent:NAME in `reward`, or end the recipe there",
                    code="not_a_policy",
                )
        if isinstance(stage, TrainStage):
            before, role = stage, wanted


def _kept(stages: Sequence[Stage], name: str) -> tuple[Stage, ...]:
    """An agent that is measured on the way is stored, so that its evaluation can be compared."""
    kept = list(stages)
    training = [index for index, stage in enumerate(stages) if isinstance(stage, TrainStage)]
    for index, following in pairwise(training):
        stage = kept[index]
        if isinstance(stage, TrainStage) and stage.agent is None and following > index + 1:
            kept[index] = stage.model_copy(update={"agent": f"{name[:59]}-{stage.label}"})
    return tuple(kept)


def _method_of(document: Mapping[str, Any]) -> str:
    method = document.get("method")
    if not isinstance(method, str):
        raise InvalidInput(
            "`method`: expected the name of a training method, such as sft, or evaluate in a recipe, got "
            f"{'none' if method is None else shown(method)}; name it in the file or beside it"
        )
    return method.lower()


def _source(method: str, document: Mapping[str, Any], folder: Path) -> Source:
    """Read `dataset`, `text`, `environment` and `max_samples` of a training."""
    most, dataset, environment = (document.get(name) for name in ("max_samples", "dataset", "environment"))
    match dataset:
        case [str(name)]:
            dataset = name
    if (isinstance(dataset, list) and len(dataset) > 1) or (isinstance(dataset, str) and "," in dataset):
        raise InvalidInput(
            f"dataset: expected one, got {shown(dataset)}; export each, then join the datasets: export with path A+B, or "
            "--rows A+B at the terminal"
        )
    if not isinstance(dataset, str | None):
        raise InvalidInput(f"dataset: expected text, got {shown(dataset)}; put it in quotes, or leave it out")
    if most is not None and (environment or isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise InvalidInput(
            f"max_samples: expected a whole number of at least 1 beside a dataset, got {shown(most)}; give the number of "
            "rows to train on, or leave it out"
        )
    share = document.get("validation_share") or 0.0
    beside = [name for name in ("text", "environment", "max_samples") if document.get(name) is not None]
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1 or (share and beside):
        raise InvalidInput(
            f"validation_share: expected a number from 0 to below 1 beside a file of rows alone, got {shown(share)}"
            f"{''.join(f' beside {name}' for name in beside)}; export the rows with the share, and name that dataset"
        )
    if dataset is not None and (folder / dataset).is_file():
        dataset = str(folder / dataset)
    if "text" not in document:
        return Source(dataset, environment, max_samples=most, validation_share=share)
    if len(document.keys() & set(_SOURCES)) > 1:
        raise InvalidInput("expected one of `text`, `dataset` and `environment`, got several; keep one of them")
    if DATASET_KINDS[method] != "text":
        raise InvalidInput(f"{method} does not learn from plain text; use pretrain, or give a dataset")
    return Source(text=tuple(_files(folder, document["text"])), max_samples=most)


def _files(folder: Path, text: object) -> list[Path]:
    patterns = [text] if isinstance(text, str) else text
    if (
        not isinstance(patterns, list)
        or not patterns
        or not all(isinstance(pattern, str) and pattern for pattern in patterns)
    ):
        raise InvalidInput(
            f"expected text to be a path, a pattern like notes/*.txt, or a list of them, got {shown(text)}"
        )
    return [path for pattern in patterns for path in _matches(folder, pattern)]


def _matches(folder: Path, pattern: str) -> list[Path]:
    path = folder / pattern
    try:
        path = folder / Path(pattern).expanduser()
        if path.is_file():
            return [path]
        anchor = Path(path.anchor)
        found = sorted(file for file in anchor.glob(str(path.relative_to(anchor))) if file.is_file())
    # Exceptions of pathlib for a NUL, for a pattern that it does not take, for a name that is too long, for no such home.
    except (ValueError, NotImplementedError, OSError, RuntimeError):
        found = []
    if not found:
        raise NotFound(f"no file is {str(path)!r:.300}; name files of plain text, or *.jsonl with `text` in each line")
    return found
