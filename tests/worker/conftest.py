"""Tiny models for all jobs of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from quintain.records.agent import Agent, ModelRef
from quintain.trainers.models.loading import LoadedModel
from quintain.trainers.rendering.renderer import Renderer
from tiny_models import save_tiny_model, tiny_model, tiny_tokenizer


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tiny models gain nothing from a second thread, and lose much when the machine is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny_agent(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    """An agent with random weights, which never solves a task."""
    path = save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", hidden=16)
    return Agent(id="agent:tiny@1", name="tiny", version=1, model=ModelRef(source="folder", path=str(path)))


@pytest.fixture(scope="session")
def tiny() -> tuple[LoadedModel, Renderer]:
    """A loaded model with random weights, and its renderer."""
    tokenizer = tiny_tokenizer()
    return LoadedModel(tiny_model(tokenizer, context=4096), tokenizer, 4096), Renderer.of(tokenizer)
