"""Preparation of a run before its first step: heads of step models, the model on every process, learning rate and seeds."""

from __future__ import annotations

import hashlib
import pickle
import platform
import random
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from quintain.datasets.step_labels import labelled_heads, require_labels
from quintain.jobs.directory import write_atomically
from quintain.records.dataset import Row
from quintain.records.hyperparameters.learning_rates import default_rate
from quintain.records.hyperparameters.methods import PRMConfig, RetrieverConfig, RewardConfig
from quintain.records.jobs.job import TrainSpec
from quintain.trainers.distributed.process_group import ProcessGroup, collective_errors_explained
from quintain.trainers.distributed.sharding import fill, fill_buffers, shard, skeleton
from quintain.trainers.engine.attention import attention_configs, enable_checkpointing
from quintain.trainers.engine.embeddings import noise_of
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.machine import Machine, prepare
from quintain.trainers.loop.identity import weight_samples
from quintain.trainers.loop.precision import Format, choose, hold_base
from quintain.trainers.models.loading import LoadedModel, is_adapter, pick_device, stored_heads
from quintain.trainers.models.start_model import freeze_layers, load_to_train


def with_heads(spec: TrainSpec, rows: Sequence[Row]) -> TrainSpec:
    """Return the job with the heads of its step or reward model: the stored ones, else those of the labels.

    Raises:
        InvalidInput: No row has a label of a head that the settings name.
    """
    config = spec.config
    if not isinstance(config, PRMConfig | RewardConfig):
        return spec
    if config.heads is not None:
        require_labels(config.heads, rows)
        return spec
    stored = stored_heads(spec.agent.model)
    if isinstance(config, RewardConfig):
        heads = stored[1:] if stored else labelled_heads(rows)
    else:
        heads = stored or labelled_heads(rows) or ("value",)
    return spec.model_copy(update={"config": config.model_copy(update={"heads": heads})})


class PreparedModel(NamedTuple):
    """A loaded model with its engine, on this process's device, and the choices that all processes of a run share."""

    loaded: LoadedModel
    engine: Engine
    machine: Machine
    format: Format
    weight_samples: dict[str, list[float]]
    """Of the start model, for the identity of the run."""
    structure: bytes | None = None
    """Skeleton of the loaded model where it is shared."""


class _Shared(NamedTuple):
    """The model that the first process has loaded, as the others receive it."""

    structure: bytes | None
    """Skeleton of `LoadedModel`; None: each process loads it."""
    engine: dict[str, Any]
    """Fields of the engine, without the model."""
    machine: Machine
    format: Format
    matmul_precision: str
    threads: int
    weight_samples: dict[str, list[float]]


def prepare_training(
    spec: TrainSpec, rows: Sequence[Row], directory: Path, group: ProcessGroup, *, acts: bool
) -> PreparedModel:
    """Load the model, choose the number format, tune the process and check the engine. Collective.

    The first process does so. The others get the structure of the model and its choices; then it broadcasts the weights, and with
    sharding each process keeps its shard. A resumed run repeats the choices.
    """
    own: list[tuple[LoadedModel, Engine]] = []

    def load() -> _Shared:
        loaded = _start_model(spec, rows)
        machine, number_format = _tuned(spec, loaded.model, directory, acts=acts)
        can_share = group.size > 1 and spec.config.quantization is None
        structure = skeleton(loaded) if can_share else None
        engine = _engine_of(spec, loaded.model, number_format)
        own.append((loaded, engine))
        facts = {field.name: getattr(engine, field.name) for field in fields(engine) if field.name != "model"}
        choices = machine, number_format, torch.get_float32_matmul_precision(), torch.get_num_threads()
        return _Shared(structure, facts, *choices, weight_samples(spec, loaded.model))

    shared = group.from_first(load)
    if group.is_first:
        loaded, engine = own[0]
    else:
        torch.set_float32_matmul_precision(shared.matmul_precision)
        torch.set_num_threads(shared.threads)
        loaded = pickle.loads(shared.structure) if shared.structure else _start_model(spec, rows)
        hold_base(loaded.model, spec.config, shared.format)
        engine = Engine(loaded.model, **shared.engine)
        if spec.config.gradient_checkpointing:
            whole = loaded.model.get_base_model() if is_adapter(loaded.model) else loaded.model
            enable_checkpointing(whole, attention_configs(whole))
    if group.size > 1:
        with collective_errors_explained(group):
            engine = _distributed(spec, engine, whole=shared.structure is not None)
    machine = shared.machine
    if machine.matmul_flops is not None:
        machine = machine._replace(matmul_flops=machine.matmul_flops * group.size)
    return PreparedModel(loaded, engine, machine, shared.format, shared.weight_samples, shared.structure)


def copy_start_model(spec: TrainSpec, directory: Path) -> tuple[LoadedModel, Format]:
    """Return another copy of the start model of an online training, and its number format, by the choices that it has kept."""
    loaded = _start_model(spec, ())
    _, number_format = _tuned(spec, loaded.model, directory, acts=True)
    return loaded, number_format


def _distributed(spec: TrainSpec, engine: Engine, *, whole: bool) -> Engine:
    """Broadcast the model of the first process, or its trained weights alone, or shard it. Collective."""
    model, device = engine.model, pick_device()
    if spec.config.sharding == "full":
        return shard(engine, device)
    fill((p for p in model.parameters() if whole or p.requires_grad), device)  # new adapters begin at random
    if whole:
        fill_buffers(model, device)
    return engine


def _start_model(spec: TrainSpec, rows: Sequence[Row]) -> LoadedModel:
    config = spec.config
    if isinstance(config, RetrieverConfig) and config.trunk == "new":
        from quintain.trainers.models.new_trunk import new_trunk

        loaded = new_trunk(rows, spec.seed)
        freeze_layers(loaded.model, config.frozen_layers)
        return loaded
    return load_to_train(spec.start_model, config, on_host=config.sharding == "full")


def _tuned(spec: TrainSpec, model: Any, directory: Path, *, acts: bool) -> tuple[Machine, Format]:
    remembered, device = directory / "checkpoints" / "machine.json", pick_device()
    casts_to_act = acts and spec.config.lora is None
    asked = "bf16" if spec.config.optimizer == "adamw_bf16" else spec.config.precision
    known = _earlier_choices(spec, model, f"{device} {asked} {casts_to_act}")
    if known is not None and known.exists() and not remembered.exists():
        remembered.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(remembered, known.read_bytes())
    number_format = choose(asked, model, remembered, casts_to_act=casts_to_act, device=device)
    hold_base(model, spec.config, number_format)
    machine = prepare(
        device,
        number_format.autocast or torch.float32,
        remembered=remembered,
        keep=spec.config.sharding == "none",
        choices={"precision": number_format.name, "precision_rule": number_format.rule},
    )
    if known is not None and not known.exists():
        known.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(known, remembered.read_bytes())
    return machine, number_format


def _earlier_choices(spec: TrainSpec, model: Any, about: str) -> Path | None:
    """Return the file with what jobs on models of these shapes chose on this machine; None: nothing is cached.

    Back ends and number formats round differently and are chosen by time, so equal jobs would differ beside other load.
    """
    if spec.cache_dir is None:
        return None
    shapes = sorted({str(tuple(parameter.shape)) for parameter in model.parameters()})
    machine = (platform.node(), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads(), torch.__version__)
    digest = hashlib.sha256(repr((machine, about, shapes)).encode()).hexdigest()
    return Path(spec.cache_dir) / "machine" / f"{digest[:16]}.json"


def _engine_of(spec: TrainSpec, model: Any, number_format: Format) -> Engine:
    config = spec.config
    return Engine.of(
        model,
        share_prefixes=config.share_prefixes,
        gradient_checkpointing=config.gradient_checkpointing,
        autocast=number_format.autocast,
        noise=noise_of(config),
    )


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
