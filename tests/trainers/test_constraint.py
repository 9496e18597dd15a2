"""Constraints: the multiplier and the combined advantages by hand, for GRPO and for PPO, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from quintain.errors import TrainingFailed
from quintain.records.dataset import GroupRow
from quintain.records.hyperparameters.methods import ConstraintConfig, GRPOConfig, PPOConfig
from quintain.records.trajectory import COST
from quintain.trainers.data.examples import ExampleBatch, ExampleMaker
from quintain.trainers.data.streams import Example, token_row
from quintain.trainers.engine.forward import Engine
from quintain.trainers.models.value_head import attach
from quintain.trainers.rollouts.advantages import RolloutAdvantages
from quintain.trainers.rollouts.constraint import (
    ConstrainedGroups,
    Constraint,
    constrained_advantages,
    cost_of,
    next_multiplier,
)
from tiny_models import tiny_model, tiny_tokenizer
from trainers.runs import run_of

SEARCHES = {"type": "calls", "tool": "search", "full_at": 1, "zero_at": 0}


def group(rewards: tuple[float, ...], costs: tuple[float | None, ...], key: str = "g") -> GroupRow:
    """Runs with a reward and a cost each; None: the environment reports none."""
    runs = [run_of(i, f"It costs {i}.") for i in range(len(rewards))]
    known = [
        run if cost is None else run.model_copy(update={"extra": {COST: cost}})
        for run, cost in zip(runs, costs, strict=True)
    ]
    return GroupRow(key=key, trajectories=tuple(known), rewards=rewards)


def examples_of(row: GroupRow, config: GRPOConfig | PPOConfig) -> tuple[list[Example] | str, ExampleBatch]:
    batch = ExampleBatch()
    return ExampleMaker.of(tiny_tokenizer(), "auto", config, 400).of_rollout(row, batch), batch


def test_the_multiplier_follows_the_excess_cost_within_its_bounds() -> None:
    settings: dict[str, float] = {"limit": 0.1, "rate": 0.5, "most": 2.0}
    assert next_multiplier(0.5, 0.8, **settings) == pytest.approx(0.85)
    assert next_multiplier(0.02, 0.0, **settings) == 0.0
    assert next_multiplier(1.9, 5.0, **settings) == 2.0
    assert constrained_advantages(np.array([2.0, -2.0]), np.array([1.0, -1.0]), 3.0) == pytest.approx([-0.25, 0.25])


def test_a_cost_is_the_environments_or_the_value_of_a_declared_scorer() -> None:
    (costly, unknown) = group((1, 0), (2.5, None)).trajectories
    environment = ConstraintConfig(limit=0)
    assert [cost_of(run, environment) for run in (costly, unknown)] == [2.5, None]
    calls = sum(action.tool == "search" for step in costly.agent_steps for action in step.actions)
    declared = ConstraintConfig.model_validate({"limit": 0, "cost": SEARCHES})
    assert cost_of(costly, declared) == min(calls, 1)
    with pytest.raises(TrainingFailed, match=r"no_cost.*reports no metric.*set constraint.cost to a scorer"):
        Constraint(environment).observe([group((1, 0), (None, None))])
    with pytest.raises(ValidationError, match=r"multiplier is 3\.0 and max_multiplier 2\.0"):
        ConstraintConfig(limit=0, multiplier=3, max_multiplier=2)


def test_grpo_learns_from_rewards_and_costs_that_are_normalised_apart() -> None:
    """The mean cost of 0.5 brings the multiplier from 0.5 to 1. The first group differs in reward alone, the second in cost."""
    config = GRPOConfig(scale_rewards=False, constraint=ConstraintConfig(limit=0.0, multiplier=0.5, rate=1.0))
    assert config.constraint
    stage = ConstrainedGroups(Constraint(config.constraint), scale=False)
    groups = [group((1.0, 0.0), (0.0, 0.0)), group((1.0, 1.0), (2.0, 0.0))]
    examples = [example for row in groups for example in examples_of(row, config)[0]]
    done, figures = stage(examples, groups)  # type: ignore[arg-type]
    assert figures == {"mean_cost": 0.5, "cost_multiplier": 1.0}
    found = [[set(row.advantage.tolist()) for row in e.rows if row.advantage is not None] for e in done]
    assert found == [[{0.25}, {-0.25}], [{-0.5}, {0.5}]]
    assert stage.state() == {"multiplier": 1.0}
    assert examples_of(group((1, 1), (3.0, 3.0)), config)[0] == "no_variance"
    kept, batch = examples_of(group((1, 0, 0), (1.0, None, 0.0)), config)
    assert isinstance(kept, list)
    assert (kept[0].cost, kept[0].value, batch.left_out_members) == ((1.0, 0.0), (1.0, 0.0), {"no_cost": 1})


def test_ppo_values_costs_by_a_head_of_their_own_and_keeps_its_multiplier() -> None:
    """Values 0.5 and 0.25: advantages of reward 0.5 and -0.5, of cost 1.75 and -0.25; the multiplier becomes 1.0."""
    config = PPOConfig(
        kl_coefficient=0.0,
        whiten=False,
        gae_lambda=1.0,
        constraint=ConstraintConfig(limit=0.5, multiplier=0.5, rate=1.0),
    )
    model = tiny_model(tiny_tokenizer()).eval()
    head = attach(model, ("critic", "cost_critic"), None)
    head.bias.data.copy_(head.bias.new_tensor([0.5, 0.25]))
    stage = RolloutAdvantages(config, Engine.of(model))
    rows = tuple(token_row([9, 10 + i], [False, True], old_logprob=[np.nan, -1.0]) for i in range(2))
    (example,), figures = stage([Example(rows, (0, 1), (1.0, 0.0), cost=(2.0, 0.0))], [group((1, 0), (2.0, 0.0))])
    assert (figures["mean_cost"], figures["cost_multiplier"]) == (1.0, 1.0)
    found: list[Any] = [(row.advantage, row.label, row.old_value) for row in example.rows]
    assert [float(advantage[1]) for advantage, _, _ in found] == pytest.approx([-0.625, -0.125])
    assert [label[1].tolist() for _, label, _ in found] == [[1.0, 2.0], [0.0, 0.0]]
    assert [old[1].tolist() for _, _, old in found] == [[0.5, 0.25]] * 2
    fresh = RolloutAdvantages(config, Engine.of(model))
    fresh.restore(stage.state())
    assert fresh.state() == stage.state() == {"kl_coefficient": 0.0, "multiplier": 1.0}
