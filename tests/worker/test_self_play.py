"""Self-play: who meets whom, what is learned from, and that a job which was stopped plays as a whole one does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.environments.nim.environment import Game
from quintain.records.agent import Agent, Sampling
from quintain.records.jobs.job import TrainSpec
from quintain.records.protocols import Message, TimeStep, Turn
from quintain.trainers.acting.policy import LocalPolicy
from quintain.trainers.acting.replica import EarlierPolicy, save_version
from quintain.trainers.models.loading import LoadedModel
from quintain.trainers.rendering.renderer import Renderer
from quintain.worker.job_kinds import train as training
from quintain.worker.rollouts.online_rollouts import rollout_collector
from worker.job_folder import STARTER, Stopping, trajectories, warnings
from worker.online import online, stopped_as_whole


def spec(agent: Agent = STARTER, self_play: dict[str, Any] | None = None, **config: Any) -> TrainSpec:
    small = {"group_size": 2, "tasks_per_step": 2, "rollouts": 4, "max_new_tokens": 4, **config}
    return online(agent, environment="quintain/nim?difficulty=easy", self_play=self_play or {}, seed=3, **small)


def test_the_first_rollout_is_against_itself_and_later_ones_also_against_earlier_versions(
    tmp_path: Path, tiny: tuple[LoadedModel, Renderer]
) -> None:
    folder = tmp_path / "job-1"
    collect = rollout_collector(spec(tasks_per_step=4), folder, Stopping(folder))
    groups = collect(*tiny, 0)
    assert sorted(group.key.rpartition("/")[2] for group in groups) == ["first"] * 4 + ["second"] * 4
    assert {len(group.trajectories) for group in groups} == {2}, "both players of a game are learned from"
    assert {reward for group in groups for reward in group.rewards} == {0.0, 1.0}
    later = collect(*tiny, 1)
    played = [run for run in trajectories(folder) if "iteration:1" in run.tags]
    models = Counter(run.agent.model for run in played)
    assert set(models) == {"job-1/1", "job-1/0"}
    assert models.total() == 16
    learned = [run for group in later for run in group.trajectories]
    assert {run.agent.model for run in learned} == {"job-1/1"}, "runs of an opponent are stored, and not learned from"
    assert len(learned) == models["job-1/1"]
    against = {run.extra["role"] for run in learned if run.extra["opponents"] == ["job-1/0"]}
    assert against == {"first", "second"}
    assert {run.group_id for run in played if run.agent.model == "job-1/0"} == {None}
    again = rollout_collector(spec(tasks_per_step=4), folder, Stopping(folder))(*tiny, 1)
    assert [group.key for group in again] == [group.key for group in later], "read back, not played again"


def test_one_role_can_be_trained_alone(tmp_path: Path, tiny: tuple[LoadedModel, Renderer]) -> None:
    collect = rollout_collector(spec(self_play={"train_role": "second"}), tmp_path, Stopping(tmp_path))
    groups = [*collect(*tiny, 0), *collect(*tiny, 1)]
    assert {run.extra["role"] for group in groups for run in group.trajectories} == {"second"}
    assert len(groups) == 4


def test_a_training_whose_games_are_all_draws_says_that_it_learned_nothing(
    tmp_path: Path, tiny_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Game, "step", lambda self, actions: TimeStep(terminated=True, rewards=(0.5, 0.5)))
    job = spec(tiny_agent, rollouts=1).model_copy(update={"output_dir": str(tmp_path / "model")})
    training.run(job, tmp_path / "job-1", Stopping(tmp_path / "job-1"))
    assert "equal_rewards" in dict(warnings(tmp_path / "job-1"))


def test_an_earlier_version_acts_with_its_weights_and_the_live_ones_stay(
    tmp_path: Path, tiny: tuple[LoadedModel, Renderer]
) -> None:
    loaded, renderer = tiny

    def policy() -> LocalPolicy:
        return LocalPolicy(loaded, renderer, Sampling(temperature=1.0, max_new_tokens=8), seed=1)

    turn = Turn(episode_id="e", messages=(Message(role="user", content="Heaps: 3 4"),), seed=5)
    version = tmp_path / "versions" / "000000.safetensors"
    save_version(loaded.model, version)
    before = policy().act([turn])[0].sampled
    with torch.no_grad():
        for p in loaded.model.parameters():
            p.mul_(1.5)
    live = {name: p.clone() for name, p in loaded.model.named_parameters()}
    after = policy().act([turn])[0].sampled
    earlier = EarlierPolicy(policy(), loaded.model, version)
    assert earlier.act([turn])[0].sampled == before != after
    assert all(torch.equal(live[name], p) for name, p in loaded.model.named_parameters())


def test_a_self_play_job_stopped_in_a_rollout_and_between_updates_continues_bit_equal(
    tmp_path: Path, tiny_agent: Agent
) -> None:
    job = spec(tiny_agent, rollouts=3, checkpoint_every_steps=1, learning_rate=1e-2)
    model, curve, _ = stopped_as_whole(job, tmp_path, 3, "baseline_first")
    assert curve[0] < 0.5, "who moves first loses by three turns without a legal move before the other has one"
    versions = sorted(path.name for path in (model.parent / "job-1" / "checkpoints" / "versions").iterdir())
    assert versions == [f"{iteration:06d}.safetensors" for iteration in range(3)]
