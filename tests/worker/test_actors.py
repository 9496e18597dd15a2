"""Episodes on several processes: the same ones as on one, also where a process dies, and for every method that acts while it learns."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import psutil
import pytest
import torch
from benchmarks.cluster.actors import kills
from benchmarks.ray_cluster import RayHead, ray_head
from safetensors.torch import load_file

from quintain.errors import InvalidInput, Unavailable
from quintain.evaluation.turn_counts import TurnCount
from quintain.records.agent import Agent, Sampling
from quintain.records.jobs.job import RolloutSpec
from quintain.worker.actors import pool
from quintain.worker.actors.local import LocalActor
from quintain.worker.actors.playing import ActorSetup, Answer, Batch, BatchPlayer
from quintain.worker.actors.ray_actors import connect
from quintain.worker.evolution import loop as evolve
from quintain.worker.job_kinds import rollouts
from quintain.worker.job_kinds import train as training
from trainers.playing import save_sharp_teacher
from trainers.runs import same
from worker.job_folder import Stopping, events, resuming, trajectories
from worker.online import BREVITY, evolution, online, played, versions


class Killed(LocalActor):
    """An actor whose process is killed before it plays its n-th batch, for each number that is left in `at`."""

    at: ClassVar[list[int]] = []
    started = 0

    def __init__(self, setup: ActorSetup) -> None:
        super().__init__(setup)
        type(self).started += 1
        self._n = 0

    def play(self, batch: Batch, on_count: Callable[[TurnCount], None]) -> Answer:
        self._n += 1
        if self._n in self.at:
            self.at.remove(self._n)
            os.kill(self.pid, signal.SIGKILL)
        return super().play(batch, on_count)


class ThreadActor:
    """An actor in a thread of this process: the player of a child process, with its messages as JSON."""

    batches = 0
    one_at_a_time: ClassVar = threading.Lock()
    """Held while a batch is played: transformers loads one model at a time."""

    def __init__(self, setup: ActorSetup) -> None:
        self._player = BatchPlayer(ActorSetup.model_validate_json(setup.model_dump_json()), lambda: False)
        self.pid = 0

    def play(self, batch: Batch, on_count: Callable[[TurnCount], None]) -> Answer:
        with self.one_at_a_time:
            type(self).batches += 1
            answer = Answer(played=self._player.play(Batch.model_validate_json(batch.model_dump_json()), on_count))
        return Answer.model_validate_json(answer.model_dump_json())

    def ask_to_stop(self) -> None:
        """Its batches are short."""

    def stop(self, grace_s: float) -> None:
        """Its thread ends with the pool."""


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> type[Killed]:
    monkeypatch.setattr(pool, "LocalActor", Killed)
    monkeypatch.setattr(Killed, "at", [])
    monkeypatch.setattr(Killed, "started", 0)
    return Killed


def asked(agent: Agent, **settings: Any) -> RolloutSpec:
    sampling = Sampling(temperature=1.0, max_new_tokens=10)
    small: dict[str, Any] = {
        "environment": "quintain/inventory",
        "n_tasks": 5,
        "max_turns": 2,
        "seed": 3,
        "concurrency": 2,
    }
    return RolloutSpec(agent=agent, sampling=sampling, **small | settings)


def test_two_actors_play_what_one_process_plays_and_a_killed_one_costs_no_episode(
    tmp_path: Path, tiny_agent: Agent, killed: type[Killed]
) -> None:
    alone, together = (tmp_path / name / "job" for name in ("alone", "together"))
    first = rollouts.run(asked(tiny_agent), alone, Stopping(alone))
    killed.at.append(2)
    second = rollouts.run(asked(tiny_agent, actors=2), together, Stopping(together))
    assert killed.started == 3
    assert second == first
    assert played(together) == played(alone)
    assert {run["extra"]["precision"] for run in played(together)} == {"fp32"}
    warnings = [event.message or "" for event in events(together) if event.code == "actor_died"]
    assert len(warnings) == 1
    assert "signal SIGKILL" in warnings[0]


def test_actors_without_a_batch_are_not_started(tmp_path: Path, tiny_agent: Agent, killed: type[Killed]) -> None:
    rollouts.run(asked(tiny_agent, n_tasks=2, actors=4), tmp_path / "job", Stopping(tmp_path / "job"))
    assert killed.started == 0
    warnings = [event.message or "" for event in events(tmp_path / "job") if event.code == "fewer_actors"]
    assert warnings == ["2 episodes are 1 batches of 2, so 1 of 4 actors play; in a training, lower episodes_at_once"]


def test_a_batch_that_no_actor_survives_ends_the_job(tmp_path: Path, tiny_agent: Agent, killed: type[Killed]) -> None:
    killed.at += [1] * 12
    with pytest.raises(Unavailable, match=r"expected an actor that plays a batch of 2 episodes, got 5 .*SIGKILL"):
        rollouts.run(asked(tiny_agent, actors=2), tmp_path / "job", Stopping(tmp_path / "job"))


def test_a_stopped_job_ends_its_actors_and_an_error_of_an_actor_is_that_of_the_job(
    tmp_path: Path, tiny_agent: Agent
) -> None:
    folder = tmp_path / "stopped"
    result = rollouts.run(asked(tiny_agent, n_tasks=50, actors=2), folder, Stopping(folder, "trajectory", 1))
    assert result.is_partial
    nowhere = tiny_agent.model_copy(update={"model": tiny_agent.model.model_copy(update={"path": str(tmp_path)})})
    with pytest.raises(InvalidInput):
        rollouts.run(asked(nowhere, actors=2), tmp_path / "job", Stopping(tmp_path / "job"))


def learn(folder: Path, agent: Agent, reporter: Stopping | None = None, **settings: Any) -> dict[str, torch.Tensor]:
    """Train online and return the weights."""
    small = {"group_size": 3, "tasks_per_step": 2, "rollouts": 3, "max_new_tokens": 12, "max_turns": 2}
    small |= {"episodes_at_once": 3, "learning_rate": 0.01, "checkpoint_every_steps": 1}
    spec = online(agent, output=folder / "agent", reward=BREVITY, **small | settings)
    training.run(spec, folder, reporter or Stopping(folder))
    final = folder / "agent" / "model.safetensors"
    return load_file(final) if final.exists() else {}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_stale_weights_lag_by_what_was_asked_and_a_resumed_run_plays_with_the_same_ones(
    tmp_path: Path, tiny_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "LocalActor", ThreadActor)
    whole, parts = (tmp_path / name / "job" for name in ("whole", "parts"))
    ahead = learn(whole, tiny_agent, staleness=1)
    assert versions(whole) == [(f"iteration:{i}", {max(i - 1, 0)}) for i in range(3) for _ in range(6)]
    assert {run.agent.model for run in trajectories(whole)} == {"job/0", "job/1"}
    assert learn(parts, tiny_agent, Stopping(parts, stop_at=1), staleness=1) == {}
    assert equal(learn(parts, tiny_agent, staleness=1, actors=2), ahead)
    assert played(parts) == played(whole)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_actors_on_a_ray_cluster_play_what_one_process_plays_also_where_two_are_killed_while_they_play(
    tmp_path: Path, tiny_agent: Agent
) -> None:
    pytest.importorskip("ray", reason="the extra cluster is not installed")
    alone, together = (tmp_path / name / "jobs" / "job" for name in ("alone", "together"))
    spec = asked(tiny_agent, n_tasks=12)
    rollouts.run(spec, alone, Stopping(alone))
    resuming(together, spec.model_copy(update={"actors": 2, "actor_backend": "ray"}), "")
    with ray_head() as head:
        arguments = [argument for part in head.parts() for argument in part.cmdline()]
        address = next(one for one in arguments if one.startswith("--gcs-address=")).partition("=")[2]
        command = [sys.executable, "-m", "quintain.worker", str(together), "1"]
        with subprocess.Popen(command, env={**os.environ, "RAY_ADDRESS": address}) as job:
            killed = set[int]()
            while job.poll() is None and len(killed) < 2:
                for actor in playing_actors(head):
                    killed.add(actor.pid)
                    actor.kill()
            assert job.wait(300) == 0
    assert len(killed) == 2
    assert played(together) == played(alone)
    assert len({run.episode_key for run in trajectories(together)}) == 12
    (warning, *_) = [event.message or "" for event in events(together) if event.code == "actor_died"]
    assert "play their episodes again" in warning


def playing_actors(head: RayHead) -> list[psutil.Process]:
    """Return the actors of a cluster that play a batch: Ray names a process after the method that it runs."""
    found = []
    for part in head.parts():
        with suppress(psutil.Error):
            if "_RayPlayer.play" in " ".join(part.cmdline()):
                found.append(part)
    return found


@pytest.mark.soak
def test_thirty_random_deaths_lose_no_episode_and_count_none_twice(tmp_path: Path, tiny_agent: Agent) -> None:
    counts = kills(tmp_path, 30, tiny_agent, n_tasks=120, concurrency=2, max_turns=4, max_new_tokens=32)
    assert counts == {"killed": 30, "episodes": 120, "lost": 0, "twice": 0, "differ": 0}


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
    updates = len(losses(alone)) // 2  # of each rollout
    assert versions(together) == [(f"iteration:{i}", {i * updates}) for i in range(2) for _ in range(6)]
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


def test_a_cluster_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: object) -> None:
        raise RuntimeError(
            "Failed to connect to GCS. Last connection error: Traceback\n  File ...\nRpcError: Timed out"
        )

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    with pytest.raises(Unavailable, match=r"\[no_ray_cluster\] .* RpcError: Timed out\); start one with `ray start"):
        connect()
