"""The episode loop: a policy acts in an environment, and every episode becomes a trajectory and a result.

Episodes run in batches that start together, so that a local policy decodes them in parallel with KV caches of similar
length. Environments are third-party code: an exception ends its episode with status `error`, and the others continue.
An exception of the policy ends the run. A policy without an answer for one episode, such as a failed request to an
endpoint, ends that episode only.

An episode can start from the steps of another run. They are executed again in the new environment, which must respond as
recorded, and the policy continues from there. If it responds differently, the episode ends with an error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quintain.evaluation.failures import NO_ANSWER, UNREADABLE, failure_of
from quintain.evaluation.reference_metrics import forbidden_calls, read_metrics, reference_metrics
from quintain.evaluation.replay_divergence import DIVERGED, Divergence, ReplayResult, find_divergence, user_text_after
from quintain.evaluation.replies import agent_step, output_tokens, respond, with_cost
from quintain.evaluation.turn_counts import EpisodeTurns, TurnCount, TurnCounter
from quintain.records.evaluation import EpisodeResult
from quintain.records.protocols import Environment, Message, Policy, Reply, Stop, TaskSource, TimeStep, Turn
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import (
    COST,
    Action,
    Actor,
    AgentInfo,
    Observation,
    Outcome,
    OutcomeStatus,
    Step,
    Task,
    Trajectory,
    text_of,
)

logger = logging.getLogger(__name__)

_MAX_PARALLEL = 32
"""Maximum number of concurrent calls to environments."""

TEMPERATURE = "temperature"
"""Key in `Trajectory.extra`: sampling temperature of the tokens. Their log-probs are those at temperature 1."""


@dataclass(frozen=True)
class EpisodePlan:
    """One episode to run."""

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


@dataclass(frozen=True)
class EpisodeSettings:
    """Settings shared by all episodes of a run."""

    seed: int
    max_turns: int | None
    """Maximum number of agent turns per episode. None uses the environment's limit."""
    concurrency: int
    """Number of episodes per batch."""
    agent: AgentInfo
    system_prompt: str | None = None
    """Replaces the environment's system prompt, unless None."""
    job_id: str | None = None
    tags: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    """Tools that the agent must not call, in addition to those that a task forbids."""


class Episode(NamedTuple):
    """A finished episode."""

    trajectory: Trajectory
    """With its id. If the episode ended before the agent's first turn, it has an empty agent step with `train=False`."""
    result: EpisodeResult


@dataclass
class _EpisodeState:
    """State of a running episode."""

    id: str
    plan: EpisodePlan
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

    def end(self, status: OutcomeStatus, exit_status: str, error: str | None = None) -> None:
        self.status, self.exit_status, self.error = status, exit_status, error

    @property
    def count(self) -> EpisodeTurns:
        return EpisodeTurns(self.turns, self.max_turns, self.status is not None, output_tokens(self.replies))

    def diverge(self, found: Divergence) -> None:
        self.divergence = found
        self.end(OutcomeStatus.ERROR, DIVERGED, f"{DIVERGED}: {found}"[:500])


def run_episodes(
    source: TaskSource,
    policy: Policy,
    plans: Sequence[EpisodePlan],
    settings: EpisodeSettings,
    should_stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    on_turn: Callable[[TurnCount], None] = lambda count: None,
) -> Iterator[Episode]:
    """Run the planned episodes. Each is yielded when its batch is finished, in the order of the plans.

    Args:
        source: Provides tasks and environments.
        policy: Acts for all running episodes of a batch at once.
        plans: Episodes to run.
        settings: Settings shared by the episodes.
        should_stop: Checked before every turn. Once true, the current batch is discarded and the iteration ends.
        clock: Returns seconds, for the duration of episodes.
        on_turn: Receives the counts before the first turn of a batch, after each, and within turns if the policy reports its share.
    """
    counter = TurnCounter(len(plans), on_turn)
    with _environment_calls(source) as for_each:
        for start in range(0, len(plans), settings.concurrency):
            batch = [
                _EpisodeState(f"episode-{start + i:06d}", plan)
                for i, plan in enumerate(plans[start : start + settings.concurrency])
            ]
            counter.begin(policy, lambda batch=batch: [episode.count for episode in batch])  # type: ignore[misc]
            try:
                for episode in batch:
                    episode.began = clock()
                for_each(lambda episode: _start(episode, source, settings), batch)
                counter.update()
                while running := [episode for episode in batch if episode.status is None]:
                    if should_stop():
                        return
                    _step_all(running, policy, settings, for_each)
                    for episode in running:
                        episode.ended = clock()
                        if episode.status is not None:
                            policy.close(episode.id)  # immediately, to free its cache rows for the other episodes
                    counter.update()
                if should_stop():  # the policy may have given up waiting for an answer
                    return
            finally:
                for episode in batch:
                    policy.close(episode.id)
                for_each(_close, batch)
            counter.finish(policy)
            for episode in batch:
                yield _to_episode(episode, settings)


_ForEach = Callable[[Callable[[_EpisodeState], None], Sequence[_EpisodeState]], None]


@contextmanager
def _environment_calls(source: TaskSource) -> Iterator[_ForEach]:
    """Yield a function that applies a call to several episodes, in threads if their environments wait for processes."""
    if not getattr(source, "waits", False):

        def sequential(call: Callable[[_EpisodeState], None], episodes: Sequence[_EpisodeState]) -> None:
            for episode in episodes:
                call(episode)

        yield sequential
        return
    # Threads live until the last episode ends, because a child process may be tied to the thread that started it.
    with ThreadPoolExecutor(_MAX_PARALLEL, thread_name_prefix="episode") as pool:

        def parallel(call: Callable[[_EpisodeState], None], episodes: Sequence[_EpisodeState]) -> None:
            for _ in pool.map(call, episodes):
                pass

        yield parallel


def _start(episode: _EpisodeState, source: TaskSource, settings: EpisodeSettings) -> None:
    episode.task = episode.plan.task.model_copy(update={"environment": episode.plan.task.environment or source.id})
    with _catch_environment_errors(episode):
        episode.environment = environment = source.make()
        first = environment.reset(episode.task)
        episode.tools = environment.tools
        episode.max_turns = settings.max_turns or environment.max_turns
        prompt = environment.system_prompt if settings.system_prompt is None else settings.system_prompt
        if prompt:
            episode.steps.append(Step(actor=Actor.SYSTEM, message=prompt))
            episode.new_messages.append(Message(role="system", content=prompt))
        _add_user_message(episode, first.message if first.message is not None else episode.task.prompt)
        if episode.plan.hint and episode.new_messages:
            newest = episode.new_messages[-1]
            content = f"{newest.content}\n\n{episode.plan.hint}"
            episode.new_messages[-1] = newest.model_copy(update={"content": content})
        _record_outcome(episode, first)
        _replay_prefix(episode, episode.plan.prefix)


def replay(source: TaskSource, plan: EpisodePlan, settings: EpisodeSettings) -> ReplayResult:
    """Execute the steps of a plan's prefix again and return the result."""
    episode = _EpisodeState("replay", plan)
    try:
        _start(episode, source, settings)
    finally:
        _close(episode)
    return ReplayResult(episode.status, episode.error, episode.reward, tuple(episode.steps), episode.divergence)


def _replay_prefix(episode: _EpisodeState, prefix: Sequence[Step]) -> None:
    """Execute recorded steps. End the episode with an error if the environment responds differently."""
    for place, step in enumerate(prefix):
        if step.actor is not Actor.AGENT:
            continue
        if episode.status is not None:
            return episode.diverge(Divergence(episode.turns, "a further step", "the run has ended"))
        assert episode.environment is not None
        recorded_text = user_text_after(prefix, place)
        episode.turns += 1
        episode.steps.append(step.model_copy(update={"observations": (), "reward": None}))
        episode.new_messages.append(
            Message(role="assistant", content=step.message, thought=step.thought, actions=step.actions)
        )
        if recorded_text is not None and recorded_text.startswith(UNREADABLE):  # never reached the environment
            _add_user_message(episode, recorded_text)
        else:
            now = respond(episode.environment, step.actions, step.thought or text_of(step.message))
            if (found := find_divergence(episode.turns - 1, now, step, recorded_text)) is not None:
                return episode.diverge(found)
            _record_answer(episode, now, step.actions)
        if episode.status is None and episode.turns >= episode.max_turns:
            episode.end(OutcomeStatus.TRUNCATED, "max_turns")
    return None


def _step_all(running: Sequence[_EpisodeState], policy: Policy, settings: EpisodeSettings, for_each: _ForEach) -> None:
    """Run one turn of every running episode."""
    turns = [
        Turn(
            episode_id=episode.id,
            messages=tuple(episode.new_messages),
            tools=episode.tools,
            seed=stable_seed(settings.seed, episode.task.id or episode.task.prompt, episode.plan.attempt),
            temperature=episode.plan.temperature,
        )
        for episode in running
    ]
    for episode, reply in zip(running, policy.act(turns), strict=True):
        episode.new_messages.clear()
        if reply.stop is Stop.CONTEXT:
            episode.end(OutcomeStatus.TRUNCATED, "context")
            continue
        if reply.stop is Stop.FAILED:
            episode.end(OutcomeStatus.ERROR, NO_ANSWER, reply.error)
            continue
        episode.turns += 1
        episode.replies.append(reply)
        if reply.stop is Stop.REFUSED:
            episode.steps.append(agent_step(reply, settings.agent.model))
            episode.end(OutcomeStatus.TRUNCATED, "refused", reply.error)
    for_each(
        lambda episode: _apply_reply(episode, settings), [episode for episode in running if episode.status is None]
    )


def _apply_reply(episode: _EpisodeState, settings: EpisodeSettings) -> None:
    """Pass the newest turn to the environment and record its response."""
    reply = episode.replies[-1]
    with _catch_environment_errors(episode):
        assert episode.environment is not None
        # The turn is recorded first, so that the trajectory shows the cause if the environment raises.
        episode.steps.append(agent_step(reply, settings.agent.model))
        if reply.error is not None:
            _add_user_message(episode, f"{UNREADABLE} {reply.error.rstrip('.')}.")
        else:
            answer = respond(episode.environment, reply.actions, reply.thought or reply.text)
            _record_answer(episode, answer, reply.actions)
        if episode.status is None and episode.turns >= episode.max_turns:
            episode.end(OutcomeStatus.TRUNCATED, "max_turns")


def _record_answer(episode: _EpisodeState, step: TimeStep, actions: Sequence[Action]) -> None:
    """Record the environment's response to the newest step."""
    observations = _with_call_ids(step.observations, actions)
    episode.steps[-1] = episode.steps[-1].model_copy(update={"observations": observations, "reward": step.reward})
    episode.new_messages.extend(
        Message(role="tool", content=seen.content, call_id=seen.call_id) for seen in observations
    )
    _add_user_message(episode, step.message)
    _record_outcome(episode, step)


def _with_call_ids(observations: Sequence[Observation], actions: Sequence[Action]) -> tuple[Observation, ...]:
    call_ids = [action.call_id for action in actions]
    call_ids += [None] * (len(observations) - len(call_ids))
    return tuple(
        seen if seen.call_id else seen.model_copy(update={"call_id": call_id})
        for seen, call_id in zip(observations, call_ids, strict=False)
    )


def _add_user_message(episode: _EpisodeState, text: str | None) -> None:
    if text:
        episode.steps.append(Step(actor=Actor.USER, message=text))
        episode.new_messages.append(Message(role="user", content=text))


def _record_outcome(episode: _EpisodeState, step: TimeStep) -> None:
    """Record the reward and the end of the episode. A reward of 1 is a success; without a reward there is no verdict."""
    if step.reward is not None:
        episode.reward = step.reward
    if "metrics" in step.info:  # of the newest step with metrics: a turn limit leaves no last step
        episode.metrics = read_metrics(step.info)
    if step.terminated:
        if episode.reward is None:
            episode.end(OutcomeStatus.UNKNOWN, "terminated")
        else:
            episode.end(OutcomeStatus.SUCCESS if episode.reward >= 1 else OutcomeStatus.FAILURE, "terminated")
    elif step.truncated:
        episode.end(OutcomeStatus.TRUNCATED, "environment")


@contextmanager
def _catch_environment_errors(episode: _EpisodeState) -> Iterator[None]:
    """Turn an exception of an environment into the end of its episode, unless the episode already has a verdict."""
    try:
        yield
    except Exception as error:
        logger.warning("environment failed in task %s", episode.task.id, exc_info=error)
        if episode.status is None:
            episode.end(OutcomeStatus.ERROR, "environment_error", f"{type(error).__name__}: {error}"[:500])


def _close(episode: _EpisodeState) -> None:
    if episode.environment is not None:
        with _catch_environment_errors(episode):
            episode.environment.close()


def _to_episode(episode: _EpisodeState, settings: EpisodeSettings) -> Episode:
    assert episode.status is not None
    plan, task = episode.plan, episode.task
    no_action = Step(actor=Actor.AGENT, train=False, extra={"acted": False})
    extra = {TEMPERATURE: plan.temperature, "error": episode.error or None, COST: episode.metrics.get("cost")}
    trajectory = Trajectory(
        episode_key=plan.key or (f"{settings.job_id}/{task.id}/{plan.attempt}" if settings.job_id else ""),
        agent=settings.agent,
        task=task,
        tools=episode.tools,
        steps=tuple(episode.steps) if episode.turns else (*episode.steps, no_action),
        outcome=Outcome(status=episode.status, reward=episode.reward, exit_status=episode.exit_status),
        tags=settings.tags,
        job_id=settings.job_id,
        extra={name: value for name, value in extra.items() if value is not None},
    ).identified()
    result = EpisodeResult(
        task_id=task.id or task.prompt,
        repeat=plan.attempt,
        status=episode.status,
        reward=episode.reward,
        turns=episode.turns,
        output_tokens=output_tokens(episode.replies),
        duration_s=max(episode.ended - episode.began, 0.0),
        task_type=task.type,
        difficulty=task.difficulty,
        trajectory_id=trajectory.id,
        error=episode.error,
        failure=failure_of(trajectory),
        calls=sum(len(step.actions) for step in trajectory.agent_steps),
        forbidden=forbidden_calls(trajectory, settings.forbidden),
        metrics=with_cost(reference_metrics(trajectory) | episode.metrics, episode.replies),
    )
    return Episode(trajectory, result)
