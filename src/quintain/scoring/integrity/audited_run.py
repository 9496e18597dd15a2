"""One run under audit: its prompt, reply, rewards and hidden texts; and bounded samples of runs, which keep short quotes alone."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from quintain.records.score import Score
from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Actor, OutcomeStatus, Trajectory, text_of
from quintain.scoring.integrity.text import fingerprint, words
from quintain.scoring.outcomes.final_message import final_messages, prompts_of_run
from quintain.scoring.profiles import tool_functions

MAX_REPLY_CHARS = 12_000
"""Only so much of a reply is examined, from its end."""
MAX_REQUEST_CHARS = 40_000
_MAX_HIDDEN, _MAX_HIDDEN_CHARS, _MAX_DEPTH = 40, 4000, 5
_KNOWN = {OutcomeStatus.SUCCESS: 1.0, OutcomeStatus.FAILURE: 0.0}


RECORDED = "recorded"
"""Source of rewards that were recorded with the run."""


class Reward(NamedTuple):
    """A reward of a run and its source."""

    source: str
    """A scorer, or `recorded`."""
    value: float
    outcome: float | None
    """1 for a known success, 0 for a known failure, where the reward is not made of just that; else None."""
    metrics: dict[str, float]
    """Named parts of this reward and of the outcome."""


@dataclass(frozen=True)
class Subject:
    """A run under audit; nothing of it is kept after the checks."""

    run: Trajectory
    metrics: dict[str, float]
    """Named parts of its rewards and of its outcome."""

    @property
    def id(self) -> str:
        """The run's id."""
        return self.run.id or ""

    @cached_property
    def prompt(self) -> str:
        """All texts that the agent was given before its own turns."""
        own = [text_of(step.message) for step in self.run.agent_steps if step.copied_context]
        return "\n".join([prompts_of_run(self.run), *own])

    @cached_property
    def request(self) -> str:
        """The task's prompt and the messages of users."""
        messages = [text_of(step.message) for step in self.run.steps if step.actor is Actor.USER]
        return "\n".join([self.run.task.prompt, *messages])[:MAX_REQUEST_CHARS]

    @cached_property
    def shown(self) -> str:
        """Everything that the agent could read: prompt, tools, observations."""
        observed = [text_of(result.content) for step in self.run.steps for result in step.observations]
        described = [
            text for function in tool_functions(self.run) if isinstance(text := function.get("description"), str)
        ]
        return "\n".join([self.prompt, *described, *observed])

    @cached_property
    def reply(self) -> str:
        """The agent's last message, or the answer that it submitted, without thinking."""
        return next(final_messages(self.run), "")[-MAX_REPLY_CHARS:]

    @cached_property
    def reply_words(self) -> list[str]:
        """The words of the reply."""
        return words(self.reply)

    @cached_property
    def length(self) -> int:
        """Number of words in all the agent's messages."""
        return sum(len(words(text_of(step.message))) for step in self.run.own_steps)

    @cached_property
    def task(self) -> bytes:
        """Identity of the task by its texts, whatever ids a log gives it."""
        texts = f"{self.run.task.environment or ''} {self.run.task.prompt or ''} {self.run.first_user_text}"
        return fingerprint(texts)

    @cached_property
    def group(self) -> str:
        """Key of the runs that were sampled together: the group, else the task."""
        return self.run.group_id or self.task.hex()


def rewards_of(run: Trajectory, score: Score | None) -> list[Reward]:
    """Return the rewards that training could use: the score and the recorded reward.

    Without either, the outcome counts as a recorded 1 or 0. Rewards that are not finite are left out.
    """
    known = _KNOWN.get(run.outcome.status)
    recorded = dict(run.outcome.scores)
    found = []
    if score is not None and score.value is not None:
        parts = {part.name: part.value for part in score.components if part.value is not None}
        found.append(Reward(score.scorer, score.value, None if score.scorer == "outcome" else known, recorded | parts))
    if run.outcome.reward is not None:
        found.append(Reward(RECORDED, run.outcome.reward, known, recorded))
    elif not found and known is not None:
        found.append(Reward(RECORDED, known, None, recorded))
    return [reward for reward in found if math.isfinite(reward.value)]


def hidden_texts(metadata: dict[str, Any]) -> list[tuple[str, str]]:
    """Return name and text of all values in the task's metadata, which the agent is not meant to read."""
    found: list[tuple[str, str]] = []

    def walk(name: str, value: Any, depth: int) -> None:
        if len(found) >= _MAX_HIDDEN or depth > _MAX_DEPTH:
            return
        if isinstance(value, str):
            found.append((name, value[:_MAX_HIDDEN_CHARS]))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append((name, str(value)))
        elif isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{name}.{key}".lower().lstrip("."), inner, depth + 1)
        elif isinstance(value, list | tuple):
            for inner in value:
                walk(name, inner, depth + 1)

    walk("", metadata, 0)
    return found


T = TypeVar("T")


@dataclass
class Reservoir(Generic[T]):
    """A uniform sample of a stream (Vitter 1985, algorithm R), deterministic for the stream."""

    size: int
    items: list[T] = field(default_factory=list)
    n: int = 0
    _chance: random.Random = field(default_factory=lambda: random.Random(stable_seed("audit")))

    def add(self, item: T) -> None:
        """Add an item, perhaps in place of another."""
        self.n += 1
        if len(self.items) < self.size:
            self.items.append(item)
        elif (place := self._chance.randrange(self.n)) < self.size:
            self.items[place] = item


class Sign(NamedTuple):
    """Evidence in a run."""

    evidence: str
    sure: bool = True
    """False for what may as well be honest work."""


class FlaggedRun(NamedTuple):
    """A run that itself has evidence."""

    id: str
    rewards: dict[str, float]
    """Source of the reward -> reward."""
    evidence: str


class Point(NamedTuple):
    """A rewarded run as a point."""

    id: str
    task: bytes
    reward: float
    length: int
    padding: float
    correct: float | None
    """The best part of the reward that is named after correctness; else the known outcome."""
    outcome: float | None
    parts: dict[str, float]
    """Other named parts that were recorded with the run, the first few."""
