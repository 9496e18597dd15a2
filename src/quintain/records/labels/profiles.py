"""Domain profiles: tool categories, outcome fields and rule weights of a kind of work. Data only."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from quintain.records.record import Name, Record, require_number

ToolCategory = Literal["read", "write", "search", "execute", "navigate", "submit", "think"]

CallsDue = Literal["due", "optional", "auto"]
"""Whether a turn must call a tool. due: except in the final answer; auto: if the run has an environment with tools."""

StepRule = Literal[
    "format",
    "known_tools",
    "non_redundancy",
    "repetition",
    "non_regression",
    "information_use",
    "errors",
    "recovery",
    "timing",
]

RunRule = Literal["integrity", "tool_choice", "efficiency"]

Part = Literal["outcome", "process", "efficiency"]

Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(require_number)]
Weight = Annotated[float, Field(ge=0, le=1000), BeforeValidator(require_number)]


class ToolProfile(Record):
    """Category and arguments of a tool."""

    name: str = Field(min_length=1)
    category: ToolCategory
    target: tuple[str, ...] = Field(
        default=(), description="Arguments that name its target (a path, a page). The first given one counts."
    )
    aliases: tuple[str, ...] = Field(default=(), description="Other names of the tool, ignoring case.")
    modes: dict[str, ToolCategory] = Field(
        default_factory=dict,
        description="Value of its argument `command` -> category, for tools with several functions.",
    )
    repeatable: bool = Field(
        default=False, description="Whether repeated calls have new effects, like scrolling and waiting."
    )


class OutcomeRule(Record):
    """Outcome fields that determine success: partial credit, else score / total, else success."""

    partial_credit: str | None = Field(default=None, description="Field in 0..1.")
    score: str | None = Field(default=None, description="Field with the points reached.")
    total: str | None = Field(default=None, description="Field with the points available.")


class DomainProfile(Record):
    """A kind of work."""

    name: Name
    description: str = ""
    tools: tuple[ToolProfile, ...] = ()
    calls: CallsDue = "auto"
    outcome: OutcomeRule = OutcomeRule()
    rules: dict[StepRule | RunRule, Share] = Field(
        default_factory=dict,
        description="Rule -> maximum deduction as a share of the value. Omitted rules use their defaults; 0 disables a rule.",
    )
    mix: dict[Part, Weight] = Field(
        default_factory=dict,
        description="Weights of outcome, process and efficiency in the composite score. The outcome's is at least half, or 0. "
        "Empty: the default.",
    )
    rubric: str | None = Field(default=None, description="Name of the judges' rubric.")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        names = [name for tool in self.tools for name in {name.casefold() for name in (tool.name, *tool.aliases)}]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"expected distinct tool names and aliases, got {twice[:3]} for two tools; rename one")
        if self.mix and not any(self.mix.values()):
            raise ValueError(
                "expected a weight above 0 in mix; for example {'outcome': 0.6, 'process': 0.3, 'efficiency': 0.1}"
            )
        outcome, total = self.mix.get("outcome", 0.0), sum(self.mix.values())
        if 0 < outcome < total / 2 * (1 - 1e-9):
            raise ValueError(
                f"expected at least half of the mix for the outcome, got {outcome / total:.2g}: a failed run could score above a "
                "successful one; lower the others, or omit the outcome to score the process alone"
            )
        return self
