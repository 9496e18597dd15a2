"""Evolution: start a job in which an agent explores, learns from its best runs and is measured, round after round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.environments.references import Reference, parse_reference, parts_of, write_reference
from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.hyperparameters.methods import SFTConfig
from quintain.records.jobs.evolve import EvolveConfig
from quintain.records.jobs.job import EvolveSpec
from quintain.tools.evaluation.environment_references import usable_reference
from quintain.tools.jobs.jobs import start
from quintain.tools.labels.rewards import training_reward
from quintain.tools.results import JobStarted
from quintain.tools.services import Services
from quintain.tools.training.agents import agreement_note, require_free_name
from quintain.tools.training.methods import EVOLVE, check_evolution
from quintain.tools.training.named_models import reward_agent
from quintain.tools.training.planning.warnings import settings_warnings
from quintain.tools.training.requests import Request, new_output, spec_key, start_agent
from quintain.tools.training.usable_settings import usable_settings, with_adapter_settings


def start_evolution(
    services: Services,
    request: Request,
    environment: str | Mapping[str, float] | None,
    settings: Mapping[str, Any],
) -> JobStarted:
    """Start an evolution; its result is the best agent of all rounds, compared with the start.

    Args:
        services: Where the job is started.
        request: Who evolves, and under which name.
        environment: Where the agent is measured, and where it explores unless there is a curriculum.
        settings: Canonical settings of `EvolveConfig`.
    """
    spec = evolution_spec(services, request, environment, settings)
    key = request.request_key or spec_key(spec)
    stored, warnings = (
        spec.model_copy(update=new_output(services, spec.name)),
        settings_warnings([spec.training], spec.agent),
    )
    return start(services, stored, key, note=agreement_note(spec.reward_agent), warnings=warnings)


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
        seed=request.seed,
    )


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
