"""Who acts: the policy of an agent, by where its model is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from quintain.errors import InvalidInput
from quintain.records.agent import Agent, Sampling
from quintain.records.judging import Endpoint
from quintain.records.seams import Policy


def open_policy(
    agent: Agent,
    sampling: Sampling,
    *,
    seed: int = 0,
    endpoint: Endpoint | None = None,
    folder: Path | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str, str], None] = lambda code, message: None,
) -> Policy:
    """The policy of an agent, ready to act.

    Args:
        agent: The agent; its own sampling settings are not read.
        sampling: How tokens are picked.
        seed: Mixed into every episode's sampling stream.
        endpoint: Of an agent that acts through one, as the job's spec has it.
        folder: Of the job; needed with `endpoint`.
        should_stop: Looked at while an endpoint is waited for.
        warn: Hears, with a code, what the user should know of a model that acts here.

    Raises:
        InvalidInput: the agent acts through an endpoint, and the job's spec has none; or the key's variable is not set.
    """
    if agent.model.source == "endpoint":
        from quintain.worker.remote_policy import RemotePolicy

        if endpoint is None or folder is None:
            raise InvalidInput(
                f"{agent.id or agent.name} acts through the endpoint {agent.model.path!r}, and this job needs its weights: "
                "name a model folder, a trained agent or 'starter'",
                code="no_weights",
            )
        return RemotePolicy(agent, endpoint, sampling, seed=seed, folder=folder, should_stop=should_stop)
    from quintain.trainers.acting.policy import open_policy as open_local_policy

    policy = open_local_policy(agent, sampling, seed=seed)
    for told in policy.warnings:
        warn("acting", told)
    return policy
