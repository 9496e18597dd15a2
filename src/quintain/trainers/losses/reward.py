"""Reward models of whole runs: the Bradley-Terry loss on pairs."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from quintain.trainers.data.streams import TokenStreams
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.sequences import over_examples, paired, preference_metrics, sequence_sums


def reward_loss(
    values: torch.Tensor,
    streams: TokenStreams,
    totals: StepTotals,
    *,
    margin_weight: float = 0.0,
    centring: float = 0.0,
) -> LossOutput:
    """-log sigma(r_w - r_l - m) + c (r_w + r_l)^2, mean over the pairs of the step by their weights.

    r is the value head's number at the end of a run. The first term is the likelihood of the preference in the model of
    Bradley and Terry 1952 (Ouyang et al. 2022, arXiv 2203.02155, eq. 1), with a margin m (Touvron et al. 2023, arXiv
    2307.09288, eq. 2) that is `margin_weight` times the pair's margin. It fixes differences only; the second
    keeps the rewards around 0 (Eisenstein et al. 2023, arXiv 2312.09244, eq. 2). With a margin_weight of 1 it is the loss of
    TRL's RewardTrainer, c being its center_rewards_coefficient.

    Args:
        values: float [N, 1], one for each member.
        streams: Of pairs; the value of the chosen member less that of the rejected one is the pair's margin.
        totals: Of the step.
        margin_weight: 0: no margin.
        centring: c; 0: off.

    Returns:
        The loss, and metrics of the rewards: `chosen_reward`, `rejected_reward`, `reward_margin`, `reward_accuracy`.

    Raises:
        ValueError: Not pairs.
    """
    chosen, rejected = paired(sequence_sums(values[:, 0], streams), streams)
    margins = torch.sub(*paired(streams.value, streams))
    losses = -F.logsigmoid(chosen - rejected - margin_weight * margins) + centring * (chosen + rejected) ** 2
    return LossOutput(over_examples(losses, streams, totals), preference_metrics(chosen, rejected))
