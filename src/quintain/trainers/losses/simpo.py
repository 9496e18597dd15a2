"""Simple preference optimisation: mean log-probs as rewards, without a reference."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from quintain.trainers.data.streams import TokenStreams
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.sequences import (
    chosen_and_rejected,
    over_examples,
    preference_metrics,
    refuse_empty,
    sequence_means,
)


def simpo_loss(
    logprobs: torch.Tensor, streams: TokenStreams, totals: StepTotals, *, beta: float, gamma: float
) -> LossOutput:
    """-log sigma(beta m_chosen - beta m_rejected - gamma), mean over the pairs of the step.

    m = sum_t w_t log p_t / sum_t w_t is a run's mean log-prob (Meng et al. 2024, arXiv 2405.14734, eq. 6). gamma is
    subtracted after the scaling by beta, so the mean log-probs must differ by gamma / beta nats, the ratio that the
    authors tune. TRL's `simpo_gamma` is the same gamma. A token weight weighs the token in the run's mean.

    Args:
        logprobs: float [N], nats.
        streams: Of pairs.
        totals: Of the step.
        beta: Scale of the mean log-probs.
        gamma: Reward margin that the chosen run must win by.

    Returns:
        The loss, and metrics of the rewards beta m: `chosen_reward`, `rejected_reward`, `reward_margin`,
        `reward_accuracy`.
    """
    refuse_empty(streams)
    chosen, rejected = chosen_and_rejected(beta * sequence_means(logprobs, streams), streams)
    losses = -F.logsigmoid(chosen - rejected - gamma)
    return LossOutput(over_examples(losses, streams, totals), preference_metrics(chosen, rejected))
