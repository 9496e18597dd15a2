"""Elastic weight consolidation: hold the weights that an earlier skill needs (Kirkpatrick et al. 2017, arXiv 1612.00796)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from quintain.errors import InvalidInput, TrainingFailed
from quintain.records.dataset import Row
from quintain.records.hyperparameters.methods import PretrainConfig, SFTConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.seeds import stable_seed
from quintain.trainers.data.examples import ExampleMaker
from quintain.trainers.data.streams import Example
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.other_tokens import sampled_nll
from quintain.trainers.loop.checkpoints import disk_errors_explained
from quintain.trainers.loop.optimizer import stochastically_rounded
from quintain.trainers.loop.precision import Format, hold_base
from quintain.trainers.models.loading import LoadedModel, eval_mode, trainable, write_tensors
from quintain.trainers.models.start_model import load_to_train

_FILE_NAME = "ewc.safetensors"

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class WeightPenalty:
    """The penalty strength / 2 * sum_i F_i (w_i - w*_i)^2 on the trained weights (arXiv 1612.00796, eq. 3)."""

    strength: float
    """The paper's lambda, for F of mean 1."""
    anchor: Tensors
    """w*: the weights that learned the skill, by parameter."""
    importance: Tensors
    """F: the diagonal of the Fisher information, float32, with a mean of 1 over all weights."""

    @torch.no_grad()
    def pull(self, model: Any, optimizer: torch.optim.Optimizer, step: int) -> float:
        """Pull the weights towards w* after an optimizer step, and return the penalty on the result.

        w <- w* + (w - w*) / (1 + rate strength F) is the proximal step of the penalty (Parikh and Boyd 2014, Proximal Algorithms,
        section 1.1), so no strength is unstable. Like the decay of AdamW it is decoupled from the gradients (Loshchilov and Hutter
        2019, arXiv 1711.05101): Adam would divide a gradient of the penalty by its own size, and important weights would swing
        around w* by the learning rate.
        """
        rates = {id(p): float(group["lr"]) for group in optimizer.param_groups for p in group["params"]}
        total = torch.zeros(())
        for place, (name, parameter) in enumerate(trainable(model).items()):
            anchor, importance = self.anchor[name], self.importance[name]
            left = (parameter.float() - anchor) / (1 + rates[id(parameter)] * self.strength * importance)
            weight = anchor + left
            if parameter.dtype == torch.bfloat16:
                draws = torch.Generator(parameter.device).manual_seed((step << 20) + place)
                weight = stochastically_rounded(weight, draws)
            parameter.copy_(weight)
            total = total.to(left.device) + (importance * left.square()).sum() * self.strength / 2
        return float(total)


def weight_penalty(
    spec: TrainSpec,
    loaded: LoadedModel,
    engine: Engine,
    number_format: Format,
    maker: ExampleMaker,
    rows: Sequence[Row],
    directory: Path,
) -> WeightPenalty | None:
    """Return the penalty of a job; None without `ewc`.

    Call it before the first step: unless another agent learned the skill, w* are the weights at this moment. They and F are
    kept below `checkpoints/`, so that a resumed run has the same.

    Raises:
        InvalidInput: The weights of the agent that learned the skill have other names or shapes (`ewc_mismatch`).
        TrainingFailed: There is no run to measure on, or as `fisher_diagonal`.
    """
    config = spec.config.ewc
    if config is None or spec.earlier is None:
        return None
    path = directory / "checkpoints" / _FILE_NAME
    stored = _read(path, trainable(loaded.model))
    if stored is None:
        kept = spec.earlier.agent
        if kept is not None and kept.model != spec.agent.model:
            ref = kept.model.model_copy(update={"quantization": spec.config.quantization or kept.model.quantization})
            model = load_to_train(ref, spec.config).model
            hold_base(model, spec.config, number_format)
            _require_same_weights(trainable(model), trainable(loaded.model), kept.id_or_name)
            engine = Engine.of(model, share_prefixes=engine.shares, autocast=engine.autocast)
        chosen = random.Random(stable_seed(spec.seed, "ewc")).sample(rows, min(config.runs, len(rows)))
        kind = PretrainConfig() if spec.earlier.dataset_kind == "text" else SFTConfig()
        batch = replace(maker, config=kind).make(chosen)
        if not batch.examples:
            raise TrainingFailed(
                f"expected runs of the earlier skill that can be rendered, got none of {len(chosen)} ({dict(batch.dropped)}); name "
                "other runs in ewc.dataset, or raise max_length",
                code="ewc_no_runs",
            )
        seed = stable_seed(spec.seed, "fisher")
        importance = fisher_diagonal(engine, batch.examples, sample_labels=config.labels == "model", seed=seed)
        anchor = {name: p.detach().float().clone() for name, p in trainable(engine.model).items()}
        stored = anchor, importance
        _write(path, anchor, importance)
    return WeightPenalty(config.strength, *stored)


def _require_same_weights(kept: dict[str, Any], trained: dict[str, Any], agent: str) -> None:
    shapes = [{name: tuple(p.shape) for name, p in weights.items()} for weights in (kept, trained)]
    if shapes[0] != shapes[1]:
        name = min(dict(shapes[0].items() ^ shapes[1].items()))
        raise InvalidInput(
            f"expected the weights of {agent}, which ewc keeps, to have the names and shapes of the trained ones, got "
            f"{shapes[0].get(name)} and {shapes[1].get(name)} for {name}; name the start model in ewc.agent",
            code="ewc_mismatch",
        )


def _read(path: Path, parameters: dict[str, torch.nn.Parameter]) -> tuple[Tensors, Tensors] | None:
    """Return w* and F of an earlier attempt; None if there is none, or it is damaged."""
    try:
        stored = load_file(path)
        anchor = {name: stored[f"anchor/{name}"].to(p.device) for name, p in parameters.items()}
        return anchor, {name: stored[f"importance/{name}"].to(p.device) for name, p in parameters.items()}
    except (OSError, SafetensorError, KeyError):
        return None


def _write(path: Path, anchor: Tensors, importance: Tensors) -> None:
    tensors = {f"anchor/{name}": tensor.cpu() for name, tensor in anchor.items()}
    tensors |= {f"importance/{name}": tensor.cpu() for name, tensor in importance.items()}
    with disk_errors_explained(path, path.parent):
        write_tensors(path, tensors)


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
    # A critic, such as a copy of the model, has no part in a likelihood: its zeros must not make the strength larger.
    reached = [square for square in squares.values() if square.any()]
    mean = sum(float(square.double().sum()) for square in reached) / (sum(map(torch.numel, reached)) or 1)
    if not 0 < mean < float("inf"):
        raise TrainingFailed(
            f"expected a finite Fisher information above 0 on {len(examples)} runs, got a mean of {mean}; use precision 'fp32', or "
            "other runs in ewc.dataset",
            code="ewc_no_fisher",
        )
    return {name: square / mean for name, square in squares.items()}
