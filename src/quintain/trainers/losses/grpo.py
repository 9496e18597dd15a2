"""Group-relative policy optimisation: clipped policy gradients on advantages, in eight published forms.

- grpo: mean over a run's tokens, then over the step's runs (Shao et al. 2024, arXiv 2402.03300, eq. 3).
- dapo: mean over the step's tokens (Yu et al. 2025, arXiv 2503.14476, eq. 8).
- dr_grpo: sum over tokens / (the step's runs * max_tokens) (Liu et al. 2025, arXiv 2503.20783, section 3.2).
- gspo: as grpo, with the geometric mean of rho over the run instead of rho, in the form that takes an advantage for
  each token (Zheng et al. 2025, arXiv 2507.18071, eq. 5 and 7; GSPO-token, eq. 13 and 14).
- cispo: -clip(rho) A log pi(t) with no gradient through the clipped rho, so that no token loses its gradient; mean
  over the step's tokens (MiniMax 2025, arXiv 2506.13585, eq. 4 and 5; the authors have no lower bound: clip_low 1).
- sapo: as grpo, with the gate 4 sigma(tau (rho - 1)) / tau in place of min and clip: its slope is 1 at rho = 1 and
  falls on both sides (Gao et al. 2025, arXiv 2511.20347).
- luspo: as gspo, with the sum over a run's tokens instead of their mean (arXiv 2602.05261).
- vespo: -phi(w) A log pi(t) with no gradient through phi(w) = w^k e^(lambda (1 - w)), w the product of rho over the run;
  mean over the step's tokens (arXiv 2602.10693).
"""

from __future__ import annotations

import torch

from quintain.trainers.data.streams import TokenStreams
from quintain.trainers.losses.advantages import EPSILON
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.sequences import metric_sums, required_stream, sequence_means, to_accumulation_dtype

_LARGEST_LOG_RATIO = 20.0
"""Log-ratios above this count as this, without gradient: exp of a placeholder such as -9999 would make gradients NaN."""

_GATES = 1.0, 1.05
"""tau of sapo where the advantage is above 0 and where not, of its authors: the gradient of bad tokens is the less stable one."""

_KERNELS = (2.0, 3.0), (3.0, 2.0)
"""(k, lambda) of vespo where the advantage is at least 0 and where not, as in TRL."""


def grpo_loss(
    logprobs: torch.Tensor,
    streams: TokenStreams,
    totals: StepTotals,
    *,
    loss: str = "dapo",
    clip_low: float,
    clip_high: float,
    delta: float | None = None,
    kl_coefficient: float = 0.0,
    max_tokens: int | None = None,
    scale_rewards: str = "group",
) -> LossOutput:
    """Clipped policy-gradient loss of tokens with advantages.

    A token's loss is -min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A) + kl_coefficient k3, where
    rho = pi(t) / pi_old(t) is the ratio to the policy that sampled the token and k3 = e^d - d - 1 >= 0 with
    d = log pi_ref(t) - log pi(t) estimates the KL divergence from the reference (Shao et al. 2024, arXiv 2402.03300,
    eq. 3 and 4). An unknown pi_old is taken as today's pi: rho is 1 and its gradient that of log pi.

    With `delta` the first term is min(rho, delta) A: a worse-than-expected token that became much likelier has no more
    loss than at delta, and no gradient (two-sided clipping, INTELLECT-2 2025, arXiv 2505.07291). Means are
    weighted by token weights. A run must not be split between forward passes.

    Args:
        logprobs: float [N], nats.
        streams: With `advantage`; `old_logprob` None or not finite where unknown; `ref_logprob` if kl_coefficient > 0.
        totals: Of the step.
        loss: Which form.
        clip_low: How far rho may fall below 1 before a worse-than-expected token loses its gradient.
        clip_high: How far rho may rise above 1 before a better-than-expected token does.
        delta: Bound of the ratio where the advantage is negative, above 1 + clip_high; not for cispo, sapo and vespo. None: none.
        kl_coefficient: Weight of k3.
        max_tokens: Constant of dr_grpo, tokens a run.
        scale_rewards: `batch` divides advantages by the standard deviation of the rewards of the step or its rollout + 1e-4
            (Lite PPO, Liu et al. 2025, arXiv 2508.08221); `group` and `none` take them as they are.

    Returns:
        The loss, and metrics over tokens: `clip_low_share` and `clip_high_share` (the bound was passed and cut the
        gradient; for cispo the weight), `ratio_mean`, and `kl` (k3) where a reference is known; over runs: `ratio_max`,
        the mean of the runs' largest rho.

    Raises:
        ValueError: No advantages, no reference though its coefficient is above 0, or no constant for dr_grpo.
    """
    logp = to_accumulation_dtype(logprobs, streams)
    advantage = required_stream(streams.advantage, "advantage", streams)
    if scale_rewards == "batch":
        advantage = advantage / (totals.reward_deviation + EPSILON)
    log_ratio = _log_ratio(logp, streams)
    if loss in ("gspo", "luspo", "vespo"):
        log_ratio = _sequence_log_ratio(log_ratio, streams, mean=loss != "vespo") + logp - logp.detach()
    ratio = log_ratio.clamp(max=_LARGEST_LOG_RATIO).exp()
    bounds = (1 - clip_low, 1 + clip_high)
    losses = -_surrogate(logp, ratio, advantage, bounds, loss, delta)
    if kl_coefficient:
        losses = losses + kl_coefficient * k3(logp, required_stream(streams.ref_logprob, "ref_logprob", streams))
    metrics = _metrics(logp.detach(), ratio.detach(), advantage, streams, bounds)
    return LossOutput(_aggregate(losses, streams, totals, loss, max_tokens), metrics)


def k3(logprobs: torch.Tensor, ref_logprobs: torch.Tensor) -> torch.Tensor:
    """Return e^d - d - 1 with d = log pi_ref - log pi, in nats: an unbiased estimate of KL(pi || pi_ref) for tokens from pi.

    It is never negative (arXiv 2402.03300, eq. 4; Schulman 2020, "Approximating KL divergence").
    """
    difference = ref_logprobs - logprobs
    return torch.expm1(difference) - difference


def _log_ratio(logp: torch.Tensor, streams: TokenStreams) -> torch.Tensor:
    if streams.old_logprob is None:
        return logp - logp.detach()
    old = to_accumulation_dtype(streams.old_logprob, streams)
    return logp - torch.where(torch.isfinite(old), old, logp.detach())


def _sequence_log_ratio(log_ratio: torch.Tensor, streams: TokenStreams, *, mean: bool) -> torch.Tensor:
    """The mean of each token's sequence, or the sum, unweighted and without gradient, float [N]."""
    flat = log_ratio.detach()
    sums, lengths = (
        torch.zeros_like(streams.value).index_add(0, streams.sequence, x) for x in (flat, torch.ones_like(flat))
    )
    return (sums / lengths.clamp(min=1.0) if mean else sums)[streams.sequence]


def _surrogate(
    logp: torch.Tensor,
    ratio: torch.Tensor,
    advantage: torch.Tensor,
    bounds: tuple[float, float],
    loss: str,
    delta: float | None,
) -> torch.Tensor:
    """Return the surrogate objective of each token, float [N]."""
    clipped = ratio.clamp(*bounds)
    if loss == "cispo":
        return clipped.detach() * advantage * logp
    if loss == "sapo":
        heat = torch.where(advantage > 0, *_GATES)
        return 4 / heat * torch.sigmoid(heat * (ratio - 1)) * advantage
    if loss == "vespo":
        k, rate = (torch.where(advantage >= 0, *pair) for pair in zip(*_KERNELS, strict=True))
        weight = ratio.detach()
        return weight**k * torch.exp(rate * (1 - weight)) * advantage * logp
    if delta is not None:
        ratio = ratio.clamp(max=delta)
    return torch.minimum(ratio * advantage, clipped * advantage)


def _aggregate(
    losses: torch.Tensor, streams: TokenStreams, totals: StepTotals, loss: str, max_tokens: int | None
) -> torch.Tensor:
    if loss in ("grpo", "gspo", "sapo"):
        return sequence_means(losses, streams).sum() / (totals.sequences or 1)
    weight = to_accumulation_dtype(streams.weight, streams)
    total = torch.where(weight == 0, 0.0, weight * losses).sum()
    if loss == "luspo":
        return total / (totals.sequences or 1)
    if loss != "dr_grpo":
        return total / (totals.weight or 1.0)
    if max_tokens is None:
        raise ValueError("dr_grpo divides by a constant: max_tokens must be a number of tokens, got None")
    return total / ((totals.sequences or 1) * max_tokens)


def _metrics(
    logp: torch.Tensor, ratio: torch.Tensor, advantage: torch.Tensor, streams: TokenStreams, bounds: tuple[float, float]
) -> dict[str, tuple[float, float]]:
    low, high = bounds
    largest = torch.zeros_like(streams.value).scatter_reduce(0, streams.sequence, ratio, "amax")
    observed = {
        "clip_low_share": (ratio < low) & (advantage < 0),
        "clip_high_share": (ratio > high) & (advantage > 0),
        "ratio_mean": ratio,
        "ratio_max": largest[streams.sequence.unique()],
    }
    if streams.ref_logprob is not None:
        ref = to_accumulation_dtype(streams.ref_logprob, streams)
        known = torch.isfinite(ref)
        observed["kl"] = k3(logp[known], ref[known])
    return metric_sums(**observed)
