"""Hyperparameters, one strict model a method; every default of training is here or in `shared`.

Aliases of other trainers are translated where a call comes in (records/hyperparameters/setting_aliases.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from pydantic import Field

from quintain.records.dataset import DatasetKind
from quintain.records.hyperparameters.groups import GroupLossConfig
from quintain.records.hyperparameters.online import ConstraintConfig as ConstraintConfig
from quintain.records.hyperparameters.online import DistillConfig as DistillConfig
from quintain.records.hyperparameters.online import OnlineConfig as OnlineConfig
from quintain.records.hyperparameters.online import PPOConfig as PPOConfig
from quintain.records.hyperparameters.online import SamplerConfig as SamplerConfig
from quintain.records.hyperparameters.online import SelfPlayConfig as SelfPlayConfig
from quintain.records.hyperparameters.pairs import PairLossConfig, PreferenceConfig
from quintain.records.hyperparameters.setting_groups import CoresetConfig as CoresetConfig
from quintain.records.hyperparameters.setting_groups import CurriculumConfig as CurriculumConfig
from quintain.records.hyperparameters.setting_groups import EWCConfig as EWCConfig
from quintain.records.hyperparameters.setting_groups import LoraConfig as LoraConfig
from quintain.records.hyperparameters.setting_groups import ReplayConfig as ReplayConfig
from quintain.records.hyperparameters.shared import Precision as Precision
from quintain.records.hyperparameters.shared import Sink as Sink
from quintain.records.hyperparameters.shared import TrainingConfig as TrainingConfig
from quintain.records.hyperparameters.values import PRMConfig as PRMConfig
from quintain.records.hyperparameters.values import RetrieverConfig as RetrieverConfig
from quintain.records.hyperparameters.values import RewardConfig as RewardConfig


class SFTConfig(TrainingConfig):
    """Supervised fine-tuning on what the agent wrote."""

    method: Literal["sft"] = "sft"
    batch_tokens: int = Field(
        default=4096, ge=64, le=1_000_000, description="Tokens in one forward pass, shared prefixes counted once."
    )
    loss: Literal["nll", "dft"] = Field(
        default="nll",
        description="nll: negative log-likelihood; dft: times the token's probability, so that unlikely tokens count less (arXiv "
        "2508.05629).",
    )
    step_weighting: Literal["none", "reward"] = Field(
        default="none", description="reward: a step's tokens weigh v / mean(v) of its run, v its value; unknown: 1."
    )
    neftune_alpha: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description="Noise on the embeddings, alpha / sqrt(length x width) (NEFTune, arXiv 2310.05914: 5); null: off.",
    )
    chunk: bool = Field(
        default=False, description="Split trajectories that are too long at step borders instead of cutting them."
    )
    chunk_overlap: int = Field(
        default=1, ge=0, le=1000, description="Earlier steps that a chunk shows again, masked in the loss."
    )
    curriculum: CurriculumConfig | None = Field(default=None, description="Null: off.")
    coreset: CoresetConfig | None = Field(default=None, description="Null: off.")
    replay: ReplayConfig | None = Field(default=None, description="Null: off.")

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        if not self.chunk:
            yield from self.without_effect(
                ("chunk_overlap",), "chunk is false, so that nothing is split; set chunk to true"
            )


class BCConfig(SFTConfig):
    """Behaviour cloning, filtered by reward and weighted by softmax(reward / temperature)."""

    method: Literal["bc"] = "bc"  # type: ignore[assignment]
    min_reward: float | None = Field(
        default=0.5, description="Keep trajectories of at least this reward, any number; null: all."
    )
    temperature: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description="Trajectory weights n softmax(reward / temperature); null: all weigh 1.",
    )


class PretrainConfig(TrainingConfig):
    """Continued pre-training on plain text: every token but the first is in the loss."""

    method: Literal["pretrain"] = "pretrain"


class DPOConfig(OnlineConfig, PairLossConfig):
    """Direct preference optimisation (Rafailov et al. 2023, arXiv 2305.18290), on stored pairs or in an environment."""

    pairs: Literal["best_worst", "all_pairs"] = Field(
        default="best_worst", description="Online: which episodes of a task are compared; equal rewards never are."
    )
    max_pairs_per_task: int = Field(
        default=16,
        ge=1,
        le=10_000,
        description="Online: bound of all_pairs, spread over the episodes, wide margins first.",
    )

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        if self.pairs == "best_worst":
            why = "pairs is 'best_worst', which gives one pair a task; set pairs to 'all_pairs'"
            yield from self.without_effect(("max_pairs_per_task",), why)


class ORPOConfig(PreferenceConfig):
    """Odds-ratio preference optimisation (Hong et al. 2024, arXiv 2403.07691); no reference model."""

    method: Literal["orpo"] = "orpo"


class SimPOConfig(PreferenceConfig):
    """Simple preference optimisation (Meng et al. 2024, arXiv 2405.14734); no reference model."""

    method: Literal["simpo"] = "simpo"
    beta: float = Field(default=2.0, gt=0, le=100, description="Scale of the mean log-probs.")
    gamma: float = Field(default=1.0, ge=0, le=100, description="Margin that the chosen run must win by, after beta.")


class KTOConfig(PreferenceConfig):
    """Kahneman-Tversky optimisation on good and bad runs without pairs (Ethayarajh et al. 2024, arXiv 2402.01306)."""

    method: Literal["kto"] = "kto"
    desirable_weight: float = Field(default=1.0, gt=0, le=100, description="Weight of good runs in the loss.")
    undesirable_weight: float = Field(default=1.0, gt=0, le=100, description="Weight of bad runs in the loss.")


class RankingConfig(PreferenceConfig):
    """Trajectory ranking: the DPO loss over all pairs of a task whose rewards differ."""

    method: Literal["ranking"] = "ranking"


class GRPOConfig(OnlineConfig, GroupLossConfig):
    """Group-relative policy optimisation (Shao et al. 2024, arXiv 2402.03300), on stored groups or in an environment."""

    reward_model: str | None = Field(
        default=None, max_length=200, description="Agent that values runs or steps, for beta; null: the task's reward."
    )
    alpha: float = Field(default=1.0, ge=0, le=1000, description="Weight of the task's reward, with a reward_model.")
    beta: float = Field(
        default=0.5,
        ge=0,
        le=1000,
        description="Weight of the reward_model's value of the run, the mean over its steps.",
    )
    refresh_every_steps: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Online: fit the reward_model's head to newest outcomes so often; null: off.",
    )
    constraint: ConstraintConfig | None = Field(default=None, description="Online: a bound on costs; null: none.")

    @property
    def scales(self) -> bool:
        """Whether advantages are divided by the group's standard deviation."""
        return self.scale_rewards == "group" and self.loss != "dr_grpo"

    @property
    def by_role(self) -> bool:
        """Whether a run is compared with the running mean of its role in a game, not with its group."""
        return self.self_play is not None and self.self_play.baseline == "role"

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        by_role = (
            "self_play.baseline is 'role', which compares whole runs by reward alone",
            "self_play.baseline to 'group'",
        )
        constrained = "constraint is set, whose costs it would not weigh", "constraint to null"
        options = (
            ("constraint", self.by_role and self.constraint is not None, "null", by_role),
            ("step_level", self.by_role and self.step_level, "false", by_role),
            ("scale_rewards", self.by_role and self.scale_rewards == "batch", "group", by_role),
            ("importance_cap", self.by_role and self.importance_cap is not None, "null", by_role),
            ("scale_rewards", bool(self.constraint) and self.scale_rewards == "batch", "group", constrained),
            ("importance_cap", bool(self.constraint) and self.importance_cap is not None, "null", constrained),
        )
        for name, is_on, remedy, (why, other_remedy) in options:
            if is_on:
                yield f"{name} is set and {why}; set {name} to {remedy}, or {other_remedy}"
        if self.reward_model is not None and not self.alpha + self.beta:
            yield "alpha and beta are 0: no run would earn anything; raise one of them"
        elif self.reward_model is not None and not self.beta and not self.step_level:
            yield (
                "reward_model is set and beta, its weight, is 0 (the pull to the start model is kl_coefficient); set beta above 0, or "
                "leave reward_model out"
            )
        if self.reward_model is None:
            why = "reward_model is null (the pull to the start model is kl_coefficient); name a reward_model"
            beta = ("beta",) if self.beta else ()  # 0 asks for nothing
            yield from self.without_effect(("alpha", *beta, "refresh_every_steps"), why)


MethodConfig = Annotated[
    SFTConfig
    | BCConfig
    | PretrainConfig
    | DistillConfig
    | DPOConfig
    | ORPOConfig
    | SimPOConfig
    | KTOConfig
    | RankingConfig
    | RewardConfig
    | PRMConfig
    | RetrieverConfig
    | GRPOConfig
    | PPOConfig,
    Field(discriminator="method"),
]
"""The hyperparameters of any method, discriminated by `method`."""

Method = Literal[
    "sft",
    "bc",
    "pretrain",
    "distill",
    "dpo",
    "orpo",
    "simpo",
    "kto",
    "ranking",
    "reward",
    "prm",
    "retriever",
    "grpo",
    "ppo",
]

CONFIGS: dict[str, type[TrainingConfig]] = {
    config.model_fields["method"].default: config for config in get_args(get_args(MethodConfig)[0])
}
"""Method -> its hyperparameters."""

ActingConfig = DistillConfig | DPOConfig | GRPOConfig | PPOConfig
"""Settings of a method that can act while it learns."""

DATASET_KINDS: dict[str, DatasetKind | None] = {
    "sft": "sft",
    "bc": "sft",
    "pretrain": "text",
    "distill": "sft",
    "dpo": "dpo",
    "orpo": "dpo",
    "simpo": "dpo",
    "kto": "kto",
    "ranking": "grpo",
    "reward": "reward",
    "prm": "prm",
    "retriever": "sft",
    "grpo": "grpo",
    "ppo": None,
}
"""Method -> the kind of dataset that it learns from; None: it only learns in an environment."""

ACTING_ONLY = frozenset(DPOConfig.model_fields.keys() - PairLossConfig.model_fields.keys())
"""Settings of DPO that only have an effect online."""

PLACEMENT = frozenset({"actors", "machines", "processes", "rendezvous", "sharding"})
"""Settings of where a training runs. They change only rounding and dropout, and a resumed job may have others."""

ONLINE_METHODS = frozenset({"distill", "dpo", "grpo", "ppo"})
"""Methods that can learn in an environment instead of from a dataset."""

ROLES: dict[str, Literal["reward_model", "step_model", "retriever"]] = {
    "reward": "reward_model",
    "prm": "step_model",
    "retriever": "retriever",
}
"""Methods whose result does not act -> the role of the agent that they make."""
