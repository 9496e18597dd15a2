"""Direct preference optimisation and its kin with a reference: the published forms for pairs, and rankings."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

from quintain.trainers.data.streams import TokenStreams
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.sequences import (
    chosen_and_rejected,
    log_ratios,
    mean_over_examples,
    metric_sums,
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
    the sequence, with step factors a step-weighted one, and a weight of 0 takes out a step that both runs share.
    sigmoid_norm and ipo average r by sum_t w_t; for ipo the paper does not, its authors' experiments do, and so does TRL.
    A run without tokens has r = 0, as the empty sequence has in any model. `FORMS` has the forms of the loss.

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
        chosen_and_rejected(beta * sequence_means(ratios, streams), streams) if loss in AVERAGED else (chosen, rejected)
    )
    losses = FORMS[loss](PairRewards(*scored, beta, label_smoothing, discopop_tau))
    metrics = preference_metrics(chosen, rejected)
    if policy_weighting:
        weights = policy_weights(logprobs, streams)
        losses = losses * weights
        metrics |= metric_sums(policy_weight=weights)
    if sft_weight:
        losses = losses - sft_weight * chosen_and_rejected(sequence_means(logprobs, streams), streams)[0]
    return LossOutput(mean_over_examples(losses, streams, totals), metrics)


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


class PairRewards(NamedTuple):
    """Rewards beta r of pairs, with r a run's log-ratio to the reference, and the settings that some forms have."""

    chosen: torch.Tensor
    """float [pairs]"""
    rejected: torch.Tensor
    """float [pairs]"""
    beta: float = 1.0
    """Strength of the pull towards the reference, by which the log-ratios are multiplied."""
    label_smoothing: float = 0.0
    """Share of pairs whose order is wrong, in [0, 0.5)."""
    discopop_tau: float = 0.05

    @property
    def margin(self) -> torch.Tensor:
        """Return m, chosen minus rejected reward, float [pairs]."""
        return self.chosen - self.rejected

    def smoothed(self, loss: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Return (1 - e) l(m) + e l(-m) (conservative DPO, Mitchell 2023)."""
        e = self.label_smoothing
        return (1 - e) * loss(self.margin) + e * loss(-self.margin) if e else loss(self.margin)


def sigmoid(pair: PairRewards) -> torch.Tensor:
    """-log sigma(m) (DPO, Rafailov et al. 2023, arXiv 2305.18290, eq. 7)."""
    return pair.smoothed(_logistic)


def hinge(pair: PairRewards) -> torch.Tensor:
    """max(0, 1 - m) (SLiC-HF, Zhao et al. 2023, arXiv 2305.10425, eq. 1; on log-ratios as in RSO, arXiv 2309.06657)."""
    return pair.smoothed(lambda m: torch.relu(1 - m))


def ipo(pair: PairRewards) -> torch.Tensor:
    """(m / beta - 1 / (2 beta))^2 (Azar et al. 2023, arXiv 2310.12036, eq. 17); on means over tokens, see `dpo_loss`."""
    return pair.smoothed(lambda m: ((m - 0.5) / pair.beta) ** 2)


def robust(pair: PairRewards) -> torch.Tensor:
    """((1 - e) l(m) - e l(-m)) / (1 - 2 e) with l(m) = -log sigma(m) (Chowdhury et al. 2024, arXiv 2403.00409).

    Its mean over labels that are flipped with chance e is the loss of the true labels. e must be above 0.
    """
    e = pair.label_smoothing
    return ((1 - e) * _logistic(pair.margin) - e * _logistic(-pair.margin)) / (1 - 2 * e)


def exo(pair: PairRewards) -> torch.Tensor:
    """KL((q, 1 - q) || (1 - e, e)) with q = sigma(m) (EXO, Ji et al. 2024, arXiv 2402.00856, eq. 16). e must be above 0."""
    m, e = pair.margin, pair.label_smoothing
    wins = torch.sigmoid(m) * (F.logsigmoid(m) - math.log1p(-e))
    return wins + torch.sigmoid(-m) * (F.logsigmoid(-m) - math.log(e))


def nca(pair: PairRewards) -> torch.Tensor:
    """-log sigma(a) - (log sigma(-a) + log sigma(-b)) / 2, a and b the rewards (Chen et al. 2024, arXiv 2402.05369, of two runs)."""
    return _logistic(pair.chosen) + (_logistic(-pair.chosen) + _logistic(-pair.rejected)) / 2


def bco(pair: PairRewards) -> torch.Tensor:
    """-log sigma(a) - log sigma(-b): chosen and rejected runs are two classes (Jung et al. 2024, arXiv 2404.04656, without a shift)."""
    return _logistic(pair.chosen) + _logistic(-pair.rejected)


def sppo(pair: PairRewards) -> torch.Tensor:
    """(a / beta - 1 / (2 beta))^2 + (b / beta + 1 / (2 beta))^2 (SPPO, Wu et al. 2024, arXiv 2405.00675, eq. 4.7, eta = 1 / beta).

    The hard form: the chosen run wins with probability 1.
    """
    return ((pair.chosen - 0.5) / pair.beta) ** 2 + ((pair.rejected + 0.5) / pair.beta) ** 2


def apo_zero(pair: PairRewards) -> torch.Tensor:
    """1 - sigma(a) + sigma(b): chosen runs become likelier (D'Oosterlinck et al. 2024, arXiv 2408.06266, eq. 7)."""
    return torch.sigmoid(-pair.chosen) + torch.sigmoid(pair.rejected)


def apo_down(pair: PairRewards) -> torch.Tensor:
    """sigma(a) + 1 - sigma(a - b): both become less likely, the rejected run more so (arXiv 2408.06266, eq. 8)."""
    return torch.sigmoid(pair.chosen) + torch.sigmoid(-pair.margin)


def discopop(pair: PairRewards) -> torch.Tensor:
    """(1 - s) l(m) + s e^-m with l(m) = -log sigma(m), s = sigma(m / tau) (Lu et al. 2024, arXiv 2406.08414, eq. 5).

    s e^-m is computed as one power, since e^-m alone overflows where s is 0.
    """
    m, tau = pair.margin, pair.discopop_tau
    return torch.sigmoid(-m / tau) * _logistic(m) + torch.exp(F.logsigmoid(m / tau) - m)


def _logistic(x: torch.Tensor) -> torch.Tensor:
    """Return -log sigma(x)."""
    return -F.logsigmoid(x)


FORMS: dict[str, Callable[[PairRewards], torch.Tensor]] = {
    "sigmoid": sigmoid,
    "sigmoid_norm": sigmoid,
    "hinge": hinge,
    "ipo": ipo,
    "robust": robust,
    "exo": exo,
    "nca": nca,
    "bco": bco,
    "sppo": sppo,
    "apo_zero": apo_zero,
    "apo_down": apo_down,
    "discopop": discopop,
}
"""Values of the setting `loss` of DPO."""

AVERAGED = ("ipo", "sigmoid_norm")
"""Those on means over tokens; sigmoid_norm is so the length-normalised DPO of Tulu 3 (Lambert et al. 2024, arXiv 2411.15124)."""


def ranking_loss(logprobs: torch.Tensor, streams: TokenStreams, totals: StepTotals, *, beta: float) -> LossOutput:
    """-log sigma(beta (r_i - r_j)) over all members i, j of an example with value_i > value_j, mean over pairs.

    r = sum_t w_t (log pi(t) - log pi_ref(t)) is a run's log-ratio as in DPO (arXiv 2305.18290, eq. 7). Taking all pairs
    of a ranking as comparisons of equal weight is the pairwise loss of Ouyang et al. 2022 (arXiv 2203.02155, eq. 1).
    The example's weight is shared out evenly among its pairs: where it is their number, as it should be, the loss is the
    mean over all pairs of the step. Members of equal value make no pair, nor does one whose value is NaN.

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
