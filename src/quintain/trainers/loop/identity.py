"""Identity of a run: what a checkpoint must share with the run that resumes from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from quintain.records.agent import ModelRef
from quintain.records.hyperparameters.methods import ACTING_ONLY, DPOConfig
from quintain.records.jobs.job import TrainSpec
from quintain.trainers.data.streams import Example

_SAMPLED = 64
"""Values of each parameter, and up to twice as many, that identify a start model among models of its shape."""

_SILENT = frozenset(
    {
        *("checkpoint_every_steps", "keep_checkpoints", "report_to"),
        *("evaluate_environment", "evaluate_every_steps", "evaluate_tasks", "sample_every_steps"),
        *("actors", "machines", "processes", "rendezvous", "sharding"),
    }
)
"""Settings that do not change the result; processes and sharding change only rounding and dropout."""

_ADDED = frozenset(
    {
        *("constraint", "ewc", "max_minutes", "optimizer", "quantization"),
        *("frozen_layers", "min_rate_ratio", "neftune_alpha"),
        *("cycles", "decay_shape", "decay_steps"),
        *("min_p", "sampler", "top_k", "top_p"),
        *("episodes_at_once", "staleness"),
        *("delta", "importance_cap", "mask_truncated", "overlong_buffer", "overlong_penalty", "overlong_tokens"),
        *("discopop_tau", "ld_alpha", "policy_weighting", "reference_mixup", "reference_sync_steps"),
    }
)
"""Settings that are younger than some checkpoints, which have their defaults."""


def weight_samples(spec: TrainSpec, model: Any) -> dict[str, list[float]]:
    """Return shape and some values of each parameter of the start model; of adapters that begin at random, the shape."""
    has_values = spec.config.lora is None or spec.start_model.adapter is not None
    return {name: [*p.shape, *_sample(p, has_values)] for name, p in model.named_parameters()}


def run_identity(spec: TrainSpec, start: Mapping[str, list[float]], examples: Sequence[Example]) -> str:
    """Return a hash of everything that a checkpoint must share with its run: settings, start model and token rows.

    Args:
        spec: The job.
        start: `weight_samples` of the start model.
        examples: Training examples.
    """
    digest = hashlib.sha256()
    silent = _SILENT
    if isinstance(spec.config, DPOConfig) and spec.environment is None:
        silent |= ACTING_ONLY  # and checkpoints from before DPO could act still fit
    config = spec.config.model_dump(mode="json", exclude=set(silent))
    for name in _ADDED & config.keys():  # checkpoints from before these settings still fit
        if config[name] == type(spec.config).model_fields[name].default:
            del config[name]
    for name, default in (("init", "default"), ("b_rate_ratio", 1.0)):
        if config["lora"] is not None and config["lora"][name] == default:
            del config["lora"][name]
    if config.get("scale_rewards") in ("group", "none"):  # once a switch
        config["scale_rewards"] = config["scale_rewards"] == "group"
    agent = spec.start_model
    about = [
        config,
        spec.seed,
        agent.model_dump(mode="json", exclude=_unset(agent)),
        spec.environment,
        start,
        len(examples),
    ]
    digest.update(json.dumps(about, sort_keys=True).encode())
    if spec.reward is not None and spec.environment is not None:  # on a dataset, the examples have its values
        digest.update(spec.reward.model_dump_json().encode())
    if spec.teacher_agent is not None:
        teacher = spec.teacher_agent.model
        digest.update(teacher.model_dump_json(exclude=_unset(teacher)).encode())
    if spec.earlier is not None:
        kept_by, kept = spec.earlier.agent, spec.earlier.dataset_files
        keeper = kept_by and kept_by.model.model_dump(mode="json", exclude=_unset(kept_by.model))
        digest.update(json.dumps([keeper, kept], sort_keys=True).encode())
    if spec.reward_agent is not None:
        valued_by = spec.reward_agent.model
        digest.update(valued_by.model_dump_json(exclude=_unset(valued_by)).encode())
    for example in examples:
        digest.update(json.dumps([example.member, example.value, example.weight]).encode())
        for row in example.rows:
            for stream in (row.token_ids, row.weight, row.advantage, row.label, row.teacher_logprobs):
                digest.update(b"" if stream is None else stream.tobytes())
    return digest.hexdigest()


def _unset(model: ModelRef) -> set[str]:
    return {"quantization"} if model.quantization is None else set()


def _sample(parameter: torch.nn.Parameter, has_values: bool) -> list[float]:
    """Return some values of the start model, because another model may be at its path by now; as bf16, as on GPUs."""
    if parameter.requires_grad and not has_values:
        return []
    flat = parameter.detach().reshape(-1)
    few: list[float] = flat[:: max(len(flat) // _SAMPLED, 1)].bfloat16().tolist()
    return few
