"""The loss of retrievers: against numbers by hand, and against the plain formula of multiple negatives."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from quintain.trainers.data.retrieval_examples import relevant_tools
from quintain.trainers.data.streams import Example, streams_of, token_row
from quintain.trainers.losses.loss_output import LossOutput, totals_of
from quintain.trainers.losses.retriever import mean_pooled, retriever_loss

E1, E2, E3 = ([float(i == j) for j in range(3)] for i in range(3))


def example(need: int, *tools: int, weight: float = 1.0) -> Example:
    """A call of the first of these tools, the others hard negatives; texts by number."""
    texts = (need, *tools)
    rows = tuple(token_row([1, 0], [False, True]) for _ in texts)
    return Example(rows, tuple(range(len(texts))), tuple(map(float, texts)), weight, divisible=False)


def loss_of(examples: Sequence[Example], states: Sequence[Sequence[float]], scale: float = 20.0) -> LossOutput:
    vectors = torch.tensor(states, dtype=torch.float64)
    relevant = relevant_tools(examples)
    return retriever_loss(vectors, streams_of(examples), totals_of(examples), scale=scale, relevant=relevant)


def test_the_loss_of_two_calls_by_hand() -> None:
    """Cosines 0.6 to the own tool, 0.8 and 0 to the others: with scale ln 2 / 0.2 the softmax over 8, 16, 1 is 8 / 25.

    The second need has cosine 1 to its tool, 0 to the others: 32 of 34, by the same scale. Lengths do not count.
    """
    scale = math.log(2) / 0.2
    one, two = example(0, 10, 11), example(1, 12)
    # Rows: need 0, tool 10, tool 11, need 1, tool 12.
    states = [[3.0, 4.0, 0.0], E1, [0.0, 7.0, 0.0], [0.0, 0.0, 2.0], E3]
    first, second = -math.log(8 / 25), -math.log(32 / 34)
    found = loss_of([one, two], states, scale)
    assert found.loss.item() == pytest.approx((first + second) / 2)
    assert found.metrics == {"retrieval_accuracy": (1.0, 2.0)}
    weighted = [example(0, 10, 11, weight=3.0), two]
    assert loss_of(weighted, states, scale).loss.item() == pytest.approx((3 * first + second) / 4)


def test_a_tool_counts_once_and_is_no_negative_of_a_need_that_it_answers_too() -> None:
    """Two needs with the same tool have one candidate: loss 0. Text 0 has both tools: neither is a negative of the other."""
    assert loss_of([example(0, 10), example(1, 10)], [E1, E2, E3, E2]).loss.item() == pytest.approx(0)
    assert loss_of([example(0, 10), example(0, 11)], [E1, E2, E1, E3]).loss.item() == pytest.approx(0)
    apart = loss_of([example(0, 10), example(1, 11)], [E1, E2, E1, E3])
    assert apart.loss.item() == pytest.approx(math.log(2)), "two needs of one vector, each with its own tool"


def test_without_duplicates_it_is_the_multiple_negatives_ranking_loss() -> None:
    """sentence-transformers: cross entropy of scale cos(anchor, all candidates), positives first, then the negatives."""
    chance = torch.Generator().manual_seed(5)
    needs, called, other = torch.randn(3, 4, 3, generator=chance, dtype=torch.float64)
    states = [row.tolist() for trio in zip(needs, called, other, strict=True) for row in trio]
    cosines = torch.nn.functional.cosine_similarity(needs[:, None], torch.cat([called, other])[None], dim=-1)
    expected = torch.nn.functional.cross_entropy(20 * cosines, torch.arange(4))
    examples = [example(i, 10 + i, 20 + i) for i in range(4)]
    assert loss_of(examples, states).loss.item() == pytest.approx(expected.item())


def test_states_are_averaged_by_text_and_examples_without_a_tool_are_refused() -> None:
    rows = (token_row([1, 2, 0], [False, True, True]), token_row([1, 0], [False, True]))
    two = Example(rows, (0, 1), (0.0, 1.0), divisible=False)
    pooled = mean_pooled(torch.tensor([[1.0, 3.0], [3.0, 5.0], [7.0, 9.0]]), streams_of([two]))
    assert pooled.tolist() == [[2.0, 4.0], [7.0, 9.0]]
    with pytest.raises(ValueError, match="a need and a tool in each of 1 examples"):
        retriever_loss(pooled[:1], streams_of([example(0)]), totals_of([example(0)]), scale=20.0, relevant={})
