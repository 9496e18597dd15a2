"""Job kind `talk`: an agent answers a person, message by message, with its own renderer and the tools of an environment.

The person takes the place of an environment's user in the one episode loop. Messages arrive in a line file of the job's folder;
the conversation ends by the person's word, on request, or after a time without messages.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from quintain.environments.registry import open_source
from quintain.environments.scripted_policy import expert_of
from quintain.errors import Unavailable
from quintain.evaluation.episode_state import agent_step, respond
from quintain.evaluation.episodes import EpisodePlan, EpisodeSettings, run_episodes
from quintain.jobs.directory import open_appending, read_lines, run_name, write_line
from quintain.records.jobs.job import JobResult, TrajectorySet
from quintain.records.jobs.talk import CONVERSATION, MESSAGES, TalkEnd, TalkLine, TalkMessage, TalkSpec
from quintain.records.protocols import Environment, Policy, Reply, Reporter, Stop, TaskSource, TimeStep, Turn
from quintain.records.trajectory import Action, Actor, Observation, Step, Task
from quintain.worker.policies.creation import agent_info, policy_of_job

MAX_TURNS = 1000
TAG = "conversation"
"""Tag of the runs that were kept."""
_POLL_S = 0.1


def run(spec: TalkSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Answer the person until the conversation ends. It is output as a run if the person asked for it.

    Raises:
        Unavailable: An earlier attempt began this conversation; what the agent had read is lost with its process.
        NotFound, InvalidInput: As `open_source` and `policy_of_job`.
    """
    if (directory / CONVERSATION).exists():
        raise Unavailable(
            "expected a running conversation, got one whose process ended; begin another", code="interrupted"
        )
    reporter.phase("preparing")
    source = None if spec.environment is None else open_source(spec.environment)
    place = None if source is None else source.tasks("train", 1, spec.seed)[0]
    reporter.phase("loading_model")
    expert = None if source is None or place is None else lambda: expert_of(source, [place])
    policy = policy_of_job(spec, directory, reporter, expert)
    talk = _Conversation(spec, directory, reporter)
    name = run_name(directory)
    plan = EpisodePlan(Task(id=f"talk/{name}", prompt=spec.message, environment=spec.environment), key=name)
    settings = EpisodeSettings(
        seed=spec.seed,
        max_turns=MAX_TURNS,
        concurrency=1,
        agent=agent_info(spec.agent),
        system_prompt=spec.agent.system_prompt,
        job_id=name,
        tags=(TAG,),
    )
    reporter.phase("talking")
    (episode,) = run_episodes(_TalkSource(talk, source, place), _Speaker(policy, talk), [plan], settings)
    kept = talk.end == "keep"
    if kept:
        reporter.output("trajectory", episode.trajectory)
    return JobResult(
        trajectories=TrajectorySet(count=1, filter={"job_id": directory.name}) if kept else None,
        report={
            "ended": talk.reason or episode.result.error or episode.trajectory.outcome.exit_status,
            "turns": talk.turns,
        },
    )


class _Conversation:
    """The two files of a conversation, and how it ended."""

    def __init__(self, spec: TalkSpec, directory: Path, reporter: Reporter) -> None:
        self.first = spec.message
        self.end: TalkEnd = "discard"
        self.reason = ""
        self.turns = 0
        self._idle_s = spec.idle_s
        self._reporter = reporter
        self._lines = open_appending(directory / CONVERSATION)
        self._messages = directory / MESSAGES
        self._offset = 0
        self._read = 1
        self._agent_step: Step | None = None

    def begin(self, example: str) -> None:
        """Record the first message, and what could be asked where there is an environment."""
        if example:
            self._write(TalkLine(example=example))
        self._write(TalkLine(step=Step(actor=Actor.USER, message=self.first)))

    def answered(self, reply: Reply) -> None:
        """Keep the agent's turn until its observations are known."""
        self._agent_step = agent_step(reply, None).model_copy(update={"sampled": None})
        self.turns += 1

    def observed(self, observations: Sequence[Observation]) -> None:
        """Record the agent's turn with its observations."""
        assert self._agent_step is not None
        self._write(TalkLine(step=self._agent_step.model_copy(update={"observations": tuple(observations)})))

    def next_message(self) -> str | None:
        """Wait for the person's next message; None: the conversation has ended."""
        self._write(TalkLine(read=self._read))
        self._reporter.progress(self.turns, 0, {})
        until = time.monotonic() + self._idle_s
        while True:
            found = read_lines(self._messages, self._offset)
            if found.lines:
                message = TalkMessage.model_validate_json(found.lines[0])
                self._offset += len(found.lines[0]) + 1
                self._read += 1
                if message.end is not None:
                    self._finish("by the person", message.end)
                    return None
                self._write(TalkLine(step=Step(actor=Actor.USER, message=message.text)))
                return message.text
            if self._reporter.should_stop():
                self._finish("on request")
                return None
            if time.monotonic() >= until:
                self._finish(f"after {self._idle_s:g} s without a message")
                return None
            time.sleep(_POLL_S)

    def _finish(self, reason: str, end: TalkEnd = "discard") -> None:
        self.reason, self.end = reason, end

    def _write(self, line: TalkLine) -> None:
        write_line(self._lines, line.model_dump_json(exclude_defaults=True))


class _Speaker:
    """The agent's policy, whose turns the conversation records. A turn that cannot be parsed is text for the person."""

    def __init__(self, policy: Policy, talk: _Conversation) -> None:
        self._policy = policy
        self._talk = talk

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        """Answer the turn of the one episode."""
        replies = [
            reply.model_copy(update={"error": None}) if reply.stop in _ANSWERS else reply
            for reply in self._policy.act(turns)
        ]
        for reply in replies:
            if reply.stop in _ANSWERS:
                self._talk.answered(reply)
        return replies

    def close(self, episode_id: str) -> None:
        """Free the episode."""
        self._policy.close(episode_id)


_ANSWERS = (Stop.END, Stop.LENGTH)


class _TalkSource:
    """A task source whose environment is the person."""

    def __init__(self, talk: _Conversation, source: TaskSource | None, place: Task | None) -> None:
        self.id = "talk" if source is None else source.id
        self.version = "1" if source is None else source.version
        self._talk, self._source, self._place = talk, source, place

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        """A conversation has no tasks."""
        return []

    def make(self) -> Environment:
        """Return the person, with the tools of the environment."""
        inner = None if self._source is None else self._source.make()
        return _Person(self._talk, inner, self._place)


class _Person:
    """The person as an environment: calls of tools go to the environment behind it, texts are answered by the person."""

    max_turns = MAX_TURNS

    def __init__(self, talk: _Conversation, inner: Environment | None, place: Task | None) -> None:
        self.id = "talk" if inner is None else inner.id
        self.system_prompt = "" if inner is None else inner.system_prompt
        self.tools = () if inner is None else inner.tools
        self._talk, self._inner, self._place = talk, inner, place
        self._calls = 0
        """Turns with calls since the person's newest message."""
        self._most_calls = 1 if inner is None else inner.max_turns

    def reset(self, task: Task) -> TimeStep:
        """Begin with the person's first message."""
        if self._inner is not None and self._place is not None:
            self._inner.reset(self._place)
        self._talk.begin("" if self._place is None else self._place.prompt)
        return TimeStep(message=task.prompt)

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Execute calls. The end of the environment's task gives the turn to the person, and so do its limit of turns or missing tools."""
        if not actions:
            return self.take_answer("")
        if self._inner is None:
            missing = tuple(
                Observation(content="There are no tools in this conversation.", is_error=True) for _ in actions
            )
            return self._after(missing, is_over=False)
        now = respond(self._inner, actions, "")
        return self._after(now.observations, is_over=now.terminated or now.truncated)

    def take_answer(self, text: str) -> TimeStep:
        """Show the agent's text to the person and return the person's next message."""
        return self._after((), is_over=True)

    def _after(self, observations: tuple[Observation, ...], *, is_over: bool) -> TimeStep:
        self._talk.observed(observations)
        self._calls += 1
        if is_over := is_over or self._calls >= self._most_calls:
            self._calls = 0
        message = self._talk.next_message() if is_over else None
        return TimeStep(observations=observations, message=message, terminated=is_over and message is None)

    def close(self) -> None:
        """Close the environment behind the conversation."""
        if self._inner is not None:
            self._inner.close()
