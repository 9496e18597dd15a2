"""A tiny model for all jobs of these tests."""

from __future__ import annotations

import pytest

from quintain.records.agent import Agent, ModelRef
from tiny_models import save_tiny_model


@pytest.fixture(scope="session")
def tiny_agent(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    """An agent with random weights, which never solves a task."""
    path = save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", hidden=16)
    return Agent(id="agent:tiny@1", name="tiny", version=1, model=ModelRef(source="folder", path=str(path)))
