"""All processes of a training play: the runs are those of one process."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from quintain.records.agent import Agent
from quintain.records.jobs.job import TrainSpec
from quintain.records.jobs.job_events import Activity
from quintain.records.record import Record
from quintain.records.trajectory import Trajectory
from quintain.trainers.run_setup import Data
from quintain.trainers.train import train
from quintain.worker.rollouts import acting_reports
from quintain.worker.rollouts.online_rollouts import rollout_collector
from trainers.process_groups import run_on
from trainers.runs import Recorder, assert_same_figures
from worker.online import online, tasks_file


class Played(Recorder):
    """Keeps the runs that were played, in their order, and who reported turns."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Trajectory] = []
        self.turns = 0

    def output(self, kind: str, record: Record) -> None:
        assert isinstance(record, Trajectory)
        self.runs.append(record)

    def acting(self, activity: Activity) -> None:
        self.turns = max(self.turns, activity.turns)

    @property
    def sampled(self) -> list[tuple[str, list[list[int]]]]:
        return [
            (run.episode_key or "", [list(step.sampled.token_ids) for step in run.agent_steps if step.sampled])
            for run in self.runs
        ]


def acting(agent: Agent, folder: Path, processes: int, **settings: Any) -> TrainSpec:
    folder.mkdir()
    asked = {"rollouts": 1, "tasks_per_step": 2, "group_size": 4, "episodes_at_once": 4, "learning_rate": 1e-4}
    asked |= {"max_new_tokens": 6, "processes": processes}
    environment = f"quintain/tasks?file={tasks_file(folder, 4)}"
    return online(agent, environment=environment, output=folder / "out", seed=1, **asked | settings)


def test_two_processes_play_the_runs_that_one_plays_and_learn_the_same(
    tmp_path: Path, tiny_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches of one group each."""
    monkeypatch.setattr(acting_reports, "_EVERY_S", 0.0)  # in the forked processes too: each turn is reported
    one, two = tmp_path / "one", tmp_path / "two"
    alone, both = Played(), Played()
    job = acting(tiny_agent, one, 1)
    train(job, Data(), one / "job", alone, rollout_collector(job, one / "job", alone))
    job = acting(tiny_agent, two, 2)
    run_on(2, job, two / "job", [], both, collect=rollout_collector(job, two / "job", both))
    assert len(alone.runs) == 8
    assert [key.split("/", 1)[1] for key, _ in alone.sampled] == [key.split("/", 1)[1] for key, _ in both.sampled]
    assert [ids for _, ids in alone.sampled] == [ids for _, ids in both.sampled]
    assert alone.steps[0][2]["loss"] is not None
    assert_same_figures(alone.steps, both.steps)
    assert 0 < both.turns < alone.turns, "it reports its own turns"


@pytest.mark.soak
@pytest.mark.parametrize("sharding", ["none", "full"])
def test_actors_play_for_a_training_in_two_processes_what_they_play_for_one(
    tmp_path: Path, tiny_agent: Agent, sharding: str
) -> None:
    """The first process has the actors. The second rollout is played with weights that both have learned."""
    one, two = tmp_path / "one", tmp_path / "two"
    alone, both = Played(), Played()
    job = acting(tiny_agent, one, 1, rollouts=2)
    train(job, Data(), one / "job", alone, rollout_collector(job, one / "job", alone))
    job = acting(tiny_agent, two, 2, rollouts=2, actors=2, sharding=sharding)
    with closing(rollout_collector(job, two / "job", both)) as collect:
        run_on(2, job, two / "job", [], both, collect=collect)
    assert len(alone.runs) == len(both.runs) == 16
    assert alone.sampled[:8] == both.sampled[:8], "by the same weights"
    assert len({key for key, _ in both.sampled}) == 16
    assert_same_figures(alone.steps[:1], both.steps[:1])
