"""Settings of a training that have an effect: on this source, and on this agent's adapter and weights."""

from __future__ import annotations

from pathlib import Path

from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.hyperparameters.methods import (
    ACTING_ONLY,
    DistillConfig,
    DPOConfig,
    OnlineConfig,
    SelfPlayConfig,
    TrainingConfig,
)
from quintain.tools.evaluation.environment_references import require_opponent, usable_reference
from quintain.tools.services import Services
from quintain.tools.training.agents import require_bitsandbytes
from quintain.tools.training.planning.model_files import ModelFacts, adapter_settings, read_model, stored_quantization

_ONLINE_ONLY = {
    "self_play": "self_play would have no effect on a dataset; leave it out, or give `environment`, a game, instead",
    "sampler": "sampler would have no effect on a dataset, whose runs are played already; leave it out, or give `environment` "
    "instead",
    "constraint": "constraint would have no effect: its multiplier follows the costs of runs that the agent plays; leave it out, "
    "or give `environment` instead of the dataset",
    "kl_stop": "kl_stop would have no effect on a dataset: a KL divergence is estimated on what the model samples while it learns; "
    "leave it out and give early_stopping_patience, or give `environment` instead of the dataset",
}
"""Setting -> why it has no effect on a dataset."""


def with_adapter_settings(config: TrainingConfig, agent: Agent) -> TrainingConfig:
    """Return the settings with those of the agent's adapter, where adapters are asked for without settings of their own.

    Training continues the agent's adapter, whatever its origin, on a base quantised as the agent's is. A damaged adapter is left
    to the job, which explains it.
    """
    _require_parts(config, agent)
    config = _with_quantization(config, agent)
    lora = config.lora
    if lora is None or not lora.model_fields_set <= {"b_rate_ratio"} or agent.model.adapter is None:
        return config
    try:
        own = adapter_settings(Path(agent.model.adapter))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return config
    return config.model_copy(update={"lora": own.model_copy(update={"b_rate_ratio": lora.b_rate_ratio})})


def _require_parts(config: TrainingConfig, agent: Agent) -> None:
    """Refuse to freeze more blocks than the model can spare, and to begin adapters as parts of weights that cannot change."""
    name = agent.id or agent.name
    if config.lora is not None and config.lora.init == "pissa":
        if agent.model.adapter is not None:
            raise InvalidInput(
                f"lora.init: expected 'default' for {name}, whose adapter is trained further, got 'pissa'; leave it out, or export "
                "the agent merged and start from the result",
                code="adapter_exists",
            )
        if agent.model.quantization or stored_quantization(agent.model):
            raise InvalidInput(
                f"lora.init: expected 'default' for {name}, whose weights are quantised, got 'pissa'; set it to 'default'",
                code="quantized_base",
            )
    facts = read_model(agent.model) if config.frozen_layers else None
    if isinstance(facts, ModelFacts) and config.frozen_layers >= facts.layers:
        raise InvalidInput(
            f"frozen_layers: expected at most {facts.layers - 1} for {name}, which has {facts.layers} blocks, got "
            f"{config.frozen_layers}; set it to {facts.layers - 1} or less",
            code="too_many_layers",
        )


def _with_quantization(config: TrainingConfig, agent: Agent) -> TrainingConfig:
    own = agent.model.quantization
    if config.lora is None and (stored := own or stored_quantization(agent.model)):
        raise InvalidInput(
            f"expected a model with float weights to train all of them, got {agent.id or agent.name}, whose weights are quantised "
            f"({stored}); set lora to {{}} to train adapters, or name the unquantised model",
            code="quantized_base",
        )
    if own is not None and config.quantization not in (None, own):
        raise InvalidInput(
            f"expected quantization '{own}', as the base of {agent.id or agent.name} has, got '{config.quantization}'; leave it "
            "out, or export the agent merged and start from the result",
            code="quantized_base",
        )
    config = config.model_copy(update={"quantization": config.quantization or own})
    packed = {"quantization": config.quantization is not None, "optimizer": config.optimizer == "adamw_8bit"}
    asked = [f"{name} '{getattr(config, name)}'" for name, is_packed in packed.items() if is_packed]
    if asked:
        require_bitsandbytes(" and ".join(asked))
    return config


def require_effect(config: TrainingConfig, environment: str | None) -> None:
    """Refuse settings of online learning on a dataset, where they have no effect, and a game without self-play.

    On a dataset these are those of dpo and distill, a constraint, `kl_stop`, and self-play.

    Others of grpo are accepted, because config files share them; so are `epochs` and `batch_size` online.

    Args:
        config: Checked settings.
        environment: Usable reference of where the method learns; None: it learns from a dataset.

    Raises:
        InvalidInput: names the settings.
    """
    if environment is not None:
        return require_self_play(environment, getattr(config, "self_play", None))  # only methods that act have it
    useless = next((name for name in _ONLINE_ONLY if getattr(config, name, None) is not None), None)
    if useless is not None:
        raise InvalidInput(_ONLINE_ONLY[useless], code="not_online")
    if not isinstance(config, DPOConfig | DistillConfig):
        return
    only = ACTING_ONLY if isinstance(config, DPOConfig) else {*OnlineConfig.model_fields, "clip_low", "clip_high"}
    defaults = type(config).model_fields
    changed = [name for name in defaults if name in only and getattr(config, name) != defaults[name].default]
    if changed:
        raise InvalidInput(
            f"{', '.join(changed)} would have no effect: {config.method} on a dataset learns from its rows and does not act; leave "
            "this out, or give `environment` instead of the dataset",
            code="not_online",
        )


def usable_settings(services: Services, config: TrainingConfig, environment: str | None) -> TrainingConfig:
    """Return settings that all have an effect, with `evaluate_environment` as a usable reference.

    Args:
        services: Whose settings name the roots of files.
        config: Checked settings.
        environment: Usable reference of where the method learns; None: it learns from a dataset.

    Raises:
        InvalidInput: Tasks are to be played and no environment is named (`no_environment`), or as `require_effect` and
            `usable_reference`.
        NotFound: As `usable_reference`.
        Refused: As `usable_reference`.
    """
    require_effect(config, environment)
    if config.evaluate_every_steps is None:
        return config
    if config.evaluate_environment is not None:
        reference = usable_reference(services, config.evaluate_environment)
        return config.model_copy(update={"evaluate_environment": reference})
    if environment is None:
        raise InvalidInput(
            Hint(
                f"evaluate_every_steps is {config.evaluate_every_steps}, and a training on a dataset names no environment whose "
                "tasks are played; set evaluate_environment, or leave evaluate_every_steps out; ",
                call("list_library", kind="environments"),
            ),
            code="no_environment",
        )
    return config


def require_self_play(environment: str, config: SelfPlayConfig | None) -> None:
    """Refuse a training in a game without opponents, and opponents or roles that are not of the game.

    Raises:
        InvalidInput: names the setting.
    """
    remedy = "set hyperparameters={'self_play': {}} to train against itself and its earlier versions"
    players = require_opponent(environment, None if config is None else "self_play", remedy)
    if config is not None and config.train_role not in (None, *players):
        raise InvalidInput(
            f"expected self_play.train_role to be {' or '.join(players)}, got {config.train_role!r}; null trains both"
        )
