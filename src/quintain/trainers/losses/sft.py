"""Supervised fine-tuning: weighted negative log-likelihood of what the agent wrote."""

from __future__ import annotations

import torch

from quintain.trainers.data.streams import TokenStreams
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.sequences import metric_sums, to_accumulation_dtype


def sft_loss(logprobs: torch.Tensor, streams: TokenStreams, totals: StepTotals) -> LossOutput:
    """Weighted mean negative log-likelihood, sum_t(-w_t log p_t) / sum_t w_t, with the denominator of the whole step.

    With weights of 1 it is the cross-entropy of a causal language model, masked to the supervised tokens (Ouyang et al.
    2022, arXiv 2203.02155, section 3.5). It is linear in the log-probs: their gradient is -w_t / totals.weight whatever
    they are, so an engine may form the gradient of the logits while it computes them.

    Returns:
        The loss in nats per unit of weight, and the metric `nll`, the unweighted mean over tokens of weight above 0.
    """
    weight, logp = to_accumulation_dtype(streams.weight, streams), to_accumulation_dtype(logprobs, streams)
    loss = torch.where(weight == 0, 0.0, -weight * logp).sum() / (totals.weight or 1.0)
    return LossOutput(loss, metric_sums(nll=-logp[weight != 0]))


def dft_loss(logprobs: torch.Tensor, streams: TokenStreams, totals: StepTotals) -> LossOutput:
    """Weighted mean of -p_t log p_t with no gradient through the factor p_t, and the metric `nll` of `sft_loss`.

    Dynamic fine-tuning (Wu et al. 2025, arXiv 2508.05629): the gradient of the negative log-likelihood is that of a policy
    whose reward is 1 / p_t at what the data says; the factor makes it 1, so that unlikely tokens no longer dominate. The loss
    is small where p_t is near 0, too, so it measures no progress; `sft_loss` does.
    """
    logp = to_accumulation_dtype(logprobs, streams)
    weight = to_accumulation_dtype(streams.weight, streams) * logp.detach().exp()
    loss = torch.where(weight == 0, 0.0, -weight * logp).sum() / (totals.weight or 1.0)
    return LossOutput(loss, sft_loss(logprobs, streams, totals).metrics)
