"""Passes of losses that couple all examples of a step, in bounded memory.

GradCache (Gao et al. 2021, arXiv 2101.06983): the texts are embedded without gradients, pass by pass; the loss gives the gradient of
each embedding; then each pass is computed again, and receives its gradient. So `batch_tokens` bounds the memory and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from quintain.trainers.data.streams import Example, rows_of, streams_of
from quintain.trainers.engine.forward import Engine
from quintain.trainers.loop.meter import Meter
from quintain.trainers.loop.objectives import Objective
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.retriever import mean_pooled


def coupled_backward(
    engine: Engine,
    objective: Objective,
    scale: torch.amp.GradScaler,
    batches: Sequence[Sequence[Example]],
    totals: StepTotals,
    meter: Meter,
) -> float:
    """Accumulate the gradients of a step; arguments and result as of `passes.backward`."""
    seed = int(torch.randint(2**62, ()))  # one draw a step, however it is split
    seeds = range(seed, seed + len(batches))  # both passes over a batch draw the same dropout
    one_pass = len(batches) == 1
    with torch.set_grad_enabled(one_pass):
        pooled = [_pooled(engine, batch, seed) for batch, seed in zip(batches, seeds, strict=True)]
    leaves = pooled[0] if one_pass else torch.cat(pooled).requires_grad_()
    output = _loss(objective, leaves, batches, totals)
    scale.scale(output.loss).backward()
    if not one_pass:
        assert leaves.grad is not None
        gradients = leaves.grad.split([len(part) for part in pooled])
        for batch, seed, gradient in zip(batches, seeds, gradients, strict=True):
            _pooled(engine, batch, seed).backward(gradient)
    for batch in batches:
        meter.count(rows_of(batch), head=False)
    for name, (total, count) in output.metrics.items():
        meter.sums.add(name, total, count)
    return float(output.loss.detach())


@torch.no_grad()
def coupled_held_out(
    engine: Engine, objective: Objective, batches: Sequence[Sequence[Example]], totals: StepTotals
) -> LossOutput:
    """Return loss and metrics of a whole validation split, whose tools are negatives of each other."""
    pooled = torch.cat([_pooled(engine, batch, seed=0) for batch in batches])
    return _loss(objective, pooled, batches, totals)


def _loss(
    objective: Objective, pooled: torch.Tensor, batches: Sequence[Sequence[Example]], totals: StepTotals
) -> LossOutput:
    return objective.loss(pooled, streams_of([e for batch in batches for e in batch], pooled.device), totals)


def _pooled(engine: Engine, batch: Sequence[Example], seed: int) -> torch.Tensor:
    device = engine.model.device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        return mean_pooled(engine.states(rows_of(batch)), streams_of(batch, device))
