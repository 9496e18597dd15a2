from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.trainers.losses.grpo import grpo_loss, k3
from trainers.loss_runs import Group, Run, assert_as_trl, assert_same, drawn_run, result_of, trl_runs, trl_values

LOSSES = ("grpo", "dapo", "dr_grpo", "gspo", "cispo")
CLIP = {"clip_low": 0.2, "clip_high": 0.2}


def logs(*chances: float) -> list[float]:
    return [math.log(p) for p in chances]


GROUP = Group([Run(logs(0.6, 0.5), old=logs(0.4, 0.5), advantage=1.0), Run(logs(0.2), old=logs(0.4), advantage=-1.0)])
"""Ratios 1.5 and 1 in a good run, 0.5 in a bad one: the first is cut at 1.2, the last at 0.8."""


@pytest.mark.parametrize(
    ("loss", "expected", "gradient"),
    [
        ("grpo", -0.15, [[0.0, -0.25], [0.0]]),
        ("dapo", -1.4 / 3, [[0.0, -1 / 3], [0.0]]),
        ("dr_grpo", -0.07, [[0.0, -0.05], [0.0]]),
        ("gspo", -0.2, [[0.0, 0.0], [0.0]]),
        ("cispo", 0.006196, [[-0.4, -1 / 3], [0.8 / 3]]),
    ],
)
def test_each_form_by_hand(loss: str, expected: float, gradient: list[list[float]]) -> None:
    """Token losses -min(rho A, clip A): -min(1.5, 1.2) = -1.2, -1, and -min(-0.5, -0.8) = 0.8.

    - grpo: ((-1.2 - 1) / 2 + 0.8) / 2 = -0.15; only the second token is not cut: -1 / 2 / 2.
    - dapo: (-1.2 - 1 + 0.8) / 3.
    - dr_grpo with 10 tokens a run: -1.4 / (2 * 10); the second token's gradient -1 / 20.
    - gspo: ratios sqrt(1.5 * 1) = 1.2247 and 0.5 are cut at 1.2 and 0.8: (-1.2 + 0.8) / 2, and no gradient at all.
    - cispo: (-1.2 log 0.6 - log 0.5 + 0.8 log 0.2) / 3 = (0.612991 + 0.693147 - 1.287550) / 3; every token keeps a
      gradient, -clip(rho) A / 3.
    """
    result = result_of(grpo_loss, [GROUP], loss=loss, max_tokens=10, **CLIP)
    assert result.loss == pytest.approx(expected, abs=1e-6)
    assert result.gradient == [pytest.approx(g, abs=1e-6) for g in gradient]


def test_metrics_by_hand() -> None:
    """One of 3 tokens is cut above, one below; ratios 1.5, 1, 0.5 have mean 1; the runs' largest, 1.5 and 0.5, too."""
    assert result_of(grpo_loss, [GROUP], **CLIP).metrics == {
        "clip_low_share": pytest.approx(1 / 3),
        "clip_high_share": pytest.approx(1 / 3),
        "ratio_mean": pytest.approx(1.0),
        "ratio_max": pytest.approx(1.0),
    }


def test_the_bounds_are_separate() -> None:
    """clip_high 0.6 leaves 1.5 alone: (-1.5 - 1 + 0.8) / 3; clip_low 0.6 leaves 0.5 alone: (-1.2 - 1 + 0.5) / 3."""
    assert result_of(grpo_loss, [GROUP], clip_low=0.2, clip_high=0.6).loss == pytest.approx(-1.7 / 3)
    assert result_of(grpo_loss, [GROUP], clip_low=0.6, clip_high=0.2).loss == pytest.approx(-1.7 / 3)


def test_a_bad_token_that_became_likelier_is_not_cut() -> None:
    """rho 1.5, A -1: -min(-1.5, -1.2) = 1.5, with gradient 1.5: the way back is open."""
    result = result_of(grpo_loss, [Group([Run(logs(0.6), old=logs(0.4), advantage=-1.0)])], **CLIP)
    assert result.loss == pytest.approx(1.5)
    assert result.gradient == [pytest.approx([1.5])]
    assert result.metrics["clip_high_share"] == 0.0


def test_a_good_token_that_became_less_likely_is_not_cut() -> None:
    """rho 0.5, A 1: -min(0.5, 0.8) = -0.5, with gradient -0.5."""
    result = result_of(grpo_loss, [Group([Run(logs(0.2), old=logs(0.4), advantage=1.0)])], **CLIP)
    assert result.loss == pytest.approx(-0.5)
    assert result.gradient == [pytest.approx([-0.5])]
    assert result.metrics["clip_low_share"] == 0.0


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "gspo"])
def test_on_policy_the_ratio_is_one_and_the_gradient_that_of_the_policy(loss: str) -> None:
    """rho = 1 for every token: losses -A = -2, and +1: each divided as the form says. Runs of 2 and 1 tokens.

    grpo, gspo: (-2 + 1) / 2, gradients -2 / 4 and 1 / 2. dapo: (-4 + 1) / 3, -2 / 3 and 1 / 3. dr_grpo, 10 tokens a run:
    -3 / 20, -2 / 20 and 1 / 20.
    """
    runs = [Run([-1.0, -2.0], advantage=2.0), Run([-3.0], advantage=-1.0)]
    result = result_of(grpo_loss, [Group(runs)], loss=loss, max_tokens=10, **CLIP)
    expected = {"dapo": (-1.0, -2 / 3, 1 / 3), "dr_grpo": (-0.15, -0.1, 0.05)}.get(loss, (-0.5, -0.5, 0.5))
    assert result.loss == pytest.approx(expected[0])
    assert result.gradient == [pytest.approx([expected[1]] * 2), pytest.approx([expected[2]])]
    assert result.metrics["ratio_mean"] == 1.0


@pytest.mark.parametrize("unknown", [math.nan, -math.inf])
def test_a_token_of_unknown_behaviour_counts_as_on_policy(unknown: float) -> None:
    """Ratios 1.5 -> 1.2 and 1: (-1.2 - 1) / 2, the second with its gradient -1 / 2."""
    run = Run(logs(0.6, 0.5), old=[math.log(0.4), unknown], advantage=1.0)
    result = result_of(grpo_loss, [Group([run])], **CLIP)
    assert result.loss == pytest.approx(-1.1)
    assert result.gradient == [pytest.approx([0.0, -0.5])]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_placeholder_for_a_log_prob_makes_no_gradient_nan(loss: str) -> None:
    """-9999 is what some servers report for a token they did not score: rho is held at e^20 and cut at 1.2."""
    result = result_of(grpo_loss, [Group([Run([-1.0], old=[-9999.0], advantage=1.0)])], loss=loss, max_tokens=1, **CLIP)
    assert result.loss == pytest.approx(1.2 if loss == "cispo" else -1.2)
    assert result.gradient == [[-1.2 if loss == "cispo" else 0.0]]


def test_a_long_run_is_not_judged_by_the_product_of_its_ratios() -> None:
    """2,000 tokens at ratio 1.01: the product is e^19.9 = 4.4e8; token by token nothing is cut, and -rho A = -1.01."""
    run = Run([math.log(0.505)] * 2000, old=[math.log(0.5)] * 2000, advantage=1.0)
    for loss in ("grpo", "dapo", "gspo"):
        result = result_of(grpo_loss, [Group([run])], loss=loss, **CLIP)
        assert result.loss == pytest.approx(-1.01, abs=1e-6)
        assert result.metrics["clip_high_share"] == 0.0


def test_the_kl_term_by_hand() -> None:
    """Reference twice as likely: d = ln2, k3 = 2 - ln2 - 1 = 0.306853; on-policy with A = 1: -1 + 0.5 * 0.306853.

    d k3 / dlogp = 1 - e^d = -1, so the gradient is -1 - 0.5.
    """
    run = Run(logs(0.25), reference=logs(0.5), advantage=1.0)
    result = result_of(grpo_loss, [Group([run])], kl_coefficient=0.5, **CLIP)
    assert result.loss == pytest.approx(-1 + 0.5 * 0.306853, abs=1e-6)
    assert result.gradient == [pytest.approx([-1.5])]
    assert result.metrics["kl"] == pytest.approx(0.306853, abs=1e-6)


def test_kl_pulls_towards_the_reference_from_both_sides() -> None:
    """Without advantage only k3 is left: its gradient is 1 - e^d, below 0 where the policy is too unlikely, else above."""
    run = Run(logs(0.25, 0.5), reference=logs(0.5, 0.25), advantage=0.0)
    below, above = result_of(grpo_loss, [Group([run])], kl_coefficient=1.0, **CLIP).gradient[0]
    assert below < 0 < above


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-30, 30) | st.floats(-1e-8, 1e-8), min_size=1, max_size=20))
def test_k3_is_never_negative(differences: list[float]) -> None:
    """e^d >= 1 + d. Below |d| = 1e-8 the difference is smaller than rounding, so 1e-16 is granted."""
    values = k3(torch.zeros(len(differences), dtype=torch.float64), torch.tensor(differences, dtype=torch.float64))
    assert (values >= -1e-16).all()


@pytest.mark.parametrize("case", trl_values()["values"]["grpo"], ids=lambda case: str(case["options"]))
def test_values_and_gradients_are_those_of_trl(case: dict[str, Any]) -> None:
    """Recorded from GRPOTrainer._compute_loss with epsilon 0.2 and epsilon_high 0.25.

    TRL's cispo takes the upper bound itself (1.25) and has no lower one (ours: clip_low 1). Its gspo is
    importance_sampling_level "sequence" with the grpo aggregation; for one advantage a run GSPO-token has its gradient.
    """
    options = dict(case["options"])
    runs = [replace(run, old=None) if options["on_policy"] else run for run in trl_runs()]
    clip = {"clip_low": 1.0 if options["loss"] == "cispo" else 0.2, "clip_high": 0.25}
    result = result_of(
        grpo_loss,
        [Group(runs)],
        loss=options["loss"],
        kl_coefficient=options["kl_coefficient"],
        max_tokens=11,
        **clip,
    )
    assert_as_trl(result, case)


def test_the_recorded_runs_are_cut_on_both_sides() -> None:
    """Parity says little about clipping unless some tokens are clipped."""
    metrics = result_of(grpo_loss, [Group(trl_runs())], clip_low=0.2, clip_high=0.25).metrics
    assert metrics["clip_low_share"] > 0.02
    assert metrics["clip_high_share"] > 0.02


def test_gspo_gives_each_step_its_own_credit() -> None:
    """One ratio, sqrt(1.1 * 1) = 1.048809, for both tokens; advantages 2 and 0: gradients -1.048809 * 2 / 2 and 0."""
    run = Run(logs(0.55, 0.5), old=logs(0.5, 0.5), advantage=[2.0, 0.0])
    result = result_of(grpo_loss, [Group([run])], loss="gspo", **CLIP)
    assert result.loss == pytest.approx(-1.048809, abs=1e-6)
    assert result.gradient == [pytest.approx([-1.048809, 0.0], abs=1e-6)]


def test_token_weights_make_weighted_means() -> None:
    """On-policy, advantages 2 and 1 with weights 3 and 1: -(3 * 2 + 1 * 1) / 4; dr_grpo divides by its constant, 10."""
    run = Run([-1.0, -2.0], advantage=[2.0, 1.0], weight=[3.0, 1.0])
    for loss in ("grpo", "dapo", "gspo"):
        assert result_of(grpo_loss, [Group([run])], loss=loss, **CLIP).loss == pytest.approx(-1.75)
    assert result_of(grpo_loss, [Group([run])], loss="dr_grpo", max_tokens=10, **CLIP).loss == pytest.approx(-0.7)


@pytest.mark.parametrize("loss", LOSSES)
def test_an_empty_run_changes_nothing(loss: str) -> None:
    """It has no token to learn from, and does not count as a run."""
    empty = Run([], old=[], advantage=1.0)
    with_empty = result_of(grpo_loss, [Group([*GROUP.runs, empty])], loss=loss, max_tokens=10, **CLIP)
    without = result_of(grpo_loss, [GROUP], loss=loss, max_tokens=10, **CLIP)
    assert with_empty.loss == pytest.approx(without.loss)
    assert with_empty.metrics == without.metrics


def test_bad_input_is_refused_with_its_number() -> None:
    with pytest.raises(ValueError, match="expected the stream 'advantage'"):
        result_of(grpo_loss, [Group([Run([-1.0])])], **CLIP)
    with pytest.raises(ValueError, match="1 of 2 values that are not finite"):
        result_of(grpo_loss, [Group([Run([-1.0, -1.0], advantage=[1.0, math.nan])])], **CLIP)
    run = Run([-1.0, -1.0], reference=[math.nan, math.nan], advantage=1.0)
    with pytest.raises(ValueError, match="expected 'ref_logprob' at every supervised token, got 2 of 2"):
        result_of(grpo_loss, [Group([run])], kl_coefficient=0.1, **CLIP)
    with pytest.raises(ValueError, match="max_tokens"):
        result_of(grpo_loss, [GROUP], loss="dr_grpo", **CLIP)


def test_without_a_kl_term_an_unknown_reference_only_leaves_the_metric() -> None:
    """k3 of the known token: d = ln2, 0.306853."""
    run = Run(logs(0.25, 0.25), reference=[math.nan, math.log(0.5)], advantage=1.0)
    result = result_of(grpo_loss, [Group([run])], **CLIP)
    assert result.loss == pytest.approx(-1.0)
    assert result.metrics["kl"] == pytest.approx(0.306853, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("old", [[-1.0, -2.0], None])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_impossible_tokens_give_no_nan_gradient_under_a_finite_loss(loss: str, old: Any, advantage: float) -> None:
    run = Run([-math.inf, -2.0], old=old, advantage=advantage)
    result = result_of(grpo_loss, [Group([run])], loss=loss, max_tokens=10, **CLIP)
    if math.isfinite(result.loss):
        assert np.isfinite(np.concatenate(result.gradient)).all()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    passes=st.lists(st.integers(0, 3), min_size=1, max_size=8),
    loss=st.sampled_from(LOSSES),
)
def test_splitting_a_step_between_runs_changes_nothing(seed: int, passes: list[int], loss: str) -> None:
    """All runs as one group in one pass, against groups of one run spread over passes."""
    rng = np.random.default_rng(seed)
    runs = [drawn_run(rng) for _ in passes]
    options = {"loss": loss, "kl_coefficient": 0.2, "max_tokens": 7, **CLIP}
    together = result_of(grpo_loss, [Group(runs)], **options)
    assert_same(together, result_of(grpo_loss, [Group([run]) for run in runs], passes=passes, **options))
