"""The objective of each method: its loss with its settings, and its needs besides log-probs."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from quintain.errors import InvalidInput
from quintain.records.hyperparameters.methods import (
    DistillConfig,
    DPOConfig,
    GRPOConfig,
    KTOConfig,
    ORPOConfig,
    PPOConfig,
    PRMConfig,
    RankingConfig,
    RetrieverConfig,
    RewardConfig,
    SFTConfig,
    SimPOConfig,
    TrainingConfig,
)
from quintain.trainers.data.streams import Example, TokenRow, TokenStreams, rows_of, streams_of, token_row
from quintain.trainers.engine.forward import Engine, TokenScores
from quintain.trainers.engine.other_tokens import candidate_logprobs
from quintain.trainers.engine.packing import micro_batches
from quintain.trainers.losses.distill import distill_loss
from quintain.trainers.losses.dpo import dpo_loss, ranking_loss
from quintain.trainers.losses.grpo import grpo_loss
from quintain.trainers.losses.kto import kto_kl, kto_loss
from quintain.trainers.losses.loss_output import LossOutput, StepTotals
from quintain.trainers.losses.ppo import ppo_loss
from quintain.trainers.losses.prm import prm_loss
from quintain.trainers.losses.reference_free import orpo_loss, simpo_loss
from quintain.trainers.losses.retriever import retriever_loss
from quintain.trainers.losses.reward import reward_loss
from quintain.trainers.losses.sft import dft_loss, sft_loss

Loss = Callable[..., LossOutput]
"""Takes log-probs or values, the streams, and the totals of the step."""

_PAIRS = ("reward_accuracy",)
"""`Objective.agreement` of methods that learn from pairs."""


@dataclass
class Objective:
    """The loss of a method."""

    loss: Loss
    linear: bool = False
    """Whether the loss is -sum_i(w_i log p_i) with weights known beforehand; its gradient is then formed in the forward pass."""
    measure: Loss | None = None
    """The loss of validation, where that of training does not measure progress."""
    needs_reference: bool = False
    needs_collision: bool = False
    """Whether the loss takes `TokenStreams.collision`."""
    on_values: bool = False
    """Whether the loss takes values of the value head [N, K] instead of log-probs [N]."""
    with_values: bool = False
    """Whether the loss takes them beside the log-probs, as `values`."""
    couples_examples: bool = False
    """Whether the loss takes the mean states [S, h] of the texts of a whole step, which are negatives of each other."""
    agreement: tuple[str, ...] = ()
    """Metrics of agreement with held-out labels; the first one is an accuracy."""
    unpaired: Mapping[str, Example] = field(default_factory=dict)
    """KTO: key of an example -> the same prompt with the answer of another run."""
    batch_tokens: int = 8192
    """Token budget of a pass over mismatched runs."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the loss that change from step to step."""
    settings_at: Callable[[int], Mapping[str, Any]] = lambda step: {}
    """Returns those that depend on the step alone, counted from 0."""

    def scored(self, engine: Engine, rows: Sequence[TokenRow]) -> TokenScores:
        """Return the input of the loss for some rows, and the entropies where the loss takes log-probs of their tokens."""
        if rows[0].teacher_ids is not None:
            return TokenScores(candidate_logprobs(engine, rows), None)
        if self.with_values:
            return engine.scores_and_values(rows, frozen=bool(self.settings.get("critic_only")))
        if self.on_values:
            return TokenScores(engine.values(rows), None)
        return engine.logprobs(rows, entropy=True, collision=self.needs_collision)

    def output(self, scored: TokenScores, streams: TokenStreams, totals: StepTotals) -> LossOutput:
        """Return the loss of what `scored` returned."""
        if scored.collision is not None:
            streams = replace(streams, collision=scored.collision)
        values = {"values": scored.values} if self.with_values else {}
        return self.loss(scored.logprobs, streams, totals, **values, **self.settings)

    def mismatched(self, examples: Sequence[Example]) -> list[Example]:
        """Return the examples that `before_step` needs before a step on these examples."""
        return [self.unpaired[e.key] for e in examples if e.key in self.unpaired]

    def before_step(self, engine: Engine, mismatched: Sequence[Example]) -> None:
        """KTO: estimate the KL divergence of this step on mismatched runs, without gradients."""
        scores: list[tuple[torch.Tensor, torch.Tensor]] = []
        n = 0
        with torch.no_grad():
            for batch in micro_batches(mismatched, self.batch_tokens, share=engine.shares):
                streams = streams_of(batch, engine.model.device)
                assert streams.ref_logprob is not None
                logprobs = engine.logprobs(rows_of(batch)).logprobs
                scores.append((logprobs, streams.ref_logprob))
                n += streams.n_sequences
        policy, reference = (torch.cat(parts) for parts in zip(*scores, strict=True))
        self.settings["kl"] = kto_kl(policy, reference, n)  # with NaN the step's loss is NaN, which the loop reports


def objective_of(
    config: TrainingConfig,
    unpaired: Mapping[str, Example] | None = None,
    relevant: Mapping[float, Set[float]] | None = None,
) -> Objective:
    """Return the objective of a method; `unpaired` is for KTO (`Objective.unpaired`), `relevant` for retrievers (`retriever_loss`).

    Raises:
        InvalidInput: The method does not train by gradients.
    """
    match config:
        case DPOConfig():
            return Objective(
                _bound(dpo_loss, config),
                needs_reference=not config.reference_free,
                needs_collision=config.policy_weighting,
                agreement=_PAIRS,
            )
        case DistillConfig():
            return Objective(_bound(distill_loss, config))
        case ORPOConfig():
            return Objective(_bound(orpo_loss, config), agreement=_PAIRS)
        case SimPOConfig():
            return Objective(_bound(simpo_loss, config), agreement=_PAIRS)
        case KTOConfig():
            return Objective(
                _bound(kto_loss, config),
                needs_reference=True,
                unpaired=unpaired or {},
                batch_tokens=config.batch_tokens,
                settings={"kl": 0.0},
            )
        case RankingConfig():
            return Objective(_bound(ranking_loss, config), needs_reference=True, agreement=_PAIRS)
        case RewardConfig():
            return Objective(_bound(reward_loss, config), on_values=True, agreement=_PAIRS)
        case PRMConfig():
            return Objective(_bound(prm_loss, config), on_values=True, agreement=("step_accuracy", "brier"))
        case RetrieverConfig():
            loss = partial(_bound(retriever_loss, config), relevant=relevant or {})
            return Objective(loss, couples_examples=True, agreement=("retrieval_accuracy",))
        case GRPOConfig():
            low, high = config.clip_bounds
            loss = partial(_bound(grpo_loss, config), clip_low=low, clip_high=high)
            return Objective(loss, needs_reference=config.kl_coefficient > 0)
        case PPOConfig():
            bound, needs_reference = _bound(ppo_loss, config), config.kl_coefficient > 0
            if not config.has_critic:
                return Objective(partial(bound, values=None), needs_reference=needs_reference)
            return Objective(
                bound,
                with_values=True,
                needs_reference=needs_reference,
                settings_at=lambda step: {"critic_only": step < config.critic_only_steps},
            )
        case SFTConfig(loss="dft"):
            return Objective(dft_loss, measure=sft_loss)
        case _ if config.method in ("sft", "bc", "pretrain"):  # type: ignore[attr-defined]
            return Objective(sft_loss, linear=True)
    raise InvalidInput(f"{type(config).__name__} has no objective")


def complete_settings(config: TrainingConfig, training: Sequence[Example]) -> TrainingConfig:
    """Return the settings of the objective, completed from the data."""
    if isinstance(config, GRPOConfig) and config.loss == "dr_grpo" and config.max_tokens is None:
        return config.model_copy(update={"max_tokens": _longest_run(training, config)})
    return config


def _longest_run(examples: Sequence[Example], config: GRPOConfig) -> int:
    """Return the agent tokens of the longest run; online, the maximum of a run."""
    if not examples:
        return config.max_new_tokens * (config.max_turns or 8)
    return max(sum(row.n_supervised for row in rows) for example in examples for rows in example.by_member)


def _bound(loss: Loss, config: TrainingConfig) -> Loss:
    """Return the loss with the settings of the config that it takes, which have the names of its arguments."""
    names = inspect.signature(loss).parameters.keys() & type(config).model_fields.keys()
    return partial(loss, **{name: getattr(config, name) for name in names})


def mismatched_examples(examples: Sequence[Example], max_length: int) -> dict[str, Example]:
    """Return KTO's mismatched examples: each prompt with the answer to another one, cut at `max_length`.

    Their mean log-ratio estimates the KL divergence to the reference (arXiv 2402.01306, section 4.1). Prompts are sorted, and answers
    shifted by the count of the most frequent prompt. So no prompt meets its own answer, unless more than half of all are that
    prompt. An example whose prompt leaves no room for an answer has none.
    """
    heads = [int(example.rows[0].places[0]) for example in examples]
    prompts = [e.rows[0].token_ids[:head].tobytes() for e, head in zip(examples, heads, strict=True)]
    counts = Counter(prompts)
    rank = {prompt: i for i, prompt in enumerate(counts)}
    together = sorted(range(len(examples)), key=lambda i: rank[prompts[i]])
    shift = max(counts.values(), default=1) if len(counts) > 1 else 1
    partner = dict(zip(together, [*together[shift:], *together[:shift]], strict=True))
    unpaired = {}
    for place, example in enumerate(examples):
        row, other = example.rows[0], examples[partner[place]].rows[0]
        head, tail = heads[place], heads[partner[place]]
        ids = np.concatenate([row.token_ids[:head], other.token_ids[tail:]])[:max_length]
        mask = np.concatenate([np.zeros(head, np.bool_), other.supervised[tail:]])[:max_length]
        if len(examples) > 1 and mask.any():
            unpaired[example.key] = Example((token_row(ids.tolist(), mask.tolist()),), (0,), key=example.key)
    return unpaired
