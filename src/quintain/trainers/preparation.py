"""Preparation of a run before its first step: the heads of step models, number format, learning rate and seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from quintain.errors import InvalidInput
from quintain.records.dataset import Row
from quintain.records.hyperparameters import PRMConfig, RetrieverConfig, RewardConfig
from quintain.records.job import TrainSpec
from quintain.records.learning_rates import default_rate
from quintain.trainers.data.value_positions import labelled_heads, labelled_parts
from quintain.trainers.engine.machine import Machine, prepare
from quintain.trainers.loop.precision import Format, choose, hold_base
from quintain.trainers.models import LoadedModel, load_model, stored_heads
from quintain.trainers.new_trunk import new_trunk
from quintain.trainers.value_head import has_own_critic, heads_of


def with_heads(spec: TrainSpec, rows: Sequence[Row]) -> TrainSpec:
    """Return the job with the heads of its step or reward model: the stored ones, else those of the labels.

    Raises:
        InvalidInput: No pair has a value of a part that the settings name.
    """
    config = spec.config
    if isinstance(config, RewardConfig) and (unknown := set(config.heads or ()) - set(labelled_parts(rows))):
        raise InvalidInput(
            f"expected pairs with values of the parts {', '.join(sorted(unknown))}, got {', '.join(labelled_parts(rows)) or 'none'}; "
            "export them with curation={'parts_of': SCORER}, or leave `heads` out",
            code="no_parts",
        )
    if not isinstance(config, PRMConfig | RewardConfig) or config.heads is not None:
        return spec
    stored = stored_heads(spec.agent.model)
    if isinstance(config, RewardConfig):
        heads = stored[1:] if stored else labelled_parts(rows)
    else:
        heads = stored or labelled_heads(rows) or ("value",)
    return spec.model_copy(update={"config": config.model_copy(update={"heads": heads})})


def start_model(spec: TrainSpec, rows: Sequence[Row]) -> LoadedModel:
    """Load the model that is trained; a retriever's new trunk is made from the rows of the training split.

    Raises:
        InvalidInput: As `load_model` and `new_trunk`.
        NotFound: As `load_model`.
    """
    config = spec.config
    if isinstance(config, RetrieverConfig) and config.trunk == "new":
        return new_trunk(rows, spec.seed)
    heads, own = heads_of(config), has_own_critic(config)
    return load_model(spec.start_model, lora=config.lora, train=True, heads=heads, own_critic=own)


def prepared(spec: TrainSpec, model: Any, directory: Path, *, acts: bool) -> tuple[Machine, Format]:
    """Choose the number format of a run, convert the base to it, and tune the process; a resumed run repeats the choices."""
    remembered = directory / "checkpoints" / "machine.json"
    number_format = choose(spec.config.precision, model, remembered, casts_to_act=acts and spec.config.lora is None)
    hold_base(model, spec.config, number_format)
    machine = prepare(
        model.device,
        number_format.autocast or torch.float32,
        remembered=remembered,
        keep=spec.config.sharding == "none",
        choices={"precision": number_format.name, "precision_rule": number_format.rule},
    )
    return machine, number_format


def with_rate(spec: TrainSpec, loaded: LoadedModel) -> tuple[TrainSpec, str]:
    """Return the job with its learning rate, and the rule that gave it."""
    config = spec.config
    if config.learning_rate is not None:
        return spec, "as requested"
    hidden = loaded.model.config.get_text_config(decoder=True).hidden_size
    name = "new trunk" if isinstance(config, RetrieverConfig) and config.trunk == "new" else spec.method
    rate = default_rate(name, hidden, adapters=config.lora is not None)
    return spec.model_copy(update={"config": config.model_copy(update={"learning_rate": rate.value})}), rate.rule


def seed_everything(seed: int) -> None:
    """Seed the random generators of Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
