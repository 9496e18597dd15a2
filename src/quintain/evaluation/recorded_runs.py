"""Recorded runs as they can be carried out again: their parts, and where an environment answers otherwise than it did."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from quintain.records.seams import TimeStep
from quintain.records.trajectory import Actor, OutcomeStatus, Step, Trajectory

DIVERGED = "replay_diverged"
"""Exit status of an episode whose environment did not answer as the run had recorded."""

_SHOWN = 150


class Divergence(NamedTuple):
    """Where an environment first answered otherwise than the run had recorded."""

    step: int
    """Which of the agent's steps, from 0; -1: before the first."""
    recorded: str
    now: str

    def __str__(self) -> str:
        place = f"at step {self.step}" if self.step >= 0 else "at the opening"
        return f"{place} {self.now}, and the run recorded {self.recorded}"


class Replay(NamedTuple):
    """What became of a run that was carried out again, without any policy."""

    status: OutcomeStatus | None
    """How it ended; None: it is not over, and an agent could go on."""
    error: str | None
    """Why it could not be carried out, such as `DIVERGED`."""
    reward: float | None
    steps: tuple[Step, ...]
    """What was said and done, the step included at which it ended."""
    divergence: Divergence | None


def opening_of(steps: Sequence[Step]) -> tuple[Step, ...]:
    """What stands before the agent's first step."""
    return tuple(takewhile(lambda step: step.actor is not Actor.AGENT, steps))


def prefixes_of(run: Trajectory) -> list[tuple[Step, ...]]:
    """For each step of the agent what was done and said from its first step up to just before its next."""
    turns = [place for place, step in enumerate(run.steps) if step.actor is Actor.AGENT]
    ends = [*turns[1:], len(run.steps)]
    return [run.steps[turns[0] : end] for end in ends[: len(turns)]]


def is_idle(run: Trajectory) -> bool:
    """Does a step stand in for an agent that did nothing?"""
    return any(step.extra.get("acted") is False for step in run.agent_steps)


def said_after(prefix: Sequence[Step], place: int) -> str | None:
    """What a user said between a turn of the agent and its next; None where the prefix ends before."""
    following = prefix[place + 1 :]
    said = [str(step.message) for step in takewhile(lambda step: step.actor is not Actor.AGENT, following)]
    return said[0] if said else ("" if following else None)


def divergence(number: int, now: TimeStep, step: Step, then: str | None) -> Divergence | None:
    """How the answer to the agent's step of this number differs from the one that was recorded; None: it does not."""
    answers = [(seen.content, seen.is_error) for seen in now.observations]
    recorded = [(seen.content, seen.is_error) for seen in step.observations]
    if answers != recorded:
        return Divergence(number, f"{str(recorded)!r:.{_SHOWN}}", f"the environment answers {str(answers)!r:.{_SHOWN}}")
    if then is not None and (now.message or "") != then:
        return Divergence(number, f"{then!r:.{_SHOWN}}", f"the environment says {now.message!r:.{_SHOWN}}")
    return None


def first_words(steps: Sequence[Step]) -> str | None:
    """What the user said first, before the agent's first step."""
    return next((str(step.message) for step in opening_of(steps) if step.actor is Actor.USER), None)


def opening_divergence(now: Sequence[Step], recorded: Sequence[Step]) -> Divergence | None:
    """The same of what the user said before the agent's first step, where the run has it."""
    said, then = ([step.message for step in steps if step.actor is Actor.USER] for steps in (now, recorded))
    if not then or said == then:
        return None
    return Divergence(-1, f"{str(then)!r:.{_SHOWN}}", f"the environment says {str(said)!r:.{_SHOWN}}")


def prompt_divergence(now: Sequence[Step], prompt: str) -> Divergence | None:
    """The same of the task's prompt, in an environment that opens with it."""
    said = first_words(now)
    if said is None or said == prompt:
        return None
    return Divergence(-1, f"the prompt {prompt!r:.{_SHOWN}}", f"the environment says {said!r:.{_SHOWN}}")
