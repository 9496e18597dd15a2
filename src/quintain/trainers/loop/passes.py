"""Forward and backward passes over examples: what a rank does for a step or a validation, whoever deals them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from quintain.trainers.data.streams import Example, streams_of
from quintain.trainers.engine.forward import Engine
from quintain.trainers.loop.meter import Meter, kl_to_reference
from quintain.trainers.loop.objectives import Objective
from quintain.trainers.loop.precision import LossScale
from quintain.trainers.losses.loss_output import StepTotals
from quintain.trainers.models import eval_mode


def backward(
    engine: Engine,
    objective: Objective,
    scale: LossScale,
    batches: Sequence[Sequence[Example]],
    totals: StepTotals,
    meter: Meter,
) -> float:
    """Gradients of what some forward passes add to a step's loss, one pass after the other; returns what they add.

    Args:
        engine: Computes the log-probs; its parameters receive the gradients.
        objective: The loss, made ready for the step.
        scale: Of the loss.
        batches: Examples of each pass; none: an idle pass, made because other ranks make one.
        totals: Of the whole step.
        meter: Counts what the passes took.
    """
    loss = 0.0
    for batch in batches:
        if not batch:
            scale.backward(engine.idle())
            continue
        rows = [row for example in batch for row in example.rows]
        streams = streams_of(batch, engine.model.device)
        if objective.linear:
            term, logprobs = engine.nll(rows, streams.weight / (totals.weight or 1.0))
            output = objective.loss(logprobs, streams, totals)
        else:
            scored = objective.scored(engine, rows)
            logprobs = scored.logprobs.detach()
            output = objective.loss(scored.logprobs, streams, totals)
            term = output.loss
            if scored.entropy is not None:
                meter.sums.add("entropy", float(scored.entropy.sum()), len(logprobs))
        scale.backward(term)
        loss += float(term.detach())
        meter.count(rows)
        for name, (total, count) in output.metrics.items():
            meter.sums.add(name, total, count)
        if streams.ref_logprob is not None and "kl" not in output.metrics:
            meter.sums.add("kl", *kl_to_reference(logprobs, streams.ref_logprob))
    return loss


class ValidationSums(NamedTuple):
    """What some forward passes add to the figures of a validation."""

    loss: float
    entropy: float
    """Nats, summed over the tokens."""
    tokens: int
    """Those whose entropy is known."""
    figures: dict[str, tuple[float, float]]
    """How well held-out labels are met, by the objective's metrics for it: sum and count."""

    def plus(self, other: ValidationSums) -> ValidationSums:
        """With what other passes add."""
        nothing = (0.0, 0.0)
        both = {
            name: (self.figures.get(name, nothing), other.figures.get(name, nothing))
            for name in (self.figures | other.figures)
        }
        figures = {name: (a[0] + b[0], a[1] + b[1]) for name, (a, b) in both.items()}
        return ValidationSums(self.loss + other.loss, self.entropy + other.entropy, self.tokens + other.tokens, figures)


@torch.no_grad()
def held_out(
    engine: Engine, objective: Objective, batches: Sequence[Sequence[Example]], totals: StepTotals
) -> ValidationSums:
    """Loss of examples that are not learnt from, without dropout; `totals` are those of all of them."""
    seen = ValidationSums(0.0, 0.0, 0, {})
    with eval_mode(engine.model):
        for batch in batches:
            if not batch:
                engine.idle()
                continue
            scored = objective.scored(engine, [row for example in batch for row in example.rows])
            output = objective.loss(scored.logprobs, streams_of(batch, engine.model.device), totals)
            entropy, tokens = 0.0, 0
            if scored.entropy is not None:
                entropy, tokens = float(scored.entropy.sum()), len(scored.entropy)
            figures = {name: output.metrics[name] for name in objective.agreement if name in output.metrics}
            seen = seen.plus(ValidationSums(float(output.loss), entropy, tokens, figures))
    return seen
