"""Rotary embeddings whose factors follow the longest row of a pass: here every row gets those that it has alone.

Two kinds are in use. `longrope` (Ding et al. 2024, arXiv 2402.13753: Phi-3 of 128k, Phi-4-mini) has one set of factors for
rows up to a border and another for longer ones; `dynamic` NTK scaling has a set for each length above its border.
transformers 5.23 chooses by the greatest position of a pass (`dynamic_rope_update`), and keeps the dynamic factors of a long
pass for a shorter one behind it. So a row's predictions would depend on its neighbours, and keys that were cached below
the border on how far the row got since.
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
"""In place of a length: no token stands there."""

_MARK = 32
"""Bits of an id below the length that marks it."""


class Border(NamedTuple):
    """Where the factors of a rotary embedding change."""

    grows: bool
    """Has every length above it factors of its own (`dynamic`), or do all have the same (`longrope`)?"""
    tokens: int
    """The longest row that it does not concern."""


@dataclass(frozen=True)
class Rotary:
    """The rotary embeddings of a model that have such factors; most models have none.

    Rows are told apart by what `factors_of` says of their lengths; those with the same factors can share what they compute.
    """

    modules: tuple[Any, ...]
    borders: tuple[Border, ...]

    @staticmethod
    def of(model: Any) -> Rotary:
        """What a model has of them, found at its modules: what a configuration calls `dynamic` may be constant."""
        found = {module: _borders(module) for module in model.modules() if hasattr(module, "rope_type")}
        borders = dict.fromkeys(border for each in found.values() for border in each)
        return Rotary(tuple(module for module, each in found.items() if each), tuple(borders))

    def factors_of(self, length: int) -> int:
        """The least length (tokens) with the same factors as a row of this one; 0 where it passes no border."""
        above = [length if grows else tokens + 1 for grows, tokens in self.borders if length > tokens]
        return max(above, default=0)

    def room(self, length: int, tokens: int) -> int:
        """How many of these tokens may be written behind a row before its cached keys no longer fit; the last is not fed."""
        return min([tokens, *(b.tokens - length + 1 for b in self.borders if not b.grows and length <= b.tokens)])

    def marked(self, rows: Sequence[TokenRow]) -> Sequence[TokenRow]:
        """The rows with ids that tell their factors too, so that only rows with the same ones share prefixes."""
        if not self.borders:
            return rows
        return [replace(r, token_ids=r.token_ids.astype("int64") + (self.factors_of(len(r)) << _MARK)) for r in rows]

    def unmarked(self, plan: Plan) -> tuple[Plan, torch.Tensor]:
        """The plan of marked rows with the ids as they were, and what marked each token: int64 [1, n]."""
        ids = (1 << _MARK) - 1
        bare = replace(plan, token_ids=plan.token_ids & ids, target=plan.target & ids)
        return bare, (plan.token_ids >> _MARK).unsqueeze(0)

    @contextmanager
    def as_alone(self, factors: torch.Tensor) -> Iterator[None]:
        """Let each token have the factors of its own row.

        Args:
            factors: int64, broadcastable to [B, T]: `factors_of` the row in which a token stands, or `PADDING`.
        """
        kinds = [kind for kind in factors.unique().tolist() if kind != PADDING] if self.modules else []
        for module in self.modules:
            module.forward = partial(_each_alone, module, type(module).forward, factors, kinds)
        try:
            yield
        finally:
            for module in self.modules:
                del module.forward


def _borders(module: Any) -> list[Border]:
    """The borders of a rotary embedding; models with several kinds of layers have a type for each."""
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


def _each_alone(
    module: Any,
    forward: Any,
    factors: torch.Tensor,
    kinds: Sequence[int],
    x: Any,
    position_ids: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """What the module gives for the tokens of each kind, as if no others were there."""
    made: tuple[torch.Tensor, ...] = ()
    for kind in kinds:
        own = factors == kind
        at = position_ids.where(own, 0)
        # One more position, cut off again, says how long the rows are.
        at = torch.cat([at, torch.full_like(at[..., :1], max(kind - 1, 0))], -1)
        _forget(module)
        given = forward(module, x, at, *args, **kwargs)
        parts = [part[..., :-1, :] for part in (given if isinstance(given, tuple) else (given,))]
        made = tuple(part.where(own[..., None], old) for part, old in zip(parts, made or parts, strict=True))
    return made if isinstance(given, tuple) else made[0]


def _forget(module: Any) -> None:
    """Put dynamic factors back to those of short rows."""
    for name in [name for name in vars(module) if name.endswith("max_seq_len_cached")]:
        if getattr(module, name) != module.original_max_seq_len:
            layer = name.removesuffix("max_seq_len_cached")
            setattr(module, f"{layer}inv_freq", getattr(module, f"{layer}original_inv_freq"))
            setattr(module, name, module.original_max_seq_len)
