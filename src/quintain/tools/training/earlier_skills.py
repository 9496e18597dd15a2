"""Earlier skills that EWC keeps: which agent learned them, and from which runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quintain.errors import InvalidInput, NotFound
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.hyperparameters.methods import ROLES, EWCConfig, TrainingConfig
from quintain.records.jobs.job import RecipeSpec
from quintain.records.jobs.recipe import EarlierSkill, Stage, TrainStage
from quintain.records.wording import shown
from quintain.tools.data.lineage import require_remembered
from quintain.tools.evaluation.compared_agents import ancestors_of
from quintain.tools.services import Services, find
from quintain.tools.training.agents import require_weights, resolve_agent
from quintain.tools.training.requests import require_intact

_KINDS = ("sft", "text")
"""Kinds of datasets whose rows are runs or texts of a skill."""

_REMEDY = "or leave ewc out and mix in earlier runs with replay"


def earlier_skill(services: Services, config: TrainingConfig, start: Agent) -> EarlierSkill | None:
    """Return what the training of an agent keeps by EWC; None where `ewc` is not set.

    Raises:
        InvalidInput: No earlier skill is known (`no_earlier_skill`), a stage is named outside of a recipe, the dataset is of
            another kind, or new adapters are to be trained (`ewc_new_adapters`).
        NotFound: The agent or the dataset does not exist.
        Conflict: The dataset contains forgotten runs.
    """
    ewc = config.ewc
    if ewc is None:
        return None
    if ewc.stage is not None:
        raise InvalidInput(
            f"expected ewc.agent for a training outside of a recipe, got ewc.stage {shown(ewc.stage)}; stages belong to recipes: name the "
            "agent that learned the skill, or leave both out for the start model",
            code="no_earlier_skill",
        )
    return _skill_of_agent(services, config, ewc, start)


def with_earlier_skills(services: Services, stages: Sequence[Stage], start: Agent, *, make: bool) -> tuple[Stage, ...]:
    """Return the stages of a recipe, each with what it keeps by EWC.

    Without `make`, a dataset that is still to be frozen is not looked at.

    Raises:
        InvalidInput: as `earlier_skill`, or no earlier stage has the name.
    """
    found = list(stages)
    for index, stage in enumerate(stages):
        if not isinstance(stage, TrainStage) or stage.config.ewc is None:
            continue
        try:
            earlier = _skill_of_stage(services, stages, index, start, make=make)
        except (InvalidInput, NotFound) as error:
            raise type(error)(f"stages[{index}]: {error.message}", code=error.code) from None
        found[index] = stage.model_copy(update={"earlier": earlier})
    return tuple(found)


def _skill_of_agent(services: Services, config: TrainingConfig, ewc: EWCConfig, start: Agent) -> EarlierSkill:
    kept = start if ewc.agent is None else require_weights(resolve_agent(services, ewc.agent), "keep a skill by ewc")
    if kept.id not in _line(services, start):
        raise InvalidInput(
            Hint(
                f"expected in ewc.agent the start model {start.id} or an agent that it was trained from, got {kept.id}, whose "
                "weights are not earlier ones of it; name one of ",
                call("get_lineage", id=start.id),
                f", {_REMEDY}",
            ),
            code="no_earlier_skill",
        )
    if config.lora is not None:
        _require_same_adapter(start, kept)
    dataset = ewc.dataset or kept.dataset_id
    if dataset is None:
        raise InvalidInput(
            f"expected an earlier stage for ewc to keep, got {kept.id}, which was trained on no dataset; name runs of the skill in "
            f"ewc.dataset, {_REMEDY}",
            code="no_earlier_skill",
        )
    return _skill(services, dataset, agent=None if kept.id == start.id else kept)


def _skill_of_stage(
    services: Services, stages: Sequence[Stage], index: int, start: Agent, *, make: bool
) -> EarlierSkill | None:
    stage = stages[index]
    assert isinstance(stage, TrainStage)
    assert stage.config.ewc is not None
    ewc = stage.config.ewc
    if ewc.stage is None and ewc.agent is not None:
        if stage.config.lora is not None:
            _require_adapter_stages(stages[:index], start)
        return _skill_of_agent(services, stage.config, ewc, start)
    labels = [one.label for one in stages[:index] if isinstance(one, TrainStage)]
    if ewc.stage is None or labels.count(ewc.stage) != 1:
        named = "null" if ewc.stage is None else shown(ewc.stage)
        known = ", ".join(labels) if labels else "none, because no training comes before"
        raise InvalidInput(
            f"expected in ewc.stage the label of one earlier stage that trains ({known}), got {named}; name the stage whose "
            f"skill is to stay, name an agent in ewc.agent, {_REMEDY}",
            code="no_earlier_skill",
        )
    trainings = [(i, one) for i, one in enumerate(stages[:index]) if isinstance(one, TrainStage)]
    place, before = next((i, one) for i, one in trainings if one.label == ewc.stage)
    if stage.config.lora is not None:
        _require_adapter_stages(stages[place:index], start)
    dataset = ewc.dataset or before.dataset_id
    if dataset is None and before.environment is None and not make:
        return None  # texts or first rows, which are frozen when all stages are checked
    if dataset is None:
        raise InvalidInput(
            Hint(
                f"expected a dataset of the stage {before.label!r} for ewc, got a stage that learns in an environment; name runs of "
                "the skill in ewc.dataset: ",
                call("export_dataset", kind="sft", name="earlier", filter={"environment": before.environment}),
            ),
            code="no_earlier_skill",
        )
    return _skill(services, dataset, stage=before.label)


def _skill(
    services: Services, dataset_id: str, *, agent: Agent | None = None, stage: str | None = None
) -> EarlierSkill:
    dataset = services.store.datasets.get(dataset_id)
    if dataset.kind not in _KINDS:
        raise InvalidInput(
            Hint(
                f"expected a dataset of kind {' or '.join(_KINDS)} for ewc, got {dataset.id} of kind {dataset.kind!r}; name runs of "
                "the skill in ewc.dataset: ",
                call("export_dataset", kind="sft", name=f"{dataset.name[:80]}-runs", filter={"dataset_id": dataset.id}),
            ),
            code="wrong_dataset_kind",
        )
    require_remembered(services, dataset.id)
    require_intact(dataset)
    return EarlierSkill(
        agent=agent,
        stage=stage,
        dataset_id=dataset.id,
        dataset_path=dataset.path,
        dataset_files=dataset.files,
        dataset_kind=dataset.kind,
    )


def _line(services: Services, agent: Agent) -> Iterator[str | None]:
    """Yield the ids of an agent and of those that it was trained from, in earlier stages of its recipe too."""
    for one in ancestors_of(services, agent.id or ""):
        yield one.id
        job = find(services.store.jobs.get, one.root_job_id or "")
        if job is not None and isinstance(job.spec, RecipeSpec) and one.created_at is not None:
            of_job = services.store.agents.of_job(job.id)
            yield from (other.id for other in of_job if other.created_at and other.created_at <= one.created_at)


def _require_same_adapter(start: Agent, kept: Agent) -> None:
    """Refuse EWC on adapters that the skill was not learned with."""
    both = start.model.adapter is not None and kept.model.adapter is not None
    if not both or (start.model.source, start.model.path) != (kept.model.source, kept.model.path):
        raise _new_adapters(f"{kept.id} to {start.id}")


def _require_adapter_stages(before: Sequence[Stage], start: Agent) -> None:
    """Refuse EWC on adapters in a recipe unless all trainings since the skill trained the same adapter."""
    acting = (one for one in before if isinstance(one, TrainStage) and one.method not in ROLES)
    if any(one.config.lora is None for one in acting):
        raise _new_adapters("a stage before, which trains all weights,")


def _new_adapters(what: str) -> InvalidInput:
    return InvalidInput(
        f"expected one adapter that learned the skill and is trained further, for ewc with lora, got {what} without it: new "
        "adapters begin at B = 0, where the Fisher information of A is 0 and the skill is in frozen weights; train all weights "
        f"(lora null), learn the skill with lora too, {_REMEDY}",
        code="ewc_new_adapters",
    )
