"""A constraint on the costs of runs in online training: costs, the Lagrange multiplier, and the advantages that it combines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quintain.errors import TrainingFailed
from quintain.records.dataset import GroupRow
from quintain.records.hyperparameters.methods import ConstraintConfig, GRPOConfig, PPOConfig, TrainingConfig
from quintain.records.labels.reward import Declared
from quintain.records.score import Score
from quintain.records.trajectory import COST, Trajectory
from quintain.trainers.data.streams import Example, TokenRow
from quintain.trainers.losses.advantages import group_advantages


def constraint_of(config: TrainingConfig) -> ConstraintConfig | None:
    """Return the constraint among the settings of a method; None without one."""
    return config.constraint if isinstance(config, GRPOConfig | PPOConfig) else None


def cost_of(run: Trajectory, config: ConstraintConfig) -> float | None:
    """Return the cost of a run: the environment's metric `cost`, or the value of the declared scorer; None if unknown."""
    if config.cost == "environment":
        return run.extra.get(COST)
    return _declared_score(run, config.cost).value


def _declared_score(run: Trajectory, scorer: Declared) -> Score:
    from quintain.scoring.declared import DeclaredScorer  # most trainings have no constraint

    return DeclaredScorer(scorer).score(run)


def next_multiplier(multiplier: float, cost: float, *, limit: float, rate: float, most: float) -> float:
    """Return max(0, lambda + rate (cost - limit)), at most `most`: gradient ascent on the dual of max J_r subject to J_c <= limit.

    Ray, Achiam and Amodei 2019, "Benchmarking Safe Exploration in Deep Reinforcement Learning", section 5; Dai et al. 2023, arXiv
    2310.12773, section 3.3.
    """
    return min(most, max(0.0, multiplier + rate * (cost - limit)))


def constrained_advantages(
    rewards: NDArray[np.floating], costs: NDArray[np.floating] | float, multiplier: float
) -> NDArray[np.floating]:
    """Return (A_r - lambda A_c) / (1 + lambda), whose scale does not grow with lambda (arXiv 2310.12773, eq. 12).

    Args:
        rewards: A_r, advantages of the rewards.
        costs: A_c, advantages of the costs, normalised by themselves.
        multiplier: lambda, at least 0.
    """
    return (rewards - multiplier * costs) / (1 + multiplier)


class Constraint:
    """The multiplier of a constraint, moved by the mean cost of each rollout before its advantages are combined."""

    def __init__(self, config: ConstraintConfig) -> None:
        self._config = config
        self.multiplier = config.multiplier

    def observe(self, groups: Sequence[GroupRow]) -> dict[str, float | None]:
        """Adapt the multiplier to the runs of a rollout; return `mean_cost` and `cost_multiplier`.

        Raises:
            TrainingFailed: No run has a cost (`no_cost`).
        """
        config = self._config
        known = [cost for group in groups for run in group.trajectories if (cost := cost_of(run, config)) is not None]
        if not known:
            why = "the environment reports no metric `cost`"
            if config.cost != "environment":
                why = f"first: {_declared_score(groups[0].trajectories[0], config.cost).reason}"
            raise TrainingFailed(
                f"expected costs for the constraint, got none in a rollout ({why}); set constraint.cost to a scorer that values "
                'these runs, such as {"type": "calls", "tool": NAME, "full_at": 1, "zero_at": 0}',
                code="no_cost",
            )
        mean = sum(known) / len(known)
        self.multiplier = next_multiplier(
            self.multiplier, mean, limit=config.limit, rate=config.rate, most=config.max_multiplier
        )
        return {"mean_cost": mean, "cost_multiplier": self.multiplier}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"multiplier": self.multiplier}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.multiplier = state["multiplier"]


@dataclass(frozen=True)
class ConstrainedGroups:
    """`source.RolloutStage` of GRPO under a constraint.

    Costs are normalised in their group as rewards are; runs without a difference in cost have a cost advantage of 0.
    """

    constraint: Constraint
    scale: bool
    """Divide by the standard deviation of the group."""

    def __call__(
        self, examples: Sequence[Example], groups: Sequence[GroupRow]
    ) -> tuple[list[Example], dict[str, float | None]]:
        """Return the examples with combined advantages, and the figures of the constraint."""
        figures = self.constraint.observe(groups)
        return [self._combined(example) for example in examples], figures

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return self.constraint.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.constraint.restore(state)

    def _combined(self, example: Example) -> Example:
        costs = group_advantages(example.cost, scale=self.scale)
        costs = np.zeros(example.n_members) if costs is None else costs

        def combine(row: TokenRow, member: int) -> TokenRow:
            assert row.advantage is not None
            advantage = constrained_advantages(row.advantage, float(costs[member]), self.constraint.multiplier)
            return replace(row, advantage=advantage.astype(np.float32))

        return replace(example, rows=tuple(map(combine, example.rows, example.member)))
