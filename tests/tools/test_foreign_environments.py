"""Environments of other libraries from demonstrations over training to a measurement, by the tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from environments.foreign_servers import LAKE, Solver, foreign_servers
from playing import Scripted, play
from quintain.environments.registry import open_source
from tools.dict_calls import Caller


@pytest.mark.usefixtures("jobs_in_process")
def test_an_agent_learns_from_demonstrations_in_environments_of_other_libraries(tool: Caller, home: Path) -> None:
    pytest.importorskip("websockets")
    pytest.importorskip("gymnasium")
    with foreign_servers(home / "environments.toml"):
        listed = tool(action="library", kind="environments")["items"]
        assert {"id": "agentgym:count", "tasks": 40, "max_turns": 20} in [
            {name: item.get(name) for name in ("id", "tasks", "max_turns")} for item in listed
        ]
        parts = ["openenv:guess", "agentgym:count", LAKE]
        for part in parts:
            source = open_source(part)
            for episode in play(source, Scripted(Solver()), source.tasks("train", 3, 0)):
                recorded = tool.record(trajectory=episode.trajectory.model_dump(mode="json"))
                assert recorded["status"] == "success", recorded
            source.close()
        tool(action="export", kind="sft", name="worlds", filter={"outcome": "success"})
        settings = {"learning_rate": 5e-3, "epochs": 10, "batch_size": 2}
        asked = {"algorithm": "sft", "model_name": "starter", "dataset": "worlds", "name": "player"}
        trained = tool(action="train", hyperparameters=settings, **asked)
        assert trained["status"] == "success", trained
        mixed = dict.fromkeys(parts, 1)
        measured = tool(action="evaluate", agent="player", environment=mixed, n_tasks=3, max_turns=5)
        assert (measured["status"], measured["num_samples"]) == ("success", 3), measured
        assert measured["accuracy"] > 0.3, "of one task of each library"
