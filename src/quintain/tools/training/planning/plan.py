"""Planning: which method, which settings, will it fit, how long, and what prevents it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from quintain.errors import InvalidInput, QuintainError
from quintain.next_step import Hint, call, join_hints
from quintain.records.agent import Agent
from quintain.records.dataset import Dataset, DatasetName
from quintain.records.hyperparameters.methods import CONFIGS, DATASET_KINDS, OnlineConfig, TrainingConfig
from quintain.records.jobs.evolve import EvolveConfig
from quintain.records.jobs.plan import Blocker, Estimate, TrainingPlan
from quintain.records.record import require_number
from quintain.tools.data.row_references import stored_dataset
from quintain.tools.evaluation.environment_references import Environments, players_in, usable_reference
from quintain.tools.labels.rewards import learns_from_rewards
from quintain.tools.services import Services
from quintain.tools.training.agents import resolve_agent
from quintain.tools.training.earlier_skills import earlier_skill
from quintain.tools.training.methods import (
    EVOLVE,
    canonical_settings,
    describe_method,
    list_methods,
    merge_settings,
    require_method,
)
from quintain.tools.training.planning.choice import Choice, choose
from quintain.tools.training.planning.dataset_size import DataFacts, look_at_data
from quintain.tools.training.planning.device import Device, look_at_device
from quintain.tools.training.planning.estimate import (
    EstimateRequest,
    ExplainedEstimate,
    estimate,
    long_rows,
    measured_figures,
    shortages,
    slow_format,
)
from quintain.tools.training.planning.model_files import ModelFacts, read_model, stored_quantization
from quintain.tools.training.planning.purposes import (
    REWARDS,
    Goal,
    Purpose,
    Wish,
    constraints,
    later_stages,
    require_combinable,
    unserved,
)
from quintain.tools.training.planning.settings import PlanSettings, settle, small_batch
from quintain.tools.training.planning.warnings import few_held_out, other_prompt, step_value_notes
from quintain.tools.training.requests import AgentReference, Request, Source, start_agent
from quintain.tools.training.start import evolution_spec, training_inputs, with_tasks_there

T = TypeVar("T")


def plan_training(
    services: Services,
    goal: Goal = None,
    dataset_id: Annotated[DatasetName | None, Field(description="Null: what the library has.")] = None,
    model: AgentReference = "starter",
    environment: Annotated[Environments | None, Field(description="Where it may act.")] = None,
    method: Annotated[str | None, Field(description="Null: chosen.")] = None,
    hyperparameters: Annotated[dict[str, Any] | None, Field(description="Settings to keep.")] = None,
    memory_gb: Annotated[
        float | None,
        Field(gt=0, le=100_000, description="To plan for; null: what is free here."),
        BeforeValidator(require_number),
    ] = None,
) -> TrainingPlan:
    """Plan a training from purposes or a dataset: method, settings, memory, duration, blockers with remedies, why.

    start_training takes `method` and `hyperparameters` as they are. Null: not known; `estimate.unknown` names the call that measures it.
    """
    purposes = tuple(goal or ())
    if not purposes and dataset_id is None and environment is None and method is None:
        raise InvalidInput(
            "expected something to plan for, got nothing; give `goal` (such as 'imitate'), `dataset_id`, `environment` or `method`"
        )
    require_combinable(purposes, method)
    dataset = stored_dataset(services, dataset_id) if dataset_id is not None else None
    where = usable_reference(services, environment, games=True) if environment is not None else None
    if "measure_only" in purposes:
        return _measurement(model, dataset, where)
    blockers = list[Blocker]()
    agent = _tried(lambda: resolve_agent(services, model), blockers)
    wish = Wish.of(purposes, require_method(method) if method else None).taking(hyperparameters)
    choice = choose(services, wish, dataset, where, agent)
    if (chosen := choice.method) is None:
        return _nothing(choice, model, blockers)
    if agent is not None:
        _tried(lambda: start_agent(services, chosen, model), blockers)
    if dataset is not None and environment is not None:
        left_out = Hint("The environment is left out: a training learns from a dataset or by acting, not from both.")
        choice = choice._replace(notes=(*choice.notes, left_out))
    if stages := later_stages(purposes):
        then = Hint(
            "Then plan the next stage from its result: ", call("plan_training", goal=list(stages), model=...), "."
        )
        choice = choice._replace(notes=(*choice.notes, then))
    choice = choice._replace(notes=(*unserved(purposes, chosen), *choice.notes))
    blockers += choice.blockers
    asked, reasons = _with_constraints(purposes, chosen, _settings_of(chosen, hyperparameters, named=wish.named))
    is_game = choice.environment is not None and bool(players_in(choice.environment))
    if is_game and chosen in CONFIGS and "self_play" in CONFIGS[chosen].model_fields and "self_play" not in asked:
        asked["self_play"] = {}
        reasons.append("A game needs an opponent: with self_play the agent meets itself and its earlier versions.")
    learns = learns_from_rewards(chosen, acts=choice.environment is not None)
    reward = next((REWARDS[one] for one in purposes if one in REWARDS), None) if learns else None
    device = look_at_device(memory_gb)
    return _planned(services, choice._replace(reward=reward), agent, model, asked, blockers, reasons, device)


def _settings_of(method: str, hyperparameters: Mapping[str, Any] | None, *, named: bool) -> dict[str, Any]:
    """Return the settings under their canonical names; an error says whose they would be where the plan chose the method."""
    try:
        return canonical_settings(method, hyperparameters)
    except InvalidInput as error:
        if named:
            raise
        chosen = f"the plan chose {method}, which they are no settings of; name their `method`"
        raise InvalidInput(f"{error.message}; {chosen}", code=error.code) from None


def _with_constraints(
    purposes: tuple[Purpose, ...], method: str, asked: dict[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the settings with those of the constraints, and the reasons of those that the request leaves as they are."""
    settings, found = dict[str, Any](), list[tuple[dict[str, Any], str]]()
    for wanted, reason in constraints(purposes, method):
        inner = {name: value for name, value in wanted.items() if name in EvolveConfig.model_fields}
        outer = {name: value for name, value in wanted.items() if name not in inner}
        wanted = {**inner, "training": outer} if method == EVOLVE and outer else wanted
        settings = merge_settings(settings, wanted)
        found.append((wanted, reason))
    settings = merge_settings(settings, asked)
    return settings, [reason for wanted, reason in found if merge_settings(settings, wanted) == settings]


def _measurement(model: str, dataset: Dataset | None, environment: str | None) -> TrainingPlan:
    place = {"dataset_id": dataset.id} if dataset is not None else {"environment": environment or ...}
    measure = call("evaluate_agent", agent=model, **place)
    why = "The purpose is measure_only: nothing is trained."
    return _without_training(model, dataset, why, Hint("Measure with ", measure, "."), environment=environment)


def _without_training(model: str, dataset: Dataset | None, why: str, step: Hint, **more: Any) -> TrainingPlan:
    return TrainingPlan(
        method=None,
        model=model,
        dataset_id=dataset.id if dataset else None,
        hyperparameters={},
        estimate=Estimate(device=look_at_device().kind),
        why=Hint(why),
        fields={},
        resource_uri="guide://pipeline",
        next_step=step,
        **{"blockers": (), **more},
    )


def _planned(
    services: Services,
    choice: Choice,
    agent: Agent | None,
    reference: str,
    settings: dict[str, Any],
    blockers: list[Blocker],
    wished: list[str],
    device: Device,
) -> TrainingPlan:
    method, dataset = choice.method or "", choice.dataset
    sizes = read_model(agent.model) if agent is not None else "the files of this model are not here"
    settled, taken, data = _settled(services, choice, agent, reference, settings, sizes, blockers, device)
    if agent is not None and (dataset is not None or choice.environment is not None):
        _tried(lambda: _require_startable(services, choice, settled, agent), blockers)
    blockers += [
        *shortages(taken.estimate),
        *slow_format(settled.config.precision, device),
        *long_rows(settled.config, sizes),
        *small_batch(settled.config),
        *(other_prompt(method, agent, data) if agent is not None else ()),
    ]
    found = tuple({blocker.code: blocker for blocker in reversed(blockers)}.values())[::-1]
    answers = [branch.answer for branch in choice.branches]
    return TrainingPlan(
        method=method,
        model=agent.id_or_name if agent else reference,
        dataset_id=dataset.id if dataset else None,
        environment=choice.environment,
        hyperparameters=settled.hyperparameters,
        estimate=taken.estimate,
        blockers=found,
        reward=choice.reward,
        notes=(
            *choice.notes,
            *step_value_notes(settled.config, data),
            *few_held_out(settled.hyperparameters),
            *(() if method == EVOLVE else _cut_short(settled.config, taken.estimate)),
        ),
        why=join_hints(" ", [Hint(reason) for reason in (*answers, *wished, *settled.reasons, *taken.reasons)]),
        branches=(*choice.branches, *settled.branches),
        fields=_described(method, settled.hyperparameters, acts=choice.environment is not None),
        resource_uri=f"guide://methods/{method}",
        next_step=_next(choice, agent.id_or_name if agent else reference, settled, found, taken),
    )


def _cut_short(config: TrainingConfig, found: Estimate) -> tuple[Hint, ...]:
    """Return a note if the steps take longer than the training may."""
    shortest = found.duration_range_s[0] if found.duration_range_s else found.duration_s
    if config.max_minutes is None or shortest is None or shortest <= 60 * config.max_minutes:
        return ()
    longer = f"max_minutes is {config.max_minutes:g}, and its {found.steps} steps take about {shortest / 60:.2g} minutes or more"
    return (Hint(f"{longer}: it ends on the way, with a learning rate that is not lowered yet; plan fewer steps."),)


def _described(method: str, settings: Mapping[str, Any], *, acts: bool) -> dict[str, str]:
    """Describe the settings that are set, and the method's own: those of online training only where it acts."""
    (row,) = list_methods(method)
    groups = {name for name, value in settings.items() if isinstance(value, Mapping)}

    def is_shown(name: str) -> bool:
        group = name.partition(".")[0]
        return name in settings or group in groups or (name in own and (acts or group not in OnlineConfig.model_fields))

    own = row["hyperparameters"]
    return {name: line for name, line in describe_method(method)["hyperparameters"].items() if is_shown(name)}


def _settled(
    services: Services,
    choice: Choice,
    agent: Agent | None,
    reference: str,
    settings: dict[str, Any],
    model: ModelFacts | str,
    blockers: list[Blocker],
    device: Device,
) -> tuple[PlanSettings, ExplainedEstimate, DataFacts | None]:
    """Settle settings and estimate, as far as model and data are readable."""
    method, dataset = choice.method or "", choice.dataset
    if method == EVOLVE and choice.environment is not None:
        settings = with_tasks_there(settings, choice.environment)
    facts = None if isinstance(model, str) else model
    is_here = agent is not None and agent.model.source in ("folder", "starter", "gguf")
    if agent is not None and is_here and isinstance(model, str) and stored_quantization(agent.model) is None:
        reason, remedy = Hint(model).split_once("; ")
        if not any(reason in one.message for one in blockers):  # a start refuses it too
            message = f"the model of {agent.name} cannot be used: {reason}"
            blockers.append(Blocker(code="model_damaged", message=message, remedy=remedy or Hint("copy it again")))
    data = None
    if dataset is not None and dataset.kind == DATASET_KINDS.get(method):
        size = settle(method, settings, model=None, data=None, device=device).config.batch_size
        data = _tried(lambda: look_at_data(services, dataset, reference, method, settings, size), blockers)
    acts = choice.environment is not None
    settled = settle(method, settings, model=facts, data=data, device=device, acts=acts)
    earlier = measured_figures(services, agent.model, settled.config, device) if agent else None
    if earlier is not None and earlier.same_model and earlier.memory_ratio > 1:
        settled = settle(
            method, settings, model=facts, data=data, device=device, acts=acts, memory_ratio=earlier.memory_ratio
        )
    dataset_id = dataset.id if dataset else None
    asked = EstimateRequest(method, settled.config, agent, choice.environment, dataset_id, data, model, device, earlier)
    return settled, estimate(services, asked), data


def _require_startable(services: Services, choice: Choice, settled: PlanSettings, agent: Agent) -> None:
    """Check the source as start_training does, so that a plan only promises trainings that start."""
    method, dataset = choice.method or "", choice.dataset
    if method == EVOLVE:
        evolution_spec(services, Request(model=agent.id_or_name), choice.environment, settled.hyperparameters)
    else:
        source = Source(dataset.id if dataset else None, choice.environment)
        inputs = training_inputs(services, method, settled.config, agent, source, make=False)
        earlier_skill(services, inputs["config"], agent)


def _nothing(choice: Choice, model: str, blockers: list[Blocker]) -> TrainingPlan:
    """Plan for a dataset that no method learns from."""
    assert choice.dataset is not None
    remedy = Hint(
        call("export_dataset", kind="sft", name="good-runs", filter={"outcome": "success"}),
        " makes a dataset to train on; measure on this one with ",
        call("evaluate_agent", agent=model, dataset_id=choice.dataset.id),
    )
    wrong = Blocker(
        code="wrong_dataset_kind",
        message=f"no method learns from dataset {choice.dataset.id}, which is of kind {choice.dataset.kind!r}",
        remedy=remedy,
    )
    why = " ".join(branch.answer for branch in choice.branches)
    found = {"blockers": (wrong, *blockers), "branches": choice.branches}
    return _without_training(model, choice.dataset, why, Hint(remedy, "."), **found)


def _next(
    choice: Choice, model: str, settled: PlanSettings, blockers: tuple[Blocker, ...], taken: ExplainedEstimate
) -> Hint:
    if blockers:
        return Hint("First: ", blockers[0].remedy, "; then plan again.")
    start = call(
        "start_training",
        method=choice.method,
        model=model,
        dataset_id=choice.dataset.id if choice.dataset else None,
        environment=None if choice.dataset else choice.environment,
        hyperparameters=settled.hyperparameters or None,
        reward=choice.reward,
    )
    if count := taken.estimate.unknown.get("tokens"):
        return Hint(count, ", so that the estimate becomes exact; or go on with ", start, ".")
    return Hint("Go on with ", start, ".")


def _tried(action: Callable[[], T], blockers: list[Blocker]) -> T | None:
    """Return the result of the action; turn a refusal into a blocker with its remedy."""
    try:
        return action()
    except QuintainError as error:
        message, remedy = Hint(error.message).split_once("; ")
        blockers.append(Blocker(code=error.code, message=message, remedy=remedy or Hint("see the message")))
        return None
