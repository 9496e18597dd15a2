"""Games of several players: who plays which role, and one policy for all of them.

A task source with the attribute `players` plays games. Each player of a game gets a trajectory of its own, with its role and its
opponents in `extra`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quintain.errors import InvalidInput
from quintain.evaluation.episode_plans import EpisodePlan
from quintain.evaluation.episode_state import EpisodeState
from quintain.records.protocols import Policy, Reply, TaskSource, Turn

ROLE, OPPONENTS = "role", "opponents"
"""Keys of `Trajectory.extra` of a game: the role, and the agents in the other roles."""


def players_of(source: TaskSource) -> tuple[str, ...]:
    """Return the roles of a game; empty where an agent plays alone."""
    return tuple(getattr(source, "players", ()))


def require_players(source: TaskSource, plans: Sequence[EpisodePlan]) -> None:
    """Refuse plans that do not name a player for each role.

    Raises:
        InvalidInput: Too few or too many players, or recorded steps at the start of a game.
    """
    roles = players_of(source)
    for plan in plans:
        if tuple(player.role for player in plan.players) != roles:
            raise InvalidInput(
                f"expected {len(roles) or 'no'} players{' (' + ', '.join(roles) + ')' if roles else ''} in {source.id}, got "
                f"{len(plan.players)}; {'name an opponent' if roles else 'leave the opponent out'}",
                code="players",
            )
        if roles and plan.prefix:
            raise InvalidInput(
                f"expected an environment for one player, got {source.id} with {', '.join(roles)}; a run of one player does not "
                "contain the others' moves, so it cannot be executed again",
                code="players",
            )


def roles_of(episode: EpisodeState) -> dict[str, Any]:
    """Return the `extra` of a player's trajectory."""
    if episode.role is None:
        return {}
    others = [player.agent for place, player in enumerate(episode.plan.players) if place != episode.player]
    return {ROLE: episode.role.role, OPPONENTS: [agent.model or agent.name for agent in others]}


class PolicyRouter:
    """A policy that passes each turn to one of several by `Turn.policy`."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        """Keep the policies by name."""
        self._policies = dict(policies)

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        """Answer the turns, one batch per policy. Replies keep the order of the turns."""
        replies: dict[str, Reply] = {}
        for name, policy in self._policies.items():
            own = [turn for turn in turns if turn.policy == name]
            if own:
                replies |= {turn.episode_id: reply for turn, reply in zip(own, policy.act(own), strict=True)}
        return [replies[turn.episode_id] for turn in turns]

    def close(self, episode_id: str) -> None:
        """Free an episode."""
        for policy in self._policies.values():
            policy.close(episode_id)
