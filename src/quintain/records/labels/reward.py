"""Rewards that a caller names: weighted scorers, some of them declared as data, with a snapshot of every model."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from quintain.records.agent import Agent
from quintain.records.labels.calibration import Calibration
from quintain.records.labels.judging import Endpoint, JudgeControl, JudgingMode, Rubric
from quintain.records.record import Name, Record, require_number
from quintain.records.wording import exact

Combine = Literal["mean", "lower_bound", "product"]
"""How parts are combined; see `scoring.mix.MixScorer`."""

MAX_PARTS = 20
MAX_JUDGES = 10

_Bound = Annotated[float, Field(ge=0, le=1e9), BeforeValidator(require_number)]
_Text = Annotated[str, Field(min_length=1, max_length=1000)]
_Of = Annotated[Literal["last", "all"], Field(description="The agent's last message, or all of its messages.")]


def _digest(*records: Record) -> str:
    return hashlib.sha256("".join(one.model_dump_json() for one in records).encode()).hexdigest()[:8]


class _Declared(Record):
    name: Name | None = Field(default=None, description="Name of its scores. Null: type and settings.")

    @property
    def label(self) -> str:
        """Name under which its scores are stored and logged: the stated one, else the type with its settings."""
        return self._settings_label() if self.name is None else self.name

    @property
    def identity(self) -> str:
        """Name in a mix: the label, with type and settings where a stated name leaves them out."""
        settings = self._settings_label()
        return settings if self.name is None else f"{self.name}:{settings}"

    def _settings_label(self) -> str:
        settings = self.model_dump(exclude_defaults=True, exclude={"type", "name"})
        kind = str(getattr(self, "type"))  # noqa: B009
        if not settings:
            return kind
        shown = [f"{name}={exact(value) if isinstance(value, float) else value}" for name, value in settings.items()]
        listed = f"{kind}({','.join(shown)})"
        nested = any(isinstance(value, dict | tuple) for value in settings.values())
        plain = not nested and len(listed) <= 80 and listed.isascii() and listed.isprintable()
        return listed if plain else f"{kind}-{_digest(self.model_copy(update={'name': None}))}"


class Counted(_Declared):
    """A number n that is valued linearly: 1 at `full_at` and beyond, 0 at `zero_at` and beyond, in either direction."""

    full_at: _Bound
    zero_at: _Bound

    @model_validator(mode="after")
    def _has_a_direction(self) -> Self:
        if self.full_at == self.zero_at:
            raise ValueError(
                f"expected full_at and zero_at to differ, got {self.full_at:g} twice; less is better with full_at below zero_at"
            )
        return self

    def states_bounds(self) -> bool:
        """Whether both bounds differ from their defaults."""
        defaults = type(self).model_fields
        return all(getattr(self, name) != defaults[name].default for name in ("full_at", "zero_at"))

    def value_of(self, n: float) -> float:
        """Return clip((zero_at - n) / (zero_at - full_at), 0, 1)."""
        return min(1.0, max(0.0, (self.zero_at - n) / (self.zero_at - self.full_at)))


class LengthReward(Counted):
    """Length of what the agent wrote."""

    type: Literal["length"] = "length"
    unit: Literal["characters", "words", "tokens"] = Field(
        default="words", description="words: separated by space; tokens: as sampled, unknown for recorded runs."
    )
    of: _Of = "last"
    full_at: _Bound = 20
    zero_at: _Bound = 200


class CallsReward(Counted):
    """Number of tool calls."""

    type: Literal["calls"] = "calls"
    tool: _Text | None = Field(default=None, description="Count calls of this tool alone.")
    full_at: _Bound = 3
    zero_at: _Bound = 15


class StepsReward(Counted):
    """Number of the agent's turns."""

    type: Literal["steps"] = "steps"
    full_at: _Bound = 3
    zero_at: _Bound = 15


class WordsReward(_Declared):
    """Share of words or phrases that occur as whole words."""

    type: Literal["words"] = "words"
    words: tuple[_Text, ...] = Field(min_length=1, max_length=100)
    absent: bool = Field(default=False, description="Value the share that does not occur instead.")
    of: _Of = "last"


class ContainsReward(_Declared):
    """1 where a text occurs, else 0."""

    type: Literal["contains"] = "contains"
    text: _Text
    ignore_case: bool = False
    absent: bool = Field(default=False, description="1 where it does not occur instead.")
    of: _Of = "last"


class RegexReward(_Declared):
    """1 where a pattern matches, else 0."""

    type: Literal["regex"] = "regex"
    pattern: _Text
    flags: Annotated[str, Field(pattern=r"^[imsx]{0,4}$")] = ""
    full: bool = Field(default=False, description="All of the text has to match.")
    absent: bool = Field(default=False, description="1 where it does not match instead.")
    of: _Of = "last"


class JsonSchemaReward(_Declared):
    """1 where the last message states JSON that fits a schema (2020-12), else 0."""

    type: Literal["json_schema"] = "json_schema"
    json_schema: dict[str, Any] = Field(alias="schema", max_length=200)

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)


class LengthPenaltyReward(_Declared):
    """Accuracy less a penalty for every character past a free length."""

    type: Literal["length_penalty"] = "length_penalty"
    penalty_weight: Annotated[float, Field(ge=0, le=1000), BeforeValidator(require_number)] = 0.001
    max_length: Annotated[int, Field(ge=1, le=10**9, strict=True)] = Field(default=1024, description="Free characters.")


class StepBonusReward(_Declared):
    """Accuracy plus a bonus for each step of a right answer."""

    type: Literal["step_bonus"] = "step_bonus"
    step_bonus: Annotated[float, Field(ge=0, le=1), BeforeValidator(require_number)] = 0.1


Declared = Annotated[
    LengthReward
    | CallsReward
    | StepsReward
    | WordsReward
    | ContainsReward
    | RegexReward
    | JsonSchemaReward
    | LengthPenaltyReward
    | StepBonusReward,
    Field(discriminator="type"),
]
"""A scorer as data, by `type`."""

DECLARED: dict[str, type[_Declared]] = {
    part.model_fields["type"].default: part for part in get_args(get_args(Declared)[0])
}
"""Type -> its settings."""


class JudgePart(Record):
    """A model that judges runs inside a job: a snapshot from the creation of the job."""

    endpoint: Endpoint | None = Field(default=None, description="Profile of a model behind an endpoint.")
    agent: Agent | None = Field(default=None, description="A local model.")
    rubric: Rubric
    mode: JudgingMode = Field(default="score", description="score: each run by itself; group: rank the runs of a task.")
    control: JudgeControl = "task"
    cache_dir: str = Field(description="Folder of earlier judgements.")

    @model_validator(mode="after")
    def _one_judge(self) -> Self:
        if (self.endpoint is None) == (self.agent is None):
            raise ValueError("expected either an endpoint or an agent that judges, got both or none")
        if self.mode not in {"score", "group"}:
            raise ValueError(f"expected mode score or group of a judge in a reward, got {self.mode!r}")
        return self


class SandboxChoice(Record):
    """The operator's sandbox: a snapshot from the creation of the job."""

    backend: Literal["auto", "bubblewrap", "unshare", "docker", "off"] = "auto"
    image: str = Field(description="Image of the docker sandbox.")


class RewardPart(Record):
    """A scorer of a reward, with what a job needs to run it."""

    scorer: str = Field(min_length=1, max_length=300, description="Full name, under which it is logged.")
    weight: float = Field(default=1.0, ge=0, le=1e6, description="Relative weight; of a product, the exponent.")
    declared: Declared | None = None
    agent: Agent | None = Field(default=None, description="Reward model or step model of `agent:NAME@VERSION`.")
    judges: tuple[JudgePart, ...] = Field(
        default=(), max_length=MAX_JUDGES, description="Several judge by one rubric and in one mode."
    )
    calibration: Calibration | None = Field(
        default=None, description="Newest calibration when the job was created: a map, and weights of the judges."
    )
    function: str | None = Field(default=None, description="MODULE:QUALNAME of a program's own function.")
    folder: str | None = Field(
        default=None, description="Folder of the function's module, where it is in no installed package."
    )
    sandbox: SandboxChoice | None = Field(
        default=None, description="Where the tests of `unit_tests` and `checker` run."
    )

    @property
    def identity(self) -> str:
        """Name in a mix: the full name, with a hash of judges, rubric and mode where models judge."""
        if not self.judges:
            return self.scorer
        asked = [judge.model_copy(update={"cache_dir": ""}) for judge in self.judges]
        return f"{self.scorer}#{_digest(*asked)}"

    @model_validator(mode="before")
    @classmethod
    def _one_judge_of_earlier_releases(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and "judge" in fields:
            fields = dict(fields)
            judge = fields.pop("judge")
            fields.setdefault("judges", () if judge is None else (judge,))
        return fields


class RewardSpec(Record):
    """A reward in the form that a job uses. A run without a value for a part that has weight has no reward."""

    parts: tuple[RewardPart, ...] = Field(min_length=1, max_length=MAX_PARTS)
    combine: Combine = "mean"
    cap: float | None = Field(default=None, gt=0, le=1, description="Highest value that counts.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts, in their order."""
        return tuple(part.scorer for part in self.parts)
