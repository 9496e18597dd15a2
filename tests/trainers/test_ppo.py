"""PPO: returns and advantages by hand and by the formulas of TRL and verl, its losses, and what a rollout becomes."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quintain.records.agent import ModelRef
from quintain.records.hyperparameters.methods import PPOConfig
from quintain.trainers.data.streams import Example, streams_of, token_row
from quintain.trainers.engine.forward import Engine
from quintain.trainers.loop.objectives import objective_of
from quintain.trainers.loop.optimizer import adamw, update
from quintain.trainers.losses.advantage_estimation import (
    baselines,
    discounted_sums,
    generalized_advantages,
    next_kl_coefficient,
    whiten,
)
from quintain.trainers.losses.loss_output import totals_of
from quintain.trainers.losses.ppo import value_loss
from quintain.trainers.models.loading import load_model, save_model, stored_heads
from quintain.trainers.models.value_head import attach, has_own_critic, head_of, heads_of
from quintain.trainers.rollouts.advantages import RolloutAdvantages
from tiny_models import save_tiny_model, tiny_model, tiny_tokenizer

NAN = math.nan


def test_generalised_advantages_are_those_worked_out_by_hand() -> None:
    """Errors 0.1, 0.2, 0.2 with gamma 1 and lambda 0.95; 0.04, 0.12, 0.2 with gamma 0.9 and lambda 0.5."""
    rewards, values = np.array([0.0, 0.0, 1.0]), np.array([0.5, 0.6, 0.8])
    near = generalized_advantages(rewards, values, gamma=1.0, lam=0.95)
    assert near == pytest.approx([0.4705, 0.39, 0.2])
    assert generalized_advantages(rewards, values, gamma=0.9, lam=0.5) == pytest.approx([0.1345, 0.21, 0.2])
    assert generalized_advantages(rewards, values, gamma=1.0, lam=1.0) + values == pytest.approx([1.0, 1.0, 1.0])
    assert generalized_advantages(rewards, values, gamma=1.0, lam=0.0) == pytest.approx([0.1, 0.2, 0.2])
    assert discounted_sums(np.array([1.0, 0.0, 4.0]), 0.5) == pytest.approx([2.0, 2.0, 4.0])


def test_advantages_of_a_run_with_observations_are_those_of_trl_and_verl() -> None:
    """verl's loop carries the next value and advantage past masked tokens; without a mask it is TRL's."""
    random = np.random.default_rng(0)
    mask = np.array([0, 1, 1, 0, 0, 1, 0, 1, 1, 0], np.bool_)
    rewards, values = random.normal(size=10) * mask, random.normal(size=10)
    following, last, expected = 0.0, 0.0, np.zeros(10)
    for t in reversed(range(10)):
        delta = rewards[t] + 0.9 * following - values[t]
        carried = delta + 0.9 * 0.7 * last
        following = values[t] if mask[t] else following
        last = expected[t] = carried if mask[t] else last
    ours = generalized_advantages(rewards[mask], values[mask], gamma=0.9, lam=0.7)
    assert ours == pytest.approx(expected[mask])
    tensor = torch.from_numpy(ours)
    assert whiten(ours) == pytest.approx(((tensor - tensor.mean()) * torch.rsqrt(tensor.var() + 1e-8)).numpy())
    assert whiten(np.array([3.0])) == [0.0]


def test_a_baseline_is_the_mean_of_the_task_or_of_its_other_runs() -> None:
    assert baselines([np.float64(r) for r in (1, 0, 5)], leave_one_out=True) == pytest.approx([2.5, 3.0, 0.5])
    assert baselines([np.float64(r) for r in (1, 0, 5)], leave_one_out=False) == pytest.approx([2.0, 2.0, 2.0])


@pytest.mark.parametrize(("kl", "expected"), [(0.11, 0.05 * 1.001), (0.5, 0.05 * 1.002), (0.0, 0.05 * 0.998)])
def test_the_kl_coefficient_follows_the_error_cut_at_a_fifth(kl: float, expected: float) -> None:
    assert next_kl_coefficient(0.05, kl, target=0.1, n=100, horizon=10_000) == pytest.approx(expected)


def test_the_value_loss_takes_the_worse_of_the_clipped_and_the_plain_error() -> None:
    """Returns 1, values of the rollout 0.2: 1.1 is cut to 0.7, which is the larger error; 0.4 is within the bounds."""
    row = token_row([1, 2, 3, 4], [False, True, True, True])
    row = row.with_supervised("label", [[1.0], [1.0], [NAN]]).with_supervised("old_value", [[0.2], [0.2], [NAN]])
    examples = [Example((row,), (0,))]
    totals = totals_of(examples)
    assert (totals.labels, totals.weight) == (2, 3.0)
    values = torch.tensor([[2.0], [0.4], [9.0]], requires_grad=True)
    plain = value_loss(values, streams_of(examples), totals)
    assert float(plain.loss.detach()) == pytest.approx((1.0 + 0.36) / 2 / 2)
    clipped = value_loss(torch.tensor([[1.1], [0.4], [9.0]]), streams_of(examples), totals, clip=0.5)
    assert float(clipped.loss) == pytest.approx((0.3**2 + 0.36) / 2 / 2)
    assert clipped.metrics["value_clip_share"] == (1.0, 2.0)
    plain.loss.backward()
    assert values.grad is not None
    assert values.grad.flatten().tolist() == pytest.approx([0.5, -0.3, 0.0])


@cache
def _tokenizer() -> Any:
    return tiny_tokenizer()


def _engine(bias: float = 0.5) -> Engine:
    """A tiny model whose value head answers `bias` everywhere."""
    model = tiny_model(_tokenizer()).eval()
    head = attach(model, ("critic",), None)
    with torch.no_grad():
        head.bias.fill_(bias)
    return Engine.of(model)


def _rollout(*rewards: float) -> list[Example]:
    """One task: a run a reward, with a turn of two tokens, an observation, and a turn of one; KL 0.1, 0.2 and 0.3 nats."""
    row = token_row(
        [9, 10, 11, 12, 13, 14], [False, True, True, False, False, True], step_index=[-1, 1, 1, -1, -1, 3],
        old_logprob=[NAN, -1.0, -1.0, NAN, NAN, -1.0], ref_logprob=[NAN, -1.1, -1.2, NAN, NAN, -1.3],
    )  # fmt: skip
    rows = tuple(row.with_supervised("weight", [1, 1, 1]) for _ in rewards)
    return [Example(rows, tuple(range(len(rows))), rewards, key="task")]


def _advantages(*rewards: float, **settings: Any) -> tuple[RolloutAdvantages, list[list[float]], Example, Any]:
    stage = RolloutAdvantages(PPOConfig(kl_coefficient=0.1, **settings), _ENGINE())
    (example,), figures = stage(_rollout(*rewards), ())
    found = [row.advantage[row.places].tolist() for row in example.rows if row.advantage is not None]
    return stage, found, example, figures


_ENGINE = cache(_engine)


def test_a_turn_is_one_action_whose_tokens_share_its_advantage() -> None:
    """Rewards -0.03 and 1 - 0.03, values 0.5: errors -0.03 and 0.47, and -0.03 + 0.95 * 0.47 = 0.4165."""
    stage, (found,), example, figures = _advantages(1.0, whiten=False, kl_target=0.1, kl_horizon=10)
    assert found == pytest.approx([0.4165, 0.4165, 0.47])
    row = example.rows[0]
    assert row.label is not None
    assert row.old_value is not None
    assert row.label[row.places].flatten() == pytest.approx([0.9165, NAN, 0.97], nan_ok=True)
    assert row.old_value[row.places].flatten() == pytest.approx([0.5, NAN, 0.5], nan_ok=True)
    assert figures["kl_sampled"] == pytest.approx(0.2)
    assert figures["kl_coefficient"] == 0.1
    assert stage.state() == {"kl_coefficient": pytest.approx(0.1 * 1.02)}, "the next rollout's"


def test_a_token_may_be_an_action_of_its_own() -> None:
    _, (found,), example, _ = _advantages(1.0, whiten=False, action_level="token")
    assert found == pytest.approx([0.395175, 0.4265, 0.47])
    assert example.rows[0].label is not None
    assert np.isfinite(example.rows[0].label).sum() == 3


def test_forms_without_a_critic_take_returns_less_their_baseline() -> None:
    """The returns of a run with reward r are r - 0.06 and r - 0.03."""
    _, plain, example, _ = _advantages(1.0, 0.0, advantage="reinforce_pp", whiten=False)
    assert np.array(plain) == pytest.approx(np.array([[0.94, 0.94, 0.97], [-0.06, -0.06, -0.03]]))
    assert example.rows[0].label is None
    _, others, _, _ = _advantages(1.0, 0.0, advantage="rloo", group_size=2)
    assert np.array(others) == pytest.approx(np.array([[1.0, 1.0, 1.03], [-1.0, -1.0, -0.97]]))
    _, mean, _, _ = _advantages(1.0, 0.0, advantage="reinforce_pp_baseline", group_size=2, whiten=False)
    assert np.array(mean) == pytest.approx(np.array([[0.5, 0.5, 0.53], [-0.5, -0.5, -0.47]]))
    _, white, _, _ = _advantages(1.0, 0.0, advantage="reinforce_pp")
    actions = np.array([white[0][0], white[0][2], white[1][0], white[1][2]])
    assert (actions.mean(), actions.var(ddof=1)) == pytest.approx((0.0, 1.0), abs=1e-6)


def test_values_learn_the_returns_of_two_states_while_the_policy_stays() -> None:
    """Two prompts, worth 1 and 0: the value head alone finds both, and no other weight moves."""
    config = PPOConfig(learning_rate=1e-3, critic_learning_rate=0.03, kl_coefficient=0.0, whiten=False, value_clip=None)
    engine, objective = _engine(0.0), objective_of(config)
    policy = {name: p.clone() for name, p in engine.model.named_parameters() if "value_head" not in name}
    runs = [
        Example((token_row([prompt, 20], [False, True], old_logprob=[NAN, -5.0]),), (0,), (reward,))
        for prompt, reward in ((7, 1.0), (8, 0.0))
    ]
    examples, figures = RolloutAdvantages(config, engine)(runs, ())
    assert figures["explained_variance"] == pytest.approx(0.0)
    optimizer, scale = adamw(engine.model, config), torch.amp.GradScaler("cpu", enabled=False)
    objective.settings |= objective.settings_at(0)
    rows, streams, totals = [row for e in examples for row in e.rows], streams_of(examples), totals_of(examples)
    for _ in range(120):
        objective.output(objective.scored(engine, rows), streams, totals).loss.backward()
        update(optimizer, scale, 1e-3)
    assert engine.values(rows).flatten().tolist() == pytest.approx([1.0, 0.0], abs=0.05)
    _, figures = RolloutAdvantages(config, engine)(runs, ())
    assert figures["explained_variance"] == pytest.approx(1.0, abs=0.02)
    assert all(torch.equal(p, policy[name]) for name, p in engine.model.named_parameters() if name in policy)
    objective.settings |= objective.settings_at(config.critic_only_steps)
    objective.output(objective.scored(engine, rows), streams, totals).loss.backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in (engine.model.get_input_embeddings().weight,))


def test_a_separate_critic_learns_in_layers_of_its_own_which_are_stored_and_read_again(tmp_path: Path) -> None:
    """The copy values as the shared trunk does until it learns; then the policy's log-probs stay and the values move."""
    save_tiny_model(tmp_path / "model")
    ref = ModelRef(source="folder", path=str(tmp_path / "model"))
    config = PPOConfig(critic="separate", learning_rate=1e-3, kl_coefficient=0.0, value_clip=None)
    loaded = load_model(ref, train=True, heads=heads_of(config), own_critic=has_own_critic(config))
    engine, objective = Engine.of(loaded.model), objective_of(config)
    (example,), _ = RolloutAdvantages(config, engine)(_rollout(1.0, 0.5), ())
    rows, before = list(example.rows), engine.scores_and_values(list(example.rows))
    optimizer, scale = adamw(engine.model, config), torch.amp.GradScaler("cpu", enabled=False)
    objective.settings |= objective.settings_at(0)
    for _ in range(3):
        output = objective.output(objective.scored(engine, rows), streams_of([example]), totals_of([example]))
        output.loss.backward()
        update(optimizer, scale, 1e-3)
    after = engine.scores_and_values(rows)
    assert torch.equal(before.logprobs, after.logprobs), "the warm-up leaves the policy alone"
    trunk = head_of(engine.model).trunk  # type: ignore[union-attr]
    assert not torch.equal(trunk.model.layers[0].mlp.up_proj.weight, engine.model.model.layers[0].mlp.up_proj.weight)
    save_model(engine.model, loaded.tokenizer, tmp_path / "out")
    again = load_model(ref.model_copy(update={"path": str(tmp_path / "out")}), heads=("critic",), own_critic=True)
    assert torch.equal(Engine.of(again.model).values(rows), after.values)  # type: ignore[arg-type]
    shared = load_model(ref.model_copy(update={"path": str(tmp_path / "out")}), heads=("critic",))
    assert not Engine.of(shared.model).values(rows).any(), "a critic of another kind starts anew"
    assert stored_heads(ref.model_copy(update={"path": str(tmp_path / "out")})) == ()


def test_one_pass_gives_the_log_probs_and_values_of_two() -> None:
    engine = _ENGINE()
    rows = [row for example in _rollout(1.0, 0.0) for row in example.rows]
    both = engine.scores_and_values(rows)
    assert both.values is not None
    assert torch.allclose(both.logprobs, engine.logprobs(rows).logprobs, atol=1e-6)
    assert torch.allclose(both.values, engine.values(rows), atol=1e-6)
    assert engine.scores_and_values(rows, frozen=True).logprobs.requires_grad is False
