"""Opponents of an acting job: its episodes become games of two, and one router asks both policies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quintain.environments.demonstrations import expert_of
from quintain.environments.registry import task_source
from quintain.evaluation.episode_state import EpisodePlan, Player
from quintain.evaluation.games import PolicyRouter, with_players
from quintain.jobs.directory import STAGES
from quintain.records.agent import Agent
from quintain.records.jobs.job import EvaluateSpec, RolloutSpec
from quintain.records.protocols import Policy, TaskSource
from quintain.records.trajectory import AgentInfo
from quintain.worker.policies.creation import JobSignals, open_policy

OPPONENT = "opponent"
"""The opponent's policy in the router, and the subfolder of its requests."""


def agent_info(agent: Agent) -> AgentInfo:
    """Return an agent as it is named in trajectories."""
    version = str(agent.version) if agent.version else None
    return AgentInfo(name=agent.name, version=version, model=agent.id or agent.name)


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
