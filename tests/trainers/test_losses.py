"""What every loss keeps: a step may be split anywhere, TRL gives the same values, impossible tokens give no NaN gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quintain.trainers.losses.dpo import FORMS, dpo_loss, ranking_loss
from quintain.trainers.losses.grpo import grpo_loss
from quintain.trainers.losses.kto import kto_loss
from quintain.trainers.losses.reference_free import orpo_loss, simpo_loss
from quintain.trainers.losses.sft import sft_loss
from trainers.loss_runs import (
    Group,
    Loss,
    Run,
    assert_as_trl,
    assert_same,
    drawn_run,
    result_of,
    trl_pairs,
    trl_values,
    valued_pairs,
)

Draw = Callable[[np.random.Generator], Group]


def a_run(rng: np.random.Generator) -> Group:
    return Group([drawn_run(rng)], (float(rng.choice([-1.0, 1.0])),), float(rng.uniform(0.5, 2)))


def a_pair(rng: np.random.Generator) -> Group:
    return Group([drawn_run(rng), drawn_run(rng)], (1.0, -1.0), float(rng.uniform(0.5, 2)))


def a_ranking(rng: np.random.Generator) -> Group:
    values = rng.choice([0.0, 0.5, 1.0], int(rng.integers(1, 5))).tolist()
    pairs = sum(a > b for a in values for b in values)
    return Group([drawn_run(rng) for _ in values], values, float(pairs))


CASES: dict[str, tuple[Loss, Draw, dict[str, Any]]] = {
    "sft": (sft_loss, a_run, {}),
    "kto": (kto_loss, a_run, {"beta": 0.4, "desirable_weight": 1.2, "kl": 0.3}),
    "orpo": (orpo_loss, a_pair, {"beta": 0.4}),
    "simpo": (simpo_loss, a_pair, {"beta": 2.0, "gamma": 0.7}),
    "reward": (valued_pairs, a_pair, {"margin_weight": 1.0, "centring": 0.1}),
    "ranking": (ranking_loss, a_ranking, {"beta": 0.4}),
}
for form in FORMS:
    smoothed = {} if form in ("nca", "apo_zero", "apo_down", "discopop") else {"label_smoothing": 0.1}
    CASES[form] = (dpo_loss, a_pair, {"beta": 0.4, "loss": form, "sft_weight": 0.3, "ld_alpha": 0.4, **smoothed})
CASES["wpo"] = (dpo_loss, a_pair, {"beta": 0.4, "policy_weighting": True})
for form in ("grpo", "dapo", "dr_grpo", "gspo", "cispo", "sapo"):
    bounds = {"clip_low": 0.2, "clip_high": 0.2}
    CASES[form] = (grpo_loss, a_run, {"loss": form, "kl_coefficient": 0.2, "max_tokens": 7, **bounds})
CASES["batch"] = (grpo_loss, a_ranking, {"scale_rewards": "batch", "delta": 1.5, **bounds})


@pytest.mark.parametrize("case", CASES)
def test_splitting_a_step_between_examples_changes_nothing(case: str) -> None:
    loss, draw, options = CASES[case]
    rng = np.random.default_rng(0)
    for passes in ([1], [0, 1], [0, 2, 1, 1, 0, 3]):  # the pass of each example
        groups = [draw(rng) for _ in passes]
        assert_same(result_of(loss, groups, **options), result_of(loss, groups, passes=passes, **options))


@pytest.mark.parametrize("case", CASES)
def test_impossible_tokens_give_no_nan_gradient_under_a_finite_loss(case: str) -> None:
    """A log-prob of -inf in either run or in both, with and without a known policy that sampled it."""
    loss, draw, options = CASES[case]
    plain = Run([-1.0, -2.0], reference=[-1.0, -2.0], old=[-1.0, -2.0], advantage=1.0, collision=[-1.0, -1.0])
    spoilt = replace(plain, logprobs=[-math.inf, -2.0])
    variants = [spoilt, replace(spoilt, advantage=-1.0), replace(spoilt, old=None)]
    for run in variants:
        sides = [[run]] if draw is a_run else [[run, plain], [plain, run], [run, run]]
        for runs in sides:
            result = result_of(loss, [Group(runs, (1.0, -1.0)[: len(runs)])], **options)
            if math.isfinite(result.loss):
                assert np.isfinite(np.concatenate(result.gradient)).all()


PAIR_LOSSES: dict[str, Loss] = {"dpo": dpo_loss, "orpo": orpo_loss, "simpo": simpo_loss}


@pytest.mark.parametrize(
    ("method", "case"),
    [(method, case) for method in PAIR_LOSSES for case in trl_values()["values"][method]],
    ids=lambda value: value if isinstance(value, str) else str(value["options"]),
)
def test_values_and_gradients_of_pairs_are_those_of_trl(method: str, case: dict[str, Any]) -> None:
    """Recorded pair by pair, for these reasons.

    - dpo, from DPOTrainer._compute_loss. TRL's "sigmoid" has no conservative smoothing: that value is its "aot" on batches
      of one pair, where sorting does nothing. Its "sft" term is a mean over a batch's tokens.
    - orpo, from ORPOTrainer.get_batch_loss_metrics, behind prompts of one token. TRL's NLL is a mean over all tokens of a
      batch and includes the prompt; ours, as the paper's eq. 6, is the mean over pairs of each chosen run's own mean. On
      such batches the two are the same.
    - simpo, from CPOTrainer.get_batch_logps and CPOTrainer.cpo_loss with loss_type "simpo" and simpo_gamma = gamma. TRL
      adds CPO's NLL unless cpo_alpha is 0; the paper has none, so none is recorded.
    """
    assert_as_trl(result_of(PAIR_LOSSES[method], trl_pairs(), **case["options"]), case)
