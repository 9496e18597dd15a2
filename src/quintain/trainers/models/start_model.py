"""The model that a training starts from: loaded with its adapters and heads, and its lowest blocks frozen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from quintain.errors import InvalidInput
from quintain.records.agent import ModelRef
from quintain.records.hyperparameters.methods import TrainingConfig
from quintain.trainers.models.loading import LoadedModel, decoder_and_head, load_model
from quintain.trainers.models.value_head import has_own_critic, heads_of


def load_to_train(ref: ModelRef, config: TrainingConfig, *, on_host: bool = False) -> LoadedModel:
    """Load a model as a method trains it; arguments and errors as of `load_model` and `freeze_layers`."""
    heads, own = heads_of(config), has_own_critic(config)
    loaded = load_model(ref, lora=config.lora, train=True, heads=heads, own_critic=own, on_host=on_host)
    freeze_layers(loaded.model, config.frozen_layers)
    return loaded


def blocks_of(decoder: Any) -> Sequence[torch.nn.Module]:
    """Return the blocks of a decoder: its own first list of modules, else the first within, as in BERT's; empty without one."""
    modules = (*decoder.children(), *decoder.modules())
    return next((list(m) for m in modules if isinstance(m, torch.nn.ModuleList) and len(m)), [])


def freeze_layers(model: Any, n: int) -> None:
    """Keep the weights of the lowest n blocks and of the embeddings (Lee et al. 2019, arXiv 1911.03090); n = 0 keeps none.

    Embeddings that are the weights of the output layer too are trained on.

    Raises:
        InvalidInput: The model has no list of blocks, or no more than n.
    """
    if not n:
        return
    decoder, head = decoder_and_head(model)
    blocks = blocks_of(decoder)
    if n >= len(blocks):
        most = max(len(blocks) - 1, 0)
        raise InvalidInput(f"frozen_layers: expected at most {most} for this model, got {n}; set it to {most} or less")
    tied = {id(parameter) for parameter in head.parameters()} if head is not None else set()
    embeddings = [m for m in decoder.modules() if isinstance(m, torch.nn.Embedding)]
    for module in (*blocks[:n], *embeddings):
        for parameter in module.parameters():
            if id(parameter) not in tied:
                parameter.requires_grad_(False)
