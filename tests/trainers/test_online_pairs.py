"""Sample and pair: which runs of a group that the model has played become pairs, and which groups are skipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quintain.records.dataset import GroupRow
from quintain.records.hyperparameters import DPOConfig
from quintain.records.trajectory import Trajectory
from quintain.trainers.data.examples import ExampleBatch, ExampleMaker
from quintain.trainers.data.streams import Example
from tiny_models import tiny_tokenizer
from trainers.runs import run_of

ROOM = 400
"""Tokens of a row."""


def group(**worth: float) -> GroupRow:
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
    assert places(pairs_of(group(**worth), **settings)[0]) == expected


def test_the_chosen_run_is_member_0_and_its_words_are_supervised() -> None:
    examples, _ = pairs_of(group(bad=0.0, best=1.0))
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
    row = group(good=0.5, bad=0.0)
    row = GroupRow(key="g", trajectories=(endless, *row.trajectories), rewards=(1.0, *row.rewards))
    examples, batch = pairs_of(row)
    assert places(examples) == ["1>2"]
    assert batch.left_out_members.total() == 1
    alone = GroupRow(key="g", trajectories=(endless, endless), rewards=(1.0, 0.0))
    assert pairs_of(alone)[0] == "no_member_rendered"


def test_step_level_pairs_are_masked_up_to_where_they_part() -> None:
    row = group(bad=0.0, best=1.0)
    whole, masked = (pairs_of(row, step_level=level)[0] for level in (False, True))
    assert isinstance(whole, list)
    assert isinstance(masked, list)
    for left, right in zip(whole[0].rows, masked[0].rows, strict=True):
        assert np.array_equal(left.token_ids, right.token_ids)
        assert 0 < right.n_supervised < left.n_supervised
