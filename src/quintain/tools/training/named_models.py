"""Agents and endpoints that the settings of a training name: a reward model, a teacher, who samples. Nothing of torch is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quintain.endpoints.profiles import find_profile
from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters.methods import DistillConfig, GRPOConfig, SamplerConfig, TrainingConfig
from quintain.records.labels.judging import Endpoint
from quintain.tools.services import Services
from quintain.tools.training.agents import (
    ENDPOINT,
    endpoint_of,
    require_policy,
    require_reward_model,
    require_weights,
    resolve_agent,
)
from quintain.tools.training.model_folders import cached_snapshot

_FILE_NAME = "tokenizer.json"

_MAX_TOKENIZER = 128 * 2**20
"""Bytes of a tokenizer.json; the largest in use have about 35 MB."""


def named_models(services: Services, config: TrainingConfig, agent: Agent, *, acts: bool) -> dict[str, Any]:
    """Return the fields of a spec about the models that the settings name: `reward_agent`, of a teacher, and of who samples.

    Args:
        services: Where agents and endpoints are found.
        config: Checked settings.
        agent: Who is trained.
        acts: Whether the method learns in an environment.
    """
    judge = {"reward_agent": reward_agent(services, config)}
    return judge | _teacher(services, config, agent, acts=acts) | _sampler(services, config)


def reward_agent(services: Services, config: TrainingConfig) -> Agent | None:
    """Return the agent that GRPO's `reward_model` names; None where it is not set.

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
            Hint(
                f"step_level is true, but {agent.id} values whole runs and not steps: set step_level to false, or name "
                "an agent of ",
                call("start_training", method="prm", dataset_id=...),
                " as reward_model",
            )
        )
    return agent


def _teacher(services: Services, config: TrainingConfig, student: Agent, *, acts: bool) -> dict[str, Any]:
    """Return the fields of a teacher of distillation; none for other methods, or where log-probs are recorded."""
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
    """Return the field of the endpoint that samples the episodes; none where the trainer samples itself."""
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
    names = student.id or student.name, teacher.id or teacher.name
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
    """Return the folder of a model's tokenizer: beside an adapter that brings one, as in training; None if it is in no folder."""
    if model.adapter is not None and (Path(model.adapter) / _FILE_NAME).is_file():
        return Path(model.adapter)
    if model.source == "hub":
        return cached_snapshot(model.path, model.revision)
    return Path(model.path) if model.source in ("folder", "starter") else None


def _token_ids(folder: Path | None, name: str) -> dict[str, int]:
    """Return token -> id of a `tokenizer.json`, the added tokens too."""
    path = folder / _FILE_NAME if folder else None
    try:
        if path is None or not path.is_file() or path.stat().st_size > _MAX_TOKENIZER:
            raise ValueError("no such file")
        document = json.loads(path.read_bytes())
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
