"""The optimizer: clip the gradients, take a step; with sharding, every rank does so for its shard."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from quintain.errors import InvalidInput
from quintain.records.hyperparameters.methods import PPOConfig, TrainingConfig
from quintain.trainers.models.loading import trainable
from quintain.trainers.models.quantization import bitsandbytes
from quintain.trainers.models.value_head import head_of

_BETAS, _EPS = (0.9, 0.999), 1e-8
"""As PyTorch's AdamW."""

_LOST_BITS = 16
"""Bits of a float32 that bfloat16 lacks."""


class BF16AdamW(torch.optim.Optimizer):
    """AdamW that computes in float32 and keeps weights, gradients and moments in bfloat16: 8 bytes a parameter instead of 16.

    bfloat16 has 8 significant bits. Rounded to the nearest, an update below 1/512 of a weight is lost, and so is the decay of the
    second moment, a factor of 0.999 a step. Rounded up with the probability of the remainder, both are right on average (Zamirai et
    al. 2020, arXiv 2010.06192, section 3). A float32 copy of the weights would avoid the noise at 4 more bytes a parameter.
    Parameters in float32 are updated as by PyTorch's AdamW.
    """

    def __init__(self, groups: Iterable[dict[str, Any]]) -> None:
        super().__init__(groups, {"lr": 0.0, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update the parameters that have gradients; the random numbers depend on their places and numbers of updates alone."""
        parameters = [(group, p) for group in self.param_groups for p in group["params"]]
        for place, (group, parameter) in enumerate(parameters):
            if parameter.grad is not None:
                self._update(parameter, group["lr"], group["weight_decay"], place)

    def _update(self, parameter: torch.Tensor, rate: float, decay: float, place: int) -> None:
        state = self.state[parameter]
        if not state:
            state |= {"step": torch.tensor(0.0)}
            state |= {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        state["step"] += 1
        step = int(state["step"])
        gradient = parameter.grad.float()  # type: ignore[union-attr]
        mean = state["exp_avg"].float().lerp_(gradient, 1 - _BETAS[0])
        square = state["exp_avg_sq"].float().lerp_(gradient.square(), 1 - _BETAS[1])
        size = (square / (1 - _BETAS[1] ** step)).sqrt_().add_(_EPS)
        weight = parameter.float() * (1 - rate * decay)
        weight.addcdiv_(mean, size, value=-rate / (1 - _BETAS[0] ** step))
        draws = torch.Generator(parameter.device).manual_seed((step << 20) + place)
        for stored, exact in ((parameter, weight), (state["exp_avg"], mean), (state["exp_avg_sq"], square)):
            stored.copy_(stochastically_rounded(exact, draws) if stored.dtype == torch.bfloat16 else exact)


def stochastically_rounded(x: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    """Return finite float32 numbers in bfloat16, whose expectations they are.

    The 16 bits that are cut off, as a share of 2^16, are the probability of the number of larger magnitude.
    """
    noise = torch.randint(1 << _LOST_BITS, x.shape, generator=draws, device=x.device, dtype=torch.int32)
    bits = (x.contiguous().view(torch.int32) + noise) & -(1 << _LOST_BITS)
    return bits.view(torch.float32).bfloat16()


_CRITIC_RATE = 10.0
"""Learning rate of a critic over that of its policy, as in verl (1e-5, 1e-6) and OpenRLHF (9e-6, 1e-6)."""


def adamw(model: Any, config: TrainingConfig) -> torch.optim.Optimizer:
    """Return AdamW (Loshchilov and Hutter 2019, arXiv 1711.05101); biases and norm weights do not decay.

    Its learning rate is set at each update; `rate` of a group is its factor, above 1 for the critic of PPO, and for B of
    adapters with LoRA+ (Hayou et al. 2024, arXiv 2402.12354, section 5).

    `adamw_8bit` keeps the moments of matrices of 4,096 numbers or more in 8 bits
    (Dettmers et al. 2021, arXiv 2110.02861). `adamw_bf16` is for weights in bfloat16; see `BF16AdamW`.

    Raises:
        Unavailable: `adamw_8bit` without bitsandbytes (`missing_extra`).
        InvalidInput: `adamw_8bit` on a device for which bitsandbytes has no optimizer.
    """
    parameters = trainable(model)
    head = head_of(model)
    critic = {id(p) for p in head.parameters()} if head is not None and head.is_critic else set[int]()
    ratio = config.lora.b_rate_ratio if config.lora is not None else 1.0
    rates = {
        name: _critic_rate(config) if id(p) in critic else ratio if _is_b(name) else 1.0
        for name, p in parameters.items()
    }
    groups = [
        {
            "params": [p for name, p in parameters.items() if (p.ndim > 1) == decays and rates[name] == rate],
            "weight_decay": config.weight_decay if decays else 0.0,
            "rate": rate,
        }
        for rate in sorted(set(rates.values()))
        for decays in (True, False)
    ]
    groups = [g for g in groups if g["params"]]
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=0.0, fused=True)
    if config.optimizer == "adamw_bf16":
        return BF16AdamW(groups)
    if model.device.type not in ("cpu", "cuda"):
        raise InvalidInput(
            f"expected a CPU or a CUDA device for adamw_8bit, got {model.device.type}; set optimizer to 'adamw'"
        )
    optimizer: torch.optim.Optimizer = bitsandbytes().optim.AdamW8bit(groups, lr=0.0)
    return optimizer


def _is_b(name: str) -> bool:
    """Whether a parameter is the matrix B of an adapter, by peft's names of its modules."""
    return bool({"lora_B", "lora_embedding_B"} & {*name.split(".")})


def _critic_rate(config: TrainingConfig) -> float:
    """Return the learning rate of the critic over that of the policy."""
    own = config.critic_learning_rate if isinstance(config, PPOConfig) else None
    return _CRITIC_RATE if own is None or config.learning_rate is None else own / config.learning_rate


def clip(model: Any, optimizer: torch.optim.Optimizer, scale: torch.amp.GradScaler, bound: float) -> float:
    """Unscale the gradients and clip their norm at `bound`, 0 for no bound; return the norm before clipping."""
    scale.unscale_(optimizer)
    return float(torch.nn.utils.clip_grad_norm_(trainable(model).values(), bound or math.inf))


def update(optimizer: torch.optim.Optimizer, scale: torch.amp.GradScaler, rate: float) -> None:
    """Take an optimizer step at a learning rate, and clear the gradients."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("rate", 1.0)
    scale.step(optimizer)  # skipped where a float16 gradient overflowed; then the scale is halved
    scale.update()
    optimizer.zero_grad(set_to_none=True)
