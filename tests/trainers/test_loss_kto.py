from __future__ import annotations

import math
from itertools import chain
from typing import Any

import pytest
import torch

from quintain.records.hyperparameters.methods import DPOConfig, KTOConfig
from quintain.trainers.data.streams import Example, token_row
from quintain.trainers.loop.objectives import mismatched_examples
from quintain.trainers.loop.report import label_warnings
from quintain.trainers.losses.kto import kto_kl, kto_loss
from trainers.loss_runs import Group, Run, assert_as_trl, assert_same, result_of, trl_runs, trl_values

GOOD = Group([Run([-1.0, -1.0], reference=[-1.5, -1.5])], (1.0,))
"""Log-ratio 1."""
BAD = Group([Run([-3.0], reference=[-1.0])], (-1.0,))
"""Log-ratio -2."""


def test_the_loss_and_its_metrics_by_hand() -> None:
    """beta 0.5, z = 1. Good: 2 (1 - sigma(0.5 (1 - 1))) = 1. Bad: 3 (1 - sigma(0.5 (1 + 2))) = 3 * 0.182426 = 0.547277.

    Mean (1 + 0.547277) / 2 = 0.773638. Gradients: good -2 * 0.5 * 1/4 / 2 = -0.125 a token;
    bad 3 * 0.5 * 0.182426 * 0.817574 / 2 = 0.111859. Rewards beta r: 0.5 and -1.
    """
    options = {"beta": 0.5, "desirable_weight": 2.0, "undesirable_weight": 3.0, "kl": 1.0}
    result = result_of(kto_loss, [GOOD, BAD], **options)
    assert result.loss == pytest.approx(0.773638, abs=1e-6)
    assert result.gradient == [pytest.approx([-0.125] * 2), pytest.approx([0.111859], abs=1e-6)]
    assert result.metrics == pytest.approx({"chosen_reward": 0.5, "rejected_reward": -1.0, "kto_kl": 1.0})


def test_labels_that_outweigh_each_other_are_reported_with_the_weight_that_balances_them() -> None:
    """Good by bad, from 1 to 4/3: 16/42 = 0.381 needs 42/16 = 2.625 for 1; 42/16 = 2.63 needs 2.625/(4/3) = 1.97 for 4/3."""
    for n_good, n_bad, weight in ((16, 42, "desirable_weight to 2.63"), (42, 16, "undesirable_weight to 1.97")):
        examples = [Example((), (), (1.0,))] * n_good + [Example((), (), (-1.0,))] * n_bad
        (warning,) = label_warnings(KTOConfig(), examples, examples)
        assert warning.startswith(f"{n_good} good and {n_bad} bad examples weigh ")
        assert warning.endswith(f"outside KTO's range of 1 to 4/3; set {weight}")
        name, _, value = weight.partition(" to ")
        assert label_warnings(KTOConfig(**{name: float(value)}), examples, []) == []
        assert label_warnings(DPOConfig(), examples, []) == []
    for n_good, n_bad in ((3, 3), (4, 3)):
        assert not label_warnings(
            KTOConfig(), [Example((), (), (1.0,))] * n_good + [Example((), (), (-1.0,))] * n_bad, []
        )
    rare = [Example((), (), (1.0,)), *[Example((), (), (-1.0,))] * 101]
    (warning,) = label_warnings(KTOConfig(), rare, [])
    assert warning.endswith("add runs of the rarer label"), "a weight is at most 100"


def test_step_and_example_weights_weigh_log_ratios_and_runs() -> None:
    """Good with weights 2 and 0: r = 2 * 0.5 = 1 again, loss 1 - sigma(0.5) = 0.377541. Bad: 1 - sigma(1) = 0.268941.

    Example weights 3 and 1: (3 * 0.377541 + 0.268941) / 4 = 0.350391.
    """
    good = Group([Run([-1.0, -1.0], reference=[-1.5, -1.5], weight=[2.0, 0.0])], (1.0,), 3.0)
    assert result_of(kto_loss, [good, BAD], beta=0.5, kl=0.0).loss == pytest.approx(0.350391, abs=1e-6)


def test_a_negative_point_of_reference_counts_as_zero() -> None:
    at_zero = result_of(kto_loss, [GOOD, BAD], beta=0.5, kl=0.0)
    assert_same(result_of(kto_loss, [GOOD, BAD], beta=0.5, kl=-4.0), at_zero)
    one_kind = result_of(kto_loss, [GOOD], beta=0.5, kl=0.0)
    assert one_kind.metrics.keys() == {"chosen_reward", "kto_kl"}


def test_the_kl_estimate_is_the_mean_log_ratio_of_runs_held_above_zero() -> None:
    """Runs: (0.5 + 1.0) = 1.5 and -0.5: mean 0.5. With the models swapped it is -0.5, so 0. No gradient comes with it."""
    policy = torch.tensor([-1.0, -1.0, -2.0], requires_grad=True)
    reference = torch.tensor([-1.5, -2.0, -1.5])
    assert kto_kl(policy, reference, 2) == pytest.approx(0.5)
    assert kto_kl(reference, policy, 2) == 0.0
    for unknown in (math.nan, math.inf, -math.inf):
        assert math.isnan(kto_kl(torch.tensor([-1.0, unknown]), torch.zeros(2), 1))


@pytest.mark.parametrize("case", trl_values()["values"]["kto"], ids=lambda case: f"{case['options']}-{case['swapped']}")
def test_values_and_gradients_are_those_of_trl(case: dict[str, Any]) -> None:
    """Recorded from KTOTrainer._compute_loss, its KL estimate from KTOTrainer._compute_kl_logps on three mismatched runs,
    once with policy and reference swapped, so that one of the two estimates is held at 0.
    """
    inputs = trl_values()["inputs"]
    sides = [torch.tensor(list(chain(*inputs[name]))) for name in ("mismatched", "mismatched_reference")]
    policy, reference = sides[::-1] if case["swapped"] else sides
    kl = kto_kl(policy, reference, len(inputs["mismatched"]))
    assert kl == pytest.approx(case["kl"], abs=1e-6)
    groups = [Group([run], (1.0 if i % 2 == 0 else -1.0,)) for i, run in enumerate(trl_runs())]
    assert_as_trl(result_of(kto_loss, groups, kl=kl, **case["options"]), case)


def test_an_empty_run_has_the_loss_of_a_log_ratio_of_zero() -> None:
    """1 - sigma(0) = 1/2, with nothing to learn."""
    result = result_of(kto_loss, [Group([Run([], reference=[])], (1.0,))], beta=0.5, kl=0.0)
    assert result.loss == pytest.approx(0.5)
    assert result.gradient == [[]]


def test_an_example_of_two_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="2 runs in 1 examples"):
        result_of(kto_loss, [Group([GOOD.runs[0], BAD.runs[0]], (1.0, -1.0))], beta=0.5, kl=0.0)


@pytest.mark.parametrize("prompts", [[1, 1, 1, 2, 2, 2], [1, 2, 3], [1, 2, 2, 1, 3, 3]])
def test_no_prompt_meets_an_answer_of_its_own_where_attempts_at_a_task_stand_side_by_side(prompts: list[int]) -> None:
    """An answer is its prompt plus 10; the estimate of KTO's KL is of answers to other prompts."""
    examples = [
        Example((token_row([0, p, p + 10], [False, False, True]),), (0,), key=f"{i}") for i, p in enumerate(prompts)
    ]
    unpaired = [mismatched_examples(examples, 99)[e.key].rows[0].token_ids.tolist() for e in examples]
    assert [ids[1] for ids in unpaired] == prompts
    assert all(ids[2] != ids[1] + 10 for ids in unpaired)
    assert sorted(ids[2] for ids in unpaired) == sorted(p + 10 for p in prompts)


def test_a_single_task_lends_its_answers_to_itself() -> None:
    examples = [Example((token_row([0, 1, a], [False, False, True]),), (0,), key=f"{a}") for a in (7, 8)]
    assert [mismatched_examples(examples, 99)[key].rows[0].token_ids[2] for key in ("7", "8")] == [8, 7]
