"""Reward models of whole runs: the Bradley-Terry loss on pairs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from quintain.trainers.data.streams import TokenStreams
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.sequences import (
    chosen_and_rejected,
    mean_over_examples,
    metric_sums,
    preference_metrics,
    sequence_sums,
    to_accumulation_dtype,
)


def reward_loss(
    values: torch.Tensor,
    streams: TokenStreams,
    totals: StepTotals,
    *,
    margin_weight: float = 0.0,
    centring: float = 0.0,
    parts_weight: float = 1.0,
    heads: Sequence[str] | None = None,
) -> LossOutput:
    """-log sigma(r_w - r_l - m) + c (r_w + r_l)^2, mean over the pairs of the step by their weights.

    r is the value head's number at the end of a run. The first term is the likelihood of the preference in the model of
    Bradley and Terry 1952 (Ouyang et al. 2022, arXiv 2203.02155, eq. 1), with a margin m (Touvron et al. 2023, arXiv
    2307.09288, eq. 2) that is `margin_weight` times the pair's margin. It fixes differences only; the second
    keeps the rewards around 0 (Eisenstein et al. 2023, arXiv 2312.09244, eq. 2). With a margin_weight of 1 it is the loss of
    TRL's RewardTrainer, c being its center_rewards_coefficient.

    With parts, r is their mix, and each member adds `parts_weight` times half the mean over its labelled parts of the cross-entropy
    -y log p - (1 - y) log(1 - p), p = sigma(part). The pairs teach the mix what each part is worth; the labels keep the parts what
    they are called (multi-objective reward model: Wang et al. 2024, arXiv 2406.12845, section 3).

    Args:
        values: float [N, K], one for each member: r, and the logits of the parts.
        streams: Of pairs; the value of the chosen member less that of the rejected one is the pair's margin.
        totals: Of the step.
        margin_weight: 0: no margin.
        centring: c; 0: off.
        parts_weight: Of the cross-entropy of the parts.
        heads: Names of the parts.

    Returns:
        The loss, and metrics of the rewards: `chosen_reward`, `rejected_reward`, `reward_margin`, `reward_accuracy`, and of the
        parts `brier_NAME`, the mean of (p - y)^2.
    """
    chosen, rejected = chosen_and_rejected(sequence_sums(values[:, 0], streams), streams)
    margins = torch.sub(*chosen_and_rejected(streams.value, streams))
    losses = -F.logsigmoid(chosen - rejected - margin_weight * margins) + centring * (chosen + rejected) ** 2
    metrics = preference_metrics(chosen, rejected)
    if heads and streams.label is not None:
        of_parts, found = _parts(values[:, 1:], streams.label[:, 1:], streams, heads)
        losses, metrics = losses + parts_weight * of_parts, metrics | found
    return LossOutput(mean_over_examples(losses, streams, totals), metrics)


def _parts(
    values: torch.Tensor, label: torch.Tensor, streams: TokenStreams, heads: Sequence[str]
) -> tuple[torch.Tensor, dict[str, tuple[float, float]]]:
    """Return the cross-entropy of the labelled parts of each pair, float [E], a mean over parts and members, and metrics."""
    known = torch.isfinite(label)
    logits = to_accumulation_dtype(values, streams)
    target = to_accumulation_dtype(torch.where(known, label, 0.0), streams)
    losses = torch.where(known, F.binary_cross_entropy_with_logits(logits, target, reduction="none"), 0.0)
    of_member = losses.sum(1) / known.sum(1).clamp(min=1)
    chosen, rejected = chosen_and_rejected(sequence_sums(of_member, streams), streams)
    squared = (torch.sigmoid(logits.detach()) - target) ** 2
    metrics = metric_sums(**{f"brier_{name}": squared[known[:, k], k] for k, name in enumerate(heads)})
    return (chosen + rejected) / 2, metrics
