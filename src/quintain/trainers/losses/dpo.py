"""Direct preference optimisation and its kin on pairs with a reference."""

from __future__ import annotations

import torch

from quintain.trainers.data.streams import TokenStreams
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.pair_forms import FORMS, PairRewards
from quintain.trainers.losses.sequences import (
    chosen_and_rejected,
    log_ratios,
    metric_sums,
    over_examples,
    preference_metrics,
    required_stream,
    sequence_means,
    sequence_sums,
    to_accumulation_dtype,
)


def dpo_loss(
    logprobs: torch.Tensor,
    streams: TokenStreams,
    totals: StepTotals,
    *,
    beta: float,
    loss: str = "sigmoid",
    label_smoothing: float = 0.0,
    discopop_tau: float = 0.05,
    reference_free: bool = False,
    sft_weight: float = 0.0,
    ld_alpha: float = 1.0,
    policy_weighting: bool = False,
) -> LossOutput:
    """Preference loss of pairs, mean over the pairs of the step.

    A run's log-ratio is r = sum_t w_t (log pi(t) - log pi_ref(t)) over its supervised tokens; with weights of 1 that of
    the sequence, with step factors a step-weighted one, and a weight of 0 takes out a step that both runs share. ipo
    averages r by sum_t w_t: the paper does not, its authors' experiments do, and so does TRL. A run without tokens has
    r = 0, as the empty sequence has in any model. `pair_forms` has the forms of the loss.

    Args:
        logprobs: float [N], nats.
        streams: Of pairs, with `ref_logprob` unless reference-free, and with `collision` for `policy_weighting`.
        totals: Of the step.
        beta: Strength of the pull towards the reference; for ipo its tau.
        loss: A key of `FORMS`.
        label_smoothing: Share of pairs taken as flipped, in [0, 0.5).
        discopop_tau: Temperature of discopop.
        reference_free: Take log pi_ref as 0.
        sft_weight: Weight of the chosen run's negative log-likelihood, averaged over its tokens, added to each pair's
            loss (RPO, Pang et al. 2024, arXiv 2404.19733, eq. 1).
        ld_alpha: See `length_weights`; 1: off.
        policy_weighting: Multiply each pair's loss by `policy_weights`.

    Returns:
        The loss, and metrics of the implicit rewards beta r: `chosen_reward`, `rejected_reward`, `reward_margin`,
        `reward_accuracy`; with `policy_weighting` also `policy_weight`.
    """
    ratios = to_accumulation_dtype(logprobs, streams) if reference_free else log_ratios(logprobs, streams)
    if ld_alpha < 1:
        ratios = ratios * length_weights(streams, ld_alpha)
    chosen, rejected = chosen_and_rejected(beta * sequence_sums(ratios, streams), streams)
    scored = (
        chosen_and_rejected(beta * sequence_means(ratios, streams), streams) if loss == "ipo" else (chosen, rejected)
    )
    losses = FORMS[loss](PairRewards(*scored, beta, label_smoothing, discopop_tau))
    metrics = preference_metrics(chosen, rejected)
    if policy_weighting:
        weights = policy_weights(logprobs, streams)
        losses = losses * weights
        metrics |= metric_sums(policy_weight=weights)
    if sft_weight:
        losses = losses - sft_weight * chosen_and_rejected(sequence_means(logprobs, streams), streams)[0]
    return LossOutput(over_examples(losses, streams, totals), metrics)


def length_weights(streams: TokenStreams, alpha: float) -> torch.Tensor:
    """Return 1 up to the length of the shorter run of a pair and alpha behind it, for each token, float [N].

    Length-desensitised DPO (Liu et al. 2024, arXiv 2409.06411): what one run has more than the other counts less.
    Lengths are in supervised tokens.
    """
    lengths = torch.bincount(streams.sequence, minlength=streams.n_sequences)
    shorter = torch.minimum(*chosen_and_rejected(lengths, streams)).repeat_interleave(2)
    starts = lengths.cumsum(0) - lengths
    place = torch.arange(len(streams.sequence), device=lengths.device) - starts[streams.sequence]
    return torch.where(place < shorter[streams.sequence], 1.0, alpha).to(streams.value.dtype)


@torch.no_grad()
def policy_weights(logprobs: torch.Tensor, streams: TokenStreams) -> torch.Tensor:
    """Return min(w_chosen w_rejected, 1) of each pair, float [pairs], with w = exp(mean_t(log p_t - log sum_v p_v^2)).

    Weighted preference optimisation (WPO, Zhou et al. 2024, arXiv 2406.11827, eq. 2, with sampled alignment): w is the policy's probability
    of a run a token, divided by that expected of its own samples, so that stored pairs weigh as if the policy had
    written them. The bound is that of the authors' code: a run of likeliest tokens has w above 1, and where the likeliest token
    has 0.1 and the others little, 10. No gradient runs through it.
    """
    aligned = to_accumulation_dtype(logprobs, streams) - required_stream(streams.collision, "collision", streams)
    chosen, rejected = chosen_and_rejected(sequence_means(aligned, streams).exp(), streams)
    return (chosen * rejected).clamp(max=1.0)
