"""Episodes: their plans, the replies of a policy as steps, and the state of a running one.

A game has one state per player. Each sees only what is addressed to it, and all end together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quintain.evaluation.reference_metrics import read_metrics
from quintain.evaluation.replay_divergence import DIVERGED, Divergence
from quintain.evaluation.turn_counts import EpisodeTurns
from quintain.records.protocols import Environment, Message, Reply, Stop, TimeStep
from quintain.records.trajectory import Action, Actor, AgentInfo, Observation, OutcomeStatus, Step, Task, Usage


@dataclass(frozen=True)
class Player:
    """Who plays one role of a game."""

    role: str
    """Name of the role, from the source's `players`."""
    agent: AgentInfo
    policy: str = ""
    """Which policy of a `games.PolicyRouter` answers its turns; empty: the main one."""
    system_prompt: str | None = None
    """Replaces that of the environment, unless None."""
    key: str = ""
    """Episode key of its trajectory; if empty, it is made from job, task, attempt and role."""


@dataclass(frozen=True)
class EpisodePlan:
    """One episode to run, or one game of several players."""

    task: Task
    attempt: int = 0
    key: str = ""
    """Episode key of the trajectory. If empty, it is made from job, task and attempt."""
    prefix: tuple[Step, ...] = ()
    """Recorded steps to execute again, from the first agent turn of another run of the task."""
    temperature: float | None = None
    """Sampling temperature of this episode, stored in the trajectory's `extra`. None uses that of the policy."""
    hint: str = ""
    """Text that the policy sees below the user's message. It is not part of the trajectory."""
    players: tuple[Player, ...] = ()
    """Who plays each role of a game; empty where the environment has one player."""


@dataclass(frozen=True)
class EpisodeSettings:
    """Settings shared by all episodes of a run."""

    seed: int
    max_turns: int | None
    """Maximum number of agent turns per episode. None uses the environment's limit."""
    concurrency: int
    agent: AgentInfo
    system_prompt: str | None = None
    """Replaces the environment's system prompt, unless None."""
    job_id: str | None = None
    tags: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    """Tools that the agent must not call, in addition to those that a task forbids."""
    greedy: bool = False
    """Whether no player samples, so that equal runs of different tasks are one observation."""


COST = "cost_usd"
"""Metric with an episode's endpoint charges. Environments report their own share under the same name."""


def agent_step(reply: Reply, model: str | None) -> Step:
    """Return the agent step of a reply. The message of an unreadable turn is its raw text.

    Args:
        reply: Reply of the policy.
        model: Model name, if the reply does not contain one.
    """
    readable = reply.error is None and (reply.thought is not None or reply.actions)
    refused = reply.stop is Stop.REFUSED
    extra = {
        "stop": None if reply.stop is Stop.END else reply.stop.value,
        "reasoning": reply.reasoning,
        "cost_usd": reply.cost_usd,
    }
    return Step(
        actor=Actor.AGENT,
        message="" if readable else reply.text,
        thought=reply.thought if readable else None,
        actions=reply.actions if readable else (),
        train=False if refused else None,  # there are no tokens of the agent
        model=reply.model or model,
        usage=_usage(reply),
        sampled=reply.sampled,
        extra={name: value for name, value in extra.items() if value is not None},
    )


def respond(environment: Environment, actions: Sequence[Action], text: str) -> TimeStep:
    """Return an environment's response to a turn. Text without actions is an answer where the environment takes answers."""
    take_answer = None if actions or not text.strip() else getattr(environment, "take_answer", None)
    step: TimeStep = environment.step(actions) if take_answer is None else take_answer(text)
    return step


def output_tokens(replies: Sequence[Reply]) -> int:
    """Return the number of tokens that the agent wrote, as far as known."""
    return sum(used.output_tokens or 0 for reply in replies if (used := _usage(reply)) is not None)


def with_cost(metrics: Mapping[str, float], replies: Sequence[Reply]) -> dict[str, float]:
    """Add the agent's charges to the metrics of an episode. Omit `COST` if a charge is unknown.

    Args:
        metrics: Metrics of the environment, whose `COST` covers its own endpoints.
        replies: Replies of the agent, in any order.
    """
    charged = [reply.cost_usd for reply in replies if reply.usage is not None]
    if not charged:
        return dict(metrics)
    known = [cost for cost in charged if cost is not None]
    if len(known) < len(charged):
        return {name: value for name, value in metrics.items() if name != COST}
    return {**metrics, COST: metrics.get(COST, 0.0) + sum(known)}


def _usage(reply: Reply) -> Usage | None:
    return Usage(output_tokens=len(reply.sampled.token_ids)) if reply.sampled else reply.usage


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
        if self.game:
            _require_players(step, len(self.game))
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


def _require_players(step: TimeStep, n: int) -> None:
    """Refuse a step of a game that names a player who is not there, or has no reward for each player."""
    if step.player >= n:
        raise ValueError(f"expected player 0 to {n - 1} of the game, got {step.player}")
    if len(step.rewards) != n and (step.rewards or step.reward is not None):
        raise ValueError(f"expected rewards with one for each of the {n} players, got {len(step.rewards)}")


def _with_call_ids(observations: Sequence[Observation], actions: Sequence[Action]) -> tuple[Observation, ...]:
    call_ids = [action.call_id for action in actions]
    call_ids += [None] * (len(observations) - len(call_ids))
    return tuple(
        observation if observation.call_id else observation.model_copy(update={"call_id": call_id})
        for observation, call_id in zip(observations, call_ids, strict=False)
    )
