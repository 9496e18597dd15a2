"""Advantages over a whole rollout: values of the live model, KL penalties, returns and whitening."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.records.dataset import GroupRow
from quintain.records.hyperparameters.methods import GRPOConfig, OnlineConfig, PPOConfig
from quintain.trainers.data.streams import Example, TokenRow, split_by_row
from quintain.trainers.distributed.passes import OWN_PASSES, SharedPasses
from quintain.trainers.engine.forward import Engine
from quintain.trainers.losses.advantage_estimation import (
    baselines,
    discounted_sums,
    generalized_advantages,
    next_kl_coefficient,
    whiten,
)
from quintain.trainers.rollouts.constraint import ConstrainedGroups, Constraint, constrained_advantages
from quintain.trainers.rollouts.role_baselines import RoleBaselines
from quintain.trainers.rollouts.sampler_correction import with_old_logprobs
from quintain.trainers.rollouts.source import RolloutStage

Array = NDArray[np.float64]


@dataclass
class ActionRun:
    """The actions of one run in order, turns or tokens of the agent, and C streams of their rewards."""

    rows: tuple[TokenRow, ...]
    action: NDArray[np.intp]
    """[n]; the action of each supervised token, rows in order."""
    rewards: Array
    """[actions, C]"""
    values: Array
    """[actions, C]; expected returns before each action, 0 without a value head."""
    advantages: Array = field(default_factory=lambda: np.empty(0))
    """[actions, C]; empty until they are estimated."""

    @property
    def first_tokens(self) -> NDArray[np.intp]:
        """Place of each action's first token among the supervised tokens."""
        return np.flatnonzero(np.diff(self.action, prepend=-1))

    def token_rows(self, advantages: Array, *, is_valued: bool) -> list[TokenRow]:
        """Return the rows with their advantages, and where `is_valued` with returns and values, of a turn at its first token."""
        streams = {"advantage": advantages[self.action]}
        if is_valued:
            for name, known in (("label", self.advantages + self.values), ("old_value", self.values)):
                full = np.full((len(self.action), known.shape[1]), np.nan)
                full[self.first_tokens] = known
                streams[name] = full
        rows = list(self.rows)
        for name, stream in streams.items():
            parts = split_by_row(stream, rows)
            rows = [row.with_supervised(name, part) for row, part in zip(rows, parts, strict=True)]
        return rows


def action_runs(
    example: Example, values: Mapping[TokenRow, Array], config: PPOConfig, kl_coefficient: float
) -> list[ActionRun]:
    """Return the runs of a task with the rewards of their actions.

    Args:
        example: A task; its rows have the log-probs of the policy that acted.
        values: Values of the supervised tokens of each row, [n, C]; empty without a value head.
        config: Configuration that defines an action.
        kl_coefficient: Reward of a token per nat of log pi_old - log pi_ref, negated.
    """
    runs = []
    for member, (reward, of_member) in enumerate(zip(example.value, example.by_member, strict=True)):
        rows = tuple(of_member)
        steps = np.concatenate([row.step_index[row.places] for row in rows])
        begins = np.ones(len(steps), np.bool_)
        if config.action_level == "turn":
            begins[1:] = steps[1:] != steps[:-1]
        action = np.cumsum(begins) - 1
        rewards = np.zeros((int(begins.sum()), 2 if example.cost else 1))
        kl = np.concatenate([sampled_kl(row) for row in rows])
        np.add.at(rewards[:, 0], action, -kl_coefficient * kl)
        rewards[-1] += (reward, example.cost[member]) if example.cost else reward
        before = np.concatenate([values[row] for row in rows])[begins] if values else np.zeros_like(rewards)
        runs.append(ActionRun(rows, action, rewards, before))
    return runs


def sampled_kl(row: TokenRow) -> Array:
    """Return log pi_old - log pi_ref of each supervised token, nats; 0 without a reference."""
    if row.ref_logprob is None or row.old_logprob is None:
        return np.zeros(row.n_supervised)
    return row.old_logprob[row.places].astype(np.float64) - row.ref_logprob[row.places]


class RolloutAdvantages:
    """Adds `advantage`, and with a value head `label` (the returns) and `old_value`, to the rows of a rollout.

    Under a constraint there is a second stream of rewards, values and returns for the cost, which comes at the last action; the two
    advantages are whitened each by itself and combined (`constrained_advantages`).

    An action is a turn or a token. Its reward is -beta (log pi_old - log pi_ref), summed over its tokens, and for the last action
    that of the run. A turn is valued at its first token, that is before it, and its advantage is that of all its tokens.

    Without a value head the values are 0, and the return is the discounted sum of what follows (REINFORCE++: Hu 2025, arXiv
    2501.03262, eq. 3 and 5); the forms with a baseline subtract it from the returns of all actions of a run.
    """

    def __init__(self, config: PPOConfig, engine: Engine, passes: SharedPasses = OWN_PASSES) -> None:
        self._config, self._engine, self._passes = config, engine, passes
        self._constraint = Constraint(config.constraint) if config.constraint else None
        self.kl_coefficient = config.kl_coefficient

    def __call__(
        self, examples: Sequence[Example], groups: Sequence[GroupRow]
    ) -> tuple[list[Example], dict[str, float | None]]:
        """Return the examples of a rollout with their advantages, and the figures of the rollout.

        `kl_sampled` is the mean of log pi_old - log pi_ref in nats a token, `kl_coefficient` the one used for this rollout,
        `explained_variance` 1 - var(return - value) / var(return) over the actions.
        """
        observed = self._constraint.observe(groups) if self._constraint else {}
        examples = with_old_logprobs(examples, self._engine, self._config.batch_tokens, self._passes)
        if not examples:
            return [], observed
        values = self._scored(examples, self._engine.values) if self._config.has_critic else {}
        tasks = [action_runs(example, values, self._config, self.kl_coefficient) for example in examples]
        for task in tasks:
            self._estimate(task)
        runs = [run for task in tasks for run in task]
        figures = self._figures(runs) | observed
        self._adapt(figures.get("kl_sampled"), len(runs))
        advantages = np.concatenate([run.advantages for run in runs])
        advantages = whiten(advantages) if self._config.whitens else advantages
        if self._constraint:
            advantages[:, 0] = constrained_advantages(advantages[:, 0], advantages[:, 1], self._constraint.multiplier)
        parts = np.split(advantages[:, 0], np.cumsum([len(run.rewards) for run in runs])[:-1])
        is_valued = self._config.has_critic
        rows = iter(
            [row for run, part in zip(runs, parts, strict=True) for row in run.token_rows(part, is_valued=is_valued)]
        )
        return [replace(example, rows=tuple(next(rows) for _ in example.rows)) for example in examples], figures

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        constraint = self._constraint.state() if self._constraint else {}
        return {"kl_coefficient": self.kl_coefficient, **constraint}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.kl_coefficient = state["kl_coefficient"]
        if self._constraint:
            self._constraint.restore(state)

    def _scored(
        self, examples: Sequence[Example], score: Callable[[Sequence[TokenRow]], torch.Tensor]
    ) -> dict[TokenRow, Array]:
        """Return what the live model gives for the supervised tokens of each row, float64 [n, ...]."""
        scores = self._passes.score(self._engine, examples, self._config.batch_tokens, score)
        return {row: found.astype(np.float64) for row, found in scores.items()}

    def _estimate(self, task: Sequence[ActionRun]) -> None:
        """Set the advantages of the runs of a task."""
        config = self._config
        for run in task:
            if config.has_critic:
                run.advantages = generalized_advantages(
                    run.rewards, run.values, gamma=config.gamma, lam=config.gae_lambda
                )
            else:
                run.advantages = discounted_sums(run.rewards, config.gamma)
        if config.compares:
            totals = [run.advantages[0] for run in task]
            for run, baseline in zip(task, baselines(totals, leave_one_out=config.advantage == "rloo"), strict=True):
                run.advantages = run.advantages - baseline

    def _figures(self, runs: Sequence[ActionRun]) -> dict[str, float | None]:
        advantages = np.concatenate([run.advantages for run in runs])[:, 0]
        figures: dict[str, float | None] = {"actions": float(len(advantages)), "advantage_std": float(advantages.std())}
        if self._config.has_critic:
            values = np.concatenate([run.values for run in runs])[:, 0]
            spread = (advantages + values).var()
            figures["value_mean"] = float(values.mean())
            figures["explained_variance"] = float(1 - advantages.var() / spread) if spread > 0 else None
        if self._config.kl_coefficient:
            kl = np.concatenate([sampled_kl(row) for run in runs for row in run.rows])
            figures |= {"kl_sampled": float(kl.mean()), "kl_coefficient": self.kl_coefficient}
        return figures

    def _adapt(self, kl: float | None, n: int) -> None:
        """Adapt the KL coefficient for the next rollout."""
        target = self._config.kl_target
        if kl is not None and target is not None:
            self.kl_coefficient = next_kl_coefficient(
                self.kl_coefficient, kl, target=target, n=n, horizon=self._config.kl_horizon
            )


def rollout_stage(config: OnlineConfig, engine: Engine, passes: SharedPasses = OWN_PASSES) -> RolloutStage | None:
    """Return what completes the examples of a rollout; None for methods whose examples are complete."""
    if isinstance(config, PPOConfig):
        return RolloutAdvantages(config, engine, passes)
    if isinstance(config, GRPOConfig) and config.constraint is not None:
        return ConstrainedGroups(Constraint(config.constraint), config.scales)
    if isinstance(config, GRPOConfig) and config.self_play is not None and config.by_role:
        return RoleBaselines(config.self_play.baseline_decay)
    return None
