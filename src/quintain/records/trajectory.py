"""A trajectory: one run of an agent, a superset of ATIF v1.7 (the Agent Trajectory Interchange Format).

Steps are turns of the system, the user or the agent; only the agent's turns are counted, rewarded and trained on. What
the environment answered stands in the step that asked (`observations`). An unknown outcome is the normal case for logs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import to_json, to_jsonable_python

from quintain.errors import InvalidInput
from quintain.records.record import Instant, Record, explain

MAX_TRAJECTORY_CHARS = 8_000_000
"""Characters of text in one stored trajectory (`formats.splitting`)."""


class TextPart(Record):
    """A piece of text in a message."""

    type: Literal["text"] = "text"
    text: str


class ImagePart(Record):
    """A picture in a message, by reference; pixels are not stored."""

    type: Literal["image"] = "image"
    uri: str
    media_type: str | None = None


Content = str | tuple[TextPart | ImagePart, ...]
"""What a message or observation holds: plain text, or parts."""


def text_of(content: Content) -> str:
    """The text of a content, pictures left out."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, TextPart))


class Action(Record):
    """One tool call of the agent."""

    tool: str = Field(min_length=1)
    args: dict[str, Any] | None = Field(
        default=None, description="Parsed arguments; null where they are not valid JSON."
    )
    raw_args: str | None = Field(default=None, description="The arguments as the model wrote them, where known.")
    call_id: str | None = None


class Observation(Record):
    """What one action (or the environment by itself) gave back."""

    content: Content = ""
    call_id: str | None = None
    is_error: bool = False


class Usage(Record):
    """Tokens that a turn cost at the model's endpoint."""

    input_tokens: int | None = Field(default=None, ge=0)
    output_tokens: int | None = Field(default=None, ge=0)


class SampledTokens(Record):
    """The ids that the policy sampled for a turn, the end token included, with their log-probabilities."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    tokenizer: str = Field(description="Fingerprint of tokenizer and chat template; ids mean nothing to another one.")


class Actor(StrEnum):
    """Who wrote a step."""

    SYSTEM = "system"
    USER = "user"
    AGENT = "agent"


class Step(Record):
    """One turn."""

    actor: Actor
    message: Content = ""
    thought: str | None = None
    actions: tuple[Action, ...] = ()
    observations: tuple[Observation, ...] = ()
    reward: float | None = Field(default=None, description="Reward of this step; null where unknown.")
    train: bool | None = Field(
        default=None, description="May this step be trained on? Null: the policy of the export decides."
    )
    timestamp: Instant | None = None
    model: str | None = Field(default=None, description="The model that wrote this step.")
    usage: Usage | None = None
    sampled: SampledTokens | None = None
    copied_context: bool = False
    extra: dict[str, Any] = Field(default_factory=dict)


class Task(Record):
    """What the agent was asked to do."""

    id: str | None = None
    prompt: str = ""
    type: str | None = None
    difficulty: str | None = None
    environment: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class OutcomeStatus(StrEnum):
    """How a run ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    ERROR = "error"
    TRUNCATED = "truncated"
    UNKNOWN = "unknown"


class Outcome(Record):
    """How a run ended and what it was worth, as its environment or recorder said; scores given later stand apart."""

    status: OutcomeStatus = OutcomeStatus.UNKNOWN
    reward: float | None = None
    scores: dict[str, float] = Field(default_factory=dict)
    exit_status: str | None = None


STATED_BY = "outcome_stated_by"
"""Field of `Trajectory.extra`: who stated the outcome afterwards, as `Score.rater`; missing: environment or recorder."""

RELAYED = " (relayed)"
"""How the name of a person ends whose word an assistant passed on."""


def weight_of_word(rater: str | None) -> int:
    """Whose word on an outcome counts more: an assistant's 0, a person's that an assistant passed on 1, a person's 2.

    The recorder's (None) counts as a person's.
    """
    if rater is None:
        return 2
    return (1 if rater.endswith(RELAYED) else 2) if rater.startswith("person") else 0


class AgentInfo(Record):
    """Who acted."""

    name: str = "unknown"
    version: str | None = None
    model: str | None = None


class Source(Record):
    """Where a trajectory came from."""

    format: str = "quintain"
    uri: str | None = None
    sha256: str | None = None


class Trajectory(Record):
    """One run of an agent."""

    id: str | None = Field(default=None, description="Given by the store: `traj-` and the start of the identity hash.")
    session_id: str | None = None
    episode_key: str = Field(
        default="", description="Tells equal runs apart: (job, task, attempt) of a rollout, else empty."
    )
    source: Source = Source()
    agent: AgentInfo = AgentInfo()
    task: Task = Task()
    tools: tuple[dict[str, Any], ...] = Field(
        default=(), description="JSON schemas of the tools, OpenAI function style."
    )
    steps: tuple[Step, ...] = Field(min_length=1)
    outcome: Outcome = Outcome()
    tags: tuple[str, ...] = ()
    redactions: dict[str, int] = Field(default_factory=dict)
    subagents: tuple[str, ...] = ()
    continues: str | None = None
    group_id: str | None = None
    job_id: str | None = None
    extra: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_an_agent_turn(self) -> Self:
        if not self.agent_steps:
            raise ValueError("a trajectory needs at least one step with actor 'agent'")
        return self

    @property
    def agent_steps(self) -> tuple[Step, ...]:
        """The turns that count."""
        agent = Actor.AGENT
        return tuple([step for step in self.steps if step.actor is agent])

    @property
    def outcome_stated_by(self) -> str | None:
        """Who judged how the run ended, where its environment or recorder did not say."""
        by = self.extra.get(STATED_BY)
        return by if isinstance(by, str) else None

    def takes_outcome_of(self, rater: str | None) -> bool:
        """Would a word on the outcome count: is none known, or is it of less weight or this rater's own (None: recorder)?"""
        if self.outcome.status is OutcomeStatus.UNKNOWN:
            return True
        by = self.outcome_stated_by
        if by is None:
            return False
        own = rater is not None and rater.removesuffix(RELAYED) == by.removesuffix(RELAYED)
        return weight_of_word(rater) > weight_of_word(by) or (own and weight_of_word(rater) >= weight_of_word(by))

    @cached_property
    def identity(self) -> str:
        """SHA-256 over what was asked and done: task, tools, steps and episode key.

        The session id stands in for an empty episode key. Outcome, scores, tags, rewards and times are not part of it.
        """
        task = {name: getattr(self.task, name) for name in ("difficulty", "environment", "id", "prompt", "type")}
        parts = [
            b'{"episode":' + to_json(self.episode_key or self.session_id or ""),
            b'"steps":' + _said_and_done(self.steps),
            b'"task":' + to_json(task),
            b'"tools":' + _SORTED.encode(self.tools).encode() + b"}",
        ]
        return hashlib.sha256(b",".join(parts)).hexdigest()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As every record's; the copy works out its own identity."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("identity", None)
        return copied

    def identified(self) -> Trajectory:
        """The same trajectory with the id that its identity gives, unless it has one."""
        return self if self.id else self.model_copy(update={"id": f"traj-{self.identity[:16]}"})


_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


_PLAIN = frozenset({str, int, bool, type(None)})
"""Types of arguments that pydantic writes as the standard library does; floats it writes in its own way."""


def _said_and_done(steps: tuple[Step, ...]) -> bytes:
    """Steps in the one encoding that identities are made of: compact JSON with sorted keys, which stored rows rely on.

    Text, which is most of it, is encoded by pydantic, in half the time; floats are written as the standard library does.
    """
    told, plain = list(map(_told, steps)), list(map(_is_plain, steps))
    if all(plain):
        return to_json(told)
    return b"[" + b",".join(map(_encoded, told, plain)) + b"]"


def _encoded(told: dict[str, Any], is_plain: bool) -> bytes:
    if is_plain:
        return to_json(told)
    done = to_jsonable_python(told.pop("actions"), inf_nan_mode="null")
    return b'{"actions":' + _SORTED.encode(done).encode() + b"," + to_json(told)[1:]


def _is_plain(step: Step) -> bool:
    done = step.actions
    return not done or all(_PLAIN.issuperset(map(type, call.args.values())) for call in done if call.args)


def _told(step: Step) -> dict[str, Any]:
    """What identities are made of; keys in order, those within arguments too, but not those further down."""
    return {
        "actions": [
            {
                "args": call.args and dict(sorted(call.args.items())),
                "call_id": call.call_id,
                "raw_args": call.raw_args,
                "tool": call.tool,
            }
            for call in step.actions
        ],
        "actor": str(step.actor),
        "copied_context": step.copied_context,
        "message": _plain(step.message),
        "model": step.model,
        "observations": [
            {"call_id": seen.call_id, "content": _plain(seen.content), "is_error": seen.is_error}
            for seen in step.observations
        ],
        "thought": step.thought,
    }


def _plain(content: Content) -> str | list[dict[str, Any]]:
    """As JSON has it, keys in order."""
    if isinstance(content, str):
        return content
    return [dict(sorted(part.model_dump().items())) for part in content]


def read_trajectory(value: Any) -> Trajectory:
    """Validate the fields of a trajectory.

    Args:
        value: Its fields, which passed `require_clean` where they came in: the arguments of a call, a cleaned log line.

    Raises:
        InvalidInput: names the first field that is wrong, what is valid, and how to mend it.
    """
    if not isinstance(value, dict):
        raise InvalidInput(
            f"trajectory must be an object, not {type(value).__name__}; see guide://pipeline for its fields"
        )
    try:
        return Trajectory.model_validate(value)
    except ValidationError as error:
        raise InvalidInput(explain(error, "trajectory")) from None
