"""A teacher's tokens and log-probs at the supervised places of a row, as distillation reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from quintain.records.trajectory import SampledTokens, Trajectory
from quintain.trainers.data.streams import Bools, Floats, Ints, TokenRow

Alternatives = Sequence[tuple[int, float]]
"""Token ids and their log-probs at one place."""


def with_top(row: TokenRow, ids: Ints, logprobs: Floats) -> TokenRow:
    """Return the row with a teacher's likeliest tokens, [n, k], at its n supervised places."""
    all_ids = np.zeros((len(row), ids.shape[1]), np.int32)
    all_ids[row.places] = ids
    return replace(row, teacher_ids=all_ids).with_supervised("teacher_logprobs", logprobs)


def top_arrays(places: Sequence[Alternatives], k: int) -> tuple[Ints, Floats]:
    """Return the k likeliest alternatives of each place, int32 and float32 [n, k]; -inf where there are fewer."""
    ids = np.zeros((len(places), k), np.int32)
    logprobs = np.full((len(places), k), -np.inf, np.float32)
    for n, alternatives in enumerate(places):
        best = sorted(alternatives, key=lambda one: -one[1])[:k]
        ids[n, : len(best)] = [token for token, _ in best]
        logprobs[n, : len(best)] = [value for _, value in best]
    return ids, logprobs


def with_recorded(rows: Sequence[TokenRow], run: Trajectory, fingerprint: str, k: int) -> list[TokenRow]:
    """Return the rows of a run with the log-probs that were recorded with it, without rows that have none.

    Turns without log-probs of this tokenizer and template have no loss. A turn that has only those of its own tokens is taken
    with one alternative.
    """
    found = []
    for row in rows:
        supervised = np.zeros_like(row.supervised)
        alternatives: list[Alternatives] = []
        for step in np.unique(row.step_index[row.supervised]).tolist():
            places = np.flatnonzero(row.supervised & (row.step_index == step))
            recorded = _recorded(run.steps[step].sampled, row.token_ids[places], fingerprint)
            if recorded is not None:
                supervised[places] = True
                alternatives += recorded
        if alternatives:
            found.append(with_top(_masked(row, supervised), *top_arrays(alternatives, k)))
    return found


def _recorded(sampled: SampledTokens | None, tokens: Ints, fingerprint: str) -> list[Alternatives] | None:
    if sampled is None or sampled.tokenizer != fingerprint or sampled.token_ids != tuple(tokens.tolist()):
        return None
    if sampled.top is not None:
        return list(sampled.top) if len(sampled.top) == len(tokens) and all(sampled.top) else None
    if sampled.logprobs is None:
        return None
    return [[pair] for pair in zip(sampled.token_ids, sampled.logprobs, strict=True)]


def _masked(row: TokenRow, supervised: Bools) -> TokenRow:
    return replace(row, supervised=supervised, weight=np.where(supervised, row.weight, 0).astype(np.float32))
