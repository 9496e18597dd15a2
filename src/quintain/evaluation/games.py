"""Games of several players: who plays which role, and one policy for all of them.

A task source with the attribute `players` plays games. Each player of a game gets its own trajectory, with its role and its
opponents in `extra`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from quintain.errors import InvalidInput
from quintain.evaluation.episode_state import EpisodePlan, EpisodeState, Player
from quintain.records.protocols import Policy, Reply, TaskSource, Turn
from quintain.records.trajectory import OPPONENTS, ROLE


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


def with_players(
    plans: Sequence[EpisodePlan], source: TaskSource, agent: Player, opponent: Player
) -> list[EpisodePlan]:
    """Return the plans as games of two, with the agent's role changing from task to task and from attempt to attempt.

    Args:
        plans: Planned episodes. Their order does not matter: the role follows from the task's place and the attempt.
        source: Of games.
        agent: Who is measured.
        opponent: Who plays the other role.
    """
    roles = players_of(source)
    places = {task: place for place, task in enumerate(dict.fromkeys(plan.task.name for plan in plans))}
    games = []
    for plan in plans:
        own = (places[plan.task.name] + plan.attempt) % len(roles)
        players = tuple(
            replace(agent if place == own else opponent, role=role, key=plan.key if place == own else "")
            for place, role in enumerate(roles)
        )
        games.append(replace(plan, players=players))
    return games


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
