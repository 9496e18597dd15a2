"""The value head: a linear map from hidden states to one number for each name.

It is the submodule `value_head` beside the decoder, so that optimizers, checkpoints and ranks treat its weights like any other. On
disk it is a separate file beside the model, so that the folder remains an ordinary model or adapter.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from quintain.errors import InvalidInput
from quintain.records.hyperparameters.methods import PPOConfig, PRMConfig, RewardConfig, TrainingConfig

FILE_NAME = "value_head.safetensors"
REWARD = "reward"
"""Name of a reward model's number; with further names it is their mix."""
CRITIC = "critic"
"""Head of a model that acts: the return that it expects."""
COST_CRITIC = "cost_critic"
"""Head of a model that acts: the cost that it expects."""
TRUNK = "trunk."
"""Prefix of the weights of a head's own trunk."""
_ROLES = {(CRITIC,): "policy", (CRITIC, COST_CRITIC): "policy"}
"""Names of the heads -> the role of their model; of others, `reward` as the first is a reward model's, all else a step model's."""


class StoredHead(NamedTuple):
    """A head on disk."""

    names: tuple[str, ...]
    weight: torch.Tensor
    """float32 [K, h]"""
    bias: torch.Tensor
    """float32 [K]"""
    trunk: dict[str, torch.Tensor]
    """Weights of its own trunk, by their names there; empty without one."""
    mix: torch.Tensor | None = None
    """float32 [K] of a mixed head, the scale first; its weight and bias have K - 1 rows."""

    @property
    def is_critic(self) -> bool:
        """As `ValueHead.is_critic`."""
        return is_critic_head(self.names)


def is_critic_head(names: Sequence[str]) -> bool:
    """Whether heads with these names value what a model that acts expects."""
    return _ROLES.get(tuple(names)) == "policy"


def save_head(names: Sequence[str], tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Write the weights of a head, with the names of its values, beside its model or adapter.

    Args:
        names: Names of the values.
        tensors: `weight` [K, h] and `bias` [K]; of a mixed head one row less, and `mix`; as `trunk.NAME` those of a trunk of
            its own.
        folder: Folder of the model or adapter.
    """
    whole = {name: tensor.detach().float().cpu().contiguous() for name, tensor in tensors.items()}
    role = "reward_model" if names[0] == REWARD else _ROLES.get(tuple(names), "step_model")
    save_file(whole, folder / FILE_NAME, {"heads": json.dumps(tuple(names)), "role": role})


def read_head(folder: Path) -> StoredHead | None:
    """Read the head in a folder; None if there is none.

    Raises:
        InvalidInput: The file is damaged.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            names = tuple(json.loads((file.metadata() or {})["heads"]))
            weight, bias = file.get_tensor("weight"), file.get_tensor("bias")
            trunk = {n.removeprefix(TRUNK): file.get_tensor(n) for n in file.keys() if n.startswith(TRUNK)}  # noqa: SIM118
            mix = file.get_tensor("mix") if "mix" in file.keys() else None  # noqa: SIM118
            own = len(names) - (mix is not None)
            if (
                weight.ndim != 2
                or bias.shape != (own,)
                or len(weight) != own
                or (mix is not None and mix.shape != (own + 1,))
            ):
                raise ValueError(f"{len(names)} names, weight {[*weight.shape]}, bias {[*bias.shape]}")
    except (SafetensorError, OSError, ValueError, LookupError, TypeError) as error:
        raise InvalidInput(
            f"the value head {path} is damaged ({type(error).__name__}: {error}); copy the folder again from the original, or "
            "train the reward model again",
            code="model_damaged",
        ) from None
    return StoredHead(names, weight, bias, trunk, mix)


_NAME = "value_head"

_MIX_SCALE = 10.0
"""Logarithm of a weight's change by one unit of `mix`: at a learning rate of 0.001 a step of Adam changes it by about 1 %."""


class ValueHead(torch.nn.Module):
    """Map [m, h] to [m, K] in the head's own float type, whatever the model computes in.

    It starts with zeros: all runs have the same value before the first step, and the first Bradley-Terry loss is log 2. Of a reward
    model with parts, the first number is their mix, c sum_k(w_k part_k), with weights w = softmax and a scale c that are learned with
    the pairs (ArmoRM: Wang et al. 2024, arXiv 2406.12845, without gating). It reads no states itself.
    """

    def __init__(self, width: int, names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        own = len(self.names) - self.is_mixed
        self.weight = torch.nn.Parameter(torch.zeros(own, width))
        self.bias = torch.nn.Parameter(torch.zeros(own))
        if self.is_mixed:
            self.mix = torch.nn.Parameter(torch.zeros(own + 1))
        self.trunk: Any = None
        """A copy of the model whose states are read instead of the model's own; None: without."""

    @property
    def is_mixed(self) -> bool:
        """Whether its first number is a mix of the others."""
        return self.names[0] == REWARD and len(self.names) > 1

    @property
    def mix_weights(self) -> torch.Tensor:
        """Factor of each part in the mix, float [K - 1]: its share times the scale."""
        scaled = _MIX_SCALE * self.mix
        return torch.exp(scaled[0]) * torch.softmax(scaled[1:], 0)

    @property
    def is_critic(self) -> bool:
        """Whether its model acts, and the head only values what it expects."""
        return is_critic_head(self.names)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Return the values of hidden states, in full precision, because training uses small differences."""
        with torch.autocast(states.device.type, enabled=False):
            parts = torch.nn.functional.linear(states.to(self.weight.dtype), self.weight, self.bias)
            return torch.cat([parts @ self.mix_weights[:, None], parts], dim=1) if self.is_mixed else parts


def heads_of(config: TrainingConfig) -> tuple[str, ...]:
    """Return the names of the heads of a method's model; empty for methods without a value head."""
    if isinstance(config, RewardConfig):
        return (REWARD, *(config.heads or ()))
    if isinstance(config, PPOConfig):
        return (CRITIC, *([COST_CRITIC] if config.constraint else [])) if config.has_critic else ()
    return (config.heads or ("value",)) if isinstance(config, PRMConfig) else ()


def has_own_critic(config: TrainingConfig) -> bool:
    """Whether the value head of a method reads a copy of the model."""
    return isinstance(config, PPOConfig) and config.has_critic and config.critic == "separate"


def head_of(model: Any) -> ValueHead | None:
    """Return the value head of a model; None if it has none."""
    head = getattr(model, _NAME, None)
    return head if isinstance(head, ValueHead) else None


def attach(model: Any, names: Sequence[str], stored: StoredHead | None, *, own_trunk: bool = False) -> ValueHead:
    """Attach a value head to a model: the stored one, or a new one.

    A critic starts anew on another head's file, and so does another head on a critic's.

    Args:
        model: Without a value head.
        names: Names of the values.
        stored: Head in the model's folder.
        own_trunk: Read the states of a copy of the model, which is trained apart.

    Raises:
        InvalidInput: The stored head has other names or another width (`value_head_mismatch`).
    """
    head = ValueHead(model.get_input_embeddings().weight.shape[1], names)
    if own_trunk:
        head.trunk = copy.deepcopy(model)
        if (logits := head.trunk.get_output_embeddings()) is not None and not _is_tied(head.trunk, logits):
            logits.requires_grad_(False)  # never read
    if stored is not None and (head.is_critic or stored.is_critic):
        same = stored.names == head.names and bool(stored.trunk) == own_trunk
        stored = stored if same else None
    if stored is not None:
        if stored.names != head.names or stored.weight.shape != head.weight.shape:
            raise InvalidInput(
                f"expected a value head with {', '.join(head.names)} on states of {head.weight.shape[1]} numbers, got "
                f"{', '.join(stored.names)} on {stored.weight.shape[1]}; set heads to those of the model, or start from a model "
                "without a value head",
                code="value_head_mismatch",
            )
        with torch.no_grad():
            head.weight.copy_(stored.weight)
            head.bias.copy_(stored.bias)
            if stored.mix is not None:
                head.mix.copy_(stored.mix)
        if own_trunk:
            head.trunk.load_state_dict(stored.trunk, strict=False)
    setattr(model, _NAME, head)
    return head


def _is_tied(model: Any, logits: Any) -> bool:
    return getattr(logits, "weight", None) is model.get_input_embeddings().weight


def head_tensors(head: ValueHead) -> dict[str, torch.Tensor]:
    """Return the weights to store: of the head, and of its trunk what is trained."""
    return {name: p for name, p in head.named_parameters() if p.requires_grad or not name.startswith(TRUNK)}


@contextmanager
def value_head_detached(model: Any) -> Iterator[ValueHead | None]:
    """Detach the value head inside of the context, to save the model without it; yield the head."""
    head = head_of(model)
    if head is not None:
        delattr(model, _NAME)
    try:
        yield head
    finally:
        if head is not None:
            setattr(model, _NAME, head)
