"""Purposes of a training, as a closed set that a caller chooses from. No text is interpreted."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from quintain.errors import InvalidInput

Purpose = Literal[
    "imitate",
    "prefer",
    "learn_from_marks",
    "improve_by_acting",
    "score_runs",
    "label_steps",
    "find_tools",
    "absorb_text",
    "short_answers",
    "measure_only",
    "keep_skills",
    "fit_memory",
    "finish_sooner",
]


class Meaning(NamedTuple):
    """A purpose: its sentence and the methods that serve it, the usual one first."""

    sentence: str
    methods: Sequence[str] = ()
    is_listed: bool = True
    """Whether the list of tools has the sentence; False where the name says as much."""


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

PURPOSES: dict[Purpose, Meaning] = {name: Meaning(**meaning) for name, meaning in _TABLES["purposes"].items()}
"""The first nine choose a method. The last three are constraints that change settings."""

REWARDS: dict[Purpose, dict[str, Any]] = {"short_answers": {"parts": {"outcome": 1, "length": 1}, "combine": "product"}}
"""Purpose -> the reward that serves it."""

Goal = Annotated[
    tuple[Purpose, ...] | None,
    Field(
        max_length=len(PURPOSES),
        description="One or several. "
        + "; ".join(f"{name}: {meaning.sentence}" for name, meaning in PURPOSES.items() if meaning.is_listed)
        + ".",
    ),
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
]


class Constraint(NamedTuple):
    """Settings that serve a constraint, and why."""

    settings: dict[str, Any]
    reason: str


def methods_for(goal: tuple[Purpose, ...]) -> tuple[str, ...]:
    """Return the methods that the purposes ask for, the usual one first; empty where they name constraints alone.

    Several purposes with methods are stages of one plan. The first one is planned; see `later_stages`.
    """
    return next((tuple(PURPOSES[purpose].methods) for purpose in goal if PURPOSES[purpose].methods), ())


def later_stages(goal: tuple[Purpose, ...]) -> tuple[Purpose, ...]:
    """Return the purposes with methods after the first, which need trainings of their own."""
    return tuple(purpose for purpose in dict.fromkeys(goal) if PURPOSES[purpose].methods)[1:]


def require_combinable(goal: tuple[Purpose, ...]) -> None:
    """Refuse purposes that exclude each other.

    Raises:
        InvalidInput: `measure_only` beside another purpose.
    """
    if "measure_only" in goal and len(set(goal)) > 1:
        others = ", ".join(purpose for purpose in goal if purpose != "measure_only")
        raise InvalidInput(
            f"goal: expected 'measure_only' alone or purposes of a training, got 'measure_only' with {others}; plan them apart"
        )


def constraints(goal: tuple[Purpose, ...], method: str) -> list[Constraint]:
    """Return the settings by which a method serves the constraints among the purposes."""
    return [
        Constraint(one["settings"], one["reason"].format(method=method))
        for one in _TABLES["constraints"]
        if one["purpose"] in goal
        and method in one.get("methods", (method,))
        and method not in one.get("others_than", ())
    ]
