"""Examples of a retriever: a need, the tool that was called for it, and tools that were offered beside it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from quintain.datasets.recorded_calls import RecordedCall, calls_of_run
from quintain.records.dataset import DatasetRow
from quintain.trainers.data.example_batch import ExampleBatch
from quintain.trainers.data.streams import Example, TokenRow, token_row

_FILLER = 0
"""Token id behind a text: rows are read before their marked tokens, so each has one more, on which nothing depends."""


def add_calls(
    row: DatasetRow, batch: ExampleBatch, tokenizer: Any, max_length: int, n_negatives: int, texts: dict[str, int]
) -> None:
    """Add an example for each recorded call of a run, or count why there is none.

    Member 0 is the need, member 1 the called tool, the others are hard negatives. A member's value is the number of its text
    in `texts`, which receives new ones.
    """
    found = calls_of_run(row.trajectory)
    batch.left_out_calls.update(found.left_out)
    if not found.calls or row.weight <= 0:
        batch.add("zero_weight" if found.calls else "no_calls")
        return
    run = row.trajectory.id or row.trajectory.identity
    for call in found.calls:
        members = (call.need, call.document, *hard_negatives(call, n_negatives))
        rows = tuple(text_row(tokenizer, text, max_length) for text in members)
        values = tuple(float(texts.setdefault(text, len(texts))) for text in members)
        batch.add(Example(rows, tuple(range(len(rows))), values, row.weight, f"{run}/{call.tool}", divisible=False))


def leave_out_without_negatives(batch: ExampleBatch) -> None:
    """Leave out the calls whose need is answered by every tool of the batch: their loss is 0 whatever the model is."""
    relevant = relevant_tools(batch.examples)
    tools = {value for example in batch.examples for value in example.value[1:]}
    kept = [i for i, example in enumerate(batch.examples) if tools - relevant[example.value[0]]]
    if left_out := len(batch.examples) - len(kept):
        batch.left_out_calls["no_negative"] += left_out
        batch.examples, batch.rewards = [batch.examples[i] for i in kept], [batch.rewards[i] for i in kept]


def relevant_tools(examples: Sequence[Example]) -> dict[float, set[float]]:
    """Return need -> its tools, by value, from examples as `add_calls` makes them."""
    relevant: dict[float, set[float]] = {}
    for example in examples:
        relevant.setdefault(example.value[0], set()).add(example.value[1])
    return relevant


def text_row(tokenizer: Any, text: str, max_length: int) -> TokenRow:
    """Return the row of a text, marked so that the state of each of its tokens is read; cut at `max_length` tokens.

    The ids are those of the tokenizer's own call, special tokens included, as in sentence-transformers.
    """
    ids = tokenizer(text, truncation=True, max_length=max_length, verbose=False)["input_ids"] or [_FILLER]
    return token_row([*ids, _FILLER], [False, *(True for _ in ids)])


def hard_negatives(call: RecordedCall, n: int) -> tuple[str, ...]:
    """Return the texts of at most `n` tools that were offered beside a call, drawn at random by the call alone."""
    others = [text for text in dict.fromkeys(call.uncalled) if text != call.document]
    return tuple(random.Random(f"negatives/{call.need}/{call.tool}").sample(others, min(n, len(others))))
