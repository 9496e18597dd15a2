"""Log-probs of tokens to sums, means and pairs of sequences: the parts that several losses share.

Losses take log-probs [N] in nats, or values [N, K], the streams, and the totals of the step, with N supervised tokens, S sequences
and E examples as in `TokenStreams`. Sums run in the float type of `TokenStreams.value`: float64
where the device has it. Two float32 sums of about -3000 nats, subtracted, are off by 1e-4, as much as the signal of a
preference; so the reference is subtracted from each token first.
"""

from __future__ import annotations

import torch

from quintain.trainers.data.streams import TokenStreams, widest_float
from quintain.trainers.losses.loss_output import StepTotals


def to_accumulation_dtype(values: torch.Tensor, streams: TokenStreams) -> torch.Tensor:
    """Convert values to the type of sums."""
    return values.to(streams.value.dtype)


def required_stream(stream: torch.Tensor | None, name: str, streams: TokenStreams) -> torch.Tensor:
    """Return the stream of this name, float [N], in the type of sums.

    Raises:
        ValueError: The stream is missing, or some of its values are not finite.
    """
    if stream is None:
        raise ValueError(f"expected the stream {name!r} in every row, got a row without it")
    unknown = int((~torch.isfinite(stream)).sum())
    if unknown:
        raise ValueError(
            f"expected {name!r} at every supervised token, got {unknown} of {len(stream)} values that are not finite"
        )
    return to_accumulation_dtype(stream, streams)


def log_ratios(logprobs: torch.Tensor, streams: TokenStreams) -> torch.Tensor:
    """Return the log-ratio of each token to the reference, log pi(token) - log pi_ref(token), float [N], nats.

    Raises:
        ValueError: Reference log-probs are missing or not finite.
    """
    return to_accumulation_dtype(logprobs, streams) - required_stream(streams.ref_logprob, "ref_logprob", streams)


def sequence_sums(values: torch.Tensor, streams: TokenStreams) -> torch.Tensor:
    """Return sum_t w_t x_t of each sequence, float [S]; 0 for a sequence without tokens.

    A weight of 0 excludes a token whatever its value, -inf included.
    """
    weight = to_accumulation_dtype(streams.weight, streams)
    terms = torch.where(weight == 0, 0.0, weight * to_accumulation_dtype(values, streams))
    return torch.zeros_like(streams.value).index_add(0, streams.sequence, terms)


def sequence_weights(streams: TokenStreams) -> torch.Tensor:
    """Return sum_t w_t of each sequence, float [S]: its length if all weights are 1."""
    return torch.zeros_like(streams.value).index_add(
        0, streams.sequence, to_accumulation_dtype(streams.weight, streams)
    )


def sequence_means(values: torch.Tensor, streams: TokenStreams) -> torch.Tensor:
    """Return sum_t w_t x_t / sum_t w_t of each sequence, float [S]; 0 for a sequence without weight."""
    total = sequence_weights(streams)
    return sequence_sums(values, streams) / torch.where(total > 0, total, 1.0)


def chosen_and_rejected(values: torch.Tensor, streams: TokenStreams) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values [S] of the chosen sequences (member 0) and of the rejected ones (member 1), float [E] each.

    Raises:
        ValueError: An example has more or fewer than two members.
    """
    examples = len(streams.example_weight)
    if streams.n_sequences != 2 * examples or not bool((streams.member.view(-1, 2).diff() == 1).all()):
        raise ValueError(
            f"expected two members an example, chosen and rejected; got {streams.n_sequences} members in {examples} examples"
        )
    return values[0::2], values[1::2]


def refuse_empty(streams: TokenStreams) -> None:
    """Refuse sequences without a mean.

    Raises:
        ValueError: A sequence has no supervised token with a weight above 0.
    """
    empty = int((sequence_weights(streams) <= 0).sum())
    if empty:
        raise ValueError(
            f"expected a supervised token with a weight above 0 in every run, got {empty} of {streams.n_sequences} runs without; "
            "leave their pairs out"
        )


def mean_over_examples(losses: torch.Tensor, streams: TokenStreams, totals: StepTotals) -> torch.Tensor:
    """Return sum_e w_e l_e / sum of the step's example weights, for losses [E]."""
    return (streams.example_weight * losses).sum() / (totals.examples or 1.0)


def metric_sums(**values: torch.Tensor) -> dict[str, tuple[float, float]]:
    """Return metrics from single observations: name -> (sum, count), without names that have no observation."""
    observed = {name: value.detach() for name, value in values.items() if value.numel()}
    if not observed:
        return {}
    sums = torch.stack([value.to(widest_float(value.device)).sum() for value in observed.values()])
    return {name: (total, float(observed[name].numel())) for name, total in zip(observed, sums.tolist(), strict=True)}


def preference_metrics(chosen: torch.Tensor, rejected: torch.Tensor) -> dict[str, tuple[float, float]]:
    """Return the metrics of preference training from the rewards of chosen and rejected runs, float [pairs] each."""
    return metric_sums(
        chosen_reward=chosen,
        rejected_reward=rejected,
        reward_margin=chosen - rejected,
        reward_accuracy=chosen > rejected,
    )
