from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from quintain.trainers.losses.grpo import grpo_loss, k3
from trainers.loss_runs import Group, Run, assert_as_trl, result_of, trl_runs, trl_values

LOSSES = ("grpo", "dapo", "dr_grpo", "gspo", "cispo", "sapo", "luspo", "vespo")
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
        ("sapo", -0.414490, [[-0.352506, -0.25], [0.233535]]),
        ("luspo", -0.8, [[0.0, 0.0], [0.0]]),
        ("vespo", 0.019194, [[-0.167348, -0.167348], [0.113262]]),
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
    - sapo: gates 4 sigma(0.5) = 2.489837, 4 sigma(0) = 2 and 4 sigma(1.05 * -0.5) / 1.05 = 1.415938:
      -((2.489837 + 2) / 2 - 1.415938) / 2; slopes rho 4 s (1 - s) = 1.410022, 1 and 0.467070, by 4, 4 and 2.
    - luspo: as gspo, with each run's tokens summed: (-1.2 * 2 + 0.8) / 2.
    - vespo: w = 1.5 and 0.5, phi = 1.5^2 e^(3 (1 - 1.5)) = 0.502043 and 0.5^3 e^(2 (1 - 0.5)) = 0.339785:
      (-0.502043 (log 0.6 + log 0.5) + 0.339785 log 0.2) / 3; gradients -phi A / 3.
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


@pytest.mark.parametrize(("chance", "advantage", "loss"), [(0.6, -1.0, 1.5), (0.2, 1.0, -0.5)])
def test_a_token_that_moved_away_from_its_advantage_is_not_cut(chance: float, advantage: float, loss: float) -> None:
    """A bad token that became likelier: rho 1.5, -min(-1.5, -1.2) = 1.5, with gradient 1.5.

    A good token that became less likely: rho 0.5, -min(0.5, 0.8) = -0.5, with gradient -0.5.
    """
    result = result_of(grpo_loss, [Group([Run(logs(chance), old=logs(0.4), advantage=advantage)])], **CLIP)
    assert result.loss == pytest.approx(loss)
    assert result.gradient == [pytest.approx([loss])]
    assert result.metrics["clip_high_share"] == result.metrics["clip_low_share"] == 0.0


def test_a_bad_token_that_became_much_likelier_has_no_gradient_beyond_delta() -> None:
    """rho = 3, A = -1: the loss is 3 with gradient 3, and with delta 2 it is 2 without gradient; a good token is unchanged."""
    bad, good = (Group([Run(logs(0.6), old=logs(0.2), advantage=a)]) for a in (-1.0, 1.0))
    assert result_of(grpo_loss, [bad], **CLIP)[:2] == (pytest.approx(3.0), [[pytest.approx(3.0)]])
    assert result_of(grpo_loss, [bad], delta=2.0, **CLIP)[:2] == (pytest.approx(2.0), [[0.0]])
    assert result_of(grpo_loss, [good], delta=2.0, **CLIP) == result_of(grpo_loss, [good], **CLIP)


def test_advantages_are_divided_by_the_deviation_of_the_steps_rewards() -> None:
    """Rewards 1, 0 and 1, 1, 0 in two groups: mean 0.6, deviation sqrt(1.2 / 4) = 0.547723; on-policy losses -A / it."""
    groups = [
        Group([Run([-1.0], advantage=a) for a in advantages], rewards)
        for advantages, rewards in (((0.5, -0.5), (1.0, 0.0)), ((0.4, 0.4, -0.6), (1.0, 1.0, 0.0)))
    ]
    plain, scaled = (result_of(grpo_loss, groups, scale_rewards=by, **CLIP) for by in ("none", "batch"))
    whole = [advantage for run in plain.gradient for advantage in run]
    assert [x for run in scaled.gradient for x in run] == pytest.approx([x / 0.547823 for x in whole], rel=1e-5)


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo", "gspo", "luspo"])
def test_on_policy_the_ratio_is_one_and_the_gradient_that_of_the_policy(loss: str) -> None:
    """rho = 1 for every token: losses -A = -2, and +1: each divided as the form says. Runs of 2 and 1 tokens.

    grpo, gspo: (-2 + 1) / 2, gradients -2 / 4 and 1 / 2. dapo: (-4 + 1) / 3, -2 / 3 and 1 / 3. dr_grpo, 10 tokens a run:
    -3 / 20, -2 / 20 and 1 / 20. luspo: (-4 + 1) / 2, -2 / 2 and 1 / 2.
    """
    runs = [Run([-1.0, -2.0], advantage=2.0), Run([-3.0], advantage=-1.0)]
    result = result_of(grpo_loss, [Group(runs)], loss=loss, max_tokens=10, **CLIP)
    expected = {
        "dapo": (-1.0, -2 / 3, 1 / 3),
        "dr_grpo": (-0.15, -0.1, 0.05),
        "luspo": (-1.5, -1.0, 0.5),
    }.get(loss, (-0.5, -0.5, 0.5))
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
    """-9999 is what some servers report for a token they did not score: rho is held at e^20 and cut at 1.2; sapo's gate is open at 4."""
    result = result_of(grpo_loss, [Group([Run([-1.0], old=[-9999.0], advantage=1.0)])], loss=loss, max_tokens=1, **CLIP)
    assert result.loss == pytest.approx({"cispo": 1.2, "sapo": -4.0, "vespo": 0.0}.get(loss, -1.2))
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
    differences = torch.tensor([-30.0, -1e-8, -1e-12, 0.0, 1e-12, 1e-8, 30.0], dtype=torch.float64)
    assert (k3(torch.zeros_like(differences), differences) >= -1e-16).all(), "e^d >= 1 + d, up to rounding"


@pytest.mark.parametrize("case", trl_values()["values"]["grpo"], ids=lambda case: str(case["options"]))
def test_values_and_gradients_are_those_of_trl(case: dict[str, Any]) -> None:
    """Recorded from GRPOTrainer._compute_loss with epsilon 0.2 and epsilon_high 0.25.

    TRL's cispo takes the upper bound itself (1.25) and has no lower one (ours: clip_low 1). Its gspo is
    importance_sampling_level "sequence" with the grpo aggregation; for one advantage a run GSPO-token has its gradient.
    """
    options = dict(case["options"])
    runs = [replace(run, old=None) if options["on_policy"] else run for run in trl_runs()]
    if options.get("is_corrected"):  # TRL multiplies the loss by the weight, here the advantage has it
        weights = trl_values()["inputs"]["importance"]
        runs = [replace(run, advantage=[run.advantage * w for w in ws]) for run, ws in zip(runs, weights, strict=True)]  # type: ignore[operator]
    clip = {"clip_low": 1.0 if options["loss"] == "cispo" else 0.2, "clip_high": 0.25}
    result = result_of(
        grpo_loss,
        [Group(runs)],
        loss=options["loss"],
        kl_coefficient=options["kl_coefficient"],
        delta=options.get("delta"),
        max_tokens=11,
        **clip,
    )
    assert_as_trl(result, case)


def test_the_runs_recorded_with_trl_are_cut_on_both_sides() -> None:
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
