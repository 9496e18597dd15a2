"""Hyperparameters of preference methods on pairs of runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from quintain.records.hyperparameters.shared import TrainingConfig

SMOOTHED = ("robust", "exo")
"""Forms that need a share of wrong labels."""

ABSOLUTE = ("nca", "bco", "sppo", "apo_zero", "apo_down")
"""Forms that read each run's own log-ratio, not only the difference of a pair."""


class PreferenceConfig(TrainingConfig):
    """Settings of all methods on pairs."""

    beta: float = Field(default=0.1, gt=0, le=100, description="Strength of the pull towards the reference model.")


class PairLossConfig(PreferenceConfig):
    """The loss of direct preference optimisation."""

    method: Literal["dpo"] = "dpo"
    loss: Literal[
        "sigmoid",
        "sigmoid_norm",
        "hinge",
        "ipo",
        "robust",
        "exo",
        "nca",
        "bco",
        "sppo",
        "apo_zero",
        "apo_down",
        "discopop",
    ] = Field(
        default="sigmoid",
        description="sigmoid_norm: on means over tokens (Tulu 3, arXiv 2411.15124); hinge: SLiC (arXiv 2305.10425); ipo (arXiv "
        "2310.12036); robust: unbiased under flipped labels (arXiv 2403.00409); exo (arXiv 2402.00856); nca (arXiv 2402.05369); "
        "bco: two classes (arXiv 2404.04656); sppo (arXiv 2405.00675); "
        "apo_zero, apo_down: chosen runs better or worse than the model's own (arXiv 2408.06266); discopop (arXiv 2406.08414).",
    )
    label_smoothing: float = Field(
        default=0.0,
        ge=0,
        lt=0.5,
        description="Share of pairs taken as flipped, 0: off; robust and exo need it, such as 0.1 and 0.001.",
    )
    discopop_tau: float = Field(default=0.05, gt=0, le=100, description="Temperature of discopop's mixture.")
    reference_free: bool = Field(default=False, description="Compare log-probs themselves, without a reference.")
    step_level: bool = Field(
        default=False,
        description="Mask what the two runs share before they part. In sigmoid and hinge that cancels anyway and is only "
        "cheaper; ipo and sft_weight change. False: off.",
    )
    sft_weight: float = Field(
        default=0.0, ge=0, le=100, description="Weight of the chosen runs' SFT loss (RPO, arXiv 2404.19733); 0: off."
    )
    ld_alpha: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="Weight of the tokens by which one run of a pair is longer than the other (LD-DPO, arXiv 2409.06411); "
        "1: off.",
    )
    policy_weighting: bool = Field(
        default=False,
        description="Weigh each pair by the policy's probability of its runs (WPO, arXiv 2406.11827). False: off.",
    )
    reference_sync_steps: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Move the reference towards the policy every so many steps (TR-DPO, arXiv 2404.09656); null: off.",
    )
    reference_mixup: float = Field(
        default=0.6, gt=0, le=1, description="Share of the policy in the moved reference; adapters need 1."
    )

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        yield from self._conflicts_of_loss()
        if self.reference_sync_steps is not None:
            yield from self._conflicts_of_reference()
        else:
            why = "reference_sync_steps is null, so that the reference never moves; set reference_sync_steps"
            yield from self.without_effect(("reference_mixup",), why)

    def _conflicts_of_loss(self) -> Iterator[str]:
        if self.loss in SMOOTHED and not self.label_smoothing:
            usual = "0.1" if self.loss == "robust" else "0.001"
            yield (
                f"loss is '{self.loss}' and label_smoothing is 0, the share of wrong labels that it is computed with; set "
                f"label_smoothing above 0, such as {usual}"
            )
        if self.loss in (*ABSOLUTE, "discopop") and self.label_smoothing:
            yield (
                f"label_smoothing is {self.label_smoothing} and loss is '{self.loss}', which has no form for flipped labels; set "
                "label_smoothing to 0, or loss to robust"
            )
        if self.loss in ABSOLUTE and self.reference_free:
            yield (
                f"reference_free is true and loss is '{self.loss}', which compares each run with the reference; set reference_free "
                "to false, or choose another loss"
            )
        if self.loss != "discopop":
            yield from self.without_effect(("discopop_tau",), f"loss is '{self.loss}'; set loss to discopop")

    def _conflicts_of_reference(self) -> Iterator[str]:
        """Yield what keeps the reference from following the policy."""
        mixup = self.reference_mixup
        obstacles = (
            (self.reference_free, "reference_free is true: there is no reference; set reference_free to false"),
            (
                self.kl_stop is not None,
                "kl_stop is set: the KL would be that to the moved reference; set kl_stop to null",
            ),
            (self.sharding != "none", "sharding is 'full': no process has the whole model; set sharding to 'none'"),
            (
                self.lora is not None and mixup < 1,
                f"lora is set and reference_mixup is {mixup:g}: a mean of adapters is not the adapter of the mean; set "
                "reference_mixup to 1, or lora to null",
            ),
        )
        for is_met, reason in obstacles:
            if is_met:
                yield (
                    f"reference_sync_steps is {self.reference_sync_steps} and {reason}, or leave reference_sync_steps out"
                )
