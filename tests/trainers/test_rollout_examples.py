"""What runs that a model has played become: those cut off, too long or sampled by another program, and pairs of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from quintain.records.dataset import GroupRow
from quintain.records.hyperparameters.methods import DPOConfig, GRPOConfig
from quintain.records.trajectory import Outcome, OutcomeStatus, Trajectory
from quintain.trainers.data.examples import ExampleBatch, ExampleMaker
from quintain.trainers.data.streams import Example, token_row
from quintain.trainers.engine.forward import Engine
from quintain.trainers.losses.advantages import overlong_penalty
from quintain.trainers.rollouts.sampler_correction import with_importance_weights
from tiny_models import tiny_model, tiny_tokenizer
from trainers.own_forward import own_logprobs
from trainers.runs import run_of

TOKENIZER = tiny_tokenizer()


def group(*runs: Trajectory, rewards: tuple[float, ...]) -> GroupRow:
    return GroupRow(key="task", trajectories=runs, rewards=rewards)


def made(row: GroupRow, config: GRPOConfig) -> tuple[Example | str, ExampleBatch]:
    batch = ExampleBatch()
    return ExampleMaker.of(TOKENIZER, "auto", config, 1024).group(row, batch), batch


def test_runs_that_a_limit_cut_off_leave_the_loss_and_not_the_groups_mean() -> None:
    """Rewards 1, 0, 0.5 with mean 0.5: the other runs keep the advantages 1 and 0 in units of the deviation, 0.5."""
    good, bad, plain = run_of(0, "It costs 40."), run_of(0, "No idea."), run_of(0, "Perhaps 40.")
    late = bad.model_copy(update={"outcome": Outcome(status=OutcomeStatus.TRUNCATED, reward=0.0)})
    last = bad.steps[-1].model_copy(update={"extra": {"stop": "length"}})
    long = bad.model_copy(update={"steps": (*bad.steps[:-1], last)})
    for cut in (late, long):
        row = group(good, cut, plain, rewards=(1.0, 0.0, 0.5))
        whole, _ = made(row, GRPOConfig())
        assert isinstance(whole, Example)
        assert whole.n_members == 3
        example, batch = made(row, GRPOConfig(mask_truncated=True))
        assert isinstance(example, Example)
        assert example.value == (1.0, 0.5)
        assert batch.left_out_members == {"truncated": 1}
        advantages = [float(r.advantage[r.supervised][0]) for r in example.rows if r.advantage is not None]
        assert sorted(set(advantages)) == pytest.approx([0.0, 1.0], abs=1e-3)
    assert made(group(late, long, rewards=(1.0, 0.0)), GRPOConfig(mask_truncated=True))[0] == "all_truncated"


def test_step_level_advantages_follow_the_rewards_of_the_steps() -> None:
    """Advantages 1/2 and -1/2 of the runs; steps of rewards 0 and 1: (1/2)(1 -+ 1/2), and -1/2 -+ 1/4."""
    runs = []
    for said in ("It costs 40.", "No idea."):
        run = run_of(0, said)
        steps = [step.model_copy(update={"reward": float(i == len(run.steps) - 1)}) for i, step in enumerate(run.steps)]
        runs.append(run.model_copy(update={"steps": tuple(steps)}))
    config = GRPOConfig(step_level=True, scale_rewards="none")
    example, _ = made(group(*runs, rewards=(1.0, 0.0)), config)
    assert isinstance(example, Example)
    advantages = [r.advantage[r.supervised] for r in example.rows if r.advantage is not None]
    assert [list(dict.fromkeys(values.tolist())) for values in advantages] == [[0.25, 0.75], [-0.75, -0.25]]


def test_the_penalty_of_length_rises_over_the_buffer() -> None:
    """100 tokens with a buffer of 20: nothing up to 80, half at 90, all from 100 on."""
    assert [overlong_penalty(n, 100, 20) for n in (0, 80, 90, 100, 500)] == [0.0, 0.0, 0.5, 1.0, 1.0]


def test_of_two_good_runs_the_one_that_is_too_long_does_worse() -> None:
    """Without the penalty both earn 1 and teach nothing. The longest run is at its limit: 1 - 0.25; the other earns 1."""
    short, long = run_of(0, "It costs 40.", turns=1), run_of(0, "It costs 40, I think. " * 4, turns=1)
    row = group(short, long, rewards=(1.0, 1.0))
    assert made(row, GRPOConfig())[0] == "no_variance"
    rendered = ExampleMaker.of(TOKENIZER, "auto", GRPOConfig(), 1024).renderer.render(long, 1024)
    tokens = sum(r.n_supervised for r in rendered.rows)
    config = GRPOConfig(overlong_tokens=tokens, overlong_buffer=1, overlong_penalty=0.25)
    example, _ = made(row, config)
    assert isinstance(example, Example)
    assert example.value == (1.0, 0.75)


def test_importance_weights_are_those_of_the_model_by_the_sampler_up_to_the_cap() -> None:
    """The sampler's log-probs are the model's less ln 2, 0 and -ln 4 and unknown: weights 2, cut at 1.5, 1, 1/4 and 1."""
    engine = Engine.of(tiny_model(TOKENIZER))
    plain = token_row([5, 6, 7, 8, 9], [False, True, True, True, True], advantage=[2.0] * 5)
    own = own_logprobs(engine.model, [plain]).detach().numpy()
    sampler = own + np.asarray([-math.log(2), 0.0, math.log(4), math.nan])
    example = Example((plain.with_supervised("old_logprob", sampler),), (0,))
    (row,) = with_importance_weights([example], engine, cap=1.5, batch_tokens=64)[0].rows
    assert row.advantage is not None
    assert row.old_logprob is not None
    assert row.advantage[1:].tolist() == pytest.approx([3.0, 2.0, 0.5, 2.0], rel=1e-4)
    assert row.old_logprob[1:].tolist() == pytest.approx(own.tolist(), abs=1e-5)
    (unknown,) = with_importance_weights([Example((plain,), (0,))], engine, cap=1.5, batch_tokens=64)[0].rows
    assert unknown.advantage is not None
    assert unknown.advantage[1:].tolist() == [2.0] * 4


ROOM = 400
"""Tokens of a row."""


def rewarded(**worth: float) -> GroupRow:
    """Runs that end with a word each, and what they earned; a figure behind the word tells equal words apart."""
    runs = tuple(run_of(0, word.rstrip("0123456789")) for word in worth)
    return GroupRow(key="g", trajectories=runs, rewards=tuple(worth.values()))


def pairs_of(row: GroupRow, **settings: Any) -> tuple[list[Example] | str, ExampleBatch]:
    batch = ExampleBatch()
    maker = ExampleMaker.of(tiny_tokenizer(), "auto", DPOConfig(**settings), ROOM)
    return maker.of_rollout(row, batch), batch


def places(examples: list[Example] | str) -> list[str] | str:
    """`2>0`: the run in place 2 is preferred to that in place 0."""
    return examples if isinstance(examples, str) else [">".join(e.key.split("/")[1:]) for e in examples]


FOUR = {"bad": 0.25, "best": 1.0, "fair": 0.5, "worst": 0.0}


@pytest.mark.parametrize(
    ("worth", "settings", "expected"),
    [
        (FOUR, {}, ["1>3"]),
        # All six, those first whose runs are used least, and of these the widest margins.
        (FOUR, {"pairs": "all_pairs"}, ["1>3", "2>0", "1>0", "2>3", "1>2", "0>3"]),
        (FOUR, {"pairs": "all_pairs", "max_pairs_per_task": 2}, ["1>3", "2>0"]),
        # Best and worst say the same: the widest of those that do not.
        ({"same1": 1.0, "same2": 0.0, "other": 0.25}, {}, ["0>2"]),
        ({"good": 0.5, "bad": 0.5}, {}, "no_variance"),
        ({"good": 0.5, "bad": 0.5}, {"pairs": "all_pairs"}, "no_variance"),
        ({"alone": 1.0}, {}, "group_of_one"),
        ({"same1": 1.0, "same2": 0.0}, {}, "equal_sides"),
    ],
)
def test_runs_of_a_group_are_paired_by_reward(
    worth: dict[str, float], settings: dict[str, Any], expected: list[str] | str
) -> None:
    assert places(pairs_of(rewarded(**worth), **settings)[0]) == expected


def test_the_chosen_run_is_member_0_and_its_words_are_supervised() -> None:
    examples, _ = pairs_of(rewarded(bad=0.0, best=1.0))
    assert isinstance(examples, list)
    (pair,) = examples
    said = [tiny_tokenizer().decode(row.token_ids[row.supervised]) for row in pair.rows]
    assert (pair.member, pair.value, pair.weight, pair.divisible) == ((0, 1), (1.0, 0.0), 1.0, False)
    assert ["best" in text and "bad" not in text for text in said] == [True, False]
    assert "bad" in said[1]


def test_a_run_that_cannot_be_rendered_is_in_no_pair_and_counted() -> None:
    """The best run's question alone is longer than a row; the second best takes its place."""
    endless: Trajectory = run_of(0, "endless")
    asked = endless.steps[1].model_copy(update={"message": "why? " * ROOM})
    endless = endless.model_copy(update={"steps": (endless.steps[0], asked, *endless.steps[2:])})
    row = rewarded(good=0.5, bad=0.0)
    row = GroupRow(key="g", trajectories=(endless, *row.trajectories), rewards=(1.0, *row.rewards))
    examples, batch = pairs_of(row)
    assert places(examples) == ["1>2"]
    assert batch.left_out_members.total() == 1
    alone = GroupRow(key="g", trajectories=(endless, endless), rewards=(1.0, 0.0))
    assert pairs_of(alone)[0] == "no_member_rendered"


def test_step_level_pairs_are_masked_up_to_where_they_part() -> None:
    row = rewarded(bad=0.0, best=1.0)
    whole, masked = (pairs_of(row, step_level=level)[0] for level in (False, True))
    assert isinstance(whole, list)
    assert isinstance(masked, list)
    for left, right in zip(whole[0].rows, masked[0].rows, strict=True):
        assert np.array_equal(left.token_ids, right.token_ids)
        assert 0 < right.n_supervised < left.n_supervised
