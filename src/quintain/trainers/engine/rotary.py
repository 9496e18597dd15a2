"""Rotary embeddings whose factors depend on the longest row of a pass: here each row gets the factors that it has alone.

There are two kinds. `longrope` (Ding et al. 2024, arXiv 2402.13753: Phi-3 of 128k, Phi-4-mini) has one set of factors for rows up
to a border and another for longer rows; `dynamic` NTK scaling has a set for each length above its border. transformers 5.23
chooses by the greatest position of a pass (`dynamic_rope_update`), and keeps the dynamic factors of a long pass for a later,
shorter one. So a row's predictions would depend on its neighbours, and keys cached below the border on the row's later length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch

from quintain.trainers.data.streams import TokenRow
from quintain.trainers.engine.packing import Plan

PADDING = -1
"""In place of a length: padding."""

_MARK = 32
"""Number of bits of an id; the length that marks it is stored above them."""


class Border(NamedTuple):
    """Length at which the factors of a rotary embedding change."""

    grows: bool
    """Whether each length above the border has its own factors (`dynamic`) or all share one set (`longrope`)."""
    tokens: int
    """Length of the longest row that is not affected."""


@dataclass(frozen=True)
class Rotary:
    """The rotary embeddings of a model with such factors; most models have none.

    Rows with the same `factors_of` their lengths can share computations.
    """

    modules: tuple[Any, ...]
    borders: tuple[Border, ...]

    @staticmethod
    def of(model: Any) -> Rotary:
        """Find them at the model's modules: a configuration's `dynamic` may be constant."""
        found = {module: _borders(module) for module in model.modules() if hasattr(module, "rope_type")}
        borders = dict.fromkeys(border for each in found.values() for border in each)
        return Rotary(tuple(module for module, each in found.items() if each), tuple(borders))

    def factors_of(self, length: int) -> int:
        """Return the least length (tokens) with the same factors as a row of this length; 0 below all borders."""
        above = [length if grows else tokens + 1 for grows, tokens in self.borders if length > tokens]
        return max(above, default=0)

    def room(self, length: int, tokens: int) -> int:
        """Return how many of `tokens` can follow a row before its cached keys become invalid; the last one is not fed."""
        return min([tokens, *(b.tokens - length + 1 for b in self.borders if not b.grows and length <= b.tokens)])

    def with_factors(self, rows: Sequence[TokenRow]) -> Sequence[TokenRow]:
        """Return the rows with their factors encoded in the ids, so that only rows with the same factors share prefixes."""
        if not self.borders:
            return rows
        return [replace(r, token_ids=r.token_ids.astype("int64") + (self.factors_of(len(r)) << _MARK)) for r in rows]

    def without_factors(self, plan: Plan) -> tuple[Plan, torch.Tensor]:
        """Return the plan with the original ids, and the factors of each token: int64 [1, n]."""
        ids = (1 << _MARK) - 1
        bare = replace(plan, token_ids=plan.token_ids & ids, target=plan.target & ids)
        return bare, (plan.token_ids >> _MARK).unsqueeze(0)

    @contextmanager
    def factors_by_row(self, factors: torch.Tensor) -> Iterator[None]:
        """Give each token the factors of its own row.

        Args:
            factors: int64, broadcastable to [B, T]: `factors_of` the token's row, or `PADDING`.
        """
        kinds = [kind for kind in factors.unique().tolist() if kind != PADDING] if self.modules else []
        for module in self.modules:
            module.forward = partial(_forward_by_kind, module, type(module).forward, factors, kinds)
        try:
            yield
        finally:
            for module in self.modules:
                del module.forward


def _borders(module: Any) -> list[Border]:
    """Return the borders of a rotary embedding; models with several kinds of layers have a type for each."""
    types, parameters = module.rope_type, getattr(module.config, "rope_parameters", None) or {}
    if not isinstance(types, dict):
        types, parameters = {None: types}, {None: parameters}
    found = []
    for layer, name in types.items():
        if name == "longrope":
            found.append(Border(False, int(parameters[layer]["original_max_position_embeddings"])))
        elif "dynamic" in (name or ""):
            found.append(Border(True, int(module.original_max_seq_len)))
    return found


def _forward_by_kind(
    module: Any,
    forward: Any,
    factors: torch.Tensor,
    kinds: Sequence[int],
    x: Any,
    position_ids: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Return the module's output for the tokens of each kind, computed without the others."""
    merged: tuple[torch.Tensor, ...] = ()
    for kind in kinds:
        own = factors == kind
        at = position_ids.where(own, 0)
        # One more position, removed again, passes the length of the rows to the module.
        at = torch.cat([at, torch.full_like(at[..., :1], max(kind - 1, 0))], -1)
        _reset(module)
        output = forward(module, x, at, *args, **kwargs)
        parts = [part[..., :-1, :] for part in (output if isinstance(output, tuple) else (output,))]
        merged = tuple(part.where(own[..., None], old) for part, old in zip(parts, merged or parts, strict=True))
    return merged if isinstance(output, tuple) else merged[0]


def _reset(module: Any) -> None:
    """Reset dynamic factors to those of short rows."""
    for name in [name for name in vars(module) if name.endswith("max_seq_len_cached")]:
        if getattr(module, name) != module.original_max_seq_len:
            layer = name.removesuffix("max_seq_len_cached")
            setattr(module, f"{layer}inv_freq", getattr(module, f"{layer}original_inv_freq"))
            setattr(module, name, module.original_max_seq_len)
