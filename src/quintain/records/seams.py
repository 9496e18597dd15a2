"""The seams: how model, environment and reward meet, and how a worker reports. Everything else is behind them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field

from quintain.records.agent import MAX_TEMPERATURE
from quintain.records.record import Record
from quintain.records.score import Score
from quintain.records.trajectory import Action, Content, Observation, SampledTokens, Task, Trajectory, Usage


class Message(Record):
    """One chat message, as a policy and a chat template see it."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Content = ""
    thought: str | None = Field(default=None, description="Assistant only: what it wrote before its actions.")
    actions: tuple[Action, ...] = Field(default=(), description="Assistant only: its tool calls.")
    call_id: str | None = Field(default=None, description="Tool only: the call that it answers.")


class Turn(Record):
    """A request to act: which episode, and only what is new since the last turn."""

    episode_id: str
    messages: tuple[Message, ...] = Field(
        description="New messages only: system, user, tool. Never the policy's own, but for an episode that begins with what "
        "another run did: its first turn holds all of that, the agent's messages included."
    )
    tools: tuple[dict[str, Any], ...] = Field(
        default=(), description="Tool schemas; they may not change in an episode."
    )
    seed: int = Field(default=0, description="Seed of the episode's own sampling stream; read on the first turn.")
    temperature: float | None = Field(
        default=None,
        ge=0,
        le=MAX_TEMPERATURE,
        description="Of the episode, read on the first turn; null: the policy's.",
    )


class Stop(StrEnum):
    """Why a policy stopped writing."""

    END = "end"
    """It wrote its end token."""
    LENGTH = "length"
    """It reached the token limit of a turn."""
    CONTEXT = "context"
    """The episode no longer fits the model's context; nothing was written."""
    REFUSED = "refused"
    """The model, or the filter before it, kept its answer back; `error` says so."""
    FAILED = "failed"
    """No answer could be had, which says nothing of the agent; `error` has the reason."""


class Reply(Record):
    """What a policy wrote in answer to one turn."""

    text: str = Field(description="Exactly what was written, without the end token.")
    thought: str | None = None
    actions: tuple[Action, ...] = ()
    stop: Stop = Stop.END
    sampled: SampledTokens | None = None
    error: str | None = Field(default=None, description="Why the text could not be read as thought and actions, if so.")
    reasoning: str | None = Field(
        default=None, description="What a model behind an endpoint thought before it wrote, where that is shown."
    )
    model: str | None = Field(default=None, description="The model that wrote it, where an endpoint says so.")
    usage: Usage | None = Field(default=None, description="As an endpoint counted; null: no endpoint wrote it.")
    cost_usd: float | None = Field(default=None, description="What the endpoint charged; null: not known, or nothing.")


class Policy(Protocol):
    """Anything that can act: a local model with its KV cache, a remote endpoint, a scripted expert."""

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        """Answer each turn; batched, replies in the order of the turns."""

    def close(self, episode_id: str) -> None:
        """Forget an episode and free what it held; unknown ids are ignored."""


class TimeStep(Record):
    """What an environment gives back, with the meaning of `terminated` and `truncated` that Gymnasium has."""

    observations: tuple[Observation, ...] = Field(default=(), description="One for each action, in order.")
    message: str | None = Field(default=None, description="What a user says to the agent now, if anything.")
    reward: float | None = None
    terminated: bool = Field(default=False, description="The task reached its end; `reward` is the verdict.")
    truncated: bool = Field(default=False, description="The episode was cut short; no verdict.")
    info: dict[str, Any] = Field(default_factory=dict)


class Environment(Protocol):
    """A task that can be stepped. Single use: one instance lives one episode."""

    id: str
    system_prompt: str
    tools: tuple[dict[str, Any], ...]
    max_turns: int

    def reset(self, task: Task) -> TimeStep:
        """Begin the task; `message` is what the user asks. Fully determined by the task."""

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Carry out the agent's actions. A bad action is an observation with `is_error`, never an exception."""

    def close(self) -> None:
        """Free what the episode held."""


class TaskSource(Protocol):
    """A family of tasks and the environment that runs them.

    Two more attributes are read where a source has them: `at_once`, how many episodes it bears side by side, and `waits`, true
    where its environments wait for other processes and are therefore stepped in threads, each in one at a time.
    """

    id: str
    version: str

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        """`n` distinct tasks of `train` or `held_out`; the two never share a task. Same arguments, same tasks."""

    def make(self) -> Environment:
        """A fresh single-use environment."""


class Scorer(Protocol):
    """A pure function from a trajectory to a score."""

    name: str

    def score(self, trajectory: Trajectory) -> Score:
        """Score it; what cannot be scored is `unscored` with a reason, never a number."""


class Reporter(Protocol):
    """How a running job tells what happens; the worker writes it to the job directory."""

    def phase(self, name: str) -> None:
        """A new phase begins: `preparing`, `loading_model`, `training`, ..."""

    def progress(self, step: int, total_steps: int, metrics: dict[str, float | None]) -> None:
        """Step `step` of `total_steps` is done; a metric that is not finite goes in as null."""

    def checkpoint(self, step: int, path: Path) -> None:
        """A complete checkpoint stands at `path`."""

    def warn(self, code: str, message: str) -> None:
        """Something that the user should know and that does not stop the run."""

    def output(self, kind: str, record: Record) -> None:
        """Hand over a record for the store: `trajectory`, `agent`, `evaluation`."""

    def should_stop(self) -> bool:
        """Was the job asked to stop? Looked at between steps."""
