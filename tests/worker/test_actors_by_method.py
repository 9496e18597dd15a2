"""Every method that acts while it learns plays on actors what it plays alone, and learns the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quintain.records.agent import Agent
from quintain.worker.actors import pool
from quintain.worker.evolution import loop as evolve
from quintain.worker.job_kinds import train as training
from trainers.playing import save_sharp_teacher
from trainers.runs import same
from worker.job_folder import Stopping, events
from worker.online import BREVITY, evolution, online, played, versions
from worker.thread_actors import ThreadActor


@pytest.fixture(params=["thread", pytest.param("process", marks=pytest.mark.soak)])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where actors run."""
    monkeypatch.setattr(ThreadActor, "batches", 0)
    if request.param == "thread":
        monkeypatch.setattr(pool, "LocalActor", ThreadActor)
    return str(request.param)


SMALL: dict[str, Any] = {
    "group_size": 3,
    "tasks_per_step": 2,
    "rollouts": 2,
    "max_new_tokens": 12,
    "max_turns": 2,
    "episodes_at_once": 3,
    "learning_rate": 0.01,
}


def losses(folder: Path) -> list[Any]:
    found = [(event.step, (event.metrics or {}).get("loss")) for event in events(folder) if event.type == "progress"]
    assert [loss for _, loss in found if loss is not None]
    return found


@pytest.mark.parametrize(
    "method", ["dpo", *(pytest.param(name, marks=pytest.mark.soak) for name in ("distill", "ppo"))]
)
def test_an_online_method_on_two_actors_equals_the_same_one_alone(
    where: str, tmp_path: Path, tiny_agent: Agent, method: str
) -> None:
    def learn(actors: int) -> Path:
        folder = tmp_path / str(actors) / "job"
        teacher: dict[str, Any] = {"teacher": "sharp"} if method == "distill" else {}
        spec = online(
            tiny_agent,
            method,
            output=folder / "agent",
            reward=None if teacher else BREVITY,
            teacher_agent=save_sharp_teacher(tmp_path / "teacher") if teacher else None,
            **SMALL,
            **teacher,
            actors=actors,
            seed=2,
        )
        training.run(spec, folder, Stopping(folder))
        return folder

    alone, together = learn(1), learn(2)
    assert played(together) == played(alone)
    assert versions(together) == [(f"iteration:{i}", {i}) for i in range(2) for _ in range(6)]
    assert losses(together) == losses(alone)
    assert same(together / "agent", alone / "agent")
    assert ThreadActor.batches == (4 if where == "thread" else 0)


def test_an_evolution_on_two_actors_equals_the_same_one_alone(where: str, tmp_path: Path, tiny_agent: Agent) -> None:
    def grow(actors: int) -> tuple[Path, Any]:
        folder = tmp_path / str(actors)
        settings: dict[str, Any] = {"iterations": 1, "tasks_per_iteration": 17, "attempts": 2, "temperature": 1.0}
        settings |= {"max_turns": 1, "threshold": None, "ratio": 1, "evaluation_tasks": 2, "final_tasks": 2}
        spec = evolution(tiny_agent, folder, max_new_tokens=4, actors=actors, **settings)
        return folder / "job", evolve.run(spec, folder / "job", Stopping(folder / "job"))

    (alone, first), (together, second) = grow(1), grow(2)
    assert second.report == first.report
    assert played(together) == played(alone)
    assert losses(together) == losses(alone)
    assert same(together.parent / "models" / "01-train", alone.parent / "models" / "01-train")
    assert ThreadActor.batches == (2 if where == "thread" else 0)
