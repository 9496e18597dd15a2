"""A reward model inside GRPO: rewards of runs, their metrics, step rewards, and refresh."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.records.agent import Agent, ModelRef
from quintain.records.dataset import GroupRow
from quintain.records.hyperparameters.methods import GRPOConfig
from quintain.records.jobs.job import TrainSpec
from quintain.records.trajectory import Outcome, OutcomeStatus
from quintain.trainers.reward_models import RewardModel, RunValue
from quintain.trainers.rollouts.reward_model_term import UNREAD, RewardModelTerm
from quintain.trainers.run_setup import Data
from quintain.trainers.train import train
from trainers.episodes import episode
from trainers.runs import Recorder, resumed, rows_for, run, run_of, same, spec


@pytest.fixture(scope="module")
def judges(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Agent]:
    """A reward model and a step model that have learnt a little."""
    made = {}
    for method, role in (("reward", "reward_model"), ("prm", "step_model")):
        folder = tmp_path_factory.mktemp(method)
        run(
            spec(model_folder, folder / "out", method, learning_rate=1e-2, epochs=4, checkpoint_every_steps=100),
            folder / "job",
            rows_for(method, 4),
        )
        ref = ModelRef(source="folder", path=str(folder / "out"))
        made[role] = Agent(id=f"agent:{method}@1", name=method, version=1, model=ref, role=role)  # type: ignore[arg-type]
    return made


def job(model: Path, output: Path, judge: Agent, **config: Any) -> TrainSpec:
    plain = spec(model, output, "grpo")
    settings = plain.config.model_dump() | {"reward_model": judge.id} | config
    return TrainSpec.model_validate(plain.model_dump() | {"config": GRPOConfig(**settings), "reward_agent": judge})


def mix(judge: Agent, **config: Any) -> RewardModelTerm:
    return RewardModelTerm(RewardModel.of(judge), GRPOConfig(reward_model=judge.id, **config))


def group(*, key: str = "task", rewards: tuple[float, ...] = (1.0, 0.0)) -> GroupRow:
    runs = (run_of(0, "It costs 40."), run_of(0, "No idea.", success=False))
    return GroupRow(key=key, trajectories=runs, rewards=rewards)


@pytest.mark.parametrize("role", ["reward_model", "step_model"])
def test_a_run_earns_alpha_of_its_task_and_beta_of_the_models_value(judges: dict[str, Agent], role: str) -> None:
    """A step model's part is the mean over the steps: twice as many steps of the same value earn no more."""
    mixed = mix(judges[role], alpha=2.0, beta=0.5)
    read = RewardModel.of(judges[role]).read(group().trajectories)
    (row,) = mixed.rows([group()])
    assert isinstance(row, GroupRow)
    values = [value.value for value in read if isinstance(value, RunValue)]
    assert row.rewards == pytest.approx((2.0 + 0.5 * values[0], 0.5 * values[1]))
    assert mixed.means(["task"]) == {"reward_task": 0.5, "reward_model": pytest.approx(sum(values) / 2)}
    alone = mix(judges[role], alpha=0.0, beta=0.5)
    unknown = Outcome(status=OutcomeStatus.UNKNOWN)
    runs = tuple(run.model_copy(update={"outcome": unknown}) for run in group().trajectories)
    (row,) = alone.rows([group().model_copy(update={"trajectories": runs})])
    assert isinstance(row, GroupRow)
    assert row.rewards == pytest.approx([0.5 * value for value in values])
    assert alone.means(["task"])["reward_task"] is None, "no verdict is no reward of 0"
    (row,) = mixed.rows([group()])
    if role == "step_model":
        for given, value in zip(row.step_values, read, strict=True):
            assert isinstance(value, RunValue)
            assert list(given) == [step.value for step in value.steps]
            assert value.value == pytest.approx(sum(step.value or 0.0 for step in value.steps) / len(value.steps))


def test_a_run_that_the_model_cannot_read_is_left_out_and_not_worth_zero(judges: dict[str, Agent]) -> None:
    mixed = mix(judges["reward_model"])
    whole = group()
    too_long = GroupRow(key="t", trajectories=(*whole.trajectories, episode(60)), rewards=(1.0, 0.0, 0.5))
    (row,) = mixed.rows([too_long])
    assert isinstance(row, GroupRow)
    assert len(row.trajectories) == len(row.rewards) == 2
    assert mixed.left_out == {UNREAD: 1}
    assert mixed.rows([GroupRow(key="u", trajectories=(episode(60),), rewards=(1.0,))]) == []


def test_each_term_of_the_reward_is_reported_at_each_step(
    model_folder: Path, tmp_path: Path, judges: dict[str, Agent]
) -> None:
    spec_ = job(model_folder, tmp_path / "out", judges["step_model"], step_level=True, kl_coefficient=0.1, epochs=1)
    report, heard = run(spec_, tmp_path / "job", rows_for("grpo", 4))
    assert report.steps == 2
    for _, _, metrics in heard.steps:
        assert {"reward_task", "reward_model", "drift"} <= metrics.keys()
        assert metrics["reward_task"] == pytest.approx(0.5)
        assert 0 < (metrics["reward_model"] or 0) < 1


def test_the_model_separates_equal_task_rewards(model_folder: Path, tmp_path: Path, judges: dict[str, Agent]) -> None:
    rows = [group(key=f"t{i}", rewards=(1.0, 1.0)) for i in range(2)]
    report, _ = run(job(model_folder, tmp_path / "a", judges["reward_model"], epochs=1), tmp_path / "job-a", rows)
    assert report.dropped == {}, "no_variance without it"


def online(model: Path, output: Path, judge: Agent, **config: Any) -> TrainSpec:
    offline = job(model, output, judge, rollouts=3, updates_per_rollout=2, checkpoint_every_steps=3, **config)
    return offline.model_copy(update={"dataset_id": None, "dataset_path": None, "environment": "x"})


def collect(*arguments: Any) -> list[GroupRow]:
    """The same two runs, of another task in each iteration."""
    good, bad = run_of(arguments[-1], "It costs 40."), run_of(arguments[-1], "No idea.", success=False)
    return [GroupRow(key=f"t{arguments[-1]}", trajectories=(good, bad), rewards=(1.0, 0.0))]


def test_a_killed_run_whose_step_model_is_refreshed_resumes_to_bit_equal_weights(
    model_folder: Path, tmp_path: Path, judges: dict[str, Agent]
) -> None:
    """6 steps of 3 rollouts; refreshes when rollouts 1 and 2 have been valued; killed after 5, from a checkpoint at 3."""
    judge, options, whole = judges["step_model"], {"refresh_every_steps": 2}, Recorder()
    train(online(model_folder, tmp_path / "whole", judge, **options), Data(), tmp_path / "a", whole, collect)
    spec_ = online(model_folder, tmp_path / "out", judge, **options)
    report, heard = resumed(spec_, tmp_path / "b", Data(), kill_at=5, collect=collect)
    assert report.resumed_from_step == 3
    metrics = [[(m["loss"], m["reward_model"], m["reward_task"]) for _, _, m in r.steps] for r in (whole, heard)]
    assert metrics[1] == metrics[0][3:]
    assert same(tmp_path / "whole", tmp_path / "out")


@pytest.mark.parametrize("role", ["reward_model", "step_model"])
def test_a_refresh_fits_the_head_to_newest_outcomes_after_they_were_valued(judges: dict[str, Agent], role: str) -> None:
    mixed = mix(judges[role], refresh_every_steps=2)
    body = {name: p.clone() for name, p in mixed.model.engine.model.named_parameters() if "value_head" not in name}

    def misfit() -> float:
        """-log p of the outcomes, by step of a step model; of a reward model, of the order of the two runs."""
        good, bad = (value for value in mixed.model.read(group().trajectories) if isinstance(value, RunValue))
        if good.reward is not None and bad.reward is not None:
            return math.log1p(math.exp(bad.reward - good.reward))
        losses = [-math.log(s.value or 0.0) for s in good.steps] + [-math.log(1 - (s.value or 0.0)) for s in bad.steps]
        return sum(losses) / len(losses)

    before = misfit()
    first = mixed.rollout([group()], 0)
    assert misfit() == before, "not due yet"
    assert mixed.rollout([group()], 2) == first, "the rollout was valued before the head learnt from it"
    assert misfit() < before
    assert mixed.refreshed_at == 2
    for name, parameter in mixed.model.engine.model.named_parameters():
        assert "value_head" in name or torch.equal(body[name], parameter)


def test_outcomes_that_are_not_known_refresh_nothing(judges: dict[str, Agent]) -> None:
    mixed = mix(judges["step_model"], refresh_every_steps=1)
    unknown = [t.model_copy(update={"outcome": Outcome(status=OutcomeStatus.UNKNOWN)}) for t in group().trajectories]
    before = mixed.model.head.weight.clone()
    mixed.rollout([group().model_copy(update={"trajectories": tuple(unknown)})], 5)
    assert torch.equal(before, mixed.model.head.weight)
