"""Hyperparameters of methods that act while they learn: what they share, and those of PPO."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from quintain.records.hyperparameters.setting_groups import Settings
from quintain.records.hyperparameters.shared import TrainingConfig
from quintain.records.labels.reward import Counted, Declared

MAX_ACTORS = 256

ActorBackend = Literal["local", "ray"]
"""Where actors run: in child processes of the job, or on a Ray cluster."""

_CRITIC_ONLY = ("gae_lambda", "critic", "value_clip", "value_weight", "critic_learning_rate", "critic_warmup_steps")
"""Settings of PPO that only have an effect with a value head."""


class SelfPlayConfig(Settings):
    """How a model learns in a game against itself and its earlier versions (Liu et al. 2025, arXiv 2506.24119)."""

    latest_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Share of games in which the model under training plays both roles; in the others it plays an earlier version.",
    )
    pool_size: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Earlier versions kept, evenly spaced over the rollouts, the start model first.",
    )
    train_role: str | None = Field(
        default=None, max_length=100, description="Learn only from the runs of this role; null: of both."
    )
    baseline: Literal["role", "group"] = Field(
        default="role",
        description="grpo: what a reward is compared with. role: the running mean of its role (RAE), not divided by a "
        "deviation; group: the mean of the task's runs in the role.",
    )
    baseline_decay: float = Field(
        default=0.95, ge=0, lt=1, description="How much of the running mean of a role each run keeps."
    )

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        if self.baseline == "group":
            why = "baseline is 'group', which has no running mean; set baseline to 'role'"
            yield from self.without_effect(("baseline_decay",), why)


class SamplerConfig(Settings):
    """A server that samples the episodes of online training in place of this process."""

    endpoint: str = Field(
        max_length=200,
        pattern=r"^endpoint:.+",
        description="endpoint:NAME of an OpenAI-compatible server with token ids, log-probs and LoRA updates, such as vLLM.",
    )
    max_difference: float = Field(
        default=0.1,
        gt=0,
        le=10,
        description="Highest mean distance of the server's log-probs from the trainer's, in nats a token.",
    )


class OnlineConfig(Settings):
    """How a method acts while it learns, beside the settings that it has in common with others."""

    group_size: int = Field(default=8, ge=2, le=256, description="Online: episodes for each task.")
    tasks_per_step: int = Field(default=8, ge=1, le=4096, description="Online: tasks whose groups make a rollout.")
    updates_per_rollout: int = Field(
        default=1, ge=1, le=64, description="Online: optimizer steps on each rollout, all minibatches counted."
    )
    minibatches: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Online: parts of a rollout, one for each optimizer step, shuffled each epoch.",
    )
    rollouts: int = Field(
        default=20, ge=1, le=1_000_000, description="Online: how many rollouts; epochs and batch_size do not count."
    )
    temperature: float = Field(default=1.0, gt=0, le=10, description="Online: sampling temperature.")
    top_p: float = Field(
        default=1.0, gt=0, le=1, description="Online: likeliest tokens of this share (arXiv 1904.09751); 1: off."
    )
    top_k: int = Field(
        default=0, ge=0, le=1_000_000, description="Online: so many likeliest tokens (arXiv 1805.04833); 0: off."
    )
    min_p: float = Field(
        default=0.0, ge=0, lt=1, description="Online: tokens of this share of the likeliest (arXiv 2407.01082); 0: off."
    )
    max_new_tokens: int = Field(default=256, ge=1, le=100_000, description="Online: tokens of a turn.")
    max_turns: int | None = Field(default=None, ge=1, le=1000, description="Online: null: the environment's own limit.")
    self_play: SelfPlayConfig | None = Field(default=None, description="Online: opponents in a game; null: not a game.")
    sampler: SamplerConfig | None = Field(default=None, description="Online: who samples; null: the trainer itself.")
    actors: int = Field(
        default=1,
        ge=1,
        le=MAX_ACTORS,
        description="Online: processes that play, each with a copy of the model; results do not depend on it; 1: the job's own.",
    )
    episodes_at_once: int | None = Field(
        default=None,
        ge=1,
        le=4096,
        description="Online: episodes that are decoded together, and the work of one actor at a time, in whole groups; null: 64.",
    )
    staleness: int = Field(
        default=0,
        ge=0,
        le=16,
        description="Online: rollouts by which the weights that play lag behind; above 0, actors or the sampler play while the model "
        "learns (arXiv 2410.18252).",
    )

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        if self.sampler is not None and self.actors > 1:
            yield (
                f"sampler is set and actors is {self.actors}, and a server answers requests side by side already; set actors to "
                "1, or sampler to null"
            )
        if self.updates_per_rollout % self.minibatches:
            yield (
                f"updates_per_rollout is {self.updates_per_rollout}, not a multiple of minibatches {self.minibatches}: some "
                "parts would be used more often than others; set updates_per_rollout to a multiple of minibatches"
            )
        if self.minibatches > self.tasks_per_step:
            yield (
                f"minibatches is {self.minibatches} and tasks_per_step {self.tasks_per_step}: a rollout has no more parts than "
                "tasks, and the other steps would be empty; set minibatches to at most tasks_per_step"
            )
        if self.self_play is not None and (method := getattr(self, "method", "grpo")) != "grpo":
            why = f"method is {method}, whose advantages have no baseline of a role; train with grpo"
            yield from self.self_play.without_effect(("baseline", "baseline_decay"), why)
        if self.staleness and self.self_play is not None:
            yield (
                f"staleness is {self.staleness} and self_play is set, whose opponents are versions of the model that plays; set "
                "staleness to 0, or self_play to null"
            )


class ConstraintConfig(Settings):
    """A bound on the mean cost of runs, kept by a learned multiplier (Ray et al. 2019; Dai et al. 2023, arXiv 2310.12773)."""

    cost: Literal["environment"] | Declared = Field(
        default="environment",
        description="environment: its metric `cost`; or a declared scorer, whose value is the cost: "
        '{"type": "calls", "tool": "delete", "full_at": 1, "zero_at": 0} costs 1 where the tool is called.',
    )
    limit: float = Field(ge=0, le=1e6, description="Highest mean cost of a run.")
    multiplier: float = Field(
        default=0.5, ge=0, le=1000, description="Its multiplier at the start: weight of cost for each of reward."
    )
    rate: float = Field(
        default=0.05, gt=0, le=1000, description="The multiplier grows by this times (mean cost - limit) each rollout."
    )
    max_multiplier: float = Field(default=10.0, gt=0, le=1e6, description="Highest multiplier.")
    enforce: bool = Field(
        default=False, description="Fail without an agent if the mean cost of the last rollout is above the limit."
    )

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        if self.multiplier > self.max_multiplier:
            yield (
                f"multiplier is {self.multiplier} and max_multiplier {self.max_multiplier}; lower multiplier, or raise "
                "max_multiplier"
            )
        if isinstance(self.cost, Counted) and self.cost.full_at < self.cost.zero_at and not self.cost.states_bounds():
            yield (
                f"a cost of {self.cost.label} is highest for few, because its bounds are those of a reward; state full_at above "
                'zero_at, such as "full_at": 1, "zero_at": 0, or both bounds where few are to cost'
            )


class PPOConfig(OnlineConfig, TrainingConfig):
    """Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347) in an environment, with a value head."""

    method: Literal["ppo"] = "ppo"
    group_size: int = Field(default=1, ge=1, le=256, description="Episodes for each task; rloo compares them.")
    tasks_per_step: int = Field(default=64, ge=1, le=4096, description="Tasks whose episodes make a rollout.")
    updates_per_rollout: int = Field(
        default=4, ge=1, le=64, description="Optimizer steps on each rollout, all minibatches counted."
    )
    advantage: Literal["gae", "reinforce_pp", "reinforce_pp_baseline", "rloo"] = Field(
        default="gae",
        description="gae: a value head (arXiv 1506.02438); reinforce_pp: the return itself (arXiv 2501.03262); "
        "reinforce_pp_baseline: less the mean of the task's runs; rloo: less that of its other runs (arXiv 2402.14740).",
    )
    action_level: Literal["turn", "token"] = Field(
        default="turn", description="What counts as one action in returns and values: a turn of the agent, or a token."
    )
    gamma: float = Field(default=1.0, ge=0, le=1, description="Discount for each action.")
    gae_lambda: float = Field(default=0.95, ge=0, le=1, description="gae: 0 trusts the values, 1 the returns.")
    whiten: bool | None = Field(
        default=None, description="Advantages with mean 0 and variance 1 in each rollout; null: unless rloo."
    )
    clip_low: float = Field(default=0.2, ge=0, le=1, description="The ratio is cut below 1 - clip_low.")
    clip_high: float = Field(default=0.2, ge=0, le=100, description="The ratio is cut above 1 + clip_high.")
    critic: Literal["shared", "separate"] = Field(
        default="shared",
        description="gae: values from the policy's own layers, or from a copy of the model: twice the memory.",
    )
    value_clip: float | None = Field(
        default=0.5, gt=0, le=1000, description="Values count at most this far from those of the rollout; null: off."
    )
    value_weight: float = Field(default=0.1, gt=0, le=100, description="Weight of the value loss.")
    critic_learning_rate: float | None = Field(
        default=None, gt=0, le=1, description="Peak learning rate of the value head; null: 10 times learning_rate."
    )
    critic_warmup_steps: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="First optimizer steps, which train the value head alone; null: 10, at most a quarter of all.",
    )
    kl_coefficient: float = Field(
        default=0.001,
        ge=0,
        le=100,
        description="Reward less this for each nat that a token's log-prob is above the start model's; 0: off.",
    )
    kl_target: float | None = Field(
        default=None,
        gt=0,
        le=100,
        description="Adapt kl_coefficient towards this KL, in nats a token (arXiv 1909.08593, section 2.2); null: fixed.",
    )
    kl_horizon: int = Field(
        default=10_000, ge=1, le=10**9, description="Episodes over which kl_coefficient adapts; fewer: faster."
    )

    constraint: ConstraintConfig | None = Field(default=None, description="Null: none.")

    @property
    def has_critic(self) -> bool:
        """Whether a value head is the baseline."""
        return self.advantage == "gae"

    @property
    def critic_only_steps(self) -> int:
        """Number of first optimizer steps that train the value head alone."""
        return min(10, self._steps // 4) if self.critic_warmup_steps is None else self.critic_warmup_steps

    @property
    def _steps(self) -> int:
        return min(self.rollouts * self.updates_per_rollout, self.max_steps or sys.maxsize)

    @property
    def compares(self) -> bool:
        """Whether the runs of a task are compared, so that one alone teaches nothing."""
        return self.advantage in ("rloo", "reinforce_pp_baseline")

    @property
    def whitens(self) -> bool:
        """Whether advantages are whitened."""
        return self.advantage != "rloo" if self.whiten is None else self.whiten

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        if self.compares and self.group_size < 2:
            yield (
                f"advantage is '{self.advantage}' and group_size is 1: a run has no others of its task to be compared with; set "
                "group_size to 2 or more, or advantage to 'gae' or 'reinforce_pp'"
            )
        if self.kl_target is not None and not self.kl_coefficient:
            yield (
                f"kl_target is {self.kl_target} and kl_coefficient is 0, which no factor changes; set kl_coefficient above 0, such "
                "as 0.05, or kl_target to null"
            )
        if self.has_critic and self._steps <= self.critic_only_steps:
            yield (
                f"critic_warmup_steps is {self.critic_warmup_steps} and all optimizer steps are {self._steps}, which would train "
                "the value head alone; lower critic_warmup_steps, or raise rollouts, updates_per_rollout or max_steps"
            )
        if self.kl_target is None:
            why = "kl_target is null, so that kl_coefficient stays; set kl_target"
            yield from self.without_effect(("kl_horizon",), why)
        if self.critic == "separate" and self.quantization is not None:
            yield (
                f"critic is 'separate' and quantization is '{self.quantization}', and a quantised base is not copied; set critic "
                "to 'shared', or quantization to null"
            )
        if not self.has_critic:
            why = f"advantage is '{self.advantage}', which has no value head; set advantage to 'gae'"
            yield from self.without_effect(_CRITIC_ONLY, why)


class DistillConfig(OnlineConfig, TrainingConfig):
    """Distillation: take over a teacher's distributions over tokens, on recorded runs or on the student's own.

    On a dataset it is the forward KL divergence (Hinton et al. 2015, arXiv 1503.02531), in an environment the reverse one on
    what the student samples (Agarwal et al. 2023, arXiv 2306.13649).
    """

    method: Literal["distill"] = "distill"
    teacher: str | None = Field(
        default=None,
        max_length=1000,
        description="Agent, model folder or endpoint:NAME with the student's tokenizer; null: the log-probs recorded in the runs.",
    )
    teacher_top_k: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="On a dataset: the teacher's likeliest tokens at a place; all others count as one.",
    )
    group_size: int = Field(default=4, ge=1, le=256, description="Online: episodes for each task.")
    clip_low: float = Field(default=0.2, ge=0, le=1, description="Online: the ratio is cut below 1 - clip_low.")
    clip_high: float = Field(default=0.2, ge=0, le=100, description="Online: the ratio is cut above 1 + clip_high.")

    def conflicts(self) -> Iterator[str]:
        """See `Settings`."""
        yield from super().conflicts()
        if self.kl_stop is not None:
            yield (
                "kl_stop is set, and distillation measures the KL divergence to its teacher; set kl_stop to null, and give "
                "max_steps, or early_stopping_patience with a validation split"
            )
