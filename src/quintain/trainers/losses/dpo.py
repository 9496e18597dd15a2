"""Direct preference optimisation and its kin on pairs with a reference."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from quintain.trainers.data.streams import TokenStreams
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.sequences import (
    log_ratios,
    over_examples,
    paired,
    preference_metrics,
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
    reference_free: bool = False,
    sft_weight: float = 0.0,
) -> LossOutput:
    """Preference loss of pairs, mean over the pairs of the step.

    A run's log-ratio is r = sum_t w_t (log pi(t) - log pi_ref(t)) over its supervised tokens; with weights of 1 that of
    the sequence, with step factors a step-weighted one, and a weight of 0 takes out a step that both runs share. With
    h = r_chosen - r_rejected:

    - sigmoid: -log sigma(beta h) (Rafailov et al. 2023, arXiv 2305.18290, eq. 7).
    - hinge: max(0, 1 - beta h) (SLiC-HF, Zhao et al. 2023, arXiv 2305.10425, eq. 1, on log-ratios and scaled to margin 1
      as in RSO, Liu et al. 2023, arXiv 2309.06657).
    - ipo: (h - 1 / (2 beta))^2 with r averaged by sum_t w_t (Azar et al. 2023, arXiv 2310.12036, eq. 17; the paper does
      not average, its authors' experiments do, and so does TRL).

    Label smoothing e takes a share of the pairs as flipped: (1 - e) l(h) + e l(-h) (conservative DPO, Mitchell 2023).
    A run without tokens has r = 0, as the empty sequence has in any model.

    Args:
        logprobs: float [N], nats.
        streams: Of pairs, with `ref_logprob` unless reference-free.
        totals: Of the step.
        beta: Strength of the pull towards the reference; for ipo its tau.
        loss: `sigmoid`, `hinge` or `ipo`.
        label_smoothing: e, in [0, 0.5).
        reference_free: Take log pi_ref as 0.
        sft_weight: Weight of the chosen run's negative log-likelihood, averaged over its tokens, added to each pair's
            loss (Pang et al. 2024, arXiv 2404.19733, eq. 1).

    Returns:
        The loss, and metrics of the implicit rewards beta r: `chosen_reward`, `rejected_reward`, `reward_margin`,
        `reward_accuracy`.

    Raises:
        ValueError: Not pairs, or reference log-probs missing or not finite.
    """
    ratios = to_accumulation_dtype(logprobs, streams) if reference_free else log_ratios(logprobs, streams)
    chosen, rejected = paired(sequence_sums(ratios, streams), streams)
    scored = paired(sequence_means(ratios, streams), streams) if loss == "ipo" else (chosen, rejected)
    losses = pair_losses(scored[0] - scored[1], beta=beta, loss=loss, label_smoothing=label_smoothing)
    if sft_weight:
        losses = losses - sft_weight * paired(sequence_means(logprobs, streams), streams)[0]
    return LossOutput(over_examples(losses, streams, totals), preference_metrics(beta * chosen, beta * rejected))


def pair_losses(
    margin: torch.Tensor, *, beta: float, loss: str = "sigmoid", label_smoothing: float = 0.0
) -> torch.Tensor:
    """Return the loss of each pair, float [pairs], from the difference h of its log-ratios; see `dpo_loss`."""

    def of(h: torch.Tensor) -> torch.Tensor:
        if loss == "sigmoid":
            return -F.logsigmoid(beta * h)
        if loss == "hinge":
            return torch.relu(1 - beta * h)
        return (h - 1 / (2 * beta)) ** 2

    if not label_smoothing:
        return of(margin)
    return (1 - label_smoothing) * of(margin) + label_smoothing * of(-margin)
