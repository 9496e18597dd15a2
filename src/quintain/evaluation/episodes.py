"""The episode loop: a policy acts in an environment, and every episode becomes a trajectory and a result.

Episodes run in batches that start together, so that a local policy decodes them in parallel with KV caches of similar
length. Environments are third-party code: an exception ends its episode with status `error`, and the others continue.
An exception of the policy ends the run. A policy without an answer for one episode, such as a failed request to an
endpoint, ends that episode only.

An episode can start from the steps of another run. They are executed again in the new environment, which must respond as
recorded, and the policy continues from there. If it responds differently, the episode ends with an error.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from quintain.evaluation.episode_state import (
    EpisodePlan,
    EpisodeSettings,
    EpisodeState,
    agent_step,
    output_tokens,
    respond,
    with_cost,
)
from quintain.evaluation.failures import NO_ANSWER, UNREADABLE, failure_of
from quintain.evaluation.games import require_players, roles_of
from quintain.evaluation.reference_metrics import forbidden_calls, reference_metrics
from quintain.evaluation.replay_divergence import Divergence, ReplayResult, find_divergence, user_text_after
from quintain.evaluation.turn_counts import TurnCount, TurnCounter
from quintain.records.evaluation import EpisodeResult
from quintain.records.protocols import Message, Policy, Stop, TaskSource, Turn
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import COST, Actor, Outcome, OutcomeStatus, Step, Trajectory, text_of

__all__ = ["TEMPERATURE", "Episode", "EpisodePlan", "EpisodeSettings", "replay", "run_episodes"]

logger = logging.getLogger(__name__)

_MAX_PARALLEL = 32
"""Maximum number of concurrent calls to environments."""

_WRITTEN: dict[str, Any] = {
    **dict.fromkeys(("actor", "message", "thought"), True),
    "actions": {"__all__": {"tool", "args", "raw_args"}},
    "observations": {"__all__": {"content"}},
}
"""Key by which two steps are equal, without ids of calls and times."""

TEMPERATURE = "temperature"
"""Key in `Trajectory.extra`: sampling temperature of the tokens. Their log-probs are those at temperature 1."""


class Episode(NamedTuple):
    """A finished episode."""

    trajectory: Trajectory
    """With its id. If the episode ended before the agent's first turn, it has an empty agent step with `train=False`."""
    result: EpisodeResult
    policy: str = ""
    """Which policy played, in a game; empty: the main one."""


def run_episodes(
    source: TaskSource,
    policy: Policy,
    plans: Sequence[EpisodePlan],
    settings: EpisodeSettings,
    should_stop: Callable[[], bool] = lambda: False,
    on_turn: Callable[[TurnCount], None] = lambda count: None,
) -> Iterator[Episode]:
    """Run the planned episodes. Each is yielded when its batch is finished, in the order of the plans.

    A game yields one episode per player, in the order of its roles.

    Args:
        source: Provides tasks and environments.
        policy: Acts for all running episodes of a batch at once.
        plans: Episodes to run.
        settings: Settings shared by the episodes.
        should_stop: Checked before every turn. Once true, the current batch is discarded and the iteration ends.
        on_turn: Receives the counts before the first turn of a batch, after each, and within turns if the policy reports its share.
    """
    require_players(source, plans)
    counter = TurnCounter(sum(max(len(plan.players), 1) for plan in plans), on_turn)
    with _environment_calls(source) as for_each:
        for start in range(0, len(plans), settings.concurrency):
            games = [
                _players(f"episode-{start + i:06d}", plan)
                for i, plan in enumerate(plans[start : start + settings.concurrency])
            ]
            firsts, batch = [game[0] for game in games], [player for game in games for player in game]
            counter.begin(policy, lambda batch=batch: [episode.count for episode in batch])  # type: ignore[misc]
            try:
                for episode in batch:
                    episode.began = time.monotonic()
                for_each(lambda episode: _start(episode, source, settings), firsts)
                counter.update()
                while running := [episode for episode in batch if episode.status is None]:
                    if should_stop():
                        return
                    _step_all(running, policy, settings, for_each)
                    for episode in running:
                        episode.ended = time.monotonic()
                        if episode.status is not None:
                            policy.close(episode.id)  # immediately, to free its cache rows for the other episodes
                    counter.update()
                if should_stop():  # the policy may have given up waiting for an answer
                    return
            finally:
                for episode in batch:
                    policy.close(episode.id)
                for_each(_close, firsts)
            counter.finish(policy)
            for episode in batch:
                yield _to_episode(episode, settings)


def _players(episode_id: str, plan: EpisodePlan) -> list[EpisodeState]:
    """Return the states of a game's players, or of an episode alone."""
    if not plan.players:
        return [EpisodeState(episode_id, plan)]
    game = [EpisodeState(f"{episode_id}/{player}", plan, player) for player in range(len(plan.players))]
    for state in game:
        state.game = game
    return game


_ForEach = Callable[[Callable[[EpisodeState], None], Sequence[EpisodeState]], None]


@contextmanager
def _environment_calls(source: TaskSource) -> Iterator[_ForEach]:
    """Yield a function that applies a call to several episodes, in threads if their environments wait for processes."""
    if not getattr(source, "waits", False):

        def sequential(call: Callable[[EpisodeState], None], episodes: Sequence[EpisodeState]) -> None:
            for episode in episodes:
                call(episode)

        yield sequential
        return
    # Threads live until the last episode ends, because a child process may be tied to the thread that started it.
    with ThreadPoolExecutor(_MAX_PARALLEL, thread_name_prefix="episode") as pool:

        def parallel(call: Callable[[EpisodeState], None], episodes: Sequence[EpisodeState]) -> None:
            for _ in pool.map(call, episodes):
                pass

        yield parallel


def _start(episode: EpisodeState, source: TaskSource, settings: EpisodeSettings) -> None:
    """Start the environment of an episode, or of the game whose first player this is."""
    task = episode.plan.task.model_copy(update={"environment": episode.plan.task.environment or source.id})
    for player in episode.players:
        player.task = task
    with _catch_environment_errors(episode):
        environment = source.make()
        for player in episode.players:
            player.environment = environment
        first = environment.reset(task)
        for player in episode.players:
            player.tools, player.max_turns = environment.tools, settings.max_turns or environment.max_turns
            own = settings.system_prompt if player.role is None else player.role.system_prompt
            player.add_system_prompt(environment.system_prompt if own is None else own)
        episode.record_response(first, first.message if first.message is not None else task.prompt)
        if episode.plan.hint and episode.new_messages:
            newest = episode.new_messages[-1]
            content = f"{newest.content}\n\n{episode.plan.hint}"
            episode.new_messages[-1] = newest.model_copy(update={"content": content})
        _replay_prefix(episode, episode.plan.prefix)


def replay(source: TaskSource, plan: EpisodePlan, settings: EpisodeSettings) -> ReplayResult:
    """Execute the steps of a plan's prefix again and return the result."""
    episode = EpisodeState("replay", plan)
    try:
        _start(episode, source, settings)
    finally:
        _close(episode)
    return ReplayResult(episode.status, episode.error, episode.reward, tuple(episode.steps), episode.divergence)


def _replay_prefix(episode: EpisodeState, prefix: Sequence[Step]) -> None:
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
            episode.add_user_message(recorded_text)
        else:
            now = respond(episode.environment, step.actions, step.thought or text_of(step.message))
            if (found := find_divergence(episode.turns - 1, now, step, recorded_text)) is not None:
                return episode.diverge(found)
            episode.record_answer(now, step.actions)
        if episode.status is None and episode.turns >= episode.max_turns:
            episode.end(OutcomeStatus.TRUNCATED, "max_turns")
    return None


def _step_all(running: Sequence[EpisodeState], policy: Policy, settings: EpisodeSettings, for_each: _ForEach) -> None:
    """Run one turn of every running episode; in a game one player has the turn."""
    running = [episode for episode in running if episode.is_to_move]
    turns = [
        Turn(
            episode_id=episode.id,
            messages=tuple(episode.new_messages),
            tools=episode.tools,
            seed=_seed(episode, settings),
            temperature=episode.plan.temperature,
            policy="" if episode.role is None else episode.role.policy,
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
            episode.steps.append(agent_step(reply, episode.agent(settings).model))
            episode.end(OutcomeStatus.TRUNCATED, "refused", reply.error)
    for_each(
        lambda episode: _apply_reply(episode, settings), [episode for episode in running if episode.status is None]
    )


def _seed(episode: EpisodeState, settings: EpisodeSettings) -> int:
    """Return the seed of a player's sampling stream; the players of a game have different ones."""
    role = (episode.player,) if episode.player else ()
    return stable_seed(settings.seed, episode.task.name, episode.plan.attempt, *role)


def _apply_reply(episode: EpisodeState, settings: EpisodeSettings) -> None:
    """Pass the newest turn to the environment and record its response."""
    reply = episode.replies[-1]
    with _catch_environment_errors(episode):
        assert episode.environment is not None
        # The turn is recorded first, so that the trajectory shows the cause if the environment raises.
        episode.steps.append(agent_step(reply, episode.agent(settings).model))
        unreadable = None if reply.error is None else f"{UNREADABLE} {reply.error.rstrip('.')}."
        if unreadable is not None and episode.role is None:
            episode.add_user_message(unreadable)
        elif unreadable is not None:  # a turn without a move, which the rules of the game may punish
            answer = episode.environment.step(())
            is_again = answer.player == episode.player and not answer.terminated
            episode.record_answer(answer.model_copy(update={"message": unreadable}) if is_again else answer, ())
        else:
            answer = respond(episode.environment, reply.actions, reply.thought or reply.text)
            episode.record_answer(answer, reply.actions)
        if episode.status is None and episode.turns >= episode.max_turns:
            episode.end(OutcomeStatus.TRUNCATED, "max_turns")


@contextmanager
def _catch_environment_errors(episode: EpisodeState) -> Iterator[None]:
    """Turn an exception of an environment into the end of its episode, unless the episode already has a verdict."""
    try:
        yield
    except Exception as error:
        logger.warning("environment failed in task %s", episode.task.id, exc_info=error)
        episode.fail("environment_error", f"{type(error).__name__}: {error}"[:500])


def _close(episode: EpisodeState) -> None:
    if episode.environment is not None:
        with _catch_environment_errors(episode):
            episode.environment.close()
        for (
            player
        ) in episode.players:  # the states of a game refer to each other, and would keep a process until collected
            player.environment = None


def _to_episode(episode: EpisodeState, settings: EpisodeSettings) -> Episode:
    assert episode.status is not None
    plan, task = episode.plan, episode.task
    no_action = Step(actor=Actor.AGENT, train=False, extra={"acted": False})
    extra = {TEMPERATURE: plan.temperature, "error": episode.error or None, COST: episode.metrics.get("cost")}
    extra |= roles_of(episode)
    key, player = plan.key or (f"{settings.job_id}/{task.id}/{plan.attempt}" if settings.job_id else ""), episode.role
    if player is not None:
        key = player.key or (f"{key}/{player.role}" if key else "")
    trajectory = Trajectory(
        episode_key=key,
        agent=episode.agent(settings),
        task=task,
        tools=episode.tools,
        steps=tuple(episode.steps) if episode.turns else (*episode.steps, no_action),
        outcome=Outcome(status=episode.status, reward=episode.reward, exit_status=episode.exit_status),
        tags=settings.tags,
        job_id=settings.job_id,
        extra={name: value for name, value in extra.items() if value is not None},
    ).identified()
    result = EpisodeResult(
        task_id=task.name,
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
        digest=_digest(trajectory) if settings.greedy else None,
    )
    return Episode(trajectory, result, "" if player is None else player.policy)


def _digest(run: Trajectory) -> str:
    """Return a hash of all texts and calls of a run, equal for equal runs of different tasks."""
    steps = [step.model_dump_json(include=_WRITTEN) for step in run.steps]
    return hashlib.sha256("\n".join(steps).encode()).hexdigest()[:16]
