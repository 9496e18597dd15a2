"""Proximal policy optimisation: the clipped policy-gradient loss, and the clipped loss of its value head."""

from __future__ import annotations

import torch

from quintain.trainers.data.streams import TokenStreams
from quintain.trainers.losses.grpo import grpo_loss
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.sequences import metric_sums, to_accumulation_dtype


def ppo_loss(
    logprobs: torch.Tensor,
    streams: TokenStreams,
    totals: StepTotals,
    *,
    values: torch.Tensor | None,
    clip_low: float,
    clip_high: float,
    value_clip: float | None = None,
    value_weight: float = 0.1,
    critic_only: bool = False,
) -> LossOutput:
    """Clipped surrogate of the policy plus `value_weight` times the clipped loss of the values.

    The surrogate is the mean over the step's tokens of -min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A) (Schulman et al.
    2017, arXiv 1707.06347, eq. 7 and 9), as in `grpo_loss` with `dapo`.

    Returns:
        The loss, the metrics of `grpo_loss`, and with values `value_loss` and `value_clip_share`.

    Raises:
        ValueError: No advantages, or no returns for the values.
    """
    policy = grpo_loss(logprobs, streams, totals, loss="dapo", clip_low=clip_low, clip_high=clip_high)
    if values is None:
        return policy
    value = value_loss(values, streams, totals, clip=value_clip)
    weighted = value_weight * value.loss
    return LossOutput(weighted if critic_only else policy.loss + weighted, policy.metrics | value.metrics)


def value_loss(
    values: torch.Tensor, streams: TokenStreams, totals: StepTotals, *, clip: float | None = None
) -> LossOutput:
    """max((V - R)^2, (clip(V, V_old - clip, V_old + clip) - R)^2) / 2, mean over the step's tokens with a return.

    The pessimistic clipping of the values is that of OpenAI's baselines (`ppo2`, 2017), TRL and verl. The losses of several
    heads are added.

    Raises:
        ValueError: There are no returns.
    """
    if streams.label is None or streams.old_value is None:
        raise ValueError("this loss needs the streams 'label' and 'old_value', and no row has them")
    known = torch.isfinite(streams.label)
    value, target, old = (to_accumulation_dtype(x, streams)[known] for x in (values, streams.label, streams.old_value))
    losses = (value - target) ** 2
    if clip is not None:
        clipped = (old + (value - old).clamp(-clip, clip) - target) ** 2
        bounded = clipped > losses
        losses = torch.maximum(losses, clipped)
    else:
        bounded = torch.zeros_like(known[known])
    metrics = metric_sums(value_loss=losses / 2, value_clip_share=bounded)
    return LossOutput(losses.sum() / 2 / (totals.labels or 1), metrics)
