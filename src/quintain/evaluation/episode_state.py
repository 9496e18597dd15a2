"""State of a running episode: the messages and actions of its player, and its end.

A game has one state per player. Each sees only what is addressed to it, and all end together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from quintain.evaluation.episode_plans import EpisodePlan, EpisodeSettings, Player
from quintain.evaluation.reference_metrics import read_metrics
from quintain.evaluation.replay_divergence import DIVERGED, Divergence
from quintain.evaluation.replies import output_tokens
from quintain.evaluation.turn_counts import EpisodeTurns
from quintain.records.protocols import Environment, Message, Reply, TimeStep
from quintain.records.trajectory import Action, Actor, AgentInfo, Observation, OutcomeStatus, Step, Task

GAME_OVER = "game_over"
"""Exit status of a player whose game ended without a verdict because another player could not go on."""


@dataclass(eq=False)
class EpisodeState:
    """State of a running episode, or of one player of a running game."""

    id: str
    plan: EpisodePlan
    player: int = 0
    game: Sequence[EpisodeState] = ()
    """All players of the game in the order of `TimeStep.player`; empty where the agent plays alone."""
    is_to_move: bool = True
    environment: Environment | None = None
    task: Task = field(default_factory=Task)
    tools: tuple[dict[str, Any], ...] = ()
    max_turns: int = 0
    steps: list[Step] = field(default_factory=list)
    new_messages: list[Message] = field(default_factory=list)  # not yet seen by the policy
    turns: int = 0
    replies: list[Reply] = field(default_factory=list)
    reward: float | None = None
    status: OutcomeStatus | None = None  # None: still running
    exit_status: str | None = None
    error: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    divergence: Divergence | None = None
    began: float = 0.0
    ended: float = 0.0

    @property
    def players(self) -> Sequence[EpisodeState]:
        """All players of the game, or the episode alone."""
        return self.game or (self,)

    @property
    def role(self) -> Player | None:
        """Who plays, in a game."""
        return self.plan.players[self.player] if self.plan.players else None

    def agent(self, settings: EpisodeSettings) -> AgentInfo:
        """Return who acts."""
        return settings.agent if self.role is None else self.role.agent

    @property
    def count(self) -> EpisodeTurns:
        """Turns of the episode."""
        return EpisodeTurns(self.turns, self.max_turns, self.status is not None, output_tokens(self.replies))

    def end(self, status: OutcomeStatus, exit_status: str, error: str | None = None) -> None:
        """End the episode. The other players of its game end without a verdict."""
        self.status, self.exit_status, self.error = status, exit_status, error
        for other in self.players:
            if other.status is None:
                other.status, other.exit_status = OutcomeStatus.UNKNOWN, GAME_OVER

    def fail(self, exit_status: str, error: str) -> None:
        """End the episode and its game with an error of the environment, unless they have ended."""
        for state in self.players:
            if state.status is None:
                state.status, state.exit_status, state.error = OutcomeStatus.ERROR, exit_status, error

    def diverge(self, found: Divergence) -> None:
        """End a replayed episode that differs from its recording."""
        self.divergence = found
        self.end(OutcomeStatus.ERROR, DIVERGED, f"{DIVERGED}: {found}"[:500])

    def add_system_prompt(self, text: str) -> None:
        """Add the system prompt, if there is one."""
        if text:
            self.steps.append(Step(actor=Actor.SYSTEM, message=text))
            self.new_messages.append(Message(role="system", content=text))

    def add_user_message(self, text: str | None) -> None:
        """Add a message for the player."""
        if text:
            self.steps.append(Step(actor=Actor.USER, message=text))
            self.new_messages.append(Message(role="user", content=text))

    def record_answer(self, step: TimeStep, actions: Sequence[Action]) -> None:
        """Record the environment's response to the newest step: observations for this player, the message for the next one."""
        observations = _with_call_ids(step.observations, actions)
        self.steps[-1] = self.steps[-1].model_copy(update={"observations": observations, "reward": step.reward})
        self.new_messages.extend(
            Message(role="tool", content=observation.content, call_id=observation.call_id)
            for observation in observations
        )
        self.record_response(step, step.message)

    def record_response(self, step: TimeStep, message: str | None) -> None:
        """Record whose turn it is, its message, and the outcome."""
        mover = self.game[step.player] if self.game else self
        for state in self.players:
            state.is_to_move = state is mover
        mover.add_user_message(message)
        for state in self.players:
            state._record_outcome(step)

    def _record_outcome(self, step: TimeStep) -> None:
        """Record the reward and the end of the episode. A reward of 1 is a success; without a reward there is no verdict."""
        reward = step.rewards[self.player] if step.rewards else step.reward
        if reward is not None:
            self.reward = reward
        if "metrics" in step.info:  # of the newest step with metrics: a turn limit leaves no last step
            self.metrics = read_metrics(step.info)
        if step.terminated:
            self.exit_status = "terminated"
            if self.reward is None:
                self.status = OutcomeStatus.UNKNOWN
            else:
                self.status = OutcomeStatus.SUCCESS if self.reward >= 1 else OutcomeStatus.FAILURE
        elif step.truncated:
            self.status, self.exit_status = OutcomeStatus.TRUNCATED, "environment"


def _with_call_ids(observations: Sequence[Observation], actions: Sequence[Action]) -> tuple[Observation, ...]:
    call_ids = [action.call_id for action in actions]
    call_ids += [None] * (len(observations) - len(call_ids))
    return tuple(
        observation if observation.call_id else observation.model_copy(update={"call_id": call_id})
        for observation, call_id in zip(observations, call_ids, strict=False)
    )
