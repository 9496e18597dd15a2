"""Trajectories: runs of agents, as a superset of ATIF v1.7 (Agent Trajectory Interchange Format).

Steps are turns of the system, the user or the agent. Only agent turns are counted, rewarded and trained on. The
environment's responses are in the `observations` of the acting step. Logs usually have an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from quintain.errors import InvalidInput
from quintain.records.identity import content_hash
from quintain.records.imports import PERSONAL_KINDS, RedactionLevel
from quintain.records.record import Instant, Record
from quintain.records.score import RELAYED, rater_weight
from quintain.records.wording import explain

PersonalData = Literal["none", "found", "unknown"]
"""Whether redaction found personal data in a run."""

MAX_TRAJECTORY_CHARS = 8_000_000
"""Maximum characters of text in one stored trajectory (`importers.splitting`)."""


class TextPart(Record):
    """A text part of a message."""

    type: Literal["text"] = "text"
    text: str


class ImagePart(Record):
    """A picture in a message, by reference. Pixels are not stored."""

    type: Literal["image"] = "image"
    uri: str
    media_type: str | None = None


Content = str | tuple[TextPart | ImagePart, ...]
"""Content of a message or observation: plain text, or parts."""


def text_of(content: Content) -> str:
    """Return the text of a content, without pictures."""
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, TextPart))


class Action(Record):
    """A tool call of the agent."""

    tool: str = Field(min_length=1)
    args: dict[str, Any] | None = Field(default=None, description="Parsed arguments. Null if they are not valid JSON.")
    raw_args: str | None = Field(default=None, description="Arguments as the model wrote them, if known.")
    call_id: str | None = None


class Observation(Record):
    """Result of an action, or an unsolicited message of the environment."""

    content: Content = ""
    call_id: str | None = None
    is_error: bool = False


class Usage(Record):
    """Token usage of a turn, as reported by an endpoint."""

    input_tokens: int | None = Field(default=None, ge=0)
    output_tokens: int | None = Field(default=None, ge=0)


class SampledTokens(Record):
    """Token ids that the policy sampled for a turn, including the end token, with their log-probabilities."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    top: tuple[tuple[tuple[int, float], ...], ...] | None = Field(
        default=None,
        description="Likeliest token ids with their log-probs at the place of each token, for distillation.",
    )
    tokenizer: str = Field(description="Fingerprint of tokenizer and chat template for which the ids are valid.")
    weight_version: int | None = Field(
        default=None,
        ge=0,
        description="Optimizer steps behind the weights that sampled the turn, in online training; of several, the fewest. Null: "
        "not trained.",
    )
    weight_spans: tuple[tuple[int, int], ...] | None = Field(
        default=None,
        description="First token and `weight_version` of each span, where weights changed within the turn. Null: they did not.",
    )


class Actor(StrEnum):
    """Author of a step."""

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
    reward: float | None = Field(default=None, description="Reward of this step. Null if unknown.")
    train: bool | None = Field(
        default=None, description="Whether this step may be trained on. Null: decided at export."
    )
    timestamp: Instant | None = None
    model: str | None = Field(default=None, description="The model that wrote this step.")
    usage: Usage | None = None
    sampled: SampledTokens | None = None
    copied_context: bool = False
    extra: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_masked(self) -> bool:
        """Whether no training uses this turn: it is marked so, or copied context."""
        return self.train is False or self.copied_context

    @property
    def calls_with_results(self) -> list[tuple[Action, Observation | None]]:
        """Each call with its result: by id where both have one, else by place."""
        results = self.observations
        by_id = {result.call_id: result for result in results if result.call_id}
        by_place = results if not by_id or len(results) == len(self.actions) else ()
        return [
            (action, by_id.get(action.call_id or "", by_place[place] if place < len(by_place) else None))
            for place, action in enumerate(self.actions)
        ]


class Task(Record):
    """The agent's task."""

    id: str | None = None
    prompt: str = ""
    type: str | None = None
    difficulty: str | None = None
    environment: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """The id, or the prompt of a task without one: equal for every attempt."""
        return self.id or self.prompt


class OutcomeStatus(StrEnum):
    """How a run ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    ERROR = "error"
    TRUNCATED = "truncated"
    UNKNOWN = "unknown"

    @property
    def verdict(self) -> float | None:
        """1 for success, 0 for failure and for a run cut short, None where nothing is known of the task's success."""
        return {"success": 1.0, "failure": 0.0, "truncated": 0.0}.get(self.value)


class Outcome(Record):
    """How a run ended, according to its environment or recorder. Later scores are stored separately."""

    status: OutcomeStatus = OutcomeStatus.UNKNOWN
    reward: float | None = None
    scores: dict[str, float] = Field(default_factory=dict)
    exit_status: str | None = None


STATED_BY = "outcome_stated_by"
"""Key in `Trajectory.extra`: rater who set the outcome afterwards, as in `Score.rater`. Absent: environment or recorder."""

COST = "cost"
"""Key in `Trajectory.extra`: the metric `cost` of the environment, for training under a constraint. Absent: unknown."""

DESIRABLE, PAIR_MARK = "desirable", "preference"
"""Keys in `Trajectory.extra` from preference logs: the label good (true) or bad, and `{"pair": name, "side": chosen or rejected}`."""

ROLE, OPPONENTS = "role", "opponents"
"""Keys in `Trajectory.extra` of a player's run of a game: its role, and the agents in the other roles."""


class AgentInfo(Record):
    """The acting agent."""

    name: str = "unknown"
    version: str | None = None
    model: str | None = None


class Source(Record):
    """Origin of a trajectory."""

    format: str = "quintain"
    uri: str | None = None
    sha256: str | None = None


class Trajectory(Record):
    """One run of an agent."""

    id: str | None = Field(
        default=None, description="Assigned by the store: `traj-` and a prefix of the identity hash."
    )
    session_id: str | None = None
    episode_key: str = Field(
        default="", description="Distinguishes equal runs: (job, task, attempt) of a rollout, else empty."
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
    redaction: tuple[RedactionLevel, ...] = Field(
        default=(), description="Levels that the whole run was searched for. Empty: none, or not known."
    )
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
    def personal_data(self) -> PersonalData:
        """Whether redaction found personal data; unknown where it did not search for them."""
        if any(self.redactions.get(kind) for kind in PERSONAL_KINDS):
            return "found"
        return "none" if "personal" in self.redaction else "unknown"

    @property
    def agent_steps(self) -> tuple[Step, ...]:
        """The agent's turns."""
        return tuple([step for step in self.steps if step.actor is Actor.AGENT])

    @property
    def agent_places(self) -> list[int]:
        """Places of the agent's turns among the steps."""
        return [place for place, step in enumerate(self.steps) if step.actor is Actor.AGENT]

    @property
    def own_steps(self) -> tuple[Step, ...]:
        """The agent's turns without those that were copied from another session."""
        return tuple(step for step in self.agent_steps if not step.copied_context)

    @property
    def first_user_text(self) -> str:
        """Text of the first user message, or an empty string."""
        return next((text_of(step.message) for step in self.steps if step.actor is Actor.USER), "")

    @property
    def outcome_stated_by(self) -> str | None:
        """Rater who set the outcome, or None if it comes from the environment or recorder."""
        by = self.extra.get(STATED_BY)
        return by if isinstance(by, str) else None

    @property
    def logged_label(self) -> bool | None:
        """Whether the log labels the run good: by its own label, else as the chosen side of a pair. None: no label."""
        desirable, mark = self.extra.get(DESIRABLE), self.extra.get(PAIR_MARK)
        if isinstance(desirable, bool):
            return desirable
        side = mark.get("side") if isinstance(mark, Mapping) else None
        return side == "chosen" if side in ("chosen", "rejected") else None

    def takes_outcome_of(self, rater: str | None) -> bool:
        """Whether an outcome by this rater (None: recorder) applies: none is known, or it has lower precedence or the same rater."""
        if self.outcome.status is OutcomeStatus.UNKNOWN:
            return True
        by = self.outcome_stated_by
        if by is None:
            return False
        own = rater is not None and rater.removesuffix(RELAYED) == by.removesuffix(RELAYED)
        return rater_weight(rater) > rater_weight(by) or (own and rater_weight(rater) >= rater_weight(by))

    @cached_property
    def identity(self) -> str:
        """SHA-256 over task, tools, steps and episode key.

        The session id replaces an empty episode key. Outcome, scores, tags, rewards and times are not included.
        """
        task = {name: getattr(self.task, name) for name in ("difficulty", "environment", "id", "prompt", "type")}
        return content_hash(
            self.episode_key or self.session_id or "", task, self.tools, map(_hashed_fields, self.steps)
        )

    @property
    def content_hash(self) -> str:
        """`identity` without the episode key and the session id: equal for equal runs of several episodes."""
        return self.model_copy(update={"episode_key": "", "session_id": None}).identity

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy like every record. The copy recomputes its identity."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("identity", None)
        return copied

    def identified(self) -> Trajectory:
        """Return the trajectory with an id derived from its identity, unless it has one."""
        return self if self.id else self.model_copy(update={"id": f"traj-{self.identity[:16]}"})


def _hashed_fields(step: Step) -> dict[str, Any]:
    """Return the hashed fields of a step, with sorted keys, also within arguments but not deeper."""
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
            {"call_id": observation.call_id, "content": _plain(observation.content), "is_error": observation.is_error}
            for observation in step.observations
        ],
        "thought": step.thought,
    }


def _plain(content: Content) -> str | list[dict[str, Any]]:
    """Return content as JSON values with sorted keys."""
    if isinstance(content, str):
        return content
    return [dict(sorted(part.model_dump().items())) for part in content]


def read_trajectory(value: Any) -> Trajectory:
    """Validate the fields of a trajectory, which passed `require_clean` where they came in.

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
