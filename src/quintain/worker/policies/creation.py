"""Creation of policies: local, behind an endpoint, or scripted, and of both players of a game.

With an opponent, the episodes of a job become games of two, and one router asks both policies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from quintain.environments.registry import task_source
from quintain.environments.scripted_policy import expert_of
from quintain.errors import InvalidInput
from quintain.evaluation.episode_state import EpisodePlan, Player
from quintain.evaluation.games import PolicyRouter, with_players
from quintain.jobs.directory import STAGES
from quintain.records.agent import Agent, Sampling
from quintain.records.jobs.job import EvaluateSpec, RolloutSpec, StepLabelSpec
from quintain.records.jobs.talk import TalkSpec
from quintain.records.labels.judging import Endpoint
from quintain.records.protocols import Policy, TaskSource
from quintain.records.trajectory import AgentInfo
from quintain.trainers.models.libraries import import_libraries


class JobSignals(Protocol):
    """The part of a `Reporter` that policies need."""

    def warn(self, code: str, message: str) -> None:
        """Report a problem that does not stop the run."""

    def should_stop(self) -> bool:
        """Whether the job was asked to stop."""


def policy_of_job(
    spec: RolloutSpec | EvaluateSpec | StepLabelSpec | TalkSpec,
    folder: Path,
    signals: JobSignals,
    expert: Callable[[], Policy] | None = None,
) -> Policy:
    """Create the policy of a job's agent, with warnings in the job's report; arguments and errors as of `open_policy`."""
    return open_policy(
        spec.agent,
        spec.sampling,
        seed=spec.seed,
        endpoint=spec.endpoint,
        folder=folder,
        should_stop=signals.should_stop,
        warn=signals.warn,
        expert=expert,
    )


def open_policy(
    agent: Agent,
    sampling: Sampling,
    *,
    seed: int = 0,
    endpoint: Endpoint | None = None,
    folder: Path | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    warn: Callable[[str, str], None] = lambda code, message: None,
    expert: Callable[[], Policy] | None = None,
) -> Policy:
    """Create the policy of an agent.

    Args:
        agent: The agent. Its sampling settings are not used.
        sampling: Sampling settings.
        seed: Mixed into every episode's sampling stream.
        endpoint: Endpoint in the job's spec, for an agent that acts through one.
        folder: The job's folder, required with `endpoint`; a local model keeps there how it computes.
        should_stop: Checked while waiting for an endpoint.
        warn: Receives a code and a message about a local model.
        expert: Returns the scripted expert, where one can act.

    Raises:
        InvalidInput: The agent acts through an endpoint that the job's spec lacks, or the API key's variable is not set. Or it
            is the scripted expert, and there is none.
    """
    if agent.model.source == "expert":
        if expert is None:
            raise InvalidInput(f"expected a model, got {agent.id}, a script; name a model", code="no_weights")
        return expert()
    if agent.model.source == "endpoint":
        from quintain.worker.policies.remote_policy import BROKEN_AFTER, RemotePolicy

        if endpoint is None or folder is None:
            raise InvalidInput(
                f"expected local weights, got {agent.id_or_name}, which acts through endpoint {agent.model.path!r}; pass a "
                "model folder, a trained agent or 'starter'",
                code="no_weights",
            )
        if endpoint.token_ids:
            from quintain.worker.policies.remote_sampler import open_token_policy

            return open_token_policy(
                agent, endpoint, sampling, seed=seed, folder=folder, should_stop=should_stop, tolerance=BROKEN_AFTER - 1
            )
        return RemotePolicy(agent, endpoint, sampling, seed=seed, folder=folder, should_stop=should_stop)
    import_libraries()
    from quintain.trainers.acting.policy import open_policy as open_local_policy

    policy = open_local_policy(agent, sampling, seed=seed, folder=folder)
    for warning in policy.warnings:
        warn("acting", warning)
    return policy


OPPONENT = "opponent"
"""The opponent's policy in the router, and the subfolder of its requests."""


def agent_info(agent: Agent) -> AgentInfo:
    """Return an agent as it is named in trajectories."""
    version = str(agent.version) if agent.version else None
    return AgentInfo(name=agent.name, version=version, model=agent.id_or_name)


def as_games(spec: RolloutSpec | EvaluateSpec, plans: Sequence[EpisodePlan], source: TaskSource) -> list[EpisodePlan]:
    """Return the planned episodes as games of the agent and its opponent."""
    assert spec.opponent is not None
    own = Player("", agent_info(spec.agent), system_prompt=spec.agent.system_prompt)
    other = Player("", agent_info(spec.opponent), OPPONENT, system_prompt=spec.opponent.system_prompt)
    return with_players(plans, source, own, other)


def router(
    spec: RolloutSpec | EvaluateSpec, policy: Policy, directory: Path, signals: JobSignals, source: TaskSource
) -> PolicyRouter:
    """Return a policy for both players; an agent that plays against itself has one policy for both."""
    opponent = spec.opponent
    assert opponent is not None
    if opponent == spec.agent and spec.sampling == opponent.sampling:
        return PolicyRouter({"": policy, OPPONENT: policy})
    folder = directory / STAGES / OPPONENT
    folder.mkdir(parents=True, exist_ok=True)
    inside = source if hasattr(source, "expert") else task_source(spec.environment)
    other = open_policy(
        opponent,
        opponent.sampling,
        seed=spec.seed + 1,
        endpoint=spec.opponent_endpoint,
        folder=folder,
        should_stop=signals.should_stop,
        warn=signals.warn,
        expert=lambda: expert_of(inside, ()),
    )
    return PolicyRouter({"": policy, OPPONENT: other})
