"""Kahneman-Tversky optimisation: good and bad runs without pairs."""

from __future__ import annotations

import math

import torch

from quintain.trainers.data.streams import TokenStreams, widest_float
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.sequences import log_ratios, mean_over_examples, metric_sums, sequence_sums


def kto_loss(
    logprobs: torch.Tensor,
    streams: TokenStreams,
    totals: StepTotals,
    *,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
    kl: float,
) -> LossOutput:
    """Mean over the runs of the step of lambda - v (Ethayarajh et al. 2024, arXiv 2402.01306, eq. 8).

    With r = sum_t w_t (log pi(t) - log pi_ref(t)) a run's log-ratio and z = `kl` the point of reference:
    v = lambda_d sigma(beta (r - z)) for a desirable run (value above 0), v = lambda_u sigma(beta (z - r)) for an
    undesirable one. No gradient runs through z.

    Returns:
        The loss, and metrics: the implicit rewards beta r, `chosen_reward` and `rejected_reward`, each over the runs of its
        kind, and `kto_kl`, which is `kl`.

    Raises:
        ValueError: An example with several members, or reference log-probs missing or not finite.
    """
    if streams.n_sequences != len(streams.example_weight):
        raise ValueError(
            f"KTO wants one run an example; got {streams.n_sequences} runs in {len(streams.example_weight)} examples"
        )
    ratio = sequence_sums(log_ratios(logprobs, streams), streams)
    desirable = streams.value > 0
    kl = max(kl, 0.0)
    gain = beta * (ratio - kl)
    losses = torch.where(desirable, desirable_weight * torch.sigmoid(-gain), undesirable_weight * torch.sigmoid(gain))
    rewards = beta * ratio
    metrics = metric_sums(chosen_reward=rewards[desirable], rejected_reward=rewards[~desirable])
    return LossOutput(mean_over_examples(losses, streams, totals), metrics | {"kto_kl": (kl, 1.0)})


@torch.no_grad()
def kto_kl(policy_logprobs: torch.Tensor, ref_logprobs: torch.Tensor, n_sequences: int) -> float:
    """Return KTO's point of reference: max(0, mean over runs of sum_t(log pi(t) - log pi_ref(t))) on mismatched runs.

    A mismatched run is one task's answer after another task's prompt. So the mean is an estimate of the KL divergence
    of policy and reference, biased but of low variance (arXiv 2402.01306, section 4.1, the estimate of z_0).

    Returns:
        Nats a run, at least 0; NaN if a log-prob is not finite.
    """
    dtype = widest_float(policy_logprobs.device)
    mean = float((policy_logprobs.to(dtype) - ref_logprobs.to(dtype)).sum()) / n_sequences
    return max(0.0, mean) if math.isfinite(mean) else math.nan
