"""The tokens that a batch of rows generates in one turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from quintain.trainers.acting.kv_cache import Batch, Row, gather


class GeneratedRow(NamedTuple):
    """The tokens of one row, up to its end."""

    row: Row
    """The row with those of its tokens that were fed: all but the last one."""
    tokens: list[int]
    logprobs: list[float]


class Generation:
    """Collects sampled tokens of rows until each has reached its end.

    Whenever half of the rows are finished, the others continue in a smaller batch: a turn costs its own tokens, however long
    another one gets.
    """

    def __init__(self, batch: Batch, limits: Sequence[int], device: torch.device) -> None:
        self.batch = batch
        """The rows that are decoded; its row i is row `rows[i]` of the turn."""
        self.rows = torch.arange(len(limits), device=device)
        """int64 [B]."""
        self._limits = torch.tensor(limits, device=device)
        shape = len(limits), max(limits)
        self._tokens = torch.zeros(shape, dtype=torch.long, device=device)
        self._logprobs = torch.zeros(shape, device=device)
        self._lengths = self._limits.clone()
        self._cached = [batch.row(i) for i in range(len(limits))]
        self._done = torch.zeros(len(limits), dtype=torch.bool, device=device)
        self.steps = 0
        """Tokens sampled for each row so far."""

    def add(self, token: torch.Tensor, logprob: torch.Tensor, is_end: torch.Tensor) -> None:
        """Add a token to each row that is not finished; all are [B], in the order of `rows`."""
        self._tokens[self.rows, self.steps], self._logprobs[self.rows, self.steps] = token, logprob
        self.steps += 1
        self._finish(~self._done & (is_end | (self._limits[self.rows] <= self.steps)))

    @property
    def n_tokens(self) -> int:
        """Tokens of all rows so far. Waits for the device."""
        return int(self._lengths.clamp(max=self.steps).sum())

    def unfinished(self) -> dict[int, list[int]]:
        """Return the tokens of the rows that are not finished, by row of the turn."""
        rows = self.rows[~self._done]
        return dict(zip(rows.tolist(), self._tokens[rows, : self.steps].tolist(), strict=True))

    def stop(self, rows: Sequence[int]) -> None:
        """Finish these rows of the turn."""
        if rows:
            self._finish(torch.isin(self.rows, torch.tensor(rows, device=self.rows.device)))

    def drop_finished(self) -> bool:
        """Go on without finished rows once they are half of all; return whether any row is left. Waits for the device."""
        n_left = len(self._done) - int(self._done.sum())
        if n_left == 0:
            return False
        if n_left <= len(self._done) // 2:
            kept = (~self._done).nonzero()[:, 0]
            self.batch = gather([self.batch.row(i) for i in kept.tolist()], self.batch.factors)
            self.rows, self._done = self.rows[kept], self._done[kept]
            for place, row in enumerate(self.rows.tolist()):
                self._cached[row] = self.batch.row(place)
        return True

    def next_tokens(self) -> torch.Tensor:
        """Return the tokens to feed, int64 [B, 1]; those of finished rows change nothing."""
        return self._tokens[self.rows, self.steps - 1 : self.steps]

    def results(self, n_read: Sequence[int]) -> list[GeneratedRow]:
        """Return the rows of the turn with their tokens; `n_read` is the number of tokens that each had before."""
        generated = []
        columns = zip(self._cached, n_read, self._lengths.tolist(), strict=True)
        for (row, before, n), tokens, logprobs in zip(
            columns, self._tokens.tolist(), self._logprobs.tolist(), strict=True
        ):
            generated.append(GeneratedRow(replace(row, length=before + n - 1), tokens[:n], logprobs[:n]))
        return generated

    def _finish(self, which: torch.Tensor) -> None:
        """Mark rows as finished with the tokens that they have, bool [B]."""
        self._lengths[self.rows] = self._lengths[self.rows].masked_fill(which, self.steps)
        self._done = self._done | which
