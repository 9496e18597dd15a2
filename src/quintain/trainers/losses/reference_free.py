"""Preference losses of pairs without a reference: odds ratios with SFT on the chosen run, and mean log-probs as rewards."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from quintain.trainers.data.streams import TokenStreams
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.sequences import (
    chosen_and_rejected,
    mean_over_examples,
    metric_sums,
    preference_metrics,
    refuse_empty,
    sequence_means,
)

_SUREST = -1e-7
"""Largest mean log-prob that counts, in nats: float32 cannot distinguish probabilities above 1 - 1e-7."""


def orpo_loss(logprobs: torch.Tensor, streams: TokenStreams, totals: StepTotals, *, beta: float) -> LossOutput:
    """-m_chosen - beta log sigma(log odds(m_chosen) - log odds(m_rejected)), mean over the pairs of the step.

    m = sum_t w_t log p_t / sum_t w_t is a run's mean log-prob and odds(m) = e^m / (1 - e^m) (Hong et al. 2024, arXiv
    2403.07691, eq. 4, 6 and 7, whose lambda is beta here). No reference model. A token weight weighs the token in the
    run's mean.

    Returns:
        The loss in nats, and metrics of the rewards beta m (`chosen_reward`, `rejected_reward`, `reward_margin`,
        `reward_accuracy`), `chosen_nll` and `log_odds_ratio`.
    """
    refuse_empty(streams)
    chosen, rejected = chosen_and_rejected(sequence_means(logprobs, streams), streams)
    log_odds_ratio = log_odds(chosen) - log_odds(rejected)
    losses = -chosen - beta * F.logsigmoid(log_odds_ratio)
    metrics = preference_metrics(beta * chosen, beta * rejected) | metric_sums(
        chosen_nll=-chosen, log_odds_ratio=log_odds_ratio
    )
    return LossOutput(mean_over_examples(losses, streams, totals), metrics)


def log_odds(logprob: torch.Tensor) -> torch.Tensor:
    """Return log(p / (1 - p)) from log p, finite up to p = 1; -inf for -inf.

    1 - p is taken as -expm1(log p), which is exact where p is close to 1. Above log p = -1e-7 it is constant.
    """
    logprob = logprob.clamp(max=_SUREST)
    return logprob - torch.log(-torch.expm1(logprob))


def simpo_loss(
    logprobs: torch.Tensor, streams: TokenStreams, totals: StepTotals, *, beta: float, gamma: float
) -> LossOutput:
    """-log sigma(beta m_chosen - beta m_rejected - gamma), mean over the pairs of the step.

    m = sum_t w_t log p_t / sum_t w_t is a run's mean log-prob (Meng et al. 2024, arXiv 2405.14734, eq. 6). gamma is
    subtracted after the scaling by beta, so the mean log-probs must differ by gamma / beta nats, the ratio that the
    authors tune. TRL's `simpo_gamma` is the same gamma. A token weight weighs the token in the run's mean.

    Returns:
        The loss, and metrics of the rewards beta m: `chosen_reward`, `rejected_reward`, `reward_margin`,
        `reward_accuracy`.
    """
    refuse_empty(streams)
    chosen, rejected = chosen_and_rejected(beta * sequence_means(logprobs, streams), streams)
    losses = -F.logsigmoid(chosen - rejected - gamma)
    return LossOutput(mean_over_examples(losses, streams, totals), preference_metrics(chosen, rejected))
