"""Lengths of runs in policy gradients: runs that were cut off, and rewards less a penalty on long runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quintain.records.dataset import GroupRow
from quintain.records.hyperparameters.methods import GRPOConfig
from quintain.records.protocols import Stop
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.trainers.data.streams import TokenRow
from quintain.trainers.losses.advantages import overlong_penalty

_CUT_OFF = (Stop.LENGTH.value, Stop.CONTEXT.value)


def cut_off(run: Trajectory) -> bool:
    """Whether a limit on turns, tokens or context ended a run or its last turn (DAPO filters these, arXiv 2503.14476, section 3.4)."""
    last = run.agent_steps[-1].extra.get("stop") if run.agent_steps else None
    return run.outcome.status is OutcomeStatus.TRUNCATED or last in _CUT_OFF


def penalised_rewards(
    group: GroupRow, rendered: Mapping[int, Sequence[TokenRow]], config: GRPOConfig
) -> tuple[float, ...]:
    """Return the reward of each run less its penalty for length."""
    longest = config.overlong_tokens
    if longest is None:
        return group.rewards
    buffer = config.overlong_buffer or max(longest // 5, 1)
    lengths = [_written_tokens(run, rendered.get(place, ())) for place, run in enumerate(group.trajectories)]
    return tuple(
        reward - config.overlong_penalty * overlong_penalty(length, longest, buffer)
        for reward, length in zip(group.rewards, lengths, strict=True)
    )


def _written_tokens(run: Trajectory, rows: Sequence[TokenRow]) -> int:
    """Return the tokens that the agent wrote: those it sampled where all turns have them, else those that are rendered."""
    sampled = [step.sampled for step in run.agent_steps]
    if sampled and all(sampled):
        return sum(len(tokens.token_ids) for tokens in sampled if tokens)
    return sum(row.n_supervised for row in rows)
