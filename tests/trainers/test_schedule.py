from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import get_scheduler

from quintain.records.hyperparameters.epochs import epoch_size, epoch_steps
from quintain.records.hyperparameters.methods import CurriculumConfig, SFTConfig
from quintain.tools.training.methods import read_hyperparameters
from quintain.tools.training.planning.settings import planned_steps
from quintain.trainers.data.streams import Example, token_row
from quintain.trainers.loop.schedule import (
    EpochSource,
    epoch_indices,
    learning_rate,
)


def examples(n: int) -> list[Example]:
    return [Example((token_row([1, 2], [False, True]),), (0,), key=str(i)) for i in range(n)]


def keys(source: EpochSource, steps: range) -> list[list[str]]:
    return [[example.key for example in source.step(step)] for step in steps]


def source(n: int, batch: int, *, epochs: float = 2, seed: int = 5, **options: Any) -> EpochSource:
    return EpochSource(examples(n), SFTConfig(batch_size=batch, epochs=epochs, **options), seed)


def test_every_epoch_sees_every_example_once_in_an_order_of_its_own() -> None:
    steps = keys(source(7, 3), range(6))
    epochs = [[key for step in steps[e * 3 : e * 3 + 3] for key in step] for e in range(2)]
    assert [sorted(order, key=int) for order in epochs] == [[str(i) for i in range(7)]] * 2
    assert epochs[0] != epochs[1]
    assert [len(step) for step in steps] == [3, 3, 1, 3, 3, 1]
    assert keys(source(7, 3), range(6)) == steps
    assert keys(source(7, 3, seed=6), range(6)) != steps
    partial = source(9, 4, epochs=1.5)
    assert [step for step in range(partial.total_steps) if partial.ends_epoch(step)] == [2, 4]


@pytest.mark.parametrize(
    ("n", "batch", "epochs", "max_steps", "expected"),
    [
        (8, 4, 3, None, 6),
        (9, 4, 3, None, 9),
        (300, 10, 0.1, None, 3),
        (9, 4, 0.5, None, 2),
        (1, 16, 0.01, None, 1),
        (9, 4, 3, 2, 2),
        (9, 4, 1.5, None, 5),
    ],
)
def test_the_number_of_steps_is_exact(n: int, batch: int, epochs: float, max_steps: int | None, expected: int) -> None:
    assert source(n, batch, epochs=epochs, max_steps=max_steps).total_steps == expected


def test_a_curriculum_begins_with_the_easiest_and_the_schedule_counts_what_really_runs() -> None:
    """10 examples, start ratio 0.2 over 2 epochs: shares 0.2, 0.6, 1, so 2, 6 and 10 examples in steps of 4: 1 + 2 + 3."""
    shape = CurriculumConfig(start_ratio=0.2, warmup_epochs=2)
    config = SFTConfig(batch_size=4, epochs=3, learning_rate=5e-4)
    run = EpochSource(examples(10), config, 5, (shape, [float(10 - i) for i in range(10)]))
    assert run.total_steps == 6
    assert sorted(keys(run, range(1))[0]) == ["8", "9"]
    second = [key for step in keys(run, range(1, 3)) for key in step]
    assert sorted(second) == ["4", "5", "6", "7", "8", "9"]
    assert len([key for step in keys(run, range(3, 6)) for key in step]) == 10
    rates = [learning_rate(step, run.total_steps, config) for step in range(6)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"schedule": "constant", "warmup_ratio": 0.3}, [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ({"schedule": "cosine", "warmup_ratio": 0.0}, [1.0, 0.933013, 0.75, 0.5, 0.25, 0.066987]),
        ({"schedule": "linear", "min_rate_ratio": 0.4, "warmup_steps": 2}, [0.5, 1.0, 1.0, 0.85, 0.7, 0.55]),
        ({"schedule": "inverse_sqrt", "warmup_steps": 0}, [1.0, 0.99995, 0.9999, 0.99985, 0.9998, 0.99975]),
    ],
)
def test_the_learning_rate_rises_and_decays(settings: Any, expected: list[float]) -> None:
    """6 steps, warm-up 0.3 of them, so 2: 1/2 and 2/2 of the peak. Cosine: (1 + cos(pi s / 6)) / 2.

    The floor 0.4: 0.4 + 0.6 (1 - s / 4) after 2 steps. The root without warm-up: sqrt(10000 / (10000 + s)).
    """
    config = SFTConfig(learning_rate=1.0, **settings)
    assert [learning_rate(step, 6, config) for step in range(6)] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("scheduler", "arguments", "warmup", "total"),
    [
        ("cosine", {}, 3, 20),
        ("linear", {}, 0, 7),
        ("cosine_with_restarts", {}, 2, 12),
        ("cosine_with_restarts", {"num_cycles": 3}, 0, 20),
        ("cosine_with_restarts", {"num_cycles": 4}, 5, 30),
        ("cosine_with_min_lr", {"min_lr_rate": 0.1}, 4, 25),
        ("polynomial", {}, 2, 11),
        ("inverse_sqrt", {}, 5, 40),
        ("warmup_stable_decay", {"num_decay_steps": 6}, 4, 30),
        ("warmup_stable_decay", {"num_decay_steps": 20, "decay_type": "linear"}, 0, 20),
        ("warmup_stable_decay", {"num_decay_steps": 5, "decay_type": "1-sqrt", "min_lr_ratio": 0.2}, 3, 17),
    ],
)
def test_a_schedule_of_transformers_has_its_rates_here_under_the_same_name_and_arguments(
    scheduler: str, arguments: dict[str, Any], warmup: int, total: int
) -> None:
    """While the rate rises, step s here has the rate of step s + 1 there, whose first step changes nothing."""
    settings = {"lr_scheduler_type": scheduler, "lr_scheduler_kwargs": arguments}
    config = read_hyperparameters("sft", {**settings, "learning_rate": 1e-3, "warmup_steps": warmup})
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    theirs = get_scheduler(scheduler, optimizer, warmup, total, arguments)
    expected = [theirs.lr_lambdas[0](step + (step < warmup)) * 1e-3 for step in range(total)]
    assert [learning_rate(step, total, config) for step in range(total)] == pytest.approx(expected, abs=1e-15)


def test_a_decay_without_a_number_of_steps_takes_the_last_tenth_and_never_more_than_there_are() -> None:
    """Of 21 steps 3, ceil of 2.1: 1, 1 - 1/3, 1 - 2/3; of 4 steps after 2 of warm-up the decay of 9 has 2."""
    config = SFTConfig(schedule="warmup_stable_decay", decay_shape="linear", learning_rate=1.0, warmup_steps=2)
    rates = [learning_rate(step, 21, config) for step in range(21)]
    assert rates == pytest.approx([0.5, *[1.0] * 18, 2 / 3, 1 / 3])
    long = config.model_copy(update={"decay_steps": 9})
    assert [learning_rate(step, 4, long) for step in range(4)] == pytest.approx([0.5, 1.0, 1.0, 0.5])


@pytest.mark.parametrize(
    ("schedule", "setting"),
    [
        ("inverse_sqrt", {"min_rate_ratio": 0.1}),
        ("linear", {"cycles": 2}),
        ("cosine", {"decay_steps": 5}),
        ("constant", {"decay_shape": "linear"}),
    ],
)
def test_a_setting_of_a_decay_that_the_schedule_lacks_is_refused(schedule: Any, setting: dict[str, Any]) -> None:
    ((name, value),) = setting.items()
    with pytest.raises(ValidationError, match=rf"{name} is {value} and schedule is '{schedule}'.*leave {name} out"):
        SFTConfig(schedule=schedule, **setting)


def test_an_epoch_shows_the_easiest_first_and_ties_in_their_order() -> None:
    """0.6 + 0.4 e of 5 examples: 3, then all."""
    config, difficulties = CurriculumConfig(start_ratio=0.6, warmup_epochs=1), [3.0, 1.0, 2.0, 1.0, 5.0]
    assert [epoch_indices(difficulties, epoch, config) for epoch in (0, 1, 9)] == [[1, 3, 2], *[[1, 3, 2, 0, 4]] * 2]
    assert epoch_indices([2.0, 1.0], 0, CurriculumConfig(start_ratio=0.01)) == [1]
    few = CurriculumConfig(start_ratio=0.07)
    assert epoch_size(100, 0, few) == 7, "100 * 0.07 is 7.000000000000001 in floating point"


def test_the_plan_counts_what_really_runs() -> None:
    """10 examples: 3, 7 (ceil of 6.5), 10, 10; in batches of 4: 1, 2, 3 and half of 3 rounded up, 2."""
    config = CurriculumConfig(start_ratio=0.3, warmup_epochs=2)
    assert [epoch_size(10, epoch, config) for epoch in range(4)] == [3, 7, 10, 10]
    assert epoch_steps(10, 4, 3.5, config) == [1, 2, 3, 2]
    assert epoch_steps(10, 4, 3.0, None) == [3, 3, 3]
    # 0.1 of 30 steps are 3, though 0.1 * 30 is 3.0000000000000004 in some orders of multiplication.
    assert epoch_steps(30, 1, 0.1, None) == [3]
    assert epoch_steps(10, 1, 2.3, None) == [10, 10, 3]


@pytest.mark.parametrize(
    ("epochs", "rows", "more", "steps"),
    [
        (3.5, 10, {"curriculum": {"start_ratio": 0.3, "warmup_epochs": 2}}, 1 + 2 + 3 + 2),
        (2, 10, {"coreset": {"size": 5}}, 4),
        (0.1, 120, {}, 3),
        (4, 10, {"max_steps": 7}, 7),
    ],
)
def test_a_plan_and_a_stage_count_the_steps_of_the_schedule(
    epochs: float, rows: int, more: dict[str, Any], steps: int
) -> None:
    config = read_hyperparameters("sft", {"epochs": epochs, "batch_size": 4, **more})
    assert planned_steps("sft", config, rows) == steps


@settings(max_examples=25)
@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=40),
    st.floats(0.01, 1),
    st.integers(1, 5),
    st.floats(0.1, 6),
    st.integers(1, 7),
)
def test_planned_epochs_are_those_that_the_indices_give(
    difficulties: list[float], start: float, warmup: int, epochs: float, batch: int
) -> None:
    config = CurriculumConfig(start_ratio=start, warmup_epochs=warmup)
    shown = [epoch_indices(difficulties, epoch, config) for epoch in range(math.ceil(epochs))]
    sizes = [len(indices) for indices in shown]
    assert sizes == sorted(sizes)
    assert all(set(a) <= set(b) for a, b in pairwise(shown))
    steps = epoch_steps(len(difficulties), batch, epochs, config)
    assert all(1 <= s <= math.ceil(size / batch) for s, size in zip(steps, sizes, strict=True))
