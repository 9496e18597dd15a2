"""Forward and backward passes of a step, shared by the processes of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray

from quintain.records.seeds import stable_seed
from quintain.trainers.data.streams import Example, TokenRow, rows_of, split_by_row
from quintain.trainers.distributed.process_group import ONE_PROCESS, ProcessGroup, collective_errors_explained
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.packing import computed_tokens, micro_batches
from quintain.trainers.models.loading import eval_mode


@dataclass(frozen=True)
class SharedPasses:
    """How the processes of a run share its passes; of one process, all are its own."""

    group: ProcessGroup = ONE_PROCESS
    seed: int = 0
    """Seed of the run."""
    sharded: bool = False
    """Whether the model is sharded: then all processes make the same number of passes."""

    def batches(self, engine: Engine, examples: Sequence[Example], batch_tokens: int) -> list[list[Example]]:
        """Return the micro-batches of this process; with sharding, an empty one stands for an idle pass."""
        if self.group.size == 1:
            return micro_batches(examples, batch_tokens, share=engine.shares)
        dealt = deal(examples, batch_tokens, self.group.size, share=engine.shares)
        own = dealt[self.group.rank]
        return [*own, *[[]] * (max(map(len, dealt)) - len(own))] if self.sharded else own

    def running(self) -> AbstractContextManager[None]:
        """Return the context of passes, which are collective where the model is sharded."""
        return collective_errors_explained(self.group) if self.sharded else nullcontext()

    def seed_dropout(self, step: int) -> None:
        """Seed dropout by (seed, step, process); a run of one process goes on with its random state."""
        if self.group.size > 1:
            torch.manual_seed(stable_seed(self.seed, "dropout", step, self.group.rank))

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Sum the gradients over the processes; those of shards are sums already. Collective."""
        if self.group.size > 1 and not self.sharded:
            self.group.sum_gradients(parameters)

    @torch.no_grad()
    def score(
        self,
        engine: Engine,
        examples: Sequence[Example],
        batch_tokens: int,
        score: Callable[[Sequence[TokenRow]], torch.Tensor],
    ) -> dict[TokenRow, NDArray[Any]]:
        """Return scores of the supervised tokens of each row, in eval mode and computed in shares. Collective.

        Args:
            engine: Its prefix sharing decides the cost of a batch.
            examples: Their rows are scored; those of an example together.
            batch_tokens: Token budget of a forward pass.
            score: Returns [N, ...] for the rows of a pass, in the order of `streams.streams_of`.
        """
        rows = list(dict.fromkeys(rows_of(examples)))
        number = {row: i for i, row in enumerate(rows)}
        own: dict[int, NDArray[Any]] = {}
        with self.running(), eval_mode(engine.model):
            for batch in self.batches(engine, examples, batch_tokens):
                together = rows_of(batch)
                if not together:
                    engine.idle()
                    continue
                parts = split_by_row(score(together).cpu().numpy(), together)
                own |= {number[row]: part for row, part in zip(together, parts, strict=True)}
        return {rows[i]: part for shares in self.group.gather(own) for i, part in shares.items()}


OWN_PASSES = SharedPasses()
"""Passes of a process alone."""


def deal(examples: Sequence[Example], batch_tokens: int, size: int, *, share: bool) -> list[list[list[Example]]]:
    """Assign micro-batches of the examples to `size` processes, balanced by computed tokens.

    The budget of a micro-batch is at most an equal share of the step, so that small steps are shared too. The largest
    micro-batch goes first, each to the process with the fewest tokens (Graham 1969, longest processing time first).
    """
    total = sum(computed_tokens(example.rows, share=share) for example in examples)
    batches = micro_batches(examples, max(min(batch_tokens, math.ceil(total / size)), 1), share=share)
    costs = [computed_tokens(rows_of(batch), share=share) for batch in batches]
    places: list[list[int]] = [[] for _ in range(size)]
    load = [0] * size
    for i in sorted(range(len(batches)), key=lambda i: -costs[i]):
        rank = load.index(min(load))
        places[rank].append(i)
        load[rank] += costs[i]
    return [[batches[i] for i in sorted(mine)] for mine in places]
