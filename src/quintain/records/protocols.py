"""Protocols and messages between models, environments, scorers and job reporters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import Field

from quintain.records.agent import MAX_TEMPERATURE
from quintain.records.jobs.job_events import Activity
from quintain.records.record import Record
from quintain.records.score import Score
from quintain.records.trajectory import Action, Content, Observation, SampledTokens, Task, Trajectory, Usage


def tool_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the function of a tool schema of OpenAI, Anthropic, MCP or the Responses API, with `parameters` as its schema."""
    inner = tool.get("function")
    function = dict(inner) if isinstance(inner, Mapping) else {name: tool[name] for name in tool if name != "type"}
    schemas = [function.pop(name) for name in ("input_schema", "inputSchema") if name in function]
    if schemas and not function.get("parameters"):
        function["parameters"] = schemas[0]
    return function


class Message(Record):
    """One chat message, as passed to a policy and a chat template."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Content = ""
    thought: str | None = Field(default=None, description="Assistant only: text before its actions.")
    actions: tuple[Action, ...] = Field(default=(), description="Assistant only: its tool calls.")
    call_id: str | None = Field(default=None, description="Tool only: id of the answered call.")


class Turn(Record):
    """A request to act in an episode, with the new messages only."""

    episode_id: str
    messages: tuple[Message, ...] = Field(
        description="New messages: system, user, tool. Only the first turn of an episode that continues another run "
        "also contains that run's agent messages."
    )
    tools: tuple[dict[str, Any], ...] = Field(default=(), description="Tool schemas, constant within an episode.")
    seed: int = Field(default=0, description="Seed of the episode's sampling stream, read on the first turn.")
    temperature: float | None = Field(
        default=None,
        ge=0,
        le=MAX_TEMPERATURE,
        description="Sampling temperature of the episode, read on the first turn. Null: the policy's.",
    )
    policy: str = Field(
        default="", description="Which of several policies answers; see `evaluation.games.PolicyRouter`."
    )


class Stop(StrEnum):
    """Why a policy stopped generating."""

    END = "end"
    """End token, or a complete turn: its calls, or what precedes the environment's part."""
    LENGTH = "length"
    """Token limit of a turn."""
    CONTEXT = "context"
    """The episode exceeds the model's context; nothing was generated."""
    REFUSED = "refused"
    """The model or a filter withheld the answer; see `error`."""
    FAILED = "failed"
    """There is no answer, for reasons unrelated to the agent; see `error`."""


class Reply(Record):
    """A policy's answer to one turn."""

    text: str = Field(description="Generated text, unmodified, without the end token.")
    thought: str | None = None
    actions: tuple[Action, ...] = ()
    stop: Stop = Stop.END
    sampled: SampledTokens | None = None
    error: str | None = Field(default=None, description="Why the text cannot be parsed, if so.")
    reasoning: str | None = Field(
        default=None, description="Reasoning of a model behind an endpoint, if the endpoint returns it."
    )
    model: str | None = Field(default=None, description="Model name reported by an endpoint.")
    usage: Usage | None = Field(default=None, description="Usage reported by an endpoint. Null: not an endpoint.")
    cost_usd: float | None = Field(default=None, description="Endpoint charge. Null: unknown, or none.")


class Policy(Protocol):
    """An agent's decision maker: a local model with its KV cache, a remote endpoint, a scripted expert."""

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        """Answer a batch of turns. Replies keep the order of the turns."""

    def close(self, episode_id: str) -> None:
        """Free the resources of an episode. Unknown ids are ignored."""


@runtime_checkable
class ReportsShare(Protocol):
    """A policy that reports how much of a batch of turns it has answered."""

    on_share: Callable[[float, int], None] | None
    """Receives the share of the current call of `act` that is answered, at least, and the tokens written in it, as far as
    known. None: nobody listens."""


class TimeStep(Record):
    """Response of an environment, with Gymnasium's meaning of `terminated` and `truncated`."""

    observations: tuple[Observation, ...] = Field(default=(), description="One per action, in order.")
    message: str | None = Field(default=None, description="Next user message, if any; in a game for `player`.")
    player: int = Field(default=0, ge=0, description="Games: who acts next, as an index into the source's `players`.")
    rewards: tuple[float, ...] = Field(
        default=(), description="Games: one reward per player at the end, 1 for a win, 0.5 for a draw, 0 for a loss."
    )
    reward: float | None = None
    terminated: bool = Field(default=False, description="The task has ended, and `reward` is the verdict.")
    truncated: bool = Field(default=False, description="The episode was cut off without a verdict.")
    info: dict[str, Any] = Field(default_factory=dict)


class Environment(Protocol):
    """A steppable task. An instance serves one episode.

    Optional method `take_answer(text) -> TimeStep`: receives the text of a turn without actions, instead of `step`.
    """

    id: str
    system_prompt: str
    tools: tuple[dict[str, Any], ...]
    max_turns: int

    def reset(self, task: Task) -> TimeStep:
        """Start the task. `message` is the user's request. Deterministic given the task."""

    def step(self, actions: Sequence[Action]) -> TimeStep:
        """Execute the agent's actions. An invalid action returns an observation with `is_error`, never an exception."""

    def close(self) -> None:
        """Free the episode's resources."""


SPLITS = ("train", "held_out")


class TaskSource(Protocol):
    """A family of tasks, and the factory of their environment.

    Optional attributes: `at_once`, the maximum number of concurrent episodes, and `waits`, True if environments wait for other
    processes. These are stepped in threads, each instance in one thread at a time. `expert(tasks)` returns a scripted `Policy`
    that plays these tasks. `players` names the roles of a game, in the order of `TimeStep.player`: the environment then serves
    all players of one game. Observations answer the player who acted, and `message` is for the one who acts next.
    """

    id: str
    version: str

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        """Return `n` distinct tasks of `train` or `held_out`, which are disjoint. Deterministic given the arguments.

        Sources with the tasks of a file also take `all`.
        """

    def make(self) -> Environment:
        """Create a single-use environment."""


class TextRetriever(Protocol):
    """A search over texts."""

    def search(self, query: str, k: int) -> list[int]:
        """Return the numbers of at most `k` texts, best first."""


class Scorer(Protocol):
    """A pure function from a trajectory to a score."""

    name: str

    def score(self, trajectory: Trajectory) -> Score:
        """Score a trajectory. If impossible, the score is `unscored` with a reason."""


class Reporter(Protocol):
    """Reports of a running job. The worker writes them to the job's directory."""

    def phase(self, name: str) -> None:
        """Report the start of a phase: `preparing`, `loading_model`, `training`, ..."""

    def progress(
        self,
        step: int,
        total_steps: int,
        metrics: dict[str, float | None],
        totals: dict[str, float | None] | None = None,
    ) -> None:
        """Report a finished step. Non-finite figures are stored as null.

        The metrics are of this step, points of curves; the totals, such as running means, are of all steps so far.
        """

    def acting(self, activity: Activity) -> None:
        """Report the turns of the episodes that are being played."""

    def checkpoint(self, step: int, path: Path) -> None:
        """Report a complete checkpoint."""

    def warn(self, code: str, message: str) -> None:
        """Report a problem that does not stop the run."""

    def output(self, kind: str, record: Record) -> None:
        """Output a record for the store: `trajectory`, `agent`, `evaluation`."""

    def should_stop(self) -> bool:
        """Whether the job was asked to stop. Checked between steps."""
