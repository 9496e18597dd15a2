"""What a method minimises: its loss with its settings, and what it needs besides log-probs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from quintain.errors import InvalidInput
from quintain.records.hyperparameters import (
    DPOConfig,
    GRPOConfig,
    KTOConfig,
    ORPOConfig,
    PRMConfig,
    RankingConfig,
    RewardConfig,
    SimPOConfig,
    TrainingConfig,
)
from quintain.trainers.data.streams import Example, TokenRow, TokenStreams, streams_of
from quintain.trainers.engine.forward import Engine, TokenScores
from quintain.trainers.engine.packing import micro_batches
from quintain.trainers.losses.dpo import dpo_loss
from quintain.trainers.losses.grpo import grpo_loss
from quintain.trainers.losses.kto import kto_kl, kto_loss
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.orpo import orpo_loss
from quintain.trainers.losses.prm import prm_loss
from quintain.trainers.losses.ranking import ranking_loss
from quintain.trainers.losses.reward import reward_loss
from quintain.trainers.losses.sft import sft_loss
from quintain.trainers.losses.simpo import simpo_loss

Loss = Callable[[torch.Tensor, TokenStreams, StepTotals], LossOutput]


@dataclass
class Objective:
    """The loss of a method."""

    loss: Loss
    linear: bool = False
    """Is it -sum_i(w_i log p_i) with weights that are known beforehand? Then its gradient is formed in the forward pass."""
    needs_reference: bool = False
    on_values: bool = False
    """Is it a loss of the value head's numbers [N, K] instead of log-probs [N]?"""
    agreement: tuple[str, ...] = ()
    """Metrics that say how well held-out labels are met, the share that is met first."""
    unpaired: Mapping[str, Example] = field(default_factory=dict)
    """KTO: key of an example -> its prompt with another run's answer."""
    batch_tokens: int = 8192
    """Token budget of the passes over mismatched runs."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What changes from step to step."""

    def scored(self, engine: Engine, rows: Sequence[TokenRow]) -> TokenScores:
        """What the loss is taken of, and the entropies where there are any."""
        return TokenScores(engine.values(rows), None) if self.on_values else engine.logprobs(rows, entropy=True)

    def mismatched(self, examples: Sequence[Example]) -> list[Example]:
        """What `before_step` passes through before a step on these examples."""
        return [self.unpaired[e.key] for e in examples if e.key in self.unpaired]

    def before_step(self, engine: Engine, mismatched: Sequence[Example]) -> None:
        """KTO: estimate the KL divergence of this step on mismatched runs, without gradients."""
        seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        n = 0
        with torch.no_grad():
            for batch in micro_batches(mismatched, self.batch_tokens, share=engine.shares):
                streams = streams_of(batch, engine.model.device)
                assert streams.ref_logprob is not None
                logprobs = engine.logprobs([row for example in batch for row in example.rows]).logprobs
                seen.append((logprobs, streams.ref_logprob, streams.sequence + n))
                n += streams.n_sequences
        policy, reference, sequence = (torch.cat(parts) for parts in zip(*seen, strict=True))
        finite = bool(torch.isfinite(policy).all())  # else the step's loss is NaN, of which the loop tells
        self.settings["kl"] = kto_kl(policy, reference, sequence, n) if finite else math.nan


def objective_of(config: TrainingConfig, unpaired: Mapping[str, Example] | None = None) -> Objective:
    """The objective of a method's settings.

    Args:
        config: The hyperparameters.
        unpaired: KTO only: see `Objective.unpaired`.

    Raises:
        InvalidInput: settings of no method that trains by gradients.
    """
    match config:
        case DPOConfig():
            names = ("beta", "loss", "label_smoothing", "reference_free", "sft_weight")
            return Objective(_bound(dpo_loss, config, *names), needs_reference=not config.reference_free)
        case ORPOConfig():
            return Objective(_bound(orpo_loss, config, "beta"))
        case SimPOConfig():
            return Objective(_bound(simpo_loss, config, "beta", "gamma"))
        case KTOConfig():
            bound = _bound(kto_loss, config, "beta", "desirable_weight", "undesirable_weight")
            objective = Objective(
                bound,
                needs_reference=True,
                unpaired=unpaired or {},
                batch_tokens=config.batch_tokens,
                settings={"kl": 0.0},
            )

            def with_kl(logprobs: torch.Tensor, streams: TokenStreams, totals: StepTotals) -> LossOutput:
                output = bound(logprobs, streams, totals, **objective.settings)
                return output._replace(metrics=output.metrics | {"kto_kl": (objective.settings["kl"], 1.0)})

            objective.loss = with_kl
            return objective
        case RankingConfig():
            return Objective(_bound(ranking_loss, config, "beta"), needs_reference=True)
        case RewardConfig():
            bound = _bound(reward_loss, config, "margin_weight", "centring")
            return Objective(bound, on_values=True, agreement=("reward_accuracy",))
        case PRMConfig():
            bound = _bound(prm_loss, config, "heads")
            return Objective(bound, on_values=True, agreement=("step_accuracy", "brier"))
        case GRPOConfig():
            names = ("loss", "clip_low", "clip_high", "kl_coefficient", "max_tokens")
            return Objective(_bound(grpo_loss, config, *names), needs_reference=config.kl_coefficient > 0)
        case _ if config.method in ("sft", "bc", "pretrain"):  # type: ignore[attr-defined]
            return Objective(sft_loss, linear=True)
    raise InvalidInput(f"{type(config).__name__} has no objective")


def _bound(loss: Callable[..., LossOutput], config: TrainingConfig, *names: str) -> Callable[..., LossOutput]:
    """The loss with the config's fields of these names as its keyword arguments."""
    settings = {name: getattr(config, name) for name in names}

    def bound(logprobs: torch.Tensor, streams: TokenStreams, totals: StepTotals, **changing: Any) -> LossOutput:
        return loss(logprobs, streams, totals, **settings, **changing)

    return bound
