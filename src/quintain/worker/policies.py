"""Who acts: the policy of an agent, by where its model is."""

from __future__ import annotations

from quintain.records.agent import Agent, Sampling
from quintain.records.seams import Policy


def open_policy(agent: Agent, sampling: Sampling, *, seed: int = 0) -> Policy:
    """The policy of an agent, ready to act.

    Args:
        agent: The agent; its own sampling settings are not read.
        sampling: How tokens are picked.
        seed: Mixed into every episode's sampling stream.
    """
    from quintain.trainers.policy import open_policy as open_local_policy

    return open_local_policy(agent, sampling, seed=seed)
