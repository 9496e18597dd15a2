"""Distillation: the KL divergence between student and teacher, forward on recorded runs and reverse on the student's own."""

from __future__ import annotations

import torch

from quintain.trainers.data.streams import TokenStreams
from quintain.trainers.losses.grpo import grpo_loss
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.sequences import metric_sums, required_stream, to_accumulation_dtype

_SMALLEST_REST = 1e-6
"""Lower bound of the student's probability of all tokens that the teacher did not name, whose logarithm is taken."""


def distill_loss(
    logprobs: torch.Tensor, streams: TokenStreams, totals: StepTotals, *, clip_low: float, clip_high: float
) -> LossOutput:
    """Return `forward_kl_loss` where the teacher named tokens, else `reverse_kl_loss`."""
    if streams.teacher_ids is not None:
        return forward_kl_loss(logprobs, streams, totals)
    return reverse_kl_loss(logprobs, streams, totals, clip_low=clip_low, clip_high=clip_high)


def forward_kl_loss(logprobs: torch.Tensor, streams: TokenStreams, totals: StepTotals) -> LossOutput:
    """Weighted mean over tokens of KL(q || p) between the teacher q and the student p, in nats.

    Both are taken over the tokens v that the teacher named and the rest of the vocabulary as one outcome:
    sum_v q_v (log q_v - log p_v) + q_rest (log q_rest - log p_rest), with q_rest = 1 - sum_v q_v. Merging outcomes never
    raises the divergence, so it is a lower bound that is exact when all tokens are named. Its gradient is that of the
    cross-entropy with the teacher (Hinton et al. 2015, arXiv 1503.02531, eq. 2 at temperature 1).

    Args:
        logprobs: float [N, k], nats: the student's log-probs of the teacher's tokens.
        streams: With `teacher_logprobs` [N, k]; -inf where the teacher named fewer tokens.
        totals: Of the step.

    Returns:
        The loss, and the metric `forward_kl`, the unweighted mean over tokens.

    Raises:
        ValueError: A place has no log-probs of the teacher.
    """
    if streams.teacher_logprobs is None or bool(streams.teacher_logprobs.isnan().any()):
        raise ValueError("expected the teacher's log-probs at every supervised token, got a token without")
    logq, logp = (to_accumulation_dtype(values, streams) for values in (streams.teacher_logprobs, logprobs))
    named = logq > -torch.inf
    q, p = logq.exp(), torch.where(named, logp.exp(), 0.0)
    terms = torch.where(named, q * (torch.where(named, logq, 0.0) - logp), 0.0).sum(-1)
    q_rest = (1.0 - q.sum(-1)).clamp(min=0.0)
    p_rest = (1.0 - p.sum(-1)).clamp(min=_SMALLEST_REST)
    kl = terms + torch.special.xlogy(q_rest, q_rest) - q_rest * p_rest.log()
    weight = to_accumulation_dtype(streams.weight, streams)
    loss = torch.where(weight == 0, 0.0, weight * kl).sum() / (totals.weight or 1.0)
    return LossOutput(loss, metric_sums(forward_kl=kl[weight != 0]))


def reverse_kl_loss(
    logprobs: torch.Tensor, streams: TokenStreams, totals: StepTotals, *, clip_low: float, clip_high: float
) -> LossOutput:
    """Clipped policy gradient on the reverse KL divergence KL(p || q), on tokens that the student p sampled.

    The gradient of E_{t ~ p}[log p(t) - log q(t)] at one place is E[(log p(t) - log q(t)) grad log p(t)], so a token's
    advantage is log q(t) - log p_old(t), the teacher's log-prob less that of the policy that sampled it, less a baseline
    (`losses.advantages.divergence_advantages`); later places get no credit for it (Agarwal et al. 2023, arXiv 2306.13649,
    section 3.1; Lu and Thinking Machines 2025, "On-Policy Distillation"). The surrogate and its clipping are those of
    `grpo_loss` in the form dapo.

    Args:
        logprobs: float [N], nats.
        streams: With `advantage`, and `teacher_logprobs` [N, 1]; `old_logprob` not finite where unknown.
        totals: Of the step.
        clip_low: As in `grpo_loss`.
        clip_high: As in `grpo_loss`.

    Returns:
        The loss, the metrics of `grpo_loss`, and `reverse_kl`: the mean of log p(t) - log q(t), an estimate that can be below 0.
    """
    known = streams.teacher_logprobs
    teacher = required_stream(None if known is None else known[:, 0], "teacher_logprobs", streams)
    output = grpo_loss(logprobs, streams, totals, loss="dapo", clip_low=clip_low, clip_high=clip_high)
    divergence = to_accumulation_dtype(logprobs, streams).detach() - teacher
    return output._replace(metrics=output.metrics | metric_sums(reverse_kl=divergence))
