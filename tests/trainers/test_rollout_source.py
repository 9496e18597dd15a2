from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from quintain.records.dataset import GroupRow
from quintain.records.hyperparameters.methods import GRPOConfig, SelfPlayConfig
from quintain.records.trajectory import Actor, Outcome, OutcomeStatus, SampledTokens, Step, Trajectory
from quintain.trainers.data.streams import Example, token_row
from quintain.trainers.losses.loss_output import totals_of
from quintain.trainers.rollouts.role_baselines import RoleBaselines
from quintain.trainers.rollouts.source import RolloutSource


def run_of(status: OutcomeStatus, turns: int) -> Trajectory:
    """A run whose turns have four sampled tokens each."""
    sampled = SampledTokens(token_ids=(1, 2, 3, 4), logprobs=(-0.5,) * 4, tokenizer="tok")
    steps = [Step(actor=Actor.AGENT, message=str(turn), sampled=sampled) for turn in range(turns)]
    return Trajectory(steps=tuple(steps), outcome=Outcome(status=status))


def group(key: str, *rewards: float) -> GroupRow:
    """Full reward is success; run i has i + 1 turns."""
    runs = [
        run_of(OutcomeStatus.SUCCESS if reward == 1 else OutcomeStatus.FAILURE, i + 1)
        for i, reward in enumerate(rewards)
    ]
    return GroupRow(key=key, trajectories=tuple(runs), rewards=rewards)


def make(row: GroupRow) -> list[Example] | str:
    """One example with one row a run; its old log-prob is unknown in one place, its advantage is the reward."""
    if len(set(row.rewards)) == 1:
        return "no_variance"
    rows = tuple(
        token_row(
            [7, 8, 9, i],
            [False, True, True, i > 0],
            advantage=[reward] * 4,
            old_logprob=[np.nan, -0.1, -0.2 - i, -0.3],
            step_index=[-1, 0, 0, 1],
        )
        for i, reward in enumerate(row.rewards)
    )
    return [Example(rows, tuple(range(len(rows))), row.rewards, 0.5, row.key, divisible=False)]


class Playing:
    """Plays iteration i as groups that carry its number, and notes which iterations it played."""

    def __init__(self, groups: Sequence[GroupRow] | None = None) -> None:
        self.groups = groups
        self.played: list[int] = []

    def __call__(self, iteration: int) -> list[GroupRow]:
        self.played.append(iteration)
        if self.groups is not None:
            return list(self.groups)
        return [group(f"{iteration}/a", 1.0, 0.0), group(f"{iteration}/b", 1.0, 1.0), group(f"{iteration}/c", 0.0, 1.0)]


def source(collect: Playing, updates: int = 3, **options: Any) -> RolloutSource:
    return RolloutSource(collect, make, rollouts=4, updates_per_rollout=updates, **options)


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def assert_equal(left: Sequence[Example], right: Sequence[Example]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert (a.member, a.value, a.weight, a.key, a.divisible) == (b.member, b.value, b.weight, b.key, b.divisible)
        for one, other in zip(a.rows, b.rows, strict=True):
            for name, stream in vars(one).items():
                np.testing.assert_array_equal(stream, getattr(other, name), strict=stream is not None)


def test_every_update_of_an_iteration_sees_all_its_usable_groups() -> None:
    """Four rollouts with three updates each are twelve steps; group b has equal rewards."""
    collect = Playing()
    rollouts = source(collect)
    assert rollouts.total_steps == 12
    for step in range(12):
        assert [example.key for example in rollouts.step(step)] == [f"{step // 3}/a", f"{step // 3}/c"]
        assert collect.played == list(range(step // 3 + 1))
    assert [step for step in range(12) if rollouts.ends_epoch(step)] == [2, 5, 8, 11]


def test_an_iteration_without_a_usable_group_gives_steps_without_examples() -> None:
    collect = Playing([group("a", 1.0, 1.0), group("b", 0.0, 0.0)])
    rollouts = source(collect, updates=2)
    assert [list(rollouts.step(step)) for step in range(4)] == [[], [], [], []]
    assert collect.played == [0, 1]
    assert rollouts.metrics()["groups_skipped_no_variance"] == 2


def test_a_reason_of_an_earlier_rollout_alone_is_zero_in_the_newest() -> None:
    """A job shows the newest value of each metric: 0 groups skipped stood beside 2 of them for no_variance."""
    collect = Playing([group("a", 1.0, 1.0), group("b", 0.0, 0.0)])
    rollouts = source(collect, updates=1)
    rollouts.step(0)
    collect.groups = [group("a", 1.0, 0.0)]
    rollouts.step(1)
    newest = rollouts.metrics()
    assert (newest["groups_skipped"], newest["groups_skipped_no_variance"]) == (0, 0)


def test_figures_are_those_of_the_newest_rollout() -> None:
    """Groups of rewards (1, 0), (1, 1) and (0, 1): 4 of 6 succeed, in 1 and 2 turns of 4 tokens, 36 tokens in 2 s."""
    seconds = iter([10.0, 12.0])
    rollouts = source(Playing(), clock=lambda: next(seconds))
    assert rollouts.metrics() == {}
    rollouts.step(0)
    assert rollouts.metrics() == {
        "success_rate": pytest.approx(4 / 6),
        "mean_reward": pytest.approx(4 / 6),
        "episodes": 6.0,
        "mean_turns": 1.5,
        "new_tokens_per_s": 18.0,
        "groups_used": 2.0,
        "examples": 2.0,
        "groups_skipped": 1.0,
        "groups_skipped_no_variance": 1.0,
    }


def test_a_reason_to_skip_groups_is_zero_in_the_next_rollout_without_it() -> None:
    collect = Playing([group("a", 1.0, 1.0)])
    rollouts = source(collect, updates=1)
    rollouts.step(0)
    collect.groups = [group("a", 1.0, 0.0)]
    rollouts.step(1)
    assert (rollouts.metrics()["groups_skipped"], rollouts.metrics()["groups_skipped_no_variance"]) == (0.0, 0.0)


def test_a_restored_source_goes_on_in_the_middle_of_an_iteration_without_playing_it_again() -> None:
    first = source(Playing())
    for step in range(5):
        first.step(step)
    collect = Playing()
    second = source(collect)
    second.restore(through_a_file(first.state()))
    assert second.metrics() == first.metrics()
    assert_equal(second.step(5), first.step(5))
    assert collect.played == []
    assert_equal(second.step(6), first.step(6))
    assert collect.played == [2]
    first.step(5)
    assert first.state()["examples"] is None, "an iteration that is used up is not stored"


def test_a_stopped_rollout_leaves_no_trace() -> None:
    collect = Playing()
    first = source(collect)
    for step in range(3):
        first.step(step)
    before = first.state()
    collect.groups = []  # the job was asked to stop
    assert list(first.step(3)) == []
    assert first.state() == before
    second = source(again := Playing())
    second.restore(through_a_file(first.state()))
    assert [example.key for example in second.step(3)] == ["1/a", "1/c"]
    assert again.played == [1]


def test_each_epoch_over_a_rollout_uses_every_example_once_in_a_new_order_also_after_a_resumption() -> None:
    def source() -> RolloutSource:
        groups = [group(f"task-{n}", 0.0, 1.0) for n in range(7)]
        return RolloutSource(Playing(groups), make, rollouts=2, updates_per_rollout=6, minibatches=3, seed=5)

    whole = source()
    keys = [[example.key for example in whole.step(step)] for step in range(12)]
    epochs = [list(chain.from_iterable(keys[first : first + 3])) for first in range(0, 12, 3)]
    assert [sorted(epoch) for epoch in epochs] == [sorted(f"task-{n}" for n in range(7))] * 4
    assert len({tuple(epoch) for epoch in epochs}) == 4, "each epoch, of each rollout, has an order of its own"
    part, played = whole.step(11), whole.played()
    assert (len(part), len(played)) == (2, 7)
    assert totals_of(part, played)._replace(reward_deviation=0.0) == totals_of(part)._replace(reward_deviation=0.0)
    assert totals_of(part, played).reward_deviation == totals_of(played).reward_deviation

    interrupted, resumed = source(), source()
    for step in range(4):
        interrupted.step(step)
    resumed.restore(through_a_file(interrupted.state()))
    assert [[example.key for example in resumed.step(step)] for step in range(4, 6)] == keys[4:6]


def role_group(role: str, *rewards: float) -> GroupRow:
    run = Trajectory(
        steps=(Step(actor=Actor.AGENT, message="x"),),
        outcome=Outcome(status=OutcomeStatus.SUCCESS),
        extra={"role": role},
    )
    return GroupRow(key=f"t/{role}", trajectories=(run,) * len(rewards), rewards=rewards)


def role_example(row: GroupRow, *lengths: int) -> Example:
    """A role_group with so many tokens of the agent in each run, by default one."""
    sizes = lengths or (1,) * len(row.rewards)
    rows = tuple(token_row([7] * (n + 1), [False, *[True] * n]) for n in sizes)
    return Example(rows, tuple(range(len(rows))), row.rewards, 1.0, row.key)


def test_a_run_is_compared_with_the_running_mean_of_its_role() -> None:
    """Decay 0.8 from 0.5: first 1, 1 -> 0.64 * 0.5 + 0.36 = 0.68, and after two more 0.64 * 0.68 + 0.36 = 0.7952.

    Second 0, 1 with 3 tokens and 1, in the mean 0.25 -> 0.32 + 0.09 = 0.41.

    A run of a rollout is compared with the baseline after it. A run without a turn of its player gives no role_example, and does not count.
    """
    stage = RoleBaselines(0.8)
    first, second = role_group("first", 1.0, 1.0), role_group("second", 0.0, 1.0)
    found, figures = stage(
        [role_example(first), role_example(second, 3, 1)], [first, role_group("second", 0.0, 1.0, 1.0)]
    )
    advantages = [float(row.advantage[1]) for one in found for row in one.rows if row.advantage is not None]
    assert advantages == pytest.approx([0.32, 0.32, -0.41, 0.59]), "equal rewards teach too"
    assert figures == {"baseline_first": pytest.approx(0.68), "baseline_second": pytest.approx(0.41)}
    resumed = RoleBaselines(0.8)
    resumed.restore(stage.state())
    (later,), _ = resumed([role_example(first)], [first])
    assert [row.advantage[0] for row in later.rows if row.advantage is not None] == pytest.approx([0.2048, 0.2048])
    assert resumed.baselines["second"] == pytest.approx(0.41), "a role that did not play keeps its baseline"


@pytest.mark.parametrize("setting", [{"step_level": True}, {"constraint": {"limit": 0.1}}])
def test_a_baseline_by_role_refuses_what_needs_a_group(setting: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"self_play\.baseline to 'group'"):
        GRPOConfig(self_play=SelfPlayConfig(), **setting)  # type: ignore[arg-type]
    assert not GRPOConfig(self_play=SelfPlayConfig(baseline="group"), **setting).by_role  # type: ignore[arg-type]
