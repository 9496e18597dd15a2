"""Baselines of roles in self-play: what the reward of a run is compared with in GRPO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quintain.records.dataset import GroupRow
from quintain.records.trajectory import ROLE
from quintain.trainers.data.streams import Example

_EVEN = 0.5
"""Baseline of a role before its first run: the value of an even game."""


def next_baseline(baseline: float, rewards: Sequence[float], lengths: Sequence[int], decay: float) -> float:
    """Return the running mean of a role's rewards after k more runs: decay^k baseline + (1 - decay^k) sum l r / sum l.

    Role-conditioned advantage estimation (RAE) of SPIRAL (Liu et al. 2025, arXiv 2506.24119, section 3.3). The roles of a game
    may have unequal chances, such as the first and the second move: one baseline for both would praise every run of the better one.

    The mean of the new runs is weighted by their tokens, the baseline of least variance where the tokens have gradients of similar
    size (OPO, Hao et al. 2025, arXiv 2505.23585).

    Args:
        baseline: Before these runs.
        rewards: One a run.
        lengths: Tokens of the agent in each run, above 0 in all.
        decay: How much of the baseline each run keeps, 0 to 1.
    """
    kept = decay ** len(rewards)
    mean = sum(length * reward for length, reward in zip(lengths, rewards, strict=True)) / sum(lengths)
    return kept * baseline + (1 - kept) * mean


class RoleBaselines:
    """`source.RolloutStage` of GRPO in self-play: the advantage of a run is its reward minus the baseline of its role.

    The rewards of a rollout enter the baselines first and are compared with them then. So the baselines adapt within the first
    rollout, and the runs of a role are compared with one value. Advantages are not divided by a deviation, as in SPIRAL.

    A run that is not learned from moves no baseline: a player whose opponent lost before its first turn has won without a choice.
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self.baselines: dict[str, float] = {}

    def __call__(
        self, examples: Sequence[Example], groups: Sequence[GroupRow]
    ) -> tuple[list[Example], dict[str, float | None]]:
        """Return the examples with advantages; `baseline_ROLE` is the mean of a role after the rollout."""
        roles = {group.key: str(group.trajectories[0].extra.get(ROLE, "")) for group in groups}
        for role in dict.fromkeys(roles[example.key] for example in examples):
            runs = [run for example in examples if roles[example.key] == role for run in _rewards_and_lengths(example)]
            rewards, lengths = zip(*runs, strict=True)
            self.baselines[role] = next_baseline(self.baselines.get(role, _EVEN), rewards, lengths, self._decay)
        completed = [_completed(example, self.baselines[roles[example.key]]) for example in examples]
        return completed, {f"baseline_{role}": value for role, value in sorted(self.baselines.items())}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"baselines": dict(self.baselines)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        self.baselines = dict(state["baselines"])


def _completed(example: Example, baseline: float) -> Example:
    rows = tuple(
        replace(row, advantage=np.full(len(row), example.value[member] - baseline, np.float32))
        for row, member in zip(example.rows, example.member, strict=True)
    )
    return replace(example, rows=rows)


def _rewards_and_lengths(example: Example) -> list[tuple[float, int]]:
    """Return the reward and the agent's tokens of each run."""
    lengths = [sum(row.n_supervised for row in rows) for rows in example.by_member]
    return list(zip(example.value, lengths, strict=True))
