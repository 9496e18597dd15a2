"""Influence: gradients of single runs, their projection, and what a step on one run does to the loss of another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import DatasetRow
from quintain.records.trajectory import Trajectory
from quintain.trainers.data.examples import ExampleBatch
from quintain.trainers.influence import CountSketch, Features, GradientModel, Similarity, Targets
from tiny_models import save_tiny_model
from trajectory_runs import answer, call, run, user


def test_few_numbers_stay_and_many_keep_their_inner_products_on_average() -> None:
    """Unit vectors at 60 degrees; over 300 projections to 64 numbers the mean is within 4 standard errors of 1/2."""
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])
    exact = CountSketch.of([2, 1], 16, seed=0)
    assert exact.dims == 3
    assert exact.project([a, b]).tolist() == [1.0, 2.0, 3.0]
    assert exact.project([None, b]).tolist() == [0.0, 0.0, 3.0]
    rng = np.random.default_rng(0)
    one, other = np.linalg.qr(rng.standard_normal((500, 2)))[0].T
    u, v = (torch.from_numpy(x) for x in (one, 0.5 * one + np.sqrt(0.75) * other))
    products = [
        float(s.project([u]) @ s.project([v])) for s in (CountSketch.of([500], 64, seed) for seed in range(300))
    ]
    assert np.var(products) < 2 / 64
    assert np.mean(products) == pytest.approx(0.5, abs=4 * np.sqrt(2 / 64 / 300))


def test_the_similarity_to_targets_leaves_the_run_itself_out() -> None:
    """Cosines 1, 0 and -1 to the axes; the mean over the other two targets."""
    x, y = np.eye(2, dtype=np.float32)
    targets = Targets({name: Features(v, x) for name, v in (("a", x), ("b", y), ("c", -x))})
    assert targets.similarity("a", targets.features["a"]) == Similarity(-0.5, 1.0)
    assert targets.similarity("new", Features(x, y)) == pytest.approx((0.0, 0.0))
    assert Targets({"a": targets.features["a"]}).similarity("a", targets.features["a"]) is None


def test_a_step_on_one_run_lowers_the_loss_of_another_by_the_product_of_their_gradients(tmp_path: Path) -> None:
    model = GradientModel.of(
        Agent(name="tiny", model=ModelRef(source="folder", path=str(save_tiny_model(tmp_path / "m")))), 10**6, seed=0
    )
    one = run("t1", user("Find a box."), call("look", "a red box", at="shelf"), answer("The red box."))
    other = run("t2", user("Find a box."), call("look", "a blue box", at="table"), answer("The blue box."))

    def gradient_and_loss(trajectory: Trajectory) -> tuple[torch.Tensor, float]:
        batch = ExampleBatch()
        model.maker.take(DatasetRow(trajectory=trajectory), batch)
        logprobs = model.engine.logprobs(batch.examples[0].rows).logprobs
        loss = -logprobs.double().mean()
        gradients = torch.autograd.grad(loss, model.parameters)
        return torch.cat([gradient.flatten() for gradient in gradients]).double(), float(loss.detach())

    (g, _), (h, before) = gradient_and_loss(one), gradient_and_loss(other)
    first, second = model.read(one), model.read(other)
    assert isinstance(first, Features)
    assert isinstance(second, Features)
    assert np.allclose(first.gradient, (g / g.norm()).numpy(), atol=1e-5)
    assert first.gradient @ second.gradient == pytest.approx(float(g @ h / g.norm() / h.norm()), abs=1e-5)

    rate, at = 1e-3, 0
    with torch.no_grad():
        for parameter in model.parameters:
            parameter -= rate * g[at : at + parameter.numel()].view_as(parameter).float()
            at += parameter.numel()
    _, after = gradient_and_loss(other)
    assert (before - after) / rate == pytest.approx(float(g @ h), rel=0.05)
    silent = run("t", user(), answer().model_copy(update={"train": False}))
    assert model.read(silent) == "the run cannot be trained on: nothing_supervised"
