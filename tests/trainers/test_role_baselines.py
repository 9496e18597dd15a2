"""Baselines of the roles of a game, by hand, and what self-play can not be combined with."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from quintain.records.dataset import GroupRow
from quintain.records.hyperparameters import GRPOConfig, SelfPlayConfig
from quintain.records.trajectory import Actor, Outcome, OutcomeStatus, Step, Trajectory
from quintain.trainers.data.streams import Example, token_row
from quintain.trainers.rollout_advantages import RoleBaselines


def group(role: str, *rewards: float) -> GroupRow:
    run = Trajectory(
        steps=(Step(actor=Actor.AGENT, message="x"),),
        outcome=Outcome(status=OutcomeStatus.SUCCESS),
        extra={"role": role},
    )
    return GroupRow(key=f"t/{role}", trajectories=(run,) * len(rewards), rewards=rewards)


def example(row: GroupRow, *lengths: int) -> Example:
    """A group with so many tokens of the agent in each run, by default one."""
    sizes = lengths or (1,) * len(row.rewards)
    rows = tuple(token_row([7] * (n + 1), [False, *[True] * n]) for n in sizes)
    return Example(rows, tuple(range(len(rows))), row.rewards, 1.0, row.key)


def test_a_run_is_compared_with_the_running_mean_of_its_role() -> None:
    """Decay 0.8 from 0.5: first 1, 1 -> 0.64 * 0.5 + 0.36 = 0.68, and after two more 0.64 * 0.68 + 0.36 = 0.7952.

    Second 0, 1 with 3 tokens and 1, in the mean 0.25 -> 0.32 + 0.09 = 0.41.

    A run of a rollout is compared with the baseline after it. A run without a turn of its player gives no example, and does not count.
    """
    stage = RoleBaselines(0.8)
    first, second = group("first", 1.0, 1.0), group("second", 0.0, 1.0)
    found, figures = stage([example(first), example(second, 3, 1)], [first, group("second", 0.0, 1.0, 1.0)])
    advantages = [float(row.advantage[1]) for one in found for row in one.rows if row.advantage is not None]
    assert advantages == pytest.approx([0.32, 0.32, -0.41, 0.59]), "equal rewards teach too"
    assert figures == {"baseline_first": pytest.approx(0.68), "baseline_second": pytest.approx(0.41)}
    resumed = RoleBaselines(0.8)
    resumed.restore(stage.state())
    (later,), _ = resumed([example(first)], [first])
    assert [row.advantage[0] for row in later.rows if row.advantage is not None] == pytest.approx([0.2048, 0.2048])
    assert resumed.baselines["second"] == pytest.approx(0.41), "a role that did not play keeps its baseline"


@pytest.mark.parametrize("setting", [{"step_level": True}, {"constraint": {"limit": 0.1}}])
def test_a_baseline_by_role_refuses_what_needs_a_group(setting: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"self_play\.baseline to 'group'"):
        GRPOConfig(self_play=SelfPlayConfig(), **setting)  # type: ignore[arg-type]
    assert not GRPOConfig(self_play=SelfPlayConfig(baseline="group"), **setting).by_role  # type: ignore[arg-type]
