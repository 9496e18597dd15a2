"""Influence of recorded runs: whether training on a run would lower the loss of a model on other runs.

To first order, a gradient step on run z lowers the loss on run t by the learning rate times <g(z), g(t)>, where g is the gradient of
the mean loss of the agent's tokens (TracIn: Pruthi et al. 2020, arXiv 2002.08484, eq. 1, at one checkpoint). Gradients are
scaled to length 1, because those of short runs are longer (LESS: Xia et al. 2024, arXiv 2402.04333, section 3.1). They are taken of
the adapter's weights, or of the last block where there is no adapter, and projected at random.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from quintain.errors import InvalidInput
from quintain.records.agent import Agent
from quintain.records.dataset import DatasetRow
from quintain.records.hyperparameters.methods import SFTConfig
from quintain.records.trajectory import Trajectory
from quintain.records.wording import clip
from quintain.trainers.data.coreset import text_features, unit_rows
from quintain.trainers.data.example_selection import written_text
from quintain.trainers.data.examples import ExampleBatch, ExampleMaker
from quintain.trainers.data.streams import Example, Floats
from quintain.trainers.engine.forward import Engine
from quintain.trainers.models.loading import decoder_and_head, eval_mode, is_adapter, load_model
from quintain.trainers.models.start_model import blocks_of


@dataclass(frozen=True)
class CountSketch:
    """A random projection to k numbers that keeps inner products in expectation (Charikar, Chen and Farach-Colton 2002).

    Each number of the gradient is added to one of k places with a random sign; gradients of at most k numbers stay as they are. The
    variance of an inner product of unit vectors is at most 2 / k.
    """

    places: tuple[torch.Tensor, ...]
    """int64 [d] of each parameter."""
    signs: tuple[torch.Tensor, ...]
    """int8 [d] of each parameter."""
    dims: int

    @staticmethod
    def of(sizes: Sequence[int], dims: int, seed: int) -> CountSketch:
        """Draw a projection for parameters of these sizes."""
        if sum(sizes) <= dims:
            places = torch.arange(sum(sizes)).split(list(sizes))
            return CountSketch(places, tuple(torch.ones(n, dtype=torch.int8) for n in sizes), sum(sizes))
        random = torch.Generator().manual_seed(seed)
        drawn = [(torch.randint(dims, (n,), generator=random), torch.randint(2, (n,), generator=random)) for n in sizes]
        return CountSketch(
            tuple(places for places, _ in drawn), tuple((2 * bits - 1).to(torch.int8) for _, bits in drawn), dims
        )

    def project(self, gradients: Sequence[torch.Tensor | None]) -> Floats:
        """Return the projection [k] of the gradients of the parameters, in their order; None counts as zeros."""
        found = torch.zeros(self.dims, dtype=torch.float64)
        for gradient, places, signs in zip(gradients, self.places, self.signs, strict=True):
            if gradient is not None:
                found.index_add_(0, places, gradient.detach().cpu().double().flatten() * signs)
        projected: Floats = found.numpy().astype(np.float32)
        return projected


class Features(NamedTuple):
    """A run as a vector, by its gradient and by its text, each of length 1."""

    gradient: Floats
    """[k]"""
    text: Floats
    """[512], hashed n-grams of what the agent wrote; see `text_features`."""


class Similarity(NamedTuple):
    """Mean cosine of a run to the targets, in -1..1."""

    gradient: float
    text: float


@dataclass
class GradientModel:
    """A model whose gradients on single runs are read."""

    engine: Engine
    maker: ExampleMaker
    parameters: tuple[torch.nn.Parameter, ...]
    sketch: CountSketch
    gradient_s: float = 0.0
    """Seconds spent on gradients so far, and on texts."""
    text_s: float = 0.0

    @staticmethod
    def of(agent: Agent, dims: int, seed: int) -> GradientModel:
        """Load an agent.

        Raises:
            NotFound: The model does not exist.
            InvalidInput: Its files are damaged, or it has no block whose gradients can be read.
        """
        loaded = load_model(agent.model)
        maker = ExampleMaker.of(loaded.tokenizer, agent.template, SFTConfig(), loaded.context_tokens)
        engine = Engine.of(loaded.model)
        parameters = _observed(loaded.model)
        loaded.model.requires_grad_(False)
        for parameter in parameters:
            parameter.requires_grad_(True)
        sketch = CountSketch.of([p.numel() for p in parameters], dims, seed)
        return GradientModel(engine, maker, parameters, sketch)

    def read(self, run: Trajectory) -> Features | str:
        """Return the features of a run, or the reason why it has none."""
        batch = ExampleBatch()
        try:
            self.maker.take(DatasetRow(trajectory=run), batch)
        except InvalidInput as error:
            return clip(error.message, 300)
        if not batch.examples:
            return f"the run cannot be trained on: {next(iter(batch.dropped))}"
        (example,) = batch.examples
        began = time.monotonic()
        gradient = self._gradient(example)
        ended = time.monotonic()
        features = text_features([written_text(self.maker.renderer, example)])[0]
        self.gradient_s += ended - began
        self.text_s += time.monotonic() - ended
        return Features(unit_rows(gradient[None])[0], features)

    def _gradient(self, example: Example) -> Floats:
        """Return the projected gradient [k] of the mean loss of an example's supervised tokens."""
        weight = torch.cat([torch.from_numpy(row.weight[row.supervised]) for row in example.rows])
        with eval_mode(self.engine.model):
            for parameter in self.parameters:
                parameter.grad = None
            loss, _ = self.engine.nll(example.rows, weight / weight.sum().clamp(min=1e-9))
            loss.backward()
        return self.sketch.project([parameter.grad for parameter in self.parameters])


@dataclass
class Targets:
    """The runs that a model should do well on."""

    features: dict[str, Features] = field(default_factory=dict)
    """Run id -> its features."""
    unread: dict[str, str] = field(default_factory=dict)
    """Run id -> why it has none."""

    def add(self, model: GradientModel, run: Trajectory) -> None:
        """Read a target."""
        features = model.read(run)
        if isinstance(features, str):
            self.unread[run.id or ""] = features
        else:
            self.features[run.id or ""] = features

    def similarity(self, run_id: str, features: Features) -> Similarity | None:
        """Return the mean cosine of a run to the targets other than itself; None where there is no other."""
        others = [found for other, found in self.features.items() if other != run_id]
        if not others:
            return None
        by_gradient, by_text = (
            float(np.mean([features[k] @ other[k] for other in others], dtype=np.float64)) for k in (0, 1)
        )
        return Similarity(by_gradient, by_text)


def _observed(model: Any) -> tuple[torch.nn.Parameter, ...]:
    """Return the weights whose gradients are read: the adapter's, else those of the last block."""
    if is_adapter(model):
        adapter = [p for name, p in model.named_parameters() if "lora_" in name and p.is_floating_point()]
        if adapter:
            return tuple(adapter)
    decoder, _ = decoder_and_head(model)
    found = tuple(p for p in [decoder, *blocks_of(decoder)][-1].parameters() if p.is_floating_point())
    if not found:
        raise InvalidInput(
            f"expected a last block with weights of floating point, got none in a {type(model).__name__}; use the agent before "
            "its base was quantized, or one with an adapter",
            code="no_gradients",
        )
    return found
