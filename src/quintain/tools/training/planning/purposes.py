"""What a training is for: the purposes that `goal` names, the methods that serve them and the settings that they ask for."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from quintain.errors import InvalidInput
from quintain.next_step import Hint
from quintain.records.jobs.plan import Branch
from quintain.records.wording import shown
from quintain.tools.training.methods import takes_settings

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


def _as_purposes(value: object) -> object:
    """Return a single purpose as a list; refuse unknown words with the sentence of each purpose."""
    given = [value] if isinstance(value, str) else value
    unknown = [one for one in given if isinstance(one, str) and one not in PURPOSES] if isinstance(given, list) else []
    if unknown:
        known = "; ".join(f"{name}: {meaning.sentence}" for name, meaning in PURPOSES.items())
        raise ValueError(f"expected purposes of a training, got {shown(unknown[0])}; take one or several of {known}")
    return given


Goal = Annotated[
    tuple[Purpose, ...] | None,
    Field(
        max_length=len(PURPOSES),
        description="One or several. "
        + "; ".join(f"{name}: {meaning.sentence}" for name, meaning in PURPOSES.items() if meaning.is_listed)
        + ".",
    ),
    BeforeValidator(_as_purposes),
]


def methods_for(goal: tuple[Purpose, ...]) -> tuple[str, ...]:
    """Return the methods that the purposes ask for, the usual one first; empty where they name constraints alone.

    Several purposes with methods are stages of one plan. The first one is planned; see `later_stages`.
    """
    return next((tuple(PURPOSES[purpose].methods) for purpose in goal if PURPOSES[purpose].methods), ())


def later_stages(goal: tuple[Purpose, ...]) -> tuple[Purpose, ...]:
    """Return the purposes with methods after the first, which need trainings of their own."""
    return tuple(purpose for purpose in dict.fromkeys(goal) if PURPOSES[purpose].methods)[1:]


def require_combinable(goal: tuple[Purpose, ...], method: str | None) -> None:
    """Refuse purposes that exclude each other.

    Raises:
        InvalidInput: `measure_only` beside another purpose, or beside a method.
    """
    others = ", ".join([*(purpose for purpose in goal if purpose != "measure_only"), *filter(None, [method])])
    if "measure_only" in goal and others:
        raise InvalidInput(
            f"goal: expected 'measure_only' alone or purposes of a training, got 'measure_only' with {others}; plan them apart"
        )


def unserved(goal: tuple[Purpose, ...], method: str) -> list[Hint]:
    """Return a note if a method serves none of the purposes that choose one."""
    methods = {purpose: PURPOSES[purpose].methods for purpose in goal if PURPOSES[purpose].methods}
    if not methods or any(method in served for served in methods.values()):
        return []
    serving = "; ".join(f"{purpose} is served by {', '.join(served)}" for purpose, served in methods.items())
    return [Hint(f"{method} was named and serves none of the purposes: {serving}.")]


def constraints(goal: tuple[Purpose, ...], method: str) -> list[tuple[dict[str, Any], str]]:
    """Return the settings by which a method serves the constraints among the purposes, and why."""
    return [
        (one["settings"], one["reason"].format(method=method))
        for one in _TABLES["constraints"]
        if one["purpose"] in goal
        and method in one.get("methods", (method,))
        and method not in one.get("others_than", ())
    ]


class Wish(NamedTuple):
    """Methods that the caller asks for, the usual one first; empty: any."""

    methods: tuple[str, ...] = ()
    purposes: tuple[Purpose, ...] = ()
    named: bool = False
    """Whether the method was named, and not derived from a purpose."""
    left_out: tuple[str, ...] = ()
    """Methods of the purpose that do not take the settings."""

    @classmethod
    def of(cls, purposes: tuple[Purpose, ...], method: str | None) -> Wish:
        """Combine purposes with a named method, which wins."""
        return cls((method,), purposes, named=True) if method else cls(methods_for(purposes), purposes)

    def taking(self, settings: Mapping[str, Any] | None) -> Wish:
        """Leave out the methods that do not take the settings, unless no method would be left or one is named."""
        fitting = tuple(one for one in self.methods if takes_settings(one, settings or {}))
        if self.named or not fitting:
            return self
        return self._replace(methods=fitting, left_out=tuple(one for one in self.methods if one not in fitting))

    @property
    def branches(self) -> tuple[Branch, ...]:
        """Return the branches that the wish decided; empty where nothing was asked for."""
        if not self.methods:
            return ()
        if self.named:
            answer, other = f"{self.methods[0]} is asked for by name.", "without `method`, purpose and data decide"
            return (Branch(question="Is a method named?", answer=answer, otherwise=other),)
        purpose = next(one for one in self.purposes if PURPOSES[one].methods)
        served = " or ".join(PURPOSES[purpose].methods)
        answer = f"The purpose is {purpose} ({PURPOSES[purpose].sentence}), by {served}."
        other = "; ".join(
            f"{one}: {', '.join(m.methods)}" for one, m in PURPOSES.items() if m.methods and one != purpose
        )
        asked = Branch(question="What is the training for?", answer=answer, otherwise=other)
        if not self.left_out:
            return (asked,)
        took, others = " or ".join(self.methods), " and ".join(self.left_out)
        taken = f"The settings are of {took}: not all are known to {others}."
        return (
            asked,
            Branch(question="Which methods take the settings?", answer=taken, otherwise=f"without them: {others} too"),
        )
