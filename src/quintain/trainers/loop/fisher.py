"""The Fisher information of a model's weights on recorded runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from quintain.errors import TrainingFailed
from quintain.trainers.data.streams import Example
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.other_tokens import sampled_nll
from quintain.trainers.loop.checkpoint_weights import trainable
from quintain.trainers.models import eval_mode


def fisher_diagonal(
    engine: Engine, examples: Sequence[Example], *, sample_labels: bool, seed: int
) -> dict[str, torch.Tensor]:
    """Return the diagonal of the Fisher information of the trained weights, by parameter, scaled to a mean of 1.

    F_i is the mean over runs of g_i^2, with g the gradient of the log-likelihood of a run's supervised tokens. With tokens
    drawn from the model the terms of a run have zero mean and are independent, so the square of their sum estimates the sum
    over its tokens of E[g_i^2] (Kirkpatrick et al. 2017; Pascanu and Bengio 2013, arXiv 1301.3584). With recorded tokens it is
    the empirical Fisher, which is small where the model fits the data whether or not the weight matters (Kunstner et al. 2019,
    arXiv 1905.12558).

    Args:
        engine: Of the model that learned the skill; its gradients must be clear.
        examples: Runs of the skill.
        sample_labels: Draw the tokens from the model, each behind the recorded text; otherwise take the recorded ones.
        seed: Of the draws.

    Raises:
        TrainingFailed: The gradients are 0 or not finite (`ewc_no_fisher`).
    """
    parameters = trainable(engine.model)
    squares = {name: torch.zeros_like(p, dtype=torch.float32) for name, p in parameters.items()}
    generator = torch.Generator(engine.model.device).manual_seed(seed)
    with eval_mode(engine.model), torch.enable_grad():
        for example in examples:
            if sample_labels:
                loss = sampled_nll(engine, example.rows, generator)
            else:
                loss = engine.nll(example.rows, torch.ones(example.n_supervised))[0]
            loss.backward()
            for name, parameter in parameters.items():
                if parameter.grad is not None:
                    squares[name] += parameter.grad.float().square()
                parameter.grad = None
    mean = sum(float(square.double().sum()) for square in squares.values()) / sum(map(torch.numel, squares.values()))
    if not 0 < mean < float("inf"):
        raise TrainingFailed(
            f"expected a finite Fisher information above 0 on {len(examples)} runs, got a mean of {mean}; use precision 'fp32', or "
            "other runs in ewc.dataset",
            code="ewc_no_fisher",
        )
    return {name: square / mean for name, square in squares.items()}
