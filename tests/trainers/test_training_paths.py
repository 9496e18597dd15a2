"""Architectures in use take the packed path, and give their own log-probs and gradients on it."""

from __future__ import annotations

import random

import pytest
import torch
from scripts.training_paths import ARCHITECTURES, OTHERS, PAGE, VOCABULARY, WINDOW, Architecture, path_of

from quintain.trainers.data.streams import TokenRow
from quintain.trainers.engine.forward import Engine
from trainers.own_forward import gradients, own_logprobs, row, weights


def rows_around_the_window() -> list[TokenRow]:
    """Prefixes of a token less than the window up to twice the window, each shared by a short and a long branch."""
    draw = random.Random(0)

    def some(n: int) -> list[int]:
        return [draw.randrange(2, VOCABULARY) for _ in range(n)]

    prefixes = [some(n) for n in (WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW)]
    return [row([*prefix, *some(n)]) for prefix in prefixes for n in (WINDOW - 2, 2 * WINDOW + 3)]


def apart(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    """Return |a - b| / |a| over all gradients; float32 leaves a single small one with fewer digits."""
    assert a.keys() == b.keys()
    first, second = (torch.cat([each[name].flatten().double() for name in a]) for each in (a, b))
    return float((first - second).norm() / first.norm())


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda architecture: architecture.title)
def test_packed_rows_longer_than_the_window_give_the_models_own_logprobs_and_gradients(
    architecture: Architecture,
) -> None:
    model, rows = architecture.build(), rows_around_the_window()
    engine = Engine.of(model)
    assert (engine.path, engine.shares) == ("packed", True), engine.reason
    assert f"| {architecture.title} | {path_of(engine)} |" in PAGE.read_text(encoding="utf-8")
    assert engine.cost(rows).computed_tokens < sum(len(r) - 1 for r in rows)
    w = weights(rows)
    expected: list[torch.Tensor] = []

    def own_loss() -> torch.Tensor:
        expected.append(own_logprobs(model, rows))
        return -(w * expected[0]).sum()

    own = gradients(model, own_loss)
    scored: list[torch.Tensor] = []

    def loss() -> torch.Tensor:
        formed, logprobs = engine.nll(rows, w)
        scored.append(logprobs)
        return formed

    assert apart(own, gradients(model, loss)) < 1e-5
    assert torch.allclose(scored[0], expected[0], rtol=1e-5, atol=1e-5)
    assert apart(own, gradients(model, lambda: -(w * engine.logprobs(rows).logprobs).sum())) < 1e-5


@pytest.mark.parametrize("architecture", OTHERS, ids=lambda architecture: architecture.title)
def test_other_architectures_give_their_own_logprobs_on_the_path_of_the_reference_page(
    architecture: Architecture,
) -> None:
    model, rows = architecture.build(), rows_around_the_window()
    engine = Engine.of(model)
    assert f"| {architecture.title} | {path_of(engine)} |" in PAGE.read_text(encoding="utf-8")
    with torch.no_grad():
        assert torch.allclose(engine.logprobs(rows).logprobs, own_logprobs(model, rows), rtol=1e-5, atol=1e-5)
