"""Log-probs of the policy that sampled the runs, where they are unknown or those of another program or an older model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quintain.trainers.data.streams import Example, TokenRow
from quintain.trainers.distributed.passes import OWN_PASSES, SharedPasses
from quintain.trainers.engine.forward import Engine
from quintain.trainers.reference_log_probs import with_reference


def with_old_logprobs(
    examples: Sequence[Example], engine: Engine, batch_tokens: int, passes: SharedPasses = OWN_PASSES
) -> list[Example]:
    """Return the examples with log-probs of the engine's current model where none were recorded."""
    unknown = [e for e in examples if not all(_is_known(row) for row in e.rows)]
    found = passes.score(engine, unknown, batch_tokens, lambda rows: engine.logprobs(rows).logprobs.float())
    return [
        replace(e, rows=tuple(_with_unknown(row, found[row]) if row in found else row for row in e.rows))
        for e in examples
    ]


def _is_known(row: TokenRow) -> bool:
    return row.old_logprob is not None and bool(np.isfinite(row.old_logprob[row.places]).all())


def _with_unknown(row: TokenRow, logprobs: NDArray[Any]) -> TokenRow:
    """Return the row with these log-probs [n] where the old ones are unknown."""
    old = np.full(row.n_supervised, np.nan) if row.old_logprob is None else row.old_logprob[row.places]
    return row.with_supervised("old_logprob", np.where(np.isfinite(old), old, logprobs))


def with_importance_weights(
    examples: Sequence[Example],
    engine: Engine,
    *,
    cap: float,
    batch_tokens: int,
    passes: SharedPasses = OWN_PASSES,
) -> list[Example]:
    """Return the examples as if the engine's current model had sampled them, with truncated importance weights.

    A token's advantage is multiplied by w = min(pi(t) / mu(t), cap), with mu the recorded probability of the sampler and
    pi that of the current model, which becomes pi_old: the clipped ratio then starts at 1 whoever sampled. Truncated
    importance sampling (Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training";
    Ionides 2008), with pi as the proximal policy of decoupled PPO (Hilton et al. 2021, arXiv 2110.00641, eq. 4). w does
    not weigh a KL term. A token of unknown mu has w = 1.
    """
    scored = with_reference(examples, engine, cache=None, identity="", batch_tokens=batch_tokens, passes=passes)
    return [
        replace(example, rows=tuple(_corrected(*rows, cap) for rows in zip(example.rows, by_model.rows, strict=True)))
        for example, by_model in zip(examples, scored, strict=True)
    ]


def _corrected(row: TokenRow, by_model: TokenRow, cap: float) -> TokenRow:
    assert row.advantage is not None
    assert by_model.ref_logprob is not None
    sampler = np.full(len(row), np.nan, np.float32) if row.old_logprob is None else row.old_logprob
    log_weight = np.minimum(by_model.ref_logprob - sampler, np.log(cap))
    weight = np.where(np.isfinite(sampler), np.exp(log_weight), 1.0).astype(np.float32)
    return replace(row, advantage=row.advantage * weight, old_logprob=by_model.ref_logprob)
