"""Prefixes of recorded runs for replay, and detection of responses that differ from the recording."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from quintain.records.protocols import TimeStep
from quintain.records.trajectory import Actor, OutcomeStatus, Step, Trajectory

DIVERGED = "replay_diverged"
"""Exit status of an episode whose environment did not respond as recorded."""

_MAX_CHARS = 150


class Divergence(NamedTuple):
    """First response of an environment that differs from the recording."""

    step: int
    """Index of the agent step, or -1 before the first."""
    recorded: str
    now: str

    def __str__(self) -> str:
        place = f"at step {self.step}" if self.step >= 0 else "at the opening"
        return f"{place} {self.now}, but the run recorded {self.recorded}"


class ReplayResult(NamedTuple):
    """Result of executing the steps of a recorded run again, without a policy."""

    status: OutcomeStatus | None
    """How the run ended, or None if an agent could continue."""
    error: str | None
    """Why the replay failed, such as `DIVERGED`."""
    reward: float | None
    steps: tuple[Step, ...]
    """Replayed steps, including the one at which the run ended."""
    divergence: Divergence | None


def opening_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps before the agent's first step."""
    return tuple(takewhile(lambda step: step.actor is not Actor.AGENT, steps))


def turn_prefixes(run: Trajectory) -> list[tuple[Step, ...]]:
    """Return, per agent step, the steps from the agent's first to just before the agent's next one."""
    turns = run.agent_places
    ends = [*turns[1:], len(run.steps)]
    return [run.steps[turns[0] : end] for end in ends[: len(turns)]]


def is_idle(run: Trajectory) -> bool:
    """Whether the run contains a placeholder step of an agent that never acted."""
    return any(step.extra.get("acted") is False for step in run.agent_steps)


def user_text_after(prefix: Sequence[Step], place: int) -> str | None:
    """Return the user's message after an agent step. None if the prefix ends there, empty if there is no message."""
    following = prefix[place + 1 :]
    texts = [str(step.message) for step in takewhile(lambda step: step.actor is not Actor.AGENT, following)]
    return texts[0] if texts else ("" if following else None)


def find_divergence(number: int, now: TimeStep, step: Step, recorded_text: str | None) -> Divergence | None:
    """Compare the response to an agent step with the recorded one. Return None if they are equal."""
    answers = [(observation.content, observation.is_error) for observation in now.observations]
    recorded = [(observation.content, observation.is_error) for observation in step.observations]
    if answers != recorded:
        return Divergence(
            number, f"{str(recorded)!r:.{_MAX_CHARS}}", f"the environment returned {str(answers)!r:.{_MAX_CHARS}}"
        )
    if recorded_text is not None and (now.message or "") != recorded_text:
        return Divergence(
            number, f"{recorded_text!r:.{_MAX_CHARS}}", f"the environment returned {now.message!r:.{_MAX_CHARS}}"
        )
    return None


def first_user_message(steps: Sequence[Step]) -> str | None:
    """Return the first user message before the agent's first step."""
    return next((str(step.message) for step in opening_steps(steps) if step.actor is Actor.USER), None)


def opening_divergence(now: Sequence[Step], recorded: Sequence[Step]) -> Divergence | None:
    """Compare the user messages before the agent's first step, if the recording has any."""
    messages, recorded_messages = (
        [step.message for step in steps if step.actor is Actor.USER] for steps in (now, recorded)
    )
    if not recorded_messages or messages == recorded_messages:
        return None
    return Divergence(
        -1, f"{str(recorded_messages)!r:.{_MAX_CHARS}}", f"the environment returned {str(messages)!r:.{_MAX_CHARS}}"
    )


def prompt_divergence(now: Sequence[Step], prompt: str) -> Divergence | None:
    """Compare the first user message with the task's prompt, for environments that start with the prompt."""
    message = first_user_message(now)
    if message is None or message == prompt:
        return None
    return Divergence(-1, f"the prompt {prompt!r:.{_MAX_CHARS}}", f"the environment returned {message!r:.{_MAX_CHARS}}")
