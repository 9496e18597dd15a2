"""The only episode loop: a policy acts in an environment, and every episode becomes a trajectory and a result.

Episodes run in batches that begin together, so that a local policy decodes them side by side and their KV caches have
like lengths. An environment is other people's code: where it raises, its episode ends with status `error` and the others
go on. A policy that raises ends the run: nothing could act any more. One that has no answer for a single episode, as a model
behind an endpoint may, ends that episode.

An episode can begin with what another run did: its steps are carried out again in the fresh environment, which must answer
as it did then, and the policy goes on from there. Where it answers otherwise nothing can be said of that run.
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
from quintain.evaluation.recorded_runs import DIVERGED, Divergence, Replay, divergence, said_after
from quintain.evaluation.references import forbidden_calls, read_metrics, reference_metrics
from quintain.evaluation.replies import agent_step, output_tokens, with_cost
from quintain.records.evaluation import EpisodeResult
from quintain.records.seams import Environment, Message, Policy, Reply, Stop, TaskSource, TimeStep, Turn
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import (
    Action,
    Actor,
    AgentInfo,
    Observation,
    Outcome,
    OutcomeStatus,
    Step,
    Task,
    Trajectory,
)

logger = logging.getLogger(__name__)

_AT_ONCE = 32
"""Environments that are waited for at once, at most."""

TEMPERATURE = "temperature"
"""Field of `Trajectory.extra`: at which temperature its tokens were sampled. Their log-probs are those at temperature 1."""


@dataclass(frozen=True)
class EpisodePlan:
    """One episode to run."""

    task: Task
    attempt: int = 0
    key: str = ""
    """The trajectory's episode key; empty: made of job, task and attempt where there is a job."""
    prefix: tuple[Step, ...] = ()
    """Steps of another run of the task, from its first agent turn to the last that is carried out again."""
    temperature: float | None = None
    """Of the sampling in this episode, which its trajectory then tells (`extra`); None: the policy's."""
    hint: str = ""
    """Said to the policy below what the user asks, and no part of the trajectory."""


@dataclass(frozen=True)
class EpisodeSettings:
    """What all episodes of a run share."""

    seed: int
    max_turns: int | None
    """Agent turns of an episode; None: the environment's own limit."""
    concurrency: int
    """Episodes of one batch."""
    agent: AgentInfo
    system_prompt: str | None = None
    """Replaces the environment's; None: use the environment's."""
    job_id: str | None = None
    tags: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    """Tools that the agent must not call, besides those that a task forbids."""


class Episode(NamedTuple):
    """A finished episode."""

    trajectory: Trajectory
    """With its id. Where the episode ended before the agent's first turn, its agent step is empty and not for training."""
    result: EpisodeResult


@dataclass
class _Live:
    """An episode under way."""

    id: str
    plan: EpisodePlan
    environment: Environment | None = None
    task: Task = field(default_factory=Task)
    tools: tuple[dict[str, Any], ...] = ()
    max_turns: int = 0
    steps: list[Step] = field(default_factory=list)
    news: list[Message] = field(default_factory=list)  # what the policy has not seen yet
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
) -> Iterator[Episode]:
    """Run the planned episodes; each is yielded when its batch is done, in the order of the plans.

    Args:
        source: Where tasks come from and environments are made.
        policy: Acts; asked for all running episodes of a batch at once.
        plans: What to run.
        settings: What the episodes share.
        should_stop: Looked at before every tick; once true, the batch under way is given up and nothing more is yielded.
        clock: Seconds, for the duration of episodes.
    """
    with _side_by_side(source) as for_each:
        for start in range(0, len(plans), settings.concurrency):
            batch = [
                _Live(f"episode-{start + i:06d}", plan)
                for i, plan in enumerate(plans[start : start + settings.concurrency])
            ]
            try:
                for live in batch:
                    live.began = clock()
                for_each(lambda live: _begin(live, source, settings), batch)
                while running := [live for live in batch if live.status is None]:
                    if should_stop():
                        return
                    _tick(running, policy, settings, for_each)
                    for live in running:
                        live.ended = clock()
                        if live.status is not None:
                            policy.close(live.id)  # at once: it frees the rows of the cache for the others
                if should_stop():  # a policy may have waited for an answer, and given up
                    return
            finally:
                for live in batch:
                    policy.close(live.id)
                for_each(_close, batch)
            for live in batch:
                yield _finished(live, settings)


_ForEach = Callable[[Callable[[_Live], None], Sequence[_Live]], None]


@contextmanager
def _side_by_side(source: TaskSource) -> Iterator[_ForEach]:
    """How to do something with each of several episodes: at once where their environments `wait` for other processes."""
    if not getattr(source, "waits", False):

        def in_turn(do: Callable[[_Live], None], lives: Sequence[_Live]) -> None:
            for live in lives:
                do(live)

        yield in_turn
        return
    # The threads live until the last episode is over: a child may be made to die with the thread that started it.
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="episode") as pool:

        def at_once(do: Callable[[_Live], None], lives: Sequence[_Live]) -> None:
            for _ in pool.map(do, lives):
                pass

        yield at_once


def _begin(live: _Live, source: TaskSource, settings: EpisodeSettings) -> None:
    live.task = live.plan.task.model_copy(update={"environment": live.plan.task.environment or source.id})
    with _guarded(live):
        live.environment = environment = source.make()
        first = environment.reset(live.task)
        live.tools = environment.tools
        live.max_turns = settings.max_turns or environment.max_turns
        prompt = environment.system_prompt if settings.system_prompt is None else settings.system_prompt
        if prompt:
            live.steps.append(Step(actor=Actor.SYSTEM, message=prompt))
            live.news.append(Message(role="system", content=prompt))
        _say(live, first.message if first.message is not None else live.task.prompt)
        if live.plan.hint and live.news:
            live.news[-1] = live.news[-1].model_copy(update={"content": f"{live.news[-1].content}\n\n{live.plan.hint}"})
        _judge(live, first)
        _replay(live, live.plan.prefix)


def replay(source: TaskSource, plan: EpisodePlan, settings: EpisodeSettings) -> Replay:
    """Carry out the steps of a plan's prefix again, and say how that ended."""
    live = _Live("replay", plan)
    try:
        _begin(live, source, settings)
    finally:
        _close(live)
    return Replay(live.status, live.error, live.reward, tuple(live.steps), live.divergence)


def _replay(live: _Live, prefix: Sequence[Step]) -> None:
    """Carry out recorded steps; ends the episode with an error where the environment does not answer as recorded."""
    for place, step in enumerate(prefix):
        if step.actor is not Actor.AGENT:
            continue
        if live.status is not None:
            return live.diverge(Divergence(live.turns, "a further step", "the run is over"))
        assert live.environment is not None
        then = said_after(prefix, place)
        live.turns += 1
        live.steps.append(step.model_copy(update={"observations": (), "reward": None}))
        live.news.append(Message(role="assistant", content=step.message, thought=step.thought, actions=step.actions))
        if then is not None and then.startswith(UNREADABLE):  # nothing reached the environment
            _say(live, then)
        else:
            now = live.environment.step(step.actions)
            if (found := divergence(live.turns - 1, now, step, then)) is not None:
                return live.diverge(found)
            _answer(live, now, step.actions)
        if live.status is None and live.turns >= live.max_turns:
            live.end(OutcomeStatus.TRUNCATED, "max_turns")
    return None


def _tick(running: Sequence[_Live], policy: Policy, settings: EpisodeSettings, for_each: _ForEach) -> None:
    """One turn of every running episode."""
    turns = [
        Turn(
            episode_id=live.id,
            messages=tuple(live.news),
            tools=live.tools,
            seed=stable_seed(settings.seed, live.task.id or live.task.prompt, live.plan.attempt),
            temperature=live.plan.temperature,
        )
        for live in running
    ]
    for live, reply in zip(running, policy.act(turns), strict=True):
        live.news.clear()
        if reply.stop is Stop.CONTEXT:
            live.end(OutcomeStatus.TRUNCATED, "context")
            continue
        if reply.stop is Stop.FAILED:
            live.end(OutcomeStatus.ERROR, NO_ANSWER, reply.error)
            continue
        live.turns += 1
        live.replies.append(reply)
        if reply.stop is Stop.REFUSED:
            live.steps.append(agent_step(reply, settings.agent.model))
            live.end(OutcomeStatus.TRUNCATED, "refused", reply.error)
            continue
    for_each(lambda live: _react(live, settings), [live for live in running if live.status is None])


def _react(live: _Live, settings: EpisodeSettings) -> None:
    """Let the environment answer the newest turn, and note both."""
    reply = live.replies[-1]
    with _guarded(live):
        assert live.environment is not None
        # The turn is noted before the environment acts on it: if that raises, the trajectory still shows the cause.
        live.steps.append(agent_step(reply, settings.agent.model))
        if reply.error is not None:
            _say(live, f"{UNREADABLE} {reply.error.rstrip('.')}.")
        else:
            _answer(live, live.environment.step(reply.actions), reply.actions)
        if live.status is None and live.turns >= live.max_turns:
            live.end(OutcomeStatus.TRUNCATED, "max_turns")


def _answer(live: _Live, step: TimeStep, actions: Sequence[Action]) -> None:
    """Note what the environment answers to the newest step."""
    observations = _with_call_ids(step.observations, actions)
    live.steps[-1] = live.steps[-1].model_copy(update={"observations": observations, "reward": step.reward})
    live.news.extend(Message(role="tool", content=seen.content, call_id=seen.call_id) for seen in observations)
    _say(live, step.message)
    _judge(live, step)


def _with_call_ids(observations: Sequence[Observation], actions: Sequence[Action]) -> tuple[Observation, ...]:
    call_ids = [action.call_id for action in actions]
    call_ids += [None] * (len(observations) - len(call_ids))
    return tuple(
        seen if seen.call_id else seen.model_copy(update={"call_id": call_id})
        for seen, call_id in zip(observations, call_ids, strict=False)
    )


def _say(live: _Live, text: str | None) -> None:
    if text:
        live.steps.append(Step(actor=Actor.USER, message=text))
        live.news.append(Message(role="user", content=text))


def _judge(live: _Live, step: TimeStep) -> None:
    """Note the reward and whether the episode is over; full reward (1) is success, no reward no verdict."""
    if step.reward is not None:
        live.reward = step.reward
    if "metrics" in step.info:  # of the newest step that gives any: a turn limit leaves no time for a last one
        live.metrics = read_metrics(step.info)
    if step.terminated:
        if live.reward is None:
            live.end(OutcomeStatus.UNKNOWN, "terminated")
        else:
            live.end(OutcomeStatus.SUCCESS if live.reward >= 1 else OutcomeStatus.FAILURE, "terminated")
    elif step.truncated:
        live.end(OutcomeStatus.TRUNCATED, "environment")


@contextmanager
def _guarded(live: _Live) -> Iterator[None]:
    """The border to an environment's code: what it raises ends its episode only, and never takes back a verdict."""
    try:
        yield
    except Exception as error:
        logger.warning("the environment failed in task %s", live.task.id, exc_info=error)
        if live.status is None:
            live.end(OutcomeStatus.ERROR, "environment_error", f"{type(error).__name__}: {error}"[:500])


def _close(live: _Live) -> None:
    if live.environment is not None:
        with _guarded(live):
            live.environment.close()


def _finished(live: _Live, settings: EpisodeSettings) -> Episode:
    assert live.status is not None
    plan, task = live.plan, live.task
    never_acted = Step(actor=Actor.AGENT, train=False, extra={"acted": False})
    told = {TEMPERATURE: plan.temperature, "error": live.error or None}
    trajectory = Trajectory(
        episode_key=plan.key or (f"{settings.job_id}/{task.id}/{plan.attempt}" if settings.job_id else ""),
        agent=settings.agent,
        task=task,
        tools=live.tools,
        steps=tuple(live.steps) if live.turns else (*live.steps, never_acted),
        outcome=Outcome(status=live.status, reward=live.reward, exit_status=live.exit_status),
        tags=settings.tags,
        job_id=settings.job_id,
        extra={name: value for name, value in told.items() if value is not None},
    ).identified()
    result = EpisodeResult(
        task_id=task.id or task.prompt,
        repeat=plan.attempt,
        status=live.status,
        reward=live.reward,
        turns=live.turns,
        output_tokens=output_tokens(live.replies),
        duration_s=max(live.ended - live.began, 0.0),
        task_type=task.type,
        difficulty=task.difficulty,
        trajectory_id=trajectory.id,
        error=live.error,
        failure=failure_of(trajectory),
        calls=sum(len(step.actions) for step in trajectory.agent_steps),
        forbidden=forbidden_calls(trajectory, settings.forbidden),
        metrics=with_cost(reference_metrics(trajectory) | live.metrics, live.replies),
    )
    return Episode(trajectory, result)
