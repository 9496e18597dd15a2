"""Trajectory ranking: the DPO loss over all pairs of a task whose rewards differ."""

from __future__ import annotations

import torch

from quintain.trainers.data.streams import TokenStreams
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.pair_forms import PairRewards, sigmoid
from quintain.trainers.losses.sequences import log_ratios, preference_metrics, sequence_sums


def ranking_loss(logprobs: torch.Tensor, streams: TokenStreams, totals: StepTotals, *, beta: float) -> LossOutput:
    """-log sigma(beta (r_i - r_j)) over all members i, j of an example with value_i > value_j, mean over pairs.

    r = sum_t w_t (log pi(t) - log pi_ref(t)) is a run's log-ratio as in DPO (arXiv 2305.18290, eq. 7). Taking all pairs
    of a ranking as comparisons of equal weight is the pairwise loss of Ouyang et al. 2022 (arXiv 2203.02155, eq. 1).
    The example's weight is shared out evenly among its pairs: where it is their number, as it should be, the loss is the
    mean over all pairs of the step. Members of equal value make no pair, nor does one whose value is NaN.

    Args:
        logprobs: float [N], nats.
        streams: Of whole examples with any number of members, with `ref_logprob`.
        totals: Of the step; `examples` counts pairs.
        beta: Strength of the pull towards the reference.

    Returns:
        The loss, and metrics over pairs: `chosen_reward`, `rejected_reward`, `reward_margin`, `reward_accuracy`.
    """
    ratio = sequence_sums(log_ratios(logprobs, streams), streams)
    together = streams.example[:, None] == streams.example[None, :]
    better, worse = (together & (streams.value[:, None] > streams.value[None, :])).nonzero(as_tuple=True)
    example = streams.example[better]
    pairs = torch.zeros_like(streams.example_weight).index_add(0, example, torch.ones_like(ratio[better]))
    weight = (streams.example_weight / pairs.clamp(min=1.0))[example]
    rewards = PairRewards(beta * ratio[better], beta * ratio[worse], beta)
    loss = (weight * sigmoid(rewards)).sum() / (totals.examples or 1.0)
    return LossOutput(loss, preference_metrics(rewards.chosen, rewards.rejected))
