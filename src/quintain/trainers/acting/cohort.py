"""Episodes that act in one batch, and their shared cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from transformers import DynamicCache

from quintain.records.protocols import Message
from quintain.trainers.acting.kv_cache import part_of, take_back


@dataclass(eq=False)
class Cohort:
    """Episodes that share one cache; row i of every tensor belongs to `rows[i]`."""

    cache: DynamicCache
    rows: list[Episode]
    mask: torch.Tensor
    """bool [B, columns]: True where a column of the cache is a token of the row."""
    factors: int = 0
    """Rotary factors of the keys: as in a row of at least so many tokens; see `engine.rotary.Rotary.factors_of`."""
    row_ids: torch.Tensor | None = None
    """int64 [1, columns]; the tokens, if the model is decoded without a cache."""

    def drop_closed(self) -> None:
        """Drop the rows of episodes that were closed or moved to another cohort."""
        keep = [i for i, episode in enumerate(self.rows) if episode.cohort is self]
        if len(keep) < len(self.rows):
            self.select(keep)
            self.rows = [self.rows[i] for i in keep]

    def select(self, rows: Sequence[int]) -> None:
        """Keep these rows of cache and mask, which may repeat."""
        if list(rows) == list(range(len(self.mask))):
            return
        index = torch.tensor(rows, device=self.mask.device)
        self.cache.batch_select_indices(index)
        self.mask = self.mask[index]

    def part(self, rows: torch.Tensor) -> Cohort:
        """Return a copy of some rows (int64 [n]), to decode those alone."""
        return replace(self, cache=part_of(self.cache, rows), rows=[], mask=self.mask[rows])

    def take_back(self, part: Cohort, rows: torch.Tensor) -> None:
        """Append the new tokens of a part of these rows."""
        written = part.mask[:, self.mask.shape[1] :]
        take_back(self.cache, part.cache, rows)
        grown = torch.zeros(len(self.mask), written.shape[1], dtype=torch.bool, device=self.mask.device)
        grown[rows] = written
        self.mask = torch.cat([self.mask, grown], 1)


@dataclass(eq=False)
class Episode:
    """State of one episode."""

    tools: tuple[dict[str, Any], ...]
    seed: int
    temperature: float
    messages: list[Message] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    """All tokens; the first `cached` of them are in the cohort's cache."""
    cached: int = 0
    n_turns: int = 0
    turn: list[int] = field(default_factory=list)
    """Tokens of the current or latest turn."""
    logprobs: list[float] = field(default_factory=list)
    """Log-probs of these tokens."""
    left: int = 0
    """Number of further tokens that the turn may have."""
    closing: list[int] = field(default_factory=list)
    cohort: Cohort | None = None
