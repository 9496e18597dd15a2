"""Episodes on two actors next to one thread of one process, and actors killed at random.

Run as `python -m benchmarks.cluster --only actors` and `python -m benchmarks.faults --full --only killed_actors`.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import psutil

from benchmarks.figures import report
from benchmarks.jobs import STARTER, reporter_of, runs_of
from quintain.environments.registry import open_source
from quintain.evaluation.suites import plan_suite
from quintain.evaluation.turn_counts import TurnCount
from quintain.records.agent import Agent, Sampling
from quintain.records.jobs.job import RolloutSpec
from quintain.records.trajectory import Trajectory
from quintain.worker.actors import pool
from quintain.worker.actors.local import LocalActor
from quintain.worker.actors.playing import ActingPlayer, ActorSetup, Answer, Batch
from quintain.worker.job_kinds import rollouts


def spec_of(agent: Agent, n_tasks: int, max_new_tokens: int = 192, **settings: Any) -> RolloutSpec:
    """Return a job in the inventory."""
    sampling = Sampling(temperature=1.0, max_new_tokens=max_new_tokens)
    return RolloutSpec(
        agent=agent, environment="quintain/inventory", n_tasks=n_tasks, sampling=sampling, seed=7, **settings
    )


def _timeless(folder: Path) -> list[Trajectory]:
    """Return the runs that a job has output, without the seconds that they took."""
    runs = runs_of(folder)
    for run in runs:
        run.extra["episode_result"].pop("duration_s", None)
    return runs


def speed(folder: Path, rounds: int = 5) -> None:
    """Episodes a second of two actors, by those of one process with one thread, in turn; models are loaded before."""
    import torch

    torch.set_num_threads(1)
    spec, source = spec_of(STARTER, 128), open_source("quintain/inventory")
    plans = plan_suite(source, split="train", n_tasks=128, repeats=1, seed=7, max_turns=None).plans
    settings = rollouts.episode_settings(spec, source, folder)
    signals = reporter_of(folder / "speed")
    with closing(pool.ActorPool(spec, folder / "speed", signals, 2)) as players:
        alone = ActingPlayer(spec, folder / "speed", signals, source)
        walls, busiest, tokens = list[float](), list[float](), 0
        for _ in range(1 + rounds):
            began, used = time.perf_counter(), time.process_time()
            one = [episode.trajectory for episode in alone.play(plans, settings, lambda count: None)]
            wall, cpu = time.perf_counter() - began, time.process_time() - used
            before = _cpu_seconds(players.pids)
            began = time.perf_counter()
            two = [episode.trajectory for episode in players.play(plans, settings, lambda count: None)]
            walls.append(wall / (time.perf_counter() - began))
            after = _cpu_seconds(players.pids)
            busiest.append(cpu / max(seconds - before.get(pid, 0.0) for pid, seconds in after.items()))
            assert one == two, "two actors play what one process plays"
            tokens = sum(len(step.sampled.token_ids) for run in two for step in run.agent_steps if step.sampled)
    report("rollouts_two_actors_by_one_thread", walls[1:], "x", 1.7, episodes=len(plans), tokens=tokens)
    # What the wall would show with a core for each, whatever else the machine does.
    report("rollouts_two_actors_by_one_thread_cpu", busiest[1:], "x", 1.7)


def _cpu_seconds(pids: list[int]) -> dict[int, float]:
    return {pid: sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids}


class _Watched(LocalActor):
    """An actor that knows which batch it plays."""

    started: ClassVar[list[_Watched]] = []
    playing: str | None = None
    """Key of the first episode of the batch, from its first turn on."""

    def __init__(self, setup: ActorSetup) -> None:
        super().__init__(setup)
        self.started.append(self)

    def play(self, batch: Batch, on_count: Callable[[TurnCount], None]) -> Answer:
        def counted(count: TurnCount) -> None:
            self.playing = batch.plans[0].task.id
            on_count(count)

        try:
            return super().play(batch, counted)
        finally:
            self.playing = None


class _Killer:
    """Kills actors that play, at random times, and no batch more often than it is tried again."""

    def __init__(self, kills: int, seed: int) -> None:
        self.left, self._random, self._hits = kills, Random(seed), Counter[str]()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while self.left and not self._done.wait(self._random.uniform(0.05, 0.4)):
            busy = [(actor, batch) for actor in _Watched.started if (batch := actor.playing) and self._hits[batch] < 3]
            if busy:
                actor, batch = self._random.choice(busy)
                os.kill(actor.pid, signal.SIGKILL)
                self._hits[batch] += 1
                self.left -= 1

    @contextmanager
    def running(self) -> Iterator[None]:
        """Kill while the block runs."""
        before, pool.LocalActor = pool.LocalActor, _Watched  # type: ignore[attr-defined]
        _Watched.started.clear()
        self._thread.start()
        try:
            yield
        finally:
            self._done.set()
            self._thread.join()
            pool.LocalActor = before  # type: ignore[attr-defined]


def kills(folder: Path, n: int = 30, agent: Agent = STARTER, n_tasks: int = 400, **settings: Any) -> dict[str, int]:
    """Kill actors at random while they play, until `n` were killed or all is played; return counts.

    Returns:
        `killed` actors, `episodes`, those `lost`, played `twice`, and those that `differ` from a run without kills.
    """
    whole, hurt = folder / "whole" / "job", folder / "hurt" / "job"
    rollouts.run(spec_of(agent, n_tasks, **settings), whole, reporter_of(whole))
    killer = _Killer(n, 1)
    with killer.running():
        rollouts.run(spec_of(agent, n_tasks, actors=2, **settings), hurt, reporter_of(hurt))
    expected, found = _timeless(whole), _timeless(hurt)
    counts = Counter(run.episode_key for run in found)
    return {
        "killed": n - killer.left,
        "episodes": len(found),
        "lost": len({run.episode_key for run in expected} - counts.keys()),
        "twice": sum(count > 1 for count in counts.values()),
        "differ": sum(one != other for one, other in zip(expected, found, strict=False)),
    }


def actors() -> None:
    """Measure two actors next to one thread of one process."""
    with tempfile.TemporaryDirectory() as folder:
        speed(Path(folder))


def killed_actors(n: int = 30) -> None:
    """Report the counts of `kills`."""
    with tempfile.TemporaryDirectory() as folder:
        counts = kills(Path(folder), n)
    wrong = counts["lost"] + counts["twice"] + counts["differ"]
    report("rollouts_wrong_episodes_after_kills", [wrong], "episodes", 0, "lower", **counts)
