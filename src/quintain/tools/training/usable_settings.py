"""Refuse training settings that would have no effect, and resolve the models that settings name. Nothing here loads torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quintain.endpoints.profiles import find_profile
from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters.methods import (
    ACTING_ONLY,
    ConstraintConfig,
    DistillConfig,
    DPOConfig,
    GRPOConfig,
    LoraConfig,
    OnlineConfig,
    SamplerConfig,
    SelfPlayConfig,
    TrainingConfig,
)
from quintain.records.labels.judging import Endpoint
from quintain.records.labels.reward import CallsReward
from quintain.records.wording import list_names, nearest, shown
from quintain.tools.evaluation.environment_references import (
    offered_tools,
    require_opponent,
    task_count,
    usable_reference,
)
from quintain.tools.services import Services
from quintain.tools.training.agents import (
    ENDPOINT,
    endpoint_of,
    require_bitsandbytes,
    require_policy,
    require_reward_model,
    require_weights,
    resolve_agent,
)
from quintain.tools.training.model_folders import cached_snapshot, read_object
from quintain.tools.training.planning.model_files import ModelFacts, adapter_settings, read_model, stored_quantization

_ONLINE_ONLY = {
    "self_play": "self_play would have no effect on a dataset; leave it out, or give `environment`, a game, instead",
    "sampler": "sampler would have no effect on a dataset, whose runs are played already; leave it out, or give `environment` "
    "instead",
    "constraint": "constraint would have no effect: its multiplier follows the costs of runs that the agent plays; leave it out, "
    "or give `environment` instead of the dataset",
    "refresh_every_steps": "refresh_every_steps would have no effect on a dataset, which has no newest outcomes; leave it out, or give "
    "`environment` instead",
    "kl_stop": "kl_stop would have no effect on a dataset: a KL divergence is estimated on what the model samples while it learns; "
    "leave it out and give early_stopping_patience, or give `environment` instead of the dataset",
}
"""Setting -> why it has no effect on a dataset."""


def with_adapter_settings(config: TrainingConfig, agent: Agent) -> TrainingConfig:
    """Return the settings with those of the agent's adapter, if adapters are requested without settings of their own.

    Training continues the agent's adapter, whatever its origin, on a base that is quantised as the agent's is. A damaged adapter
    is left to the job, which reports it.

    Raises:
        InvalidInput: Adapter, quantization or frozen layers do not fit the agent's model.
    """
    _require_pissa_base(config, agent)
    _require_trained_block(config, agent)
    config = _with_quantization(config, agent)
    if agent.model.adapter is None:
        return config
    try:
        own = adapter_settings(Path(agent.model.adapter))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return config
    return with_same_adapter(config, own)


def with_same_adapter(config: TrainingConfig, own: LoraConfig) -> TrainingConfig:
    """Return the settings with those of the adapter that is trained further; of it only the rate of B changes.

    Raises:
        InvalidInput: Other settings of adapters are asked for (`adapter_exists`).
    """
    lora = config.lora
    if lora is None:
        return config
    asked = lora.model_fields_set - {"b_rate_ratio"} - ({"targets"} if lora.targets == "all-linear" else set())
    if differing := [
        f"{name} {getattr(own, name)}" for name in sorted(asked) if getattr(lora, name) != getattr(own, name)
    ]:
        raise InvalidInput(
            f"lora: expected the settings of the adapter that is trained further ({', '.join(differing)}), got others; set lora to "
            "{} to take them, or to null to train all weights",
            code="adapter_exists",
        )
    return config.model_copy(update={"lora": own.model_copy(update={"b_rate_ratio": lora.b_rate_ratio})})


def _require_pissa_base(config: TrainingConfig, agent: Agent) -> None:
    """Refuse PiSSA, which takes new adapters out of the base's weights, on an existing adapter or quantised weights."""
    if config.lora is None or config.lora.init != "pissa":
        return
    name = agent.id_or_name
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


def _require_trained_block(config: TrainingConfig, agent: Agent) -> None:
    """Refuse to freeze all blocks of the model."""
    name = agent.id_or_name
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
            f"expected a model with float weights to train all of them, got {agent.id_or_name}, whose weights are quantised "
            f"({stored}); set lora to {{}} to train adapters, or name the unquantised model",
            code="quantized_base",
        )
    if own is not None and config.quantization not in (None, own):
        raise InvalidInput(
            f"expected quantization '{own}', as the base of {agent.id_or_name} has, got '{config.quantization}'; leave it "
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
    """Refuse settings that have no effect on a dataset, or in an environment, and a game without self-play.

    Without effect on a dataset are those of `_ONLINE_ONLY` and the online settings of dpo and distill; in an environment, distill's
    `teacher_top_k`. GRPO's online settings are accepted on a dataset, and `epochs` and `batch_size` in an environment, because
    config files share them.

    Args:
        config: The settings.
        environment: The environment that the agent acts in; None: it learns from a dataset.

    Raises:
        InvalidInput: Names the settings.
    """
    if environment is not None:
        if isinstance(config, DistillConfig) and config.is_changed("teacher_top_k"):
            raise InvalidInput(
                "teacher_top_k would have no effect in an environment, where the teacher scores the tokens that the student samples; "
                "leave it out, or give a dataset instead of `environment`"
            )
        _require_countable(environment, getattr(config, "constraint", None))
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
    """Return the settings, all of which have an effect, with `evaluate_environment` resolved.

    The default of `evaluate_tasks` is lowered to the number of held-out tasks where these are fewer.

    Raises:
        InvalidInput: Evaluation during training has no environment (`no_environment`) or asks for more tasks than are held out
            (`too_many_tasks`), or `require_effect` or `usable_reference` refuses.
    """
    require_effect(config, environment)
    if config.evaluate_every_steps is None:
        return config
    reference = config.evaluate_environment and usable_reference(services, config.evaluate_environment)
    if (played := reference or environment) is None:
        raise InvalidInput(
            Hint(
                f"evaluate_every_steps is {config.evaluate_every_steps}, and a training on a dataset names no environment whose "
                "tasks are played; set evaluate_environment, or leave evaluate_every_steps out; ",
                call("list_library", kind="environments"),
            ),
            code="no_environment",
        )
    given = config.evaluate_tasks if "evaluate_tasks" in config.model_fields_set else None
    try:
        tasks = task_count(played, "held_out", given, seed=0, at_most=config.evaluate_tasks)
    except InvalidInput as error:
        raise InvalidInput(f"hyperparameters.evaluate_tasks: {error.message}", code=error.code) from None
    return config.model_copy(
        update={"evaluate_tasks": tasks} | ({"evaluate_environment": reference} if reference else {})
    )


def _require_countable(environment: str, constraint: ConstraintConfig | None) -> None:
    """Refuse a constraint on calls of a tool that no environment offers: its cost would be the same in every run.

    Tools that an environment announces only when a task begins are unknown here.
    """
    if constraint is None or not isinstance(constraint.cost, CallsReward) or constraint.cost.tool is None:
        return
    wanted, offered = constraint.cost.tool, offered_tools(environment)
    if offered and wanted not in offered:
        raise InvalidInput(
            f"expected constraint.cost.tool to be one of {list_names(sorted(offered))}, which {environment} offers, got {shown(wanted)}"
            f"{nearest(wanted, offered)}; correct it",
            code="unknown_tool",
        )


def require_self_play(environment: str, config: SelfPlayConfig | None) -> None:
    """Refuse training in a game without an opponent, and opponents or roles that the game does not have.

    Raises:
        InvalidInput: Names the setting.
    """
    remedy = "set `hyperparameters={'self_play': {}}` to train against itself and its earlier versions"
    players = require_opponent(environment, None if config is None else "self_play", remedy)
    if config is not None and config.train_role not in (None, *players):
        raise InvalidInput(
            f"expected self_play.train_role to be {' or '.join(players)}, got {config.train_role!r}; null trains both"
        )


_FILE_NAME = "tokenizer.json"

_MAX_TOKENIZER = 128 * 2**20
"""Bytes of a tokenizer.json; the largest in use have about 35 MB."""


def named_models(services: Services, config: TrainingConfig, agent: Agent, *, acts: bool) -> dict[str, Any]:
    """Return the spec's fields for the models that settings name: reward model, teacher and sampler."""
    reward_model = {"reward_agent": reward_agent(services, config)}
    return reward_model | _teacher(services, config, agent, acts=acts) | _sampler(services, config)


def reward_agent(services: Services, config: TrainingConfig) -> Agent | None:
    """Return the agent that GRPO's `reward_model` names; None where it is not set.

    Raises:
        InvalidInput: It is not a reward model, or does not fit `step_level`.
        NotFound: There is no such agent.
    """
    if not isinstance(config, GRPOConfig) or config.reward_model is None:
        return None
    agent = require_reward_model(resolve_agent(services, config.reward_model), "be the reward_model of grpo")
    if config.step_level and agent.role == "reward_model":
        raise InvalidInput(
            Hint(
                f"step_level is true, but {agent.id_or_name} values whole runs and not steps: set step_level to false, or name "
                "an agent of ",
                call("start_training", method="prm", dataset_id=...),
                " as reward_model",
            )
        )
    return agent


def _teacher(services: Services, config: TrainingConfig, student: Agent, *, acts: bool) -> dict[str, Any]:
    """Return the spec's fields for the teacher of a distillation; none for other methods, or if log-probs are recorded."""
    if not isinstance(config, DistillConfig):
        return {}
    if config.teacher is None:
        if acts:
            raise InvalidInput(
                "expected a teacher for distill in an environment, got null: nothing is recorded of runs that are still to be "
                "played; name an agent, a model folder or endpoint:NAME in hyperparameters.teacher, or give a dataset",
                code="no_teacher",
            )
        return {}
    teacher = require_policy(resolve_agent(services, config.teacher), "teach by distill")
    endpoint = endpoint_of(services, teacher)
    if endpoint is None:
        require_weights(teacher, "teach by distill")
    elif endpoint.protocol != "openai":
        raise InvalidInput(
            f"expected an endpoint that gives log-probs, got {endpoint.name!r} of protocol {endpoint.protocol!r}, which has none; "
            "name an OpenAI-compatible server such as vLLM, or train with sft on the teacher's runs",
            code="no_logprobs",
        )
    _require_same_tokens(student, teacher, endpoint)
    return {"teacher_agent": teacher, "teacher_endpoint": endpoint}


def _sampler(services: Services, config: TrainingConfig) -> dict[str, Any]:
    """Return the spec's field for the endpoint that samples episodes; none if the trainer samples itself."""
    sampler: SamplerConfig | None = getattr(config, "sampler", None)  # of the methods that act
    if sampler is None:
        return {}
    if config.lora is None or config.lora.dora:
        got = "null" if config.lora is None else "dora true"
        raise InvalidInput(
            f"expected lora without dora beside sampler, because the server gets the adapter after each update, got {got}; set lora "
            "to {}, or leave sampler out",
            code="no_adapter",
        )
    if getattr(config, "self_play", None) is not None:
        raise InvalidInput(
            "expected self_play null beside sampler, got settings: a server samples with one adapter, not with earlier versions; "
            "leave one of the two out",
            code="no_self_play",
        )
    endpoint = find_profile(services.settings.endpoints_file, sampler.endpoint.removeprefix(ENDPOINT))
    if endpoint.protocol != "openai":
        raise InvalidInput(
            f"expected an endpoint that gives token ids and log-probs, got {endpoint.name!r} of protocol {endpoint.protocol!r}, "
            "which has none; name an OpenAI-compatible server such as vLLM",
            code="no_logprobs",
        )
    return {"sampler_endpoint": endpoint}


def _require_same_tokens(student: Agent, teacher: Agent, endpoint: Endpoint | None) -> None:
    """Refuse a teacher whose token ids are not known to mean the student's tokens."""
    if endpoint is None and teacher.model == student.model:
        return
    if endpoint is not None and endpoint.tokenizer is None:
        raise InvalidInput(
            f"expected the tokenizer of endpoint {endpoint.name!r}, got none in its profile; let the operator set tokenizer to a "
            f"folder with the {_FILE_NAME} of its model",
            code="tokenizer_mismatch",
        )
    folders = [_tokenizer_folder(student.model), _tokenizer_folder(teacher.model)]
    if endpoint is not None and endpoint.tokenizer is not None:
        folders[1] = Path(endpoint.tokenizer).expanduser()
    names = student.id_or_name, teacher.id_or_name
    ids = [_token_ids(folder, name) for folder, name in zip(folders, names, strict=True)]
    if ids[0] != ids[1]:
        differing = len(ids[0].items() ^ ids[1].items())
        raise InvalidInput(
            Hint(
                f"expected a teacher with the tokenizer of {names[0]} ({len(ids[0]):,} tokens), got {names[1]} ({len(ids[1]):,} "
                f"tokens), which differs in {differing:,} entries; name a teacher of the same model family, or repeat its runs: ",
                call("start_training", method="sft", model=names[0], dataset_id=...),
            ),
            code="tokenizer_mismatch",
        )


def _tokenizer_folder(model: ModelRef) -> Path | None:
    """Return the folder of a model's tokenizer, an adapter's own first, as in training; None if there is no folder."""
    if model.adapter is not None and (Path(model.adapter) / _FILE_NAME).is_file():
        return Path(model.adapter)
    if model.source == "hub":
        return cached_snapshot(model.path, model.revision)
    return Path(model.path) if model.source in ("folder", "starter") else None


def _token_ids(folder: Path | None, name: str) -> dict[str, int]:
    """Return token -> id from a `tokenizer.json`, added tokens included."""
    try:
        if folder is None:
            raise ValueError("no folder")
        document = read_object(folder / _FILE_NAME, _MAX_TOKENIZER)
        vocabulary = document["model"]["vocab"]
        added = {token["content"]: int(token["id"]) for token in document.get("added_tokens", ())}
        return _numbered(vocabulary) | added
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise InvalidInput(
            f"expected a {_FILE_NAME} of {name} to compare the tokens of teacher and student, got none that can be read; use a model "
            "folder with one",
            code="tokenizer_mismatch",
        ) from None


def _numbered(vocabulary: Any) -> dict[str, int]:
    """Return token -> id; models of type Unigram list their tokens with scores."""
    if isinstance(vocabulary, Mapping):
        return {str(token): int(place) for token, place in vocabulary.items()}
    return {str(entry[0]): place for place, entry in enumerate(vocabulary)}
