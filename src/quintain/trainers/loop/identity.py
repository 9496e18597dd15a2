"""Identity of a run: what a checkpoint must share with the run that resumes from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch
from pydantic import BaseModel

from quintain.records.hyperparameters.methods import ACTING_ONLY, PLACEMENT, DPOConfig
from quintain.records.jobs.job import TrainSpec
from quintain.trainers.data.streams import Example

_SAMPLED = 64
"""Values of each parameter, and up to twice as many, that identify a start model among models of its shape."""

_SILENT = frozenset(
    {
        *("checkpoint_every_steps", "keep_checkpoints", "report_to", "report_project", "report_run"),
        *("evaluate_environment", "evaluate_every_steps", "evaluate_tasks", "sample_every_steps"),
        *PLACEMENT,
    }
)
"""Settings that do not change the result; processes and sharding change only rounding and dropout."""


def weight_samples(spec: TrainSpec, model: Any) -> dict[str, list[float]]:
    """Return shape and some values of each parameter of the start model; of adapters that begin at random, the shape."""
    has_values = spec.config.lora is None or spec.start_model.adapter is not None
    return {name: [*p.shape, *_sample(p, has_values)] for name, p in model.named_parameters()}


def run_identity(spec: TrainSpec, start: Mapping[str, list[float]], examples: Sequence[Example]) -> str:
    """Return a hash of everything that a checkpoint must share with its run: settings, start model and token rows."""
    silent = _SILENT
    if isinstance(spec.config, DPOConfig) and spec.environment is None:
        silent |= ACTING_ONLY
    # On a dataset, the examples have the values of the reward.
    reward = spec.reward.model_dump(mode="json") if spec.reward is not None and spec.environment is not None else None
    about = [
        spec.method,
        _settings(spec.config, silent),
        spec.seed,
        _settings(spec.start_model),
        spec.environment,
        start,
        len(examples),
        reward,
        *(agent and _settings(agent.model) for agent in (spec.teacher_agent, spec.reward_agent)),
        spec.earlier and [spec.earlier.agent and _settings(spec.earlier.agent.model), spec.earlier.dataset_files],
    ]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for example in examples:
        digest.update(json.dumps([example.member, example.value, example.weight]).encode())
        for row in example.rows:
            for stream in (row.token_ids, row.weight, row.advantage, row.label, row.teacher_logprobs):
                digest.update(b"" if stream is None else stream.tobytes())
    return digest.hexdigest()


def _settings(record: BaseModel, silent: Set[str] = frozenset()) -> dict[str, Any]:
    """Return the settings of a record without those at their defaults, so that a new setting leaves checkpoints valid."""
    return record.model_dump(mode="json", exclude=set(silent), exclude_defaults=True)


def _sample(parameter: torch.nn.Parameter, has_values: bool) -> list[float]:
    """Return some values of the start model, because another model may be at its path by now; as bf16, as on GPUs."""
    if parameter.requires_grad and not has_values:
        return []
    flat = parameter.detach().reshape(-1)
    few: list[float] = flat[:: max(len(flat) // _SAMPLED, 1)].bfloat16().tolist()
    return few
