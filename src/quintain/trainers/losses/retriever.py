"""Retrievers of tools: the multiple-negatives ranking loss on pooled texts."""

from __future__ import annotations

from collections.abc import Mapping, Set

import torch
import torch.nn.functional as F

from quintain.trainers.data.streams import TokenStreams
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.sequences import mean_over_examples, metric_sums, to_accumulation_dtype


def mean_pooled(states: torch.Tensor, streams: TokenStreams) -> torch.Tensor:
    """Return the mean state of each sequence, float [S, h], from the states of its tokens, float [N, h]."""
    states = to_accumulation_dtype(states, streams)
    sums = states.new_zeros(streams.n_sequences, states.shape[1]).index_add(0, streams.sequence, states)
    return sums / torch.bincount(streams.sequence, minlength=streams.n_sequences).clamp(min=1).unsqueeze(1)


def retriever_loss(
    pooled: torch.Tensor,
    streams: TokenStreams,
    totals: StepTotals,
    *,
    scale: float,
    relevant: Mapping[float, Set[float]],
) -> LossOutput:
    """-log softmax_d(scale cos(q, d)) at the tool d+ of each need q, mean over the step's calls by their weights.

    The softmax runs over the different tools of the step (Henderson et al. 2017, arXiv 1705.00652, section 4; the
    MultipleNegativesRankingLoss of sentence-transformers, scale 20), the hard negatives of all calls among them. A tool that
    occurs several times counts once, and a tool that is relevant to q too is not a negative of q. Duplicates would otherwise push
    a need away from its own tool.

    Args:
        pooled: float [S, h], the mean state of each text. Member 0 of an example is its need, member 1 the called tool, the others
            are hard negatives; equal texts have equal values.
        streams: Of these examples; `value` identifies texts.
        totals: Of the step.
        scale: Factor of the cosines.
        relevant: Need -> its tools, by value.

    Returns:
        The loss, and `retrieval_accuracy`: the share of calls whose tool has the highest cosine.

    Raises:
        ValueError: An example without a need or without a called tool.
    """
    texts = F.normalize(to_accumulation_dtype(pooled, streams), dim=-1)
    needs, called = (torch.nonzero(streams.member == place)[:, 0] for place in (0, 1))
    if not len(needs) == len(called) == len(streams.example_weight):
        raise ValueError(
            f"expected a need and a tool in each of {len(streams.example_weight)} examples, got a part of them"
        )
    values = streams.value.tolist()
    first = {value: i for i, value in reversed(list(enumerate(values))) if streams.member[i] > 0}
    column = {value: j for j, value in enumerate(first)}
    target = torch.tensor([column[values[i]] for i in called.tolist()], device=pooled.device)
    tools = torch.tensor(list(first.values()), device=pooled.device)
    masked = torch.zeros(len(needs), len(first), dtype=torch.bool)
    for row, need in enumerate(needs.tolist()):
        also = [column[tool] for tool in relevant.get(values[need], ()) if tool in column]
        masked[row, also] = True
    masked[torch.arange(len(needs)), target.cpu()] = False
    cosines = (texts[needs] @ texts[tools].T).masked_fill(masked.to(pooled.device), -torch.inf)
    losses = F.cross_entropy(scale * cosines, target, reduction="none")
    accuracy = metric_sums(retrieval_accuracy=(cosines.argmax(1) == target).double())
    return LossOutput(mean_over_examples(losses, streams, totals), accuracy)
